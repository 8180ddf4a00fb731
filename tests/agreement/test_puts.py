"""Blocks put into arguments: definition, interpreter, OpenCL C and CUDA text agree with NumPy, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import (
    ArgumentError,
    BundleError,
    CheckFailedError,
    ConstructionError,
    DtypeError,
    ExpressionError,
    ShapeError,
)
from rollergen.expr.canonical import canonicalize
from rollergen.expr.places import put_of
from rollergen.expr.reads import given_tensors
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.bounds import bandwidth_gb_s, least_seconds, residence
from rollergen.program.interpreter import interpret
from rollergen.program.model.roofline import compulsory_bytes
from rollergen.program.serial import from_json, to_json
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

POS, FAR = rg.scalar("pos", "int32", 0, 15), rg.scalar("far", "int64", -20, 40)
ROW = rg.scalar("row", "int32", 0, 4)


def ids(count, dtype="int64"):
    return rg.tensor("ids", (count,), dtype)


def case(shape, block, at, axis=0, mode="raise", dtype="float32", of=lambda t: t):
    return rg.put(rg.tensor("x", shape, dtype), of(rg.tensor("new", block, dtype)), at, axis, mode)


CASES = {
    "a position of a cache": case((2, 3, 16, 8), (2, 3, 1, 8), POS, 2),
    "a position of narrow rows": case((2, 16, 3), (2, 1, 3), POS, 1),
    "a position of a vector": case((16,), (1,), POS),
    "a position along the last axis": case((5, 16), (5, 1), POS, 1),
    "several positions": case((2, 18, 5), (2, 3, 5), POS, 1),
    "several positions along the last axis": case((3, 24), (3, 9), POS, -1),
    "a ring": case((2, 7, 6), (2, 1, 6), FAR, 1, "wrap"),
    "a ring of several": case((2, 7, 6), (2, 3, 6), FAR, 1, "wrap"),
    "the nearest that fits": case((2, 7, 6), (2, 3, 6), FAR, 1, "clip"),
    "a constant position": case((9, 33), (4, 33), 3),
    "two positions": case((6, 18, 4), (2, 3, 4), (ROW, POS), (0, 1)),
    "what is computed": case((16, 20), (1, 20), POS, of=lambda t: rg.ops.softmax(t, dim=1)),
    "halves": case((4, 16, 8), (4, 1, 8), POS, 1, dtype="float16"),
    "rows by ids": case((10, 40), (6, 40), ids(6)),
    "rows by 32-bit ids": case((10, 12), (10, 12), ids(10, "int32")),
    "columns by ids": case((6, 50), (6, 33), ids(33), 1),
    "elements by ids": case((100,), (70,), ids(70), of=rg.ops.relu),
    "rows by ids of a ring": case((10, 8), (6, 8), ids(6), mode="wrap"),
    "rows by ids at a position": case((7, 16, 5), (4, 1, 5), (ids(4), POS), (0, 1)),
}  # fmt: skip


def begun(at, free, mode):
    """Where NumPy's slice begins."""
    return min(max(at, 0), free - 1) if mode == "clip" else at % free if mode == "wrap" else at


def numpys(name, x, new, named):
    """What is there afterwards, one element after the other."""
    want, block = x.copy(), new
    block = np.maximum(new, 0) if name == "elements by ids" else block
    if name == "what is computed":
        e = np.exp(new.astype("float64") - new.max(1, keepdims=True))
        block = e / e.sum(1, keepdims=True)
    axes = {"a position of a cache": (2,), "two positions": (0, 1), "rows by ids at a position": (0, 1)}.get(name)
    if axes is None:
        axes = next((n,) for n in range(x.ndim) if x.shape[n] != new.shape[n] or n == x.ndim - 1 or "rows by" in name)
    ats = [named["row"], named["pos"]] if name == "two positions" else list(named.values())
    mode = "wrap" if "ring" in name else "clip" if "nearest" in name else "raise"
    for place in np.ndindex(*new.shape):
        there = list(place)
        for n, at in zip(axes, ats or [3], strict=True):
            if np.ndim(at):
                there[n] = at[place[n]] % x.shape[n]
            else:
                free = x.shape[n] if mode == "wrap" else x.shape[n] - new.shape[n] + 1
                there[n] = (begun(int(at), free, mode) + place[n]) % x.shape[n]
        want[tuple(there)] = block[place]
    return want


