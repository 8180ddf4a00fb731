"""Takes: elements at places that are read.  Definition, interpreter, OpenCL C and CUDA text agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ArgumentError, ConstructionError, DtypeError, ExpressionError
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.serial import from_json, to_json
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
MODES = ("raise", "clip", "wrap")
PATTERNS = ("any", "equal", "first", "last", "ends", "outside")


def drawn(seed):
    """(table's shape, axis, shape of the ids, their dtype, mode, pattern): sizes that leave remainders of vectors."""
    random = np.random.default_rng(seed)
    shape = tuple(int(random.choice((1, 2, 3, 5, 8, 17, 33, 64))) for _ in range(random.integers(1, 4)))
    ids = tuple(int(random.choice((1, 2, 3, 7, 16, 19))) for _ in range(random.integers(0, 3)))
    axis = int(random.integers(-len(shape), len(shape)))
    return shape, axis, ids, DTYPES[seed % 8], MODES[seed % 3], PATTERNS[random.integers(0, 6)]


def places(random, shape, dtype, extent, mode, pattern):
    """Ids of the pattern that the mode allows."""
    info = np.iinfo(dtype)
    beyond = 3 * extent if mode != "raise" else 0
    low, high = max(info.min, -extent - beyond), min(info.max, extent - 1 + beyond)
    some = {
        "any": lambda: random.integers(low, high, shape, endpoint=True),
        "equal": lambda: np.full(shape, random.integers(low, high, endpoint=True)),
        "first": lambda: np.zeros(shape),
        "last": lambda: np.full(shape, min(extent - 1, info.max)),
        "ends": lambda: np.resize([low, high, 0, min(extent - 1, info.max)], shape),
        "outside": lambda: np.resize([info.min, info.max] if mode != "raise" else [low, high], shape),
    }[pattern]()
    return np.asarray(some).astype(dtype)


def programs(expression, name, count=2):
    return [one.program for one in construct(canonicalize(expression), device(name), top_k=count)]


def assert_all_readers(expression, arrays, want, names=("cpu", "v100", "mi50")):
    for name in names:
        for program in programs(expression, name):
            given = {buffer.name: arrays[buffer.name] for buffer in program.inputs}
            got = [interpret(program, given, device(name)).outputs, run_opencl(program, given, device(name))]
            if name == "v100" and compiler() is not None:
                got.append(executed(program, emit(program, device(name), "cuda"), given, False))
            for one in got:
                assert np.array_equal(one[program.outputs[0].name], want)
            assert from_json(to_json(program)) == program


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.every(13)
def test_every_reader_takes_what_numpy_takes(seed):
    shape, axis, ids_shape, dtype, mode, pattern = drawn(seed)
    random = np.random.default_rng(seed)
    table = random.random(shape, dtype="float32")
    ids = places(random, ids_shape, dtype, shape[axis], mode, pattern)
    expression = rg.take(rg.tensor("table", shape), rg.tensor("ids", ids_shape, dtype), axis, mode)
    held = ids.astype(object) if dtype == "uint64" else ids.astype("int64")  # numpy.take casts to intp
    extent = shape[axis]
    at = {"raise": held, "clip": np.clip(held, 0, extent - 1), "wrap": held % extent}[mode]
    want = np.take(table, np.asarray(at, "int64"), axis)
    assert np.array_equal(expression.evaluate(table, ids), want)
    assert_all_readers(expression, {"table": table, "ids": ids}, want)


@pytest.mark.parametrize("seed", range(36))
@pytest.mark.every(13)
def test_each_lane_takes_at_its_own_place(seed):
    """Ids that differ along the lanes, most of them inside the table: none, a few or half are anything allowed."""
    random = np.random.default_rng(seed)
    rows, extent, count = (int(random.choice((1, 3, 8, 17, 40, 64))) for _ in range(3))
    how = ("along rows", "along columns", "shared")[seed % 3]
    mode, dtype = MODES[random.integers(0, 3)] if how == "shared" else "raise", DTYPES[random.integers(0, 8)]
    shape = {"along rows": (rows, count), "along columns": (count, rows), "shared": (count,)}[how]
    strange = places(random, shape, dtype, extent, mode, PATTERNS[random.integers(0, 6)])
    inside = random.integers(0, min(extent, 100), shape)
    ids = np.where(random.random(shape) < (0, 0.03, 0.5)[random.integers(0, 3)], strange, inside.astype(dtype))
    table = random.random((extent, rows) if how == "along columns" else (rows, extent), dtype="float32")
    of, at = rg.tensor("table", table.shape), rg.tensor("ids", shape, dtype)
    held = ids.astype(object) if dtype == "uint64" else ids.astype("int64")
    held = np.asarray({"raise": held, "clip": np.clip(held, 0, extent - 1), "wrap": held % extent}[mode], "int64")
    if how == "along rows":
        expression, want = rg.compute(shape, lambda i, j: of[i, at[i, j]]), np.take_along_axis(table, held, 1)
    elif how == "along columns":
        expression, want = rg.compute(shape, lambda i, j: of[at[i, j], j]), np.take_along_axis(table, held, 0)
    else:
        expression, want = rg.take(of, at, 1, mode), np.take(table, held, 1)
    assert np.array_equal(expression.evaluate(table, ids), want)
    assert_all_readers(expression, {"table": table, "ids": ids}, want)


def test_the_model_knows_that_scattered_elements_come_back_to_their_lines_late():
    """A row of 4 KB stays in the first cache while it is read from end to end; 32 of them do not, of which a block
    reads a strip of 8 ids, and the next block the next strip: it finds none of the lines that it shares with others.
    Rows that are drawn for each column by itself share no line at all, unlike one row read again and again."""
    at, of = rg.tensor("ids", (256,), "int64"), rg.tensor("table", (512, 1024))
    for program in programs(rg.take(of, at, 1), "cpu", 4):
        assert not any(x.kind == "grid" and x.axis == "i1" for x in program.stages[0].loops)
    drawn_alone = rg.ops.gather(rg.tensor("table", (1024, 1024)), 0, rg.tensor("ids", (256, 1024), "int64"))
    one_row = rg.take(rg.tensor("table", (1024, 1024)), rg.tensor("ids", (256,), "int64"))
    seconds = [predict(programs(one, "cpu", 1)[0], device("cpu")).seconds for one in (drawn_alone, one_row)]
    assert seconds[0] > 4 * seconds[1]


def test_a_thread_that_is_alone_looks_at_the_ids_of_all_lanes_at_once():
    """And reads at them as they are; where threads are many, each makes a position of its id."""
    expression = rg.take(rg.tensor("table", (64, 512)), rg.tensor("ids", (256,), "int64"), 1)
    for name, branches in (("cpu", True), ("v100", False)):
        (program,) = programs(expression, name, 1)
        assert (" else " in emit(program, device(name)).text) == branches


T = rg.tensor
W, IDS = T("W", (21, 34)), T("ids", (5, 6), "int64")
LAST, FIRST = T("last", (21, 9), "int32"), T("first", (21, 9), "int64")
X, Y = T("X", (5, 6, 34)), T("Y", (34, 8))
K = rg.reduce_axis("k", 6)
COMPOSED = {
    "along rows": (rg.compute((21, 9), lambda i, j: W[i, LAST[i, j]]), lambda a: np.take_along_axis(a["W"], a["last"].astype(int), 1), 1),
    "two at once": (rg.compute((21, 9), lambda i, j: W[FIRST[i, j], LAST[i, j]]), lambda a: a["W"][a["first"], a["last"]], 1),
    "with arithmetic": (rg.ops.relu(rg.ops.add(rg.ops.mul(rg.take(W, IDS), 2.0), X)), lambda a: np.maximum(2 * a["W"][a["ids"]] + a["X"], 0), 1),
    "of a computed table": (rg.take(rg.ops.mul(W, 2.0), IDS), lambda a: 2 * a["W"][a["ids"]], 2),
    "of computed ids": (rg.take(W, rg.ops.add(IDS, 1), mode="wrap"), lambda a: np.take(a["W"], a["ids"] + 1, 0, mode="wrap"), 1),
    "of places that a take gives": (rg.take(W, rg.take(T("order", (7,), "int32"), IDS, mode="clip"), mode="wrap"), lambda a: np.take(a["W"], np.take(a["order"], a["ids"], mode="clip"), 0, mode="wrap"), 1),
    "in rows that are kept": (rg.ops.amax(rg.take(W, IDS), dim=-1), lambda a: a["W"][a["ids"]].max(-1), 2),
    "a factor of a product": (rg.ops.matmul(rg.take(W, IDS), Y), lambda a: a["W"][a["ids"]] @ a["Y"], 2),
    "rows added up": (rg.compute((5, 34), lambda i, j: rg.sum(W[IDS[i, K], j], axis=K)), lambda a: a["W"][a["ids"]].sum(1), 2),
    "a bias that is taken": (rg.ops.add(rg.ops.matmul(X, Y), rg.take(T("B", (11, 8)), IDS, mode="clip")), lambda a: a["X"] @ a["Y"] + np.take(a["B"], a["ids"], 0, mode="clip"), 1),
    "on one side of a choice": (rg.compute((5, 6, 34), lambda i, j, k: rg.select(k < 20, W[IDS[i, j], k], 7.0)), lambda a: np.where(np.arange(34) < 20, a["W"][a["ids"]], 7), 1),
}  # fmt: skip


@pytest.mark.every(7)
@pytest.mark.parametrize("name", COMPOSED)
def test_takes_stand_wherever_values_do(name):
    expression, numpys, stages = COMPOSED[name]
    random = np.random.default_rng(1)
    graph = canonicalize(expression)
    assert len(graph.tensor_ops) == stages, graph.cuts
    arrays = {b.name: random.integers(-3, 4, b.shape).astype(b.dtype) for b in graph.inputs}
    arrays["ids"] = random.integers(-21, 21, (5, 6))
    arrays |= {"last": random.integers(-34, 34, (21, 9)).astype("int32"), "first": random.integers(-21, 21, (21, 9))}
    want = numpys(arrays)
    assert np.array_equal(expression.evaluate(**{b.name: arrays[b.name] for b in graph.inputs}), want)
    assert_all_readers(expression, arrays, want)


OF_RESULTS = {
    "the largest of a column": (lambda x: rg.ops.argmax(x, 0), lambda a: a.argmax(0)),
    "the largest of a row": (lambda x: rg.ops.argmax(x, 1), lambda a: a.argmax(1)),
    "a column's sum": (lambda x: rg.ops.sum(x, 0), lambda a: a.sum(0)),
    "sums so far": (lambda x: rg.ops.cumsum(x, 0), lambda a: a.cumsum(0)),
}


@pytest.mark.parametrize("name", OF_RESULTS)
def test_places_that_a_reduction_of_the_same_kernel_finds_differ_from_lane_to_lane(name):
    found, numpys = OF_RESULTS[name]
    expression = rg.take(T("Z", (40,)), found(T("x", (8, 64), "int32")), mode="wrap")
    random = np.random.default_rng(1)
    arrays = {"Z": random.standard_normal(40).astype("float32"), "x": random.integers(-9, 9, (8, 64)).astype("int32")}
    assert [len(program.stages) for program in programs(expression, "cpu")] == [1, 1]
    assert_all_readers(expression, arrays, np.take(arrays["Z"], numpys(arrays["x"]), mode="wrap"), ("cpu", "v100"))


def test_the_model_has_a_place_for_each_result_of_a_reduction():
    found = rg.ops.argmax(T("x", (8, 4096)), 0)
    kernel = rg.build(rg.take(T("Z", (1_000_000,)), found, mode="clip"), "v100", profile=False)
    (stage,) = kernel.explain(as_dict=True)["stages"]
    assert stage["traffic_bytes"]["dram"] == 4096 * (8 * 4 + 4 + 32)  # elements, results, a sector for each place


def test_rows_that_are_taken_are_normalised_in_one_kernel():
    expression = rg.ops.layer_norm(rg.ops.add(rg.take(W, IDS), X), (34,))
    (op,) = canonicalize(expression).tensor_ops
    assert len(op.takes()) == 1 and op.of_role("row")
    random = np.random.default_rng(2)
    arrays = random.random((21, 34), "float32"), random.integers(-21, 21, (5, 6)), random.random((5, 6, 34), "float32")
    want = expression.evaluate(*arrays)
    kernel = rg.build(expression, "cpu", cache=False, profile=False)
    assert np.allclose(kernel(*arrays), want, atol=1e-5)
    assert np.allclose(kernel.interpret(*arrays), want, atol=1e-5)


@pytest.mark.parametrize("ids", [[3] * 32, range(32), [0, 31] * 16, [-1] * 32, [5, 6] * 16])
@pytest.mark.parametrize("name", ["cpu", "v100", "mi50"])
def test_counted_traffic_is_that_of_the_rows_that_were_read(name, ids):
    ids = np.array(ids)
    table = np.zeros((32, 40), "float32")
    expression = rg.take(T("W", (32, 40)), T("ids", (32,), "int64"))
    program = programs(expression, name, 1)[0]
    (stage,) = program.stages
    line = device(name).backing.transaction_bytes
    for block in {0, stage.blocks // 2, stage.blocks - 1}:
        found = interpret(program, {"W": table, "ids": ids}, device(name), {stage.name: [block]})
        rows, columns = np.nonzero(next(iter(found.written.values())))
        touched = {(int(ids[r]) % 32 * 40 + int(c)) * 4 // line for r, c in zip(rows, columns, strict=True)}
        (own,) = (one for one in found.traffic if one.tensor == "W")
        assert own.transactions == len(touched), block


def test_the_model_has_as_many_rows_differ_as_can():
    few, many, short = (
        rg.build(rg.take(T("W", (v, 256)), T("ids", (n,), "int64")), "v100", profile=False).explain(as_dict=True)
        for v, n in ((100_000, 512), (100_000, 65536), (512, 65536))
    )
    moved = [one["stages"][0]["traffic_bytes"]["dram"] for one in (few, many, short)]
    assert moved[0] == pytest.approx(512 * (2 * 1024 + 8), rel=0.02)  # rows read and written, ids
    assert moved[1] == pytest.approx(65536 * (2 * 1024 + 8), rel=0.02)
    assert 65536 * (1024 + 8) < moved[2] < 0.65 * moved[1]  # rows that others have read, mostly from the cache


def test_an_explanation_says_what_no_closed_form_tells():
    text = rg.build(rg.take(W, IDS), "v100", profile=False).explain()
    assert "take W: as the ids say, which nobody knows before the call" in text


# The call, and what is refused ------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel():
    return rg.build(rg.take(W, IDS), "cpu", cache=False)


def given(wrong=0):
    ids = np.zeros((5, 6), "int64")
    ids[2, 3] = wrong
    return np.arange(21 * 34, dtype="float32").reshape(21, 34), ids


@pytest.mark.parametrize("wrong", [21, -22, 2**62, -(2**62)])
def test_a_call_refuses_ids_outside_the_table_by_their_place(kernel, wrong):
    table, ids = given(wrong)
    text = rf"ids holds {wrong} at \(2, 3\); expected indices from -21 to 20"
    calls = (
        lambda: kernel(table, ids), lambda: kernel(table, ids=ids), lambda: kernel.interpret(table, ids),
    )  # fmt: skip
    for call in (*calls, calls[0]):
        with pytest.raises(ArgumentError, match=text):
            call()
    with pytest.raises(ArgumentError, match=f"holds {wrong}"):
        rg.take(W, IDS).evaluate(table, ids)
    for right in (20, -21):
        table, ids = given(right)
        assert np.array_equal(kernel(table, ids), table[ids])


def test_a_single_id_outside_the_table_is_refused_by_its_number():
    taken = rg.take(rg.tensor("W", (4,)), rg.tensor("id", (), "int64"))
    kernel = rg.build(taken, "cpu", profile=False, cache=False)
    for call in (kernel, kernel.interpret, taken.evaluate):
        with pytest.raises(ArgumentError, match="holds 9; expected indices from -4 to 3"):
            call(np.ones(4, "float32"), np.array(9))


def test_ids_of_torch_are_looked_at_too(kernel):
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"ids holds 21 at \(2, 3\)"):
        kernel(*map(torch.from_numpy, given(21)))


def test_only_ids_that_are_read_are_checked():
    narrow = rg.build(rg.compute((5, 34), lambda i, j: W[IDS[i, 2], j]), "cpu", cache=False, profile=False)
    table, ids = given(99)
    assert np.array_equal(narrow(table, ids), table[ids[:, 2]])
    with pytest.raises(ArgumentError, match="ids holds 99"):
        rg.build(rg.take(W, rg.ops.flip(IDS, (0,))), "cpu", cache=False, profile=False)(table, ids)


def test_ids_that_cannot_be_outside_need_no_check():
    from rollergen.runtime.ids import HostIds

    table = T("table", (256, 3))
    inside = rg.take(table, T("ids", (4,), "uint8")), rg.take(table, rg.ops.remainder(T("ids", (4,), "int64"), 256))
    for expression in inside:
        assert not HostIds(programs(expression, "cpu", 1)[0])
    assert HostIds(programs(rg.take(table, T("ids", (4,), "int16")), "cpu", 1)[0])


def test_what_is_no_take_is_refused_by_name():
    scores = T("scores", (4, 21))
    for made, error, text in (
        (lambda: rg.take(W, scores), DtypeError, "rg.take: ids has dtype float32; expected an integer dtype"),
        (lambda: rg.take(W, IDS, 2), ExpressionError, "rg.take: axis is 2; W has 2 dimensions"),
        (lambda: rg.take(W, IDS, mode="nearest"), ExpressionError, "mode is 'nearest'; expected one of raise, clip, wrap"),
        (lambda: rg.take(W, [1, 2]), ExpressionError, r"rg.take: ids is \[1, 2\]; expected a tensor"),
        (lambda: rg.build(rg.take(W, rg.ops.argmax(scores, 1)), "v100", profile=False), ExpressionError, "are computed"),
        (lambda: rg.build(rg.take(W, IDS), "ipu"), ConstructionError, "exchanges decided before the call"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            made()


@pytest.mark.parametrize("options", [(), ("-D__has_builtin(name)=0",)], ids=["builtin", "lane by lane"])
def test_ids_of_all_lanes_are_looked_at_by_one_function_and_lane_by_lane_where_the_compiler_has_none(options):
    x, ids = rg.tensor("x", (5, 64)), rg.tensor("ids", (48,), "int64")
    (program, *_) = programs(rg.ops.index_select(x, 1, ids, name="y"), "cpu")
    assert "if (every_of_long" in emit(program, device("cpu")).text
    arrays = {"x": np.arange(320, dtype="f4").reshape(5, 64), "ids": np.resize([0, 63, -1, -64, 7], 48)}
    for inside in (arrays["ids"], arrays["ids"] % 64):
        got = run_opencl(program, {**arrays, "ids": inside}, device("cpu"), options)["y"]
        assert np.array_equal(got, arrays["x"][:, inside])
