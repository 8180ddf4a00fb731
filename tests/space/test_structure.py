"""A program in a batch has the price that it has alone: random points of every variant's space, on every kind of device."""

import random

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.drafts import SIZES
from rollergen.construct.elementwise import _priced
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import has_matrices
from rollergen.construct.priced import Contraction
from rollergen.construct.serial_space import grid
from rollergen.construct.serial_structures import structures
from rollergen.construct.thread_space import _Shapes
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.matrix import MatrixPlan, axes_of, matrix_stage
from rollergen.program.assemble.reduction import reduction_stage, row_stage
from rollergen.program.assemble.window import window_stage
from rollergen.program.matrix import matrix_operands
from rollergen.program.model import price_batch, price_stages
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.matrix import matrix_tiles
from rollergen.space.reduction import reduction_plans, row_plans
from rollergen.space.rules import aligned_tiles
from rollergen.space.window import window_plan, window_tiles
from rollergen.tile.rules import AlignmentRules

RULES = AlignmentRules()
t = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(t("A", (500, 300)), t("B", (300, 700))),
    "transposed": lambda: rg.einsum("mk,nk->mn", t("A", (96, 200)), t("B", (320, 200))),
    "long sums": lambda: rg.einsum("bmk,bkn->bmn", t("A", (8, 96, 20000)), t("B", (8, 20000, 321))),
    "few rows": lambda: rg.einsum("mk,kn->mn", t("A", (3, 200)), t("B", (200, 320))),
    "halves": lambda: rg.ops.matmul(t("A", (500, 304), "float16"), t("B", (304, 704), "float16")),
    "convolution": lambda: rg.ops.conv2d(t("X", (2, 24, 28, 28)), t("W", (40, 24, 3, 3)), padding=1),
    "depthwise": lambda: rg.ops.depthwise_conv2d(t("X", (4, 48, 30, 30)), t("W", (48, 1, 3, 3)), padding=1),
}
POINTS = 200
"""Of each expression and device where a variant has one structure: 400 of each variant and more in all."""


def op_of(name):
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    return op


def drawn(count, most=POINTS):
    return random.Random(0).sample(range(count), min(count, most))


def assert_alike(together, stages, device):
    """``together``: the price of a batch; ``stages``: some of its programs by their positions."""
    for at, stage in stages:
        for of_batch, figure in zip(together, price_batch(stage, device), strict=True):
            assert of_batch[at] == pytest.approx(figure[0], rel=1e-3), stage.loops


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", ["v100", "h200", "mi50", "k80", "mali-g71", "ipu"])
@pytest.mark.every(11)
def test_tiles_of_threads(name, device):
    device = load_device(device)
    for variant in variants(op_of(name), device):
        shapes = _Shapes(variant, variant.op, variant.roles, device, RULES, "all", None)
        contraction = Contraction(variant.op, variant.roles, device, RULES)
        tiles, _ = shapes._tiles
        late = shapes._late(shapes._best(tiles, 32))
        assert tiles
        for batch in (*tiles, *late):
            places = drawn(len(batch.points), 15)
            assert_alike(batch.price, [(at, contraction.stage(batch.plan(at))) for at in places], device)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("device", ["cpu_avx512", "cortex-a53"])
@pytest.mark.every(11)
def test_tiles_of_one_thread(name, device):
    device = load_device(device) if device == "cortex-a53" else load_device("benches/devices/cpu_avx512_2mb.json")
    for variant in variants(op_of(name), device):
        for structure in structures(variant, device, RULES):
            points = grid(structure, device, RULES, Ledger())
            if len(points):
                together = structure.stage(structure.plan(*(points[size] for size in SIZES)), device, RULES)
                plan = lambda at, of=structure, points=points: of.plan(*(int(points[size][at]) for size in SIZES))
                stages = [(at, structure.stage(plan(at), device, RULES)) for at in drawn(len(points), 3)]
                assert_alike(price_batch(together, device), stages, device)