def arguments(expression, seed):
    """Arrays by name; ids that are all different, positions at either end of their bounds or between."""
    random, arrays = np.random.default_rng(seed), {}
    dtype = expression.dtype
    arrays["x"] = random.integers(-9, 10, expression.shape).astype(dtype)
    for tensor in given_tensors((expression,)):
        buffer = tensor.buffer
        if tensor.name == "new":
            arrays["new"] = random.integers(-3, 4, tensor.shape).astype(dtype)
        elif tensor.name == "ids":
            extent = expression.put.extents[0]
            signed = random.integers(-1, 1, tensor.shape) * extent
            arrays["ids"] = (random.permutation(extent)[: tensor.shape[0]] + signed).astype(tensor.dtype)
        else:
            middle = (buffer.low + buffer.high) // 2
            arrays[tensor.name] = np.array((buffer.low, buffer.high, middle)[seed % 3], tensor.dtype)
    return arrays


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(5)
def test_every_reader_writes_the_block_and_nothing_else(name):
    expression = CASES[name]
    programs = {of: construct(canonicalize(expression), device(of), top_k=2) for of in ("cpu", "v100", "mi50")}
    for seed in range(3):
        arrays = arguments(expression, seed)
        named = {key: value for key, value in arrays.items() if key not in ("x", "new")}
        want = numpys(name, arrays["x"], arrays["new"], named)
        assert np.allclose(expression.evaluate(**arrays), want, rtol=1e-6, atol=0)
        for of, ranked in programs.items():
            for one in ranked:
                got = [interpret(one.program, arrays, device(of)).outputs["x"]]
                got.append(run_opencl(one.program, arrays, device(of))["x"])
                if of == "v100" and seed == 1 and compiler() is not None:
                    source = emit(one.program, device(of), "cuda")
                    got.append(executed(one.program, source, arrays, False)["x"])
                for array in got:
                    assert np.allclose(array, want, rtol=1e-6, atol=0)
    for ranked in programs.values():
        assert from_json(to_json(ranked[0].program)) == ranked[0].program
        assert any(put_of(stage.op) for stage in ranked[0].program.stages)


def test_only_the_bytes_of_the_block_are_moved():
    expression = rg.put(rg.tensor("x", (4, 256, 64)), rg.tensor("new", (4, 1, 64)), rg.scalar("pos", "int32", 0, 255), 1)
    program = construct(canonicalize(expression), device("cpu"), top_k=1)[0].program
    arrays = {"x": np.zeros((4, 256, 64), "float32"), "new": np.ones((4, 1, 64), "float32"), "pos": np.array(9, "int32")}
    moved = {one.tensor: one.transactions * one.transaction_bytes for one in interpret(program, arrays, device("cpu")).traffic}
    assert moved["x"] == moved["new"] == 4 * 64 * 4  # one row of 64 float32 in each of 4 planes
    assert compulsory_bytes(program.stages[0]) == 2 * 4 * 64 * 4 + 4  # and the position

    write = 4 * 64 * 4 / bandwidth_gb_s(residence(program, device("cpu")), device("cpu")) * 1e-9
    assert least_seconds(program, device("cpu")) == pytest.approx(write)  # of the block, not of the array around it
    assert not program.stages[0].store.streaming  # a block that small stays in the caches, where it is read next


def test_one_kernel_updates_the_callers_array_at_every_position(tmp_path):
    cache, new = rg.tensor("cache", (2, 3, 16, 8)), rg.tensor("new", (2, 3, 1, 8))
    kernel = rg.build(rg.put(cache, new, POS, axis=2), "cpu", top_k=2)
    assert str(kernel.signature) == (
        "kernel(updated cache: float32[2, 3, 16, 8], new: float32[2, 3, 1, 8], pos: int32[]) -> cache"
    )
    assert "updated cache" in kernel.explain()
    assert not any(one.problems for one in kernel.candidates)
    held, one = np.zeros((2, 3, 16, 8), "float32"), np.random.default_rng(0).random((2, 3, 1, 8), "float32")
    want = held.copy()
    for pos in (*range(16), 3, 7):
        one = one + 1
        want[:, :, pos : pos + 1] = one
        assert np.array_equal(kernel.interpret(held, one, pos), want)
        assert kernel(held, one, pos) is held and np.array_equal(held, want)
    assert kernel(pos=2, new=one, cache=held) is held and kernel(held, pos=2, new=one) is held
    assert kernel.benchmark(held, one, 2).wall_s > 0
    for arguments_, error, text in (
        ((one, 3), ArgumentError, "missing"),
        ((held, one, 16), ArgumentError, "pos is 16; expected 0 to 15"),
        ((held[..., ::-1], one, 3), ArgumentError, "strided"),
        ((held, held[:, :, :1], 3), ArgumentError, "overlaps"),
        ((held.astype("float64"), one, 3), DtypeError, "float64"),
    ):
        before = held.copy()
        with pytest.raises(error, match=text):
            kernel(*arguments_)
        assert np.array_equal(held, before)
    with pytest.raises(ArgumentError, match="out is given; expected None"):
        kernel(held, one, 3, out=held)
    with pytest.raises(ArgumentError, match="cache is given by position and by name"):
        kernel(held, one, 3, cache=held)
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert str(loaded.signature) == str(kernel.signature)
    want = held.copy()
    want[:, :, 4:5] = one
    assert loaded(held, one, 4) is held and np.array_equal(held, want)
    with pytest.raises(ArgumentError, match="pos is 16"):
        loaded(held, one, 16)


