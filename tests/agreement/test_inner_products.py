"""Products whose operands are both contiguous along k: a tile of outputs at once, vectors along k, nothing copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.reductions import next_panel_prefetched
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.plan import InnerProductPlan
from rollergen.program.assemble.reduction import inner_product_stage
from rollergen.program.check import check
from rollergen.program.model import predict_stage
from rollergen.program.serial import from_text, to_text
from rollergen.space.engine import Tally
from rollergen.space.reduction import inner_product_plans
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, assert_values, device, interpreted, run_opencl, small_integers
from tests.lower.devices import AVX512

T = rg.tensor


def linear(m, n, k, dtype="float32"):
    return rg.ops.linear(T("x", (m, k), dtype), T("w", (n, k), dtype), name="y")


def scores(b, m, n, k):
    """Queries with keys, as attention has them."""
    return rg.ops.batch_matmul(T("q", (b, m, k)), rg.ops.permute(T("key", (b, n, k)), (0, 2, 1)), name="s")


def made(expression, plan, spec, along="columns"):
    """The program whose blocks run along the output's last axis (``columns``) or the one before."""
    (op,) = canonicalize(expression).tensor_ops
    *_, m, n = [axis.name for axis in op.of_role("spatial")]
    axes = (n, m) if along == "columns" else (m, n)
    stage = inner_product_stage(op, *axes, plan, spec)
    return replace(construct(canonicalize(expression), spec, top_k=1)[0].program, stages=(stage,), temporaries=())


@pytest.mark.parametrize(
    ("expression", "plan", "along"),
    [
        (linear(8, 12, 128), InnerProductPlan(3, 4, 2, 8), "columns"),
        (linear(6, 10, 133), InnerProductPlan(1, 3, 2, 8), "rows"),  # the last vector of a row overhangs
        (linear(7, 9, 4100), InnerProductPlan(2, 1, 7, 8), "columns"),  # sums are cut into blocks
        (linear(4, 6, 70), InnerProductPlan(4, 3, 2, 4, 2), "columns"),  # two chains; the last block is short
        (scores(3, 5, 8, 64), InnerProductPlan(2, 4, 1, 8), "columns"),
        (linear(17, 11, 133), InnerProductPlan(2, 4, 6, 8), "columns"),  # tiles overhang both axes
        (linear(13, 23, 64, "int8"), InnerProductPlan(1, 7, 3, 4), "rows"),
    ],
)  # fmt: skip
def test_readers_agree(expression, plan, along):
    spec = device("cpu")
    program = made(expression, plan, spec, along)
    check(program, spec)
    assert from_text(to_text(program)) == program
    arrays = small_integers(program)
    result, blocks = interpreted(program, arrays, spec, 1 << 20)
    assert_values(expression, program, result.outputs, arrays)
    assert_traffic(program, result.traffic, spec, blocks)
    assert_values(expression, program, run_opencl(program, arrays, spec), arrays)


def test_whole_tiles_beside_those_that_overhang_test_nothing():
    text = emit(made(linear(17, 11, 133), InnerProductPlan(2, 4, 6, 8), device("cpu")), device("cpu"), "opencl").text
    _, whole, *_ = text.split("for (int k0 = ")
    assert "acc[i12][i01] +" in whole and "if (" not in whole and "?" not in whole


@pytest.mark.parametrize("n", [24, 22])
def test_tiles_that_share_rows_ask_for_all_of_the_next_ones_and_compute_the_same(n):
    spec, expression = device("cpu"), linear(6, n, 133)
    plain = made(expression, InnerProductPlan(3, 4, 2, 8), spec)  # three tiles along m share four rows of w
    (stage,) = plain.stages
    asking = replace(plain, stages=(next_panel_prefetched(stage, next(loop.axis for loop in stage.loops)),))
    check(asking, spec)
    text = emit(asking, spec, "opencl").text
    lines = [line for line in text.splitlines() if "__builtin_prefetch" in line]
    assert lines and len(lines) % 4 == 0 and all("(w_at +" in line or "(w +" in line for line in lines)
    assert all(line.endswith(", 0, 2);") for line in lines), "rows may lie 4 KB apart: into the second cache"
    arrays = small_integers(asking)
    (one, _), (other, _) = (interpreted(program, arrays, spec, 50) for program in (asking, plain))
    assert one.traffic == other.traffic
    for got, want in zip(run_opencl(asking, arrays, spec).values(), run_opencl(plain, arrays, spec).values(), strict=True):
        assert (got == want).all()


def test_one_tile_along_the_other_axis_asks_for_nothing():
    (stage,) = made(linear(2, 24, 64), InnerProductPlan(3, 4, 2, 8), device("cpu")).stages
    assert next_panel_prefetched(stage, stage.loops[0].axis) is None


def test_operands_are_read_where_they_lie_for_few_rows():
    """Weights that come with the call: a copy of them costs more than the product."""
    first = construct(canonicalize(linear(8, 4096, 1024)), AVX512, top_k=1)[0]
    (stage,) = first.program.stages
    assert stage.name == "inner_product"
    assert not first.program.temporaries


def test_a_vector_is_read_once_for_the_outputs_of_a_tile():
    text = emit(made(linear(8, 12, 128), InnerProductPlan(3, 4, 2, 8), device("cpu")), device("cpu")).text
    inner = text[text.index("for (int k0") :].split("const float4 lanes")[0]
    assert inner.count("(x_at +") == inner.count("(w_at +") == 1  # outside the loop over the other one's rows


def test_the_model_sees_what_a_tile_saves():
    (op,) = canonicalize(linear(8, 4096, 1024)).tensor_ops
    seconds = {}
    for tile in ((1, 1), (2, 2), (4, 2)):
        stage = inner_product_stage(op, "i1", "i0", InnerProductPlan(16, *tile, 16), AVX512)
        seconds[tile] = predict_stage(stage, AVX512).seconds
    assert seconds[4, 2] < seconds[2, 2] < seconds[1, 1]


@pytest.mark.parametrize(("m", "sides"), [(7, {1, 7}), (8, {1, 2, 3, 4, 8}), (17, {1, 2, 3, 6}), (31, {1, 2, 3, 4, 8})])
def test_tiles_leave_few_outputs_idle_and_fit_the_registers(m, sides):
    (op,) = canonicalize(linear(m, 50, 300)).tensor_ops
    plans = inner_product_plans(op, "i1", "i0", AVX512, AlignmentRules(), Tally())
    assert {plan.column_tile for plan in plans} == sides
    for plan in plans:
        assert plan.row_tile * plan.column_tile * plan.chains < AVX512.limits.registers_per_thread


@pytest.mark.parametrize("rows", [13, 17, 23, 31])
def test_a_prime_number_of_rows_takes_little_longer_than_the_next_one(rows):
    seconds = lambda m: construct(canonicalize(linear(m, 1345, 337)), AVX512, top_k=1)[0].seconds
    assert seconds(rows) < 1.06 * seconds(rows + 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_narrow_operands_are_widened_as_they_are_read(dtype):
    spec, expression = device("cpu"), linear(4, 6, 72, dtype)
    program = made(expression, InnerProductPlan(1, 3, 2, 8), spec)
    check(program, spec)
    arrays = small_integers(program)
    assert_values(expression, program, run_opencl(program, arrays, spec), arrays, tolerance=1e-2)
