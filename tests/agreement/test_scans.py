"""Scans: every element with all before it.  Definition, interpreter, OpenCL C and CUDA text agree with NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.ledger import Ledger
from rollergen.emit import emit
from rollergen.errors import ConstructionError, DtypeError, ExpressionError, ProgramError, ShapeError
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.plan import ScanPlan
from rollergen.program.assemble.scan import scan_stage
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.space.rules import CACHE_SET
from rollergen.space.scan import scan_plans
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed
from tests.lower.devices import AVX512

DTYPES = ("int32", "float32", "int64", "float16", "float64", "uint8")
NUMPYS = {"sum": np.cumsum, "prod": np.cumprod, "max": np.maximum.accumulate, "min": np.minimum.accumulate}


def whole(random, shape, dtype):
    return random.integers(0, 4, shape).astype(dtype) if dtype == "uint8" else random.integers(-3, 4, shape).astype(dtype)


def wanted(name, x, axis, exclusive, reverse):
    """By NumPy, in wide dtypes."""
    wide = x.astype("float64" if x.dtype.kind == "f" else "int64")
    wide = np.flip(wide, axis) if reverse else wide
    found = NUMPYS[name](wide, axis=axis)
    if exclusive:
        first = np.full_like(np.take(found, [0], axis), 1 if name == "prod" else 0)
        found = np.concatenate([first, np.delete(found, -1, axis)], axis)
    return np.flip(found, axis) if reverse else found


def assert_every_reader(program, name, arrays, want):
    given = {buffer.name: arrays[buffer.name] for buffer in program.inputs}
    got = [interpret(program, given, device(name)).outputs, run_opencl(program, given, device(name))]
    if name == "v100" and compiler() is not None:
        got.append(executed(program, emit(program, device(name), "cuda"), given, False))
    for one in got:
        assert np.array_equal(one[program.outputs[0].name].astype(want.dtype), want)
    assert from_json(to_json(program)) == program


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.every(13)
def test_every_reader_scans_what_numpy_scans(seed):
    random = np.random.default_rng(seed)
    shape = tuple(int(random.choice((1, 2, 3, 5, 8, 17, 33, 70))) for _ in range(random.integers(1, 4)))
    axis, dtype = int(random.integers(-len(shape), len(shape))), DTYPES[seed % 6]
    name = ("sum", "sum", "max", "prod", "min")[seed % 5]
    exclusive, reverse = bool(random.integers(0, 2)) and name in ("sum", "prod"), bool(random.integers(0, 2))
    x = whole(random, shape, dtype)
    x = np.abs(x) // 2 + 1 if name == "prod" else x
    x = x.astype(dtype)
    if name == "prod":
        x[...] = np.where(random.random(shape) < 0.9, 1, x)
    expression = rg.scan(name, rg.tensor("x", shape, dtype), axis, exclusive=exclusive, reverse=reverse)
    want = wanted(name, x, axis, exclusive, reverse)
    assert np.array_equal(expression.evaluate(x), want)
    for of in ("cpu", "v100", "mi50"):
        (ranked,) = construct(canonicalize(expression), device(of), top_k=1)
        assert_every_reader(ranked.program, of, {"x": x}, want)


PLANS = [
    ("v100", ScanPlan(1, 8, 1, 2), "shuffle"), ("v100", ScanPlan(4, 8, 1, 4), "shuffle"),
    ("v100", ScanPlan(1, 128, 1, 1), "groups"), ("v100", ScanPlan(2, 64, 1, 2), "groups"),
    ("v100", ScanPlan(32, 1, 2, 4), "none"), ("mi50", ScanPlan(1, 64, 1, 4), "tree"), ("mi50", ScanPlan(8, 8, 1, 1), "tree"),
    ("cpu", ScanPlan(rows=4, vector=8), "none"), ("cpu", ScanPlan(rows=8), "none"), ("mi50", ScanPlan(64, 1, 1, 2), "none"),
]  # fmt: skip


def program_of(plan, name, shape=(7, 333), exclusive=False, combine=None):
    x = rg.tensor("x", shape, "int32")
    if combine is None:
        expression = rg.scan("sum", x, exclusive=exclusive)
    else:
        expression = rg.scan(combine, (x, rg.tensor("y", shape, "int32")), identity=(1, 0), exclusive=exclusive)[1]
    graph = canonicalize(expression)
    stage = scan_stage(graph.tensor_ops[0], plan, device(name))
    return expression, RProgram(name, graph.inputs, graph.outputs, (stage,))


@pytest.mark.parametrize(("name", "plan", "combine"), PLANS)
@pytest.mark.every(7)
@pytest.mark.parametrize("exclusive", [False, True])
def test_every_way_to_share_a_row_gives_its_prefixes(name, plan, combine, exclusive):
    expression, program = program_of(plan, name, exclusive=exclusive)
    check(program, device(name))
    assert program.stages[0].accumulator.combine == combine
    x = np.random.default_rng(1).integers(-50, 50, (7, 333)).astype("int32")
    assert_every_reader(program, name, {"x": x}, expression.evaluate(x))


ACROSS = [
    ScanPlan(rows=2, lanes=16, across=3), ScanPlan(rows=1, vector=4, lanes=8, across=17), ScanPlan(lanes=4, across=2),
    ScanPlan(rows=4, vector=2, lanes=16, across=2), ScanPlan(rows=3, across=5),
]  # fmt: skip


def columns(plan, shape, exclusive=False, dtype="int32"):
    """A program of prefixes along the first axis."""
    expression = rg.scan("sum", rg.tensor("x", shape, dtype), 0, exclusive=exclusive)
    graph = canonicalize(expression)
    stage = scan_stage(graph.tensor_ops[0], plan, device("cpu"))
    return expression, RProgram("columns", graph.inputs, graph.outputs, (stage,))


@pytest.mark.every(7)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("shape", [(37, 130), (2, 37, 5), (3, 64), (50, 3)])
@pytest.mark.parametrize("plan", ACROSS)
def test_a_step_that_walks_across_its_rows_gives_each_its_own_prefixes(plan, shape, exclusive):
    expression, program = columns(plan, shape, exclusive)
    check(program, device("cpu"))
    x = np.random.default_rng(1).integers(-50, 50, shape).astype("int32")
    assert_every_reader(program, "cpu", {"x": x}, expression.evaluate(x))


def test_columns_are_walked_in_whole_rows():
    """So that lines are read on; what is carried passes through the first cache, once for each step, and is priced."""
    x = rg.tensor("x", (1024, 1024))
    (ranked,) = construct(canonicalize(rg.ops.cumsum(x, 0)), AVX512, top_k=1)
    (stage,) = ranked.program.stages
    assert stage.blocks == 1 and any(loop.kind == "serial" and loop.axis == "i1" for loop in stage.loops)
    seconds = lambda plan: predict(columns(plan, (64, 1024), dtype="float32")[1], AVX512).seconds
    assert seconds(ScanPlan(lanes=16, across=64)) > seconds(ScanPlan(lanes=16, rows=2, vector=4, across=32))


@pytest.mark.parametrize("width, most", [(1024, 4), (1536, 8), (992, 16)])
def test_lines_that_one_step_reads_and_writes_in_a_set_are_no_more_than_its_ways(width, most):
    """Rows of 4096, 6144 and 3968 bytes begin in 1, 2 and 32 of 64 sets."""
    layers = [replace(one, sets=64, ways=8) if one.name == "l1" else one for one in AVX512.layers]
    op = canonicalize(rg.ops.cumsum(rg.tensor("x", (1024, width)), 0)).tensor_ops[0]
    tally = Ledger()
    found = list(scan_plans(op, replace(AVX512, layers=tuple(layers)), AlignmentRules(), tally))
    assert max(plan.vector for plan in found if plan.lanes > 1) == most
    assert (tally.rejected.get(CACHE_SET, 0) > 0) == (most < 16)


@pytest.mark.every(5)
@pytest.mark.parametrize(("name", "plan", "combine"), PLANS[::2])
def test_an_operation_that_does_not_commute_keeps_its_order(name, plan, combine):
    expression, program = program_of(plan, name, (5, 70), combine=lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
    random = np.random.default_rng(2)
    arrays = {"x": random.integers(0, 2, (5, 70)).astype("int32"), "y": random.integers(-9, 9, (5, 70)).astype("int32")}
    want, state = np.empty((5, 70), "int64"), np.zeros(5, "int64")
    for n in range(70):
        state = state * arrays["x"][:, n] + arrays["y"][:, n]
        want[:, n] = state
    assert np.array_equal(expression.evaluate(**arrays), want)
    assert_every_reader(program, name, arrays, want)


def test_what_comes_before_and_behind_is_one_kernel():
    x, w = rg.tensor("x", (6, 50)), rg.tensor("w", (50,))
    expression = rg.ops.relu(rg.ops.add(rg.ops.cumsum(rg.ops.mul(x, w), 1), x))
    (op,) = canonicalize(expression).tensor_ops
    assert op.scans and len(op.loads()) == 2
    several = rg.ops.sub(rg.ops.cumsum(x, 1), rg.ops.cumsum(rg.ops.mul(x, 2.0), 1, reverse=True))
    assert len(canonicalize(several).tensor_ops) == 2  # walked from either end
    difference = rg.compute((6, 49), lambda i, j: (s := rg.ops.cumsum(x, 1))[i, j + 1] - s[i, j])
    assert len(canonicalize(difference).tensor_ops) == 2  # prefixes elsewhere than at their own point
    twice = rg.ops.cumsum(rg.ops.cumsum(x, 1), 0)
    random = np.random.default_rng(0)
    a, b = random.integers(-3, 4, (6, 50)).astype("float32"), random.integers(-3, 4, 50).astype("float32")
    for one, arrays, want in (
        (expression, {"x": a, "w": b}, np.maximum((a * b).cumsum(1) + a, 0)),
        (several, {"x": a}, a.cumsum(1) - (2 * a)[:, ::-1].cumsum(1)[:, ::-1]),
        (difference, {"x": a}, a[:, 1:]), (twice, {"x": a}, a.cumsum(1).cumsum(0)),
    ):  # fmt: skip
        kernel = rg.build(one, "cpu", profile=False, cache=False)
        assert np.array_equal(kernel(**arrays), want)
        assert np.array_equal(kernel.interpret(**arrays), want)


@pytest.mark.parametrize(("name", "plan"), [
    ("cpu", ScanPlan(rows=8)), ("v100", ScanPlan(1, 128, 1, 1)), ("mi50", ScanPlan(1, 64, 1, 4)),
])  # fmt: skip
def test_a_scan_reads_and_writes_each_element_once(name, plan):
    _, program = program_of(plan, name, (64, 1024))
    x = np.zeros((64, 1024), "int32")
    traffic = interpret(program, {"x": x}, device(name)).traffic
    assert [one.transactions * device(name).backing.transaction_bytes for one in traffic] == [x.nbytes, x.nbytes]
    assert predict(program, device(name)).seconds > 0


def test_the_model_counts_every_step_at_which_threads_meet():
    """A row in more steps waits longer for its threads."""
    seconds = []
    for plan in (ScanPlan(1, 128, 1, 8), ScanPlan(1, 128, 1, 1)):
        _, program = program_of(plan, "v100", (80, 8192))
        seconds.append(predict(program, device("v100")).seconds)
    assert seconds[1] > 2 * seconds[0]


def test_programs_that_would_leave_the_order_are_refused():
    _, program = program_of(ScanPlan(rows=4, vector=8), "cpu")
    stage = program.stages[0]
    loops = list(stage.loops)
    row = [p for p, loop in enumerate(loops) if loop.axis == "i1"]
    loops[row[0]], loops[row[1]] = loops[row[1]], loops[row[0]]
    with pytest.raises(ProgramError, match="each inside those of larger strides"):
        check(replace(program, stages=(replace(stage, loops=tuple(loops)),)))
    accumulator = replace(stage.accumulator, separate=(row[1],))
    with pytest.raises(ProgramError, match="is a scan with separate"):
        check(replace(program, stages=(replace(stage, accumulator=accumulator),)))


@pytest.mark.parametrize("name", ("cummax", "cummin"))
def test_running_extremes_of_the_widest_integers_are_exact(name):
    x = np.random.default_rng(1).integers(0, 2**64, (5, 37), dtype=np.uint64)
    extremes = rg.build(list(getattr(rg.ops, name)(rg.tensor("x", x.shape, "uint64"), 1)), device="cpu", cache=False)
    accumulate = NUMPYS[name.removeprefix("cum")]
    for values, indices in (extremes(x), extremes.interpret(x)):
        assert np.array_equal(values, accumulate(x, axis=1))
        assert np.array_equal(np.take_along_axis(x, indices, 1), values)


def test_what_is_no_scan_is_refused_by_name():
    x = rg.tensor("x", (3, 4))
    for make, error, text in (
        (lambda: rg.scan("mean", x), ExpressionError, "combine is 'mean'; expected one of sum, max, min, prod"),
        (lambda: rg.scan("sum", x, 2), ExpressionError, "axis is 2; x has 2 dimensions"),
        (lambda: rg.scan("sum", [1]), ExpressionError, "x is [1]; expected a tensor"),
        (lambda: rg.scan(lambda a, b: a + b, x, identity=1), ExpressionError, "identity 1 is none of"),
        (lambda: rg.scan(lambda a, b: a, (x, rg.tensor("y", (3,))), identity=(0, 0)), ShapeError, "y has shape (3,)"),
        (lambda: rg.scan("sum", rg.tensor("c", (3,), "bool")), DtypeError, "of conditions"),
        (lambda: rg.ops.cumsum(x, 2), ShapeError, "cumsum"),
    ):
        with pytest.raises(error) as caught:
            make()
        assert text in str(caught.value)
    with pytest.raises(ConstructionError, match="is a scan in which the order counts"):
        rg.build(rg.ops.cummax(x, 1).indices, "ipu", cache=False)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_machines_of_tiles_reduce_all_before_each_element(name, reverse, exclusive):
    x = np.random.default_rng(2).integers(1, 4, (5, 7, 3), np.int32)
    expression = rg.scan(name, rg.tensor("x", x.shape, "int32"), 1, exclusive=exclusive, reverse=reverse)
    kernel = rg.build(expression, "ipu", cache=False)
    assert np.array_equal(kernel.interpret(x), wanted(name, x, 1, exclusive, reverse))