def test_two_caches_are_updated_by_one_call():
    keys, values, new = rg.tensor("keys", (4, 9)), rg.tensor("values", (4, 9)), rg.tensor("new", (1, 9))
    pos = rg.scalar("pos", "int32", 0, 3)
    kernel = rg.build([rg.put(keys, new, pos), rg.put(values, rg.ops.mul(new, 2.0), pos)], "cpu", profile=False)
    a, b, c = np.zeros((4, 9), "float32"), np.zeros((4, 9), "float32"), np.ones((1, 9), "float32")
    first, second = kernel(a, b, c, 2)
    assert first is a and second is b
    assert np.array_equal(a.sum(1), [0, 0, 9, 0]) and np.array_equal(b.sum(1), [0, 0, 18, 0])


def test_ids_of_one_place_or_outside_are_refused_by_the_call(tmp_path):
    expression = rg.put(rg.tensor("x", (5, 2)), rg.tensor("new", (3, 2)), rg.tensor("ids", (3,), "int64"))
    kernel = rg.build(expression, "cpu", profile=False)
    x, new = np.zeros((5, 2), "float32"), np.ones((3, 2), "float32")
    for call in (kernel, kernel.interpret, expression.evaluate):
        for ids_, text in (([0, 1, 1], "place 1 2 times"), ([0, 4, -1], "place 4 2 times"), ([0, 5, 1], "holds 5"), ([0, -6, 1], "holds -6")):
            with pytest.raises(ArgumentError, match=text):
                call(x=x, new=new, ids=np.array(ids_))
    assert not x.any()
    with pytest.raises(BundleError, match="ids that are all different, as no self-test can make them"):
        kernel.save(tmp_path / "kernel")


def test_the_gate_finds_what_is_written_elsewhere():
    expression = CASES["rows by ids"]
    program = construct(canonicalize(expression), device("cpu"), top_k=1)[0].program
    block = expression_oracle((expression,), program.outputs)

    def right(arrays):
        arrays["x"][arrays["ids"]] = arrays["new"]

    def beside(arrays):
        right(arrays)
        rest = np.setdiff1d(np.arange(10), arrays["ids"] % 10)
        arrays["x"][rest[0], 1] = 0

    def first_row_only(arrays):
        arrays["x"][arrays["ids"][:1]] = arrays["new"][:1]

    def negative_ones_from_0(arrays):
        arrays["x"][np.abs(arrays["ids"]) % 10] = arrays["new"]

    assert Gate(program, block).check(program, right).passed
    with pytest.raises(CheckFailedError, match="elements of x outside the block were written"):
        Gate(program, block).check(program, beside)
    with pytest.raises(CheckFailedError, match="outside the block"):
        Gate(program, block).check(program, negative_ones_from_0)
    assert any("never written" in one for one in Gate(program, block).check(program, first_row_only).problems)


def test_what_is_no_put_is_refused_by_name():
    x, row, count = rg.tensor("x", (8, 4)), rg.tensor("row", (1, 4)), rg.tensor("ids", (1,), "int64")
    near, far = rg.scalar("near", "int32", 0, 7), rg.scalar("beyond", "int32", 0, 8)
    for arguments_, error, text in (
        ((3.0, row, near), ExpressionError, "target is 3.0; expected a tensor"),
        ((rg.ops.relu(x), row, near), ExpressionError, "expected a given tensor"),
        ((x, rg.tensor("r", (1, 5)), near), ShapeError, "is no block of x"),
        ((x, rg.tensor("r", (4,)), near), ShapeError, "values has 1 axes"),
        ((x, rg.tensor("r", (1, 4), "float16"), near), DtypeError, "values has dtype float16; expected float32"),
        ((x, row, far), ExpressionError, "is 0 to 8, where a block of 1 would leave axis 0 of x, 8 long; expected 0 to 7"),
        ((x, row, 8), ExpressionError, "is 8 to 8"),
        ((x, row, near, 2), ExpressionError, "axis is 2; x has 2 dimensions"),
        ((x, row, near, 0, "drop"), ExpressionError, "mode is 'drop'"),
        ((x, row, 1.5), ExpressionError, "at is 1.5; expected an int, an rg.scalar or a tensor of ids"),
        ((x, row, (near,), (0, 1)), ExpressionError, "a position for each axis"),
        ((x, row, rg.ops.add(count, 1)), ExpressionError, "the ids are computed"),
        ((x, row, count, 0, "clip"), ExpressionError, "two ids may be one place"),
        ((x, row, rg.tensor("i", (2,), "int64")), ShapeError, "expected an id for each of 1 along axis 0"),
    ):
        with pytest.raises(error) as caught:
            rg.put(*arguments_)
        assert text in str(caught.value)
    after = rg.put(x, row, near)
    with pytest.raises(ExpressionError, match="x is updated in place by the call"):
        rg.ops.relu(after)
    with pytest.raises(ExpressionError, match="x is updated in place, and read or updated by the same kernel"):
        rg.build(rg.put(x, rg.compute((1, 4), lambda i, j: x[i, j]), near), "cpu")
    with pytest.raises(ConstructionError, match="x is updated at places that are read"):
        construct(canonicalize(after), device("ipu"), top_k=1)
    with pytest.raises(ExpressionError, match="expected a kernel for each"):
        rg.build([after, rg.ops.relu(row)], "cpu")
