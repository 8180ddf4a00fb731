"""Products of few rows: tiles of three and long steps along k agree on every reader, and construction takes them."""

from __future__ import annotations

import numpy as np
import pytest

from benches.bench_rows import row
from rollergen.construct.roles import contraction_roles
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.space.matrix import matrix_tiles
from rollergen.tile.rules import AlignmentRules
from tests.cuda.beside import H200, NAMES, assert_agree
from tests.cuda.host import COPIES_AT_ONCE, PRODUCTS_LATE, compiler
from tests.cuda.test_one_row import assert_right
from tests.matrices import matmul, planned

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(12))
def test_tiles_of_threes_and_long_steps_agree(seed):
    random = np.random.default_rng(seed)
    name, instruction = (("a100", "mma"), ("h200", "mma"), ("v100", "wmma"))[seed % 3]
    device, turned = load_device(name), bool(random.integers(2))
    fm, gm = ((3, 1), (6, 1), (3, 2))[int(random.integers(3))]
    m = 16 * fm * gm - int(random.integers(16))
    k, n = (int(size) for size in random.integers(40, 300, 2))
    fn, gn, steps, depth = (int(random.choice(some)) for some in ((1, 2), (1, 2), (2, 8), (1, 2)))
    expression = matmul(m, k, n, transpose_b=turned)
    made = planned(expression, device, MatrixPlan(instruction, fm, fn, gm, gn, steps, depth))
    assert_right(expression, made, device, "float16")


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(8))
def test_three_warpgroups_agree(seed):
    random = np.random.default_rng(seed)
    dtype = ("float16", "bfloat16", "int8", "float32")[seed % 4]
    m, k, n = 192 - int(random.integers(64)), 16 * int(random.integers(4, 20)), 16 * int(random.integers(2, 12))
    expression = matmul(m, k, n, dtype, transpose_b=bool(random.integers(2)))
    fn, depth = int(random.choice([8, 16])), int(random.choice([1, 2, 3, 4]))
    made = planned(expression, H200, MatrixPlan(NAMES[dtype], 1, fn, 3, 1, 4, depth))
    assert_agree(expression, made, emit(made, H200, "cuda"), (0, PRODUCTS_LATE, COPIES_AT_ONCE | PRODUCTS_LATE))


@on_host
@pytest.mark.parametrize("producer, cluster", [(False, 0), (True, 0), (True, 2)])
def test_three_warpgroups_take_boxes(producer, cluster):
    expression = matmul(384, 192, 136)
    plan = MatrixPlan("wgmma", 1, 8, 3, 1, 4, 3, boxes=True, producer=producer, cluster=cluster)
    made = planned(expression, H200, plan)
    (stage,) = made.stages
    assert all(copy.boxes for copy in stage.copies) and stage.block_order.cluster == cluster
    assert_agree(expression, made, emit(made, H200, "cuda"), (0, PRODUCTS_LATE))


@pytest.mark.parametrize("m, threes", [(16, False), (48, True), (90, True), (100, False), (192, True), (4096, False)])
@pytest.mark.parametrize("instruction, size", [("mma", "fm"), ("wgmma", "gm")])
def test_tiles_of_threes_are_tried_where_rows_are_threes_of_the_instruction(m, threes, instruction, size):
    op = canonicalize(matmul(m, 256, 256)).tensor_ops[0]
    roles = next(one for one in contraction_roles(op) if op.axis(one.m or "").extent == m)
    space = matrix_tiles(op, roles, H200.instruction(instruction), H200, AlignmentRules())
    tried = next(digit.choices for digit in space.digits if digit.name == size)
    wide = instruction == "wgmma"
    assert any(extent % 3 == 0 for extent in tried) == (-(-m // 64) % 3 == 0 if wide else threes)


@pytest.mark.every(7)
@pytest.mark.parametrize("on", ["a100", "h200"])
@pytest.mark.parametrize("m", [1, 16, 48, 64])
@pytest.mark.parametrize("k, n", [(4096, 4096), (11008, 4096), (4096, 11008)])
def test_up_to_64_rows_are_predicted_within_a_third_of_their_bound_beside_launches(on, m, k, n):
    assert row(load_device(on), m, k, n).work <= 1.3


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(8))
def test_long_rows_of_tiles_agree(seed):
    random = np.random.default_rng(seed)
    name, instruction, dtype = (("a100", "mma", "float16"), ("a100", "mma_f64", "float64"))[seed % 2]
    fm, fn, gm, depth = (int(random.choice(some)) for some in ((1, 2), (9, 10, 11, 13, 14, 16), (1, 2), (1, 2, 3)))
    m, k, n = (int(size) for size in random.integers((20, 40, 8 * fn), (70, 100, 20 * fn)))
    expression = matmul(m, k, n, dtype, transpose_b=bool(random.integers(2)))
    made = planned(expression, load_device(name), MatrixPlan(instruction, fm, fn, gm, 1, 2, depth))
    assert_right(expression, made, load_device(name), dtype)


@pytest.mark.parametrize("m", [192, 256, 384])
def test_long_rows_of_tiles_leave_few_units_idle(m):
    device = load_device("a100")
    assert device.units - 2 <= row(device, m, 4096, 11008).blocks <= device.units
