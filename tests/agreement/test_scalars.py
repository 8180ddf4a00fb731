"""Integers of the call: definition, interpreter, OpenCL C and CUDA text agree with NumPy at both ends and between."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ArgumentError, DtypeError, ExpressionError
from rollergen.expr.canonical import canonicalize
from rollergen.gate.facts import Facts
from rollergen.program.interpreter import interpret
from rollergen.program.serial import from_json, to_json
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

X, POS, K = rg.tensor("x", (64, 9)), rg.scalar("pos", "int32", 0, 60), rg.reduce_axis("k", 64)
BACK = rg.scalar("back", "int32", -64, -5)
CASES = {
    "an index": (rg.compute((4, 9), lambda i, j: X[POS + i, j]), "pos", lambda x, p: x[p : p + 4]),
    "an index from the end": (rg.compute((4, 9), lambda i, j: X[BACK + i, j]), "back", lambda x, p: x[64 + p : 68 + p]),
    "a value": (rg.compute((64, 9), lambda i, j: X[i, j] * rg.cast(POS, "float32")), "pos", lambda x, p: x * p),
    "a condition": (rg.compute((64, 9), lambda i, j: rg.select(i == POS, 7.0, X[i, j])), "pos", lambda x, p: np.where(np.arange(64)[:, None] == p, 7, x)),
    "a bound of a reduction": (rg.compute((9,), lambda j: rg.sum(rg.select(K < POS, X[K, j], 0.0), axis=K)), "pos", lambda x, p: x[:p].sum(0)),
    "in a row that is kept": (rg.compute((64, 9), lambda i, j: rg.scan("sum", X)[i, j] - rg.cast(POS, "float32")), "pos", lambda x, p: x.cumsum(1) - p),
}  # fmt: skip
ENDS = {"pos": (0, 17, 60), "back": (-64, -20, -5)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.every(3)
def test_every_reader_knows_the_value(case):
    expression, name, numpys = CASES[case]
    x = np.random.default_rng(0).integers(-3, 4, (64, 9)).astype("float32")
    dtype = "int32"
    programs = {of: construct(canonicalize(expression), device(of), top_k=1)[0].program for of in ("cpu", "v100", "mi50")}
    for value in ENDS[name]:
        arrays, want = {"x": x, name: np.array(value, dtype)}, numpys(x, value)
        assert np.array_equal(expression.evaluate(**arrays), want)
        for of, program in programs.items():
            got = [interpret(program, arrays, device(of)).outputs, run_opencl(program, arrays, device(of))]
            if of == "v100" and value == ENDS[name][-1] and compiler() is not None:
                got.append(executed(program, emit(program, device(of), "cuda"), arrays, False))
            for one in got:
                assert np.array_equal(one["out"], want)
    for program in programs.values():
        assert from_json(to_json(program)) == program
        assert Facts(program).ids[name] == (ENDS[name][0], ENDS[name][-1])  # the gate tries both ends


def test_one_kernel_serves_all_values_and_refuses_those_outside(tmp_path):
    expression, _, numpys = CASES["an index"]
    kernel = rg.build(expression, "cpu", profile=False, cache=False, inputs=[X, POS])
    x = np.random.default_rng(0).random((64, 9), "float32")
    for value in (*range(61), np.int32(7), np.array(9, "int32")):
        assert np.array_equal(kernel(x, value), numpys(x, int(value)))
    assert np.array_equal(kernel(x=x, pos=5), x[5:9]) and np.array_equal(kernel.interpret(x, 5), x[5:9])
    for call in (kernel, kernel.interpret, expression.evaluate):
        for value in (61, -1):
            with pytest.raises(ArgumentError, match=f"pos is {value}; expected 0 to 60"):
                call(x=x, pos=value)
    with pytest.raises(DtypeError, match="pos has dtype int64"):
        kernel(x, np.array(3))
    for value in (3.0, True, np.float32(3), np.bool_(True)):
        with pytest.raises(ArgumentError, match=re.escape(f"pos is {value!r}; expected an int from 0 to 60")):
            kernel(x, value)
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert np.array_equal(loaded(x, 60), x[60:64])
    with pytest.raises(ArgumentError, match="pos is 61; expected 0 to 60"):
        loaded(x, 61)


def test_bounds_may_be_integers_of_numpy():
    buffer = rg.scalar("pos", "int32", np.int64(0), np.uint8(60)).tensor.buffer
    assert buffer == rg.scalar("pos", "int32", 0, 60).tensor.buffer and type(buffer.low) is type(buffer.high) is int


def test_what_is_no_scalar_is_refused_by_name():
    for arguments, error, text in (
        (("p", "float32", 0, 1), DtypeError, "dtype is 'float32'; expected int32 or int64"),
        (("p", "int32", 3, 2), ExpressionError, "low is 3 and high is 2"),
        (("p", "int32", 0, 2**31), DtypeError, "high is 2147483648, which int32 does not hold"),
        (("p", "int32", 0, 1.5), ExpressionError, "high is 1.5; expected an integer"),
        (("p", "int32", False, 3), ExpressionError, "low is False; expected an integer"),
        (("out", "int32", 0, 1), ExpressionError, "an argument of every kernel's own"),
    ):
        with pytest.raises(error) as caught:
            rg.scalar(*arguments)
        assert text in str(caught.value)
    beyond = rg.scalar("beyond", "int32", 0, 61)
    with pytest.raises(ExpressionError, match="are computed, so that no call can refuse those outside"):
        rg.build(rg.compute((4, 9), lambda i, j: X[beyond + i, j]), "cpu", cache=False)
