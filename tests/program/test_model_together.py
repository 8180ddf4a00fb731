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
from rollergen.program.model import Price, predict_stage, price_batch, price_batches, price_stages, together
from rollergen.program.model.together import price_cache
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


def priced_together(stages, device):
    price_cache.clear()
    found = price_stages(stages, device)
    price_cache.clear()
    return found


def priced_alone(stages, device):
    return Price.joined([price_batch(stage, device) for stage in stages])


def assert_alike(together, alone):
    for name, of_batch, figure in zip(Price._fields, together, alone, strict=True):
        np.testing.assert_allclose(of_batch, figure, rtol=1e-12, err_msg=name)


def considered(expression, device, monkeypatch):
    """Every stage that construction prices as one program, and the calls of the model that this takes."""
    seen, calls = {}, []
    price_each, keep, batch_of = together.price_batches, together.keep_price, together.price_batch

    def noting(stages, device):
        seen.update(dict.fromkeys(stages))
        return price_each(stages, device)

    with monkeypatch.context() as patched:
        patched.setattr(together, "price_batches", noting)
        patched.setattr(together, "price_batch", lambda *given: calls.append(given) or batch_of(*given))
        keeping = lambda stage, *given: seen.setdefault(stage) or keep(stage, *given)
        for module in ("priced", "elementwise"):
            patched.setattr(import_module(f"rollergen.construct.{module}"), "keep_price", keeping)
        price_cache.clear()
        choice.cache_clear()
        construct(canonicalize(expression), device)
        price_cache.clear()
        choice.cache_clear()
    return list(seen), len(calls)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", ("v100", "a100", "mi50", "cpu"))
@pytest.mark.every(13)
def test_what_is_constructed_has_together_the_price_it_has_alone(name, device, monkeypatch):
    spec = load_device(device)
    stages, calls = considered(EXPRESSIONS[name](), spec, monkeypatch)
    assert_alike(priced_together(stages, spec), priced_alone(stages, spec))
    assert 1 < len(stages) >= calls


@pytest.mark.parametrize("device", ("v100", "cpu"))
def test_stages_of_construction_share_calls_of_the_model(device, monkeypatch):
    stages, calls = considered(EXPRESSIONS["matmul"](), load_device(device), monkeypatch)
    assert calls < len(stages)


@pytest.mark.parametrize("kind", random_stages(count=2))
def test_stages_of_one_structure_are_priced_as_each(kind):
    device = TURING if kind in ("gpu", "transpose") else AVX512
    stages = random_stages(count=20)[kind]
    mixed = [*stages, replace(stages[0], once=True), *stages[::-1]]
    assert_alike(priced_together(mixed, device), priced_alone(mixed, device))


def test_a_program_is_a_batch_of_one():
    for stage in random_stages(count=3)["gpu"]:
        price, said = price_batch(stage, TURING), predict_stage(stage, TURING)
        assert [column.shape for column in price] == [(1,)] * len(price)
        assert_alike(price, price_batch(batch([stage]), TURING))
        assert (said.seconds, said.resident_blocks) == (price.seconds[0], price.resident_blocks[0])


def test_nothing_has_a_price_of_no_programs():
    assert [len(column) for column in price_stages([], TURING)] == [0] * len(Price._fields)


def turned(stage):
    """The same grid, its axes the other way round."""
    grid, others = stage.loops[:2], stage.loops[2:]
    assert all(loop.kind == GRID for loop in grid)
    return replace(stage, loops=(*grid[::-1], *others))


def test_nests_in_contrary_orders_are_priced_apart():
    stages = [stage for stage in random_stages(count=20)["gpu"] if not stage.block_order.group_rows]
    mixed = [*stages, *map(turned, stages)]
    assert_alike(priced_together(mixed, TURING), priced_alone(mixed, TURING))


def test_a_loop_that_only_some_have_runs_once_in_the_others():
    base = relu(1 << 20).stages[0]
    nests = [[(GRID, 1 << 20 >> 8), (THREAD, 256)], [(GRID, 1 << 20 >> 10), (UNROLL, 4), (THREAD, 256)]]
    made = []
    for nest in nests * 4:
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
    assert_alike(priced_together(made, v100), priced_alone(made, v100))


def test_batches_of_one_structure_are_priced_as_each():
    stages = random_stages(count=24)["gpu"]
    batches = [batch(stages[:5]), batch(stages[5:6]), batch(stages[6:])]
    for one, price in zip(batches, price_batches(batches, TURING), strict=True):
        assert_alike(price, price_batch(one, TURING))


def test_batches_of_other_guards_are_priced_as_each():
    base = gpu_matmul(512, 1024, 256).stages[0]
    tiles = lambda *rows: batch([gpu_stage(16, 16, quads, 2, 8, base, 512, 1024, 256) for quads in rows])
    even, uneven = replace(tiles(1, 2, 4), guards=()), replace(tiles(3, 5), guards=(("i", "mask"),))
    for one, price in zip((even, uneven), price_batches([even, uneven], TURING), strict=True):
        assert_alike(price, price_batch(one, TURING))


def test_swizzled_programs_are_priced_beside_those_whose_grid_has_no_rows():
    stages = [gpu_stage(16, 16, quads, 2, 8) for quads in (1, 2, 4, 8)]
    swizzled = [replace(one, block_order=BlockOrder(2)) for one in stages]
    flat = [replace(one, loops=(one.loops[1], *one.loops[2:])) for one in [gpu_stage(32, 8, 8, 2, 8)] * 4]
    flat = [replace(one, accumulator=shallower(one.accumulator), copies=tuple(map(shallower, one.copies)))
            for one in flat]  # fmt: skip
    turned_swizzled = [replace(turned(one), block_order=BlockOrder(2)) for one in stages]
    for mixed in ([*swizzled, *flat], [*swizzled, *turned_swizzled], [*flat, *turned_swizzled, *swizzled, *stages]):
        assert_alike(priced_together(mixed, TURING), priced_alone(mixed, TURING))


def shallower(part):
    """A copy or the accumulator of a nest that has one loop less outside."""
    return replace(part, at_loop=part.at_loop - 1)
