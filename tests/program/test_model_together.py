"""Programs that are priced side by side have the prices that each has alone."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.options import BuildOptions
from rollergen.program.model import predict_stage, price_batches, price_stages
from rollergen.program.model.prediction import PriceTogether, StagePrice, kept
from rollergen.program.model.together import WORTH_A_BATCH
from rollergen.program.rprogram import GRID, THREAD, UNROLL, BlockOrder
from tests.program.batches import batch, gpu_stage, random_stages
from tests.program.hand_devices import AVX512, TURING
from tests.programs import gpu_matmul, relu

t = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(t("A", (130, 333)), t("B", (333, 67))),
    "few columns": lambda: rg.ops.matmul(t("A", (65536, 2)), t("B", (2, 1024))),
    "conv": lambda: rg.ops.conv2d(t("X", (8, 24, 27, 27)), t("W", (42, 24, 3, 3)), padding=1, stride=2),
    "depthwise": lambda: rg.ops.depthwise_conv2d(t("X", (4, 48, 83, 83)), t("W", (48, 1, 5, 5)), padding=2),
    "pooling": lambda: rg.ops.avg_pool2d(t("X", (16, 42, 41, 41)), 3, stride=2),
    "transpose": lambda: rg.ops.permute(t("X", (700, 500)), (1, 0)),
    "long": lambda: rg.ops.relu(t("X", (3000000,))),
    "many": lambda: rg.ops.relu(t("X", (128, 1008, 42, 42))),
    "sum": lambda: rg.ops.sum(t("X", (6553, 1024)), 1),
    "softmax": lambda: rg.ops.softmax(t("X", (512, 3000))),
    "bytes": lambda: rg.ops.matmul(t("A", (48, 64), "int8"), t("B", (64, 48), "int8")),
    "halves": lambda: rg.ops.matmul(t("A", (512, 256), "float16"), t("B", (256, 384), "float16")),
}
FIGURES = ("seconds", "resident_blocks", "threads", "spilled", "shared_bytes", "alone")
RULES = BuildOptions().rules


def priced_together(stages, device):
    kept.clear()
    found = price_stages(stages, device)
    kept.clear()
    return found


def considered(expression, device, monkeypatch):
    """Every stage that construction prices."""
    seen = {}
    alone = StagePrice.__init__

    def noting(self, stage, device, *limit):
        if not any(type(loop.extent) is np.ndarray for loop in stage.loops):
            seen[stage] = None
        alone(self, stage, device, *limit)

    with monkeypatch.context() as patched:
        patched.setattr(StagePrice, "__init__", noting)
        patched.setattr("rollergen.program.model.together.WORTH_A_BATCH", 10**9)
        patched.setattr(import_module("rollergen.construct.priced"), "keep_price", lambda stage, *given: seen.setdefault(stage))
        kept.clear()
        choice.cache_clear()
        construct(canonicalize(expression), device)
        kept.clear()
        choice.cache_clear()
    return list(seen)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", ("v100", "a100", "mi50"))
def test_what_is_constructed_has_together_the_figures_it_has_alone(name, device, monkeypatch):
    spec = load_device(device)
    stages = considered(EXPRESSIONS[name](), spec, monkeypatch)
    found = priced_together(stages, spec)
    for stage, price in zip(stages, found, strict=True):
        alone = StagePrice(stage, spec)
        for figure in FIGURES:
            expected = pytest.approx(float(getattr(alone, figure)), rel=1e-9)
            assert float(getattr(price, figure)) == expected, (figure, stage.loops)
    assert any(isinstance(price, PriceTogether) for price in found)


@pytest.mark.parametrize("kind", random_stages(count=2))
def test_stages_of_one_structure_are_priced_as_each(kind):
    device = TURING if kind in ("gpu", "transpose") else AVX512
    stages = random_stages(count=20)[kind]
    mixed = [*stages, replace(stages[0], once=True), *stages[::-1]]
    together = [price.seconds for price in priced_together(mixed, device)]
    np.testing.assert_allclose(together, [StagePrice(stage, device).seconds for stage in mixed], rtol=1e-12)


def test_few_stages_are_priced_one_after_the_other():
    stages = [gpu_matmul(64 * n, 64, 64).stages[0] for n in range(1, WORTH_A_BATCH)]
    assert not any(isinstance(price, PriceTogether) for price in priced_together(stages, TURING))


def test_the_reasons_of_a_price_are_those_of_its_program_alone():
    stages = random_stages(count=20)["gpu"]
    for stage, price in zip(stages, priced_together(stages, TURING), strict=True):
        assert isinstance(price, PriceTogether)
        said, alone = price.prediction, predict_stage(stage, TURING)
        assert (said.seconds, said.registers, said.waves) == (alone.seconds, alone.registers, alone.waves)


def turned(stage):
    """The same grid, its axes the other way round."""
    grid, others = stage.loops[:2], stage.loops[2:]
    assert all(loop.kind == GRID for loop in grid)
    return replace(stage, loops=(*grid[::-1], *others))


def test_nests_in_contrary_orders_are_priced_apart():
    stages = [stage for stage in random_stages(count=20)["gpu"] if not stage.block_order.group_rows]
    mixed = [*stages, *map(turned, stages)]
    together = [price.seconds for price in priced_together(mixed, TURING)]
    np.testing.assert_allclose(together, [StagePrice(stage, TURING).seconds for stage in mixed], rtol=1e-12)


def test_a_loop_that_only_some_have_runs_once_in_the_others():
    base = relu(1 << 20).stages[0]
    nests = [[(GRID, 1 << 20 >> 8), (THREAD, 256)], [(GRID, 1 << 20 >> 10), (UNROLL, 4), (THREAD, 256)]]
    made = []
    for nest in nests * WORTH_A_BATCH:
        stride, loops = 1, []
        for kind, extent in reversed(nest):
            loops.insert(0, replace(base.loops[0], extent=extent, stride=stride, kind=kind))
            stride *= extent
        loops.sort(key=lambda loop: (GRID, THREAD, UNROLL).index(loop.kind))
        bare = replace(base.compute, lanes=1)
        made.append(replace(base, loops=tuple(loops), copies=(), compute=bare, guards=(),
                            accumulator=replace(base.accumulator, at_loop=2), store=replace(base.store, vector=1)))  # fmt: skip
    v100 = load_device("v100")
    made = [replace(one, compute=replace(one.compute, instruction=v100.instructions[0].name)) for one in made]
    together = [price.seconds for price in priced_together(made, v100)]
    np.testing.assert_allclose(together, [StagePrice(stage, v100).seconds for stage in made], rtol=1e-12)


def test_batches_of_one_structure_are_priced_as_each():
    stages = random_stages(count=24)["gpu"]
    batches = [batch(stages[:5]), batch(stages[5:6]), batch(stages[6:])]
    for one, price in zip(batches, price_batches(batches, TURING), strict=True):
        alone = StagePrice(one, TURING)
        for figure in FIGURES:
            expected = np.broadcast_to(getattr(alone, figure), np.shape(getattr(price, figure)))
            np.testing.assert_allclose(getattr(price, figure), expected, rtol=1e-12)


def test_batches_of_other_guards_are_priced_as_each():
    base = gpu_matmul(512, 1024, 256).stages[0]
    tiles = lambda *rows: batch([gpu_stage(16, 16, quads, 2, 8, base, 512, 1024, 256) for quads in rows])
    even, uneven = replace(tiles(1, 2, 4), guards=()), replace(tiles(3, 5), guards=(("i", "mask"),))
    for one, price in zip((even, uneven), price_batches([even, uneven], TURING), strict=True):
        assert isinstance(price, PriceTogether)
        np.testing.assert_allclose(price.seconds, StagePrice(one, TURING).seconds, rtol=1e-12)


def test_swizzled_programs_are_priced_beside_those_whose_grid_has_no_rows():
    stages = [gpu_stage(16, 16, quads, 2, 8) for quads in (1, 2, 4, 8)]
    swizzled = [replace(one, block_order=BlockOrder(2)) for one in stages]
    flat = [replace(one, loops=(one.loops[1], *one.loops[2:])) for one in [gpu_stage(32, 8, 8, 2, 8)] * WORTH_A_BATCH]
    flat = [replace(one, accumulator=shallower(one.accumulator), copies=tuple(map(shallower, one.copies)))
            for one in flat]  # fmt: skip
    turned_swizzled = [replace(turned(one), block_order=BlockOrder(2)) for one in stages]
    for mixed in ([*swizzled, *flat], [*swizzled, *turned_swizzled], [*flat, *turned_swizzled, *swizzled, *stages]):
        together = [price.seconds for price in priced_together(mixed, TURING)]
        np.testing.assert_allclose(together, [StagePrice(stage, TURING).seconds for stage in mixed], rtol=1e-12)


def shallower(part):
    """A copy or the accumulator of a nest that has one loop less outside."""
    return replace(part, at_loop=part.at_loop - 1)