@pytest.mark.parametrize("device", ["v100", "h200"])
def test_tiles_of_matrix_instructions(device):
    device = load_device(device)
    (variant,) = variants(op_of("halves"), device)
    of, seen = (variant.op, variant.roles), 0
    assert has_matrices(device, RULES)
    for one in device.instructions:
        if one.is_matrix and matrix_operands(of[0], axes_of(of[1]), one) is not None:
            points = aligned_tiles(matrix_tiles(*of, one, device, RULES), Ledger())
            size = lambda name, at=slice(None), points=points: points[name][at]
            plan = lambda at, one=one, size=size: MatrixPlan(one.name, *(size(x, at) for x in ("fm", "fn", "gm", "gn")), 2)
            stage = lambda at, plan=plan: matrix_stage(*of, plan(at), device, RULES)
            figures = price_batch(stage(slice(None)), device)
            stages = [(at, matrix_stage(*of, _plain(plan(at)), device, RULES)) for at in drawn(len(points))]
            assert_alike(figures, stages, device)
            seen += len(stages)
    assert seen


def _plain(plan):
    return MatrixPlan(plan.instruction, *map(int, (plan.fm, plan.fn, plan.gm, plan.gn)), plan.steps)


@pytest.mark.parametrize("device", ["v100", "mi50"])
def test_tiles_of_windows(device):
    device, op = load_device(device), op_of("depthwise")
    points = aligned_tiles(window_tiles(op, device, RULES), Ledger())
    figures = price_batch(window_stage(op, window_plan(points), device), device)
    stages = [(at, window_stage(op, window_plan(points, at), device)) for at in drawn(len(points))]
    assert_alike(figures, stages, device)


MAPS = {
    "transpose": lambda: rg.ops.transpose(t("X", (700, 500)), 0, 1),
    "odd": lambda: rg.ops.relu(t("X", (3000001,))),
    "broadcast": lambda: rg.ops.add(t("X", (777, 1000)), t("b", (1000,))),
    "gelu": lambda: rg.ops.gelu(t("X", (64, 333, 35))),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("device", ["v100", "mi50", "mali-g71", "cortex-a53"])
def test_maps(name, device):
    device, (op,) = load_device(device), canonicalize(MAPS[name]()).tensor_ops
    found = _priced(op, list(elementwise_plans(op, device, RULES, Ledger())), device)
    assert found
    for price, plan in (found[at] for at in drawn(len(found))):
        assert_alike(price, [(0, elementwise_stage(op, plan, device))], device)


REDUCTIONS = {
    "sum": (lambda: rg.ops.sum(t("X", (655, 1024)), 1), reduction_plans, reduction_stage),
    "odd sum": (lambda: rg.ops.sum(t("X", (100, 10007)), 1), reduction_plans, reduction_stage),
    "columns": (lambda: rg.ops.sum(t("X", (1000, 700)), 0), reduction_plans, reduction_stage),
    "softmax": (lambda: rg.ops.softmax(t("X", (512, 3000)), -1), row_plans, row_stage),
    "norm": (lambda: rg.ops.layer_norm(t("X", (333, 1024)), (1024,)), row_plans, row_stage),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("device", ["v100", "h200", "mi50", "k80", "mali-g71", "cpu_avx512", "cortex-a53"])
def test_reductions_and_rows(name, device):
    device = load_device("benches/devices/cpu_avx512_2mb.json") if device == "cpu_avx512" else load_device(device)
    make, plans, stage_of = REDUCTIONS[name]
    (op,) = canonicalize(make()).tensor_ops
    stages = [stage_of(op, plan, device) for plan in plans(op, device, RULES, Ledger())]
    together = price_stages(stages, device)
    assert_alike(together, [(at, stages[at]) for at in drawn(len(stages))], device)


def test_a_batch_is_an_array_even_where_only_copies_differ():
    device, variant = load_device("v100"), next(variants(op_of("matmul"), load_device("v100")))
    shapes = _Shapes(variant, variant.op, variant.roles, device, RULES, "all", None)
    tiles, _ = shapes._tiles
    (late,) = shapes._late(shapes._best(tiles, 1))
    assert np.unique(late.points["depth"]).size == 2 and all(len(figure) == len(late.points) for figure in late.price)
