"""float64 and integers become float16 and bfloat16 by one rounding: in programs, in the interpreter, in literals."""

from fractions import Fraction
from math import copysign, frexp, inf, isfinite

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype, rounded
from rollergen.program.interpreter import interpret
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

FORMATS = {"float16": (11, -24, 65504.0), "bfloat16": (8, -133, float(2 - 2**-7) * 2.0**127)}
"""Bits of a number, exponent of the smallest one, the largest one."""


def nearest(x, dtype):
    """`x` (a float or int) rounded to nearest even by exact arithmetic."""
    if isinstance(x, float) and not isfinite(x):
        return x
    bits, least, largest = FORMATS[dtype]
    unit = Fraction(2) ** max(frexp(x)[1] - bits, least)
    found = round(Fraction(x) / unit) * unit
    if abs(found) > largest:
        return inf if x > 0 else -inf
    return copysign(float(found), x)


def halves(dtype):
    """Middles between neighbours of the format, and what lies beside them by less than float32 tells apart."""
    bits, least, largest = FORMATS[dtype]
    found = [0.0, -0.0, inf, -inf, 65519.9999, 1e-60, 1e60, largest * (1 + 2.0**-bits) * (1 - 2.0**-40)]
    for exponent in (least + 1, least + 5, -3, 0, 9):
        for last in (2 ** (bits - 1), 2**bits - 1, 2 ** (bits - 1) + 1):
            middle = (last + 0.5) * 2.0**exponent
            found += [middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40), -middle * (1 + 2.0**-40)]
    return np.array(found)


def whole(dtype):
    """The same among integers."""
    size = 31 if dtype == "int32" else 63
    found = [0, 1, -1, 2 ** (size - 1), -(2**size), 2**size - 1]
    for shift in range(9, size - 8, 6):
        middle = 257 << shift
        found += [middle, middle + 1, middle - 1, -middle - 1, 259 << shift]
    return np.array(found, dtype)


SOURCES = {"float64": halves, "int64": lambda _: whole("int64"), "int32": lambda _: whole("int32")}


def same(found, want):
    return np.array_equal(np.asarray(found, np.float64), want) and np.array_equal(np.signbit(found), np.signbit(want))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("source", SOURCES)
def test_readers_round_once(source, dtype):
    x = SOURCES[source](dtype)
    want = np.array([nearest(one, dtype) for one in x.tolist()])
    spec, expression = device("cpu"), rg.ops.cast(rg.tensor("X", x.shape, source), dtype)
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    name = program.outputs[0].name
    with np.errstate(over="ignore"):
        assert same(rounded(x, dtype), want)
    assert same(interpret(program, {"X": x}, spec).outputs[name], want)
    assert same(run_opencl(program, {"X": x}, spec)[name], want)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", FORMATS)
def test_cuda_text_rounds_once(dtype):
    x, spec = halves(dtype), device("v100")
    want = np.array([nearest(one, dtype) for one in x.tolist()])
    program = construct(canonicalize(rg.ops.cast(rg.tensor("X", x.shape, "float64"), dtype)), spec, top_k=1)[0].program
    found = executed(program, emit(program, spec, "cuda"), {"X": x})[program.outputs[0].name]
    assert same(found, want)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_literal_is_rounded_once(dtype):
    number = 1 + 2.0 ** -FORMATS[dtype][0] + 2.0**-40
    X, spec = rg.tensor("X", (8,), dtype), device("cpu")
    expression = rg.compute((8,), lambda i: X[i] * rg.cast(rg.cast(number, "float64"), dtype))
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    found = run_opencl(program, {"X": np.ones(8, numpy_dtype(dtype))}, spec)[program.outputs[0].name]
    assert same(found, np.full(8, nearest(number, dtype)))
