"""What an elementwise stage computes of a row or column alone is priced once where the loops leave it the same."""

from math import prod

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.model.prediction import predict_stage, worked

X, Y = rg.tensor("x", (64, 512)), rg.tensor("y", (512,))
OF_COLUMNS = rg.compute((64, 512), lambda i, j: X[i, j] * rg.exp(Y[j]))
OF_ALL = rg.compute((64, 512), lambda i, j: rg.exp(X[i, j] * Y[j]))


def clocks(expression, **sizes):
    """Clocks of arithmetic of vectors of 16."""
    device = load_device("cpu")
    (op,) = canonicalize(expression).tensor_ops
    prediction = predict_stage(elementwise_stage(op, ElementwisePlan(lanes=16, **sizes), device), device)
    return next(limiter.clocks for limiter in prediction.limiters if limiter.name == "multiply-adds")


def test_what_belongs_to_a_column_is_computed_at_each_row_that_comes_between():
    assert clocks(OF_COLUMNS, pm=64, pn=32) == pytest.approx(clocks(OF_ALL, pm=64, pn=32), rel=0.2)


@pytest.mark.parametrize("rows", [2, 4])
def test_rows_written_out_side_by_side_share_what_belongs_to_a_column(rows):
    apart, together = clocks(OF_COLUMNS, pm=64, pn=32), clocks(OF_COLUMNS, pm=64 // rows, um=rows, pn=32)
    assert together == pytest.approx(apart / rows, rel=0.3)


def test_what_belongs_to_a_column_is_computed_once_where_its_rows_follow_each_other():
    assert clocks(OF_COLUMNS, pm=64) < clocks(OF_COLUMNS, pm=64, pn=32) / 10


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_threads_convert_what_unrolled_results_share_once(dtype):
    """As NVRTC's code for sm_70 does: 1.4 instructions for each multiply-add of bfloat16, conversions included."""
    device, options = load_device("v100"), rg.BuildOptions(shapes=rg.CodeShapes(matrix_instructions=False))
    expression = rg.ops.matmul(rg.tensor("A", (4096, 4096), dtype), rg.tensor("B", (4096, 4096), dtype))
    program = construct(canonicalize(expression), device, options, top_k=1)[0].program
    (stage,) = program.stages
    nest, work = worked(stage, device)
    blocks = prod(loop.extent for loop in stage.loops if loop.kind == "grid")
    rows, columns = (axis.name for axis in stage.op.of_role("spatial"))
    unrolled = [one for one in stage.loops if one.kind == "unroll"]
    m, n = (prod(one.extent for one in unrolled if one.axis == axis) for axis in (rows, columns))
    multiply_adds = 4096**3 / (blocks * float(nest.threads))
    results = m * n  # each converted back, once
    assert float(work.slots) == multiply_adds * (1 + 1 / m + 1 / n) + results


def test_what_belongs_to_a_row_is_computed_once_before_its_vectors():
    of_rows = rg.compute((64, 512), lambda i, j: X[i, j] * rg.exp(Y[i]))
    assert clocks(of_rows, pm=64, pn=32) < clocks(OF_ALL, pm=64, pn=32) / 10
