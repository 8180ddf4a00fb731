"""Integer arithmetic up to the ends of every dtype: literals, folded casts, what wraps around; in every language."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import device, run_opencl
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

N = 32
CONSTANTS = {
    "int64": (2**31 - 1, -(2**31) - 1, 3 * 10**9, 2**63 - 1, -(2**63)),
    "int32": (2**31 - 1, -(2**31), 65536),
    "int8": (127, -128, 100),
}


def terms(x, dtype):
    """``x`` with each constant by every operation, with what two constants make, and with constants of other dtypes."""
    numbers = CONSTANTS[dtype]
    for c, d in zip(numbers, numbers[1:] + numbers[:1], strict=True):
        k, j = rg.cast(c, dtype), rg.cast(d, dtype)
        yield from (x + c, c - x, x * c, rg.maximum(x, c), rg.minimum(c, x), rg.select(x < c, x, d))
        yield from (x + (k + j), x - k * j, x + (-k - abs(j)), rg.select(rg.maximum(k, j) == x, k, x))
        yield from (x + rg.cast(rg.cast(c, "int64"), dtype), rg.cast(rg.cast(x, "int64") * c, dtype))


def hashed(dtype):
    """All `terms` in one number."""
    X = rg.tensor("X", (N,), dtype)

    def body(i):
        total = X[i]
        for term in terms(X[i], dtype):
            total = total * 31 + term
        return total

    return rg.compute((N,), body), extremes(dtype)


def extremes(dtype):
    info = np.iinfo(dtype)
    values = np.random.default_rng(2).integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    values[: len(CONSTANTS[dtype])] = CONSTANTS[dtype]
    return values


def program_of(expression, name):
    return construct(canonicalize(expression), device(name), top_k=1)[0].program


@pytest.mark.parametrize("name", ["cpu", "mi50"])
@pytest.mark.parametrize("dtype", CONSTANTS)
def test_opencl_text_wraps_around_as_numpy_does(dtype, name):
    expression, x = hashed(dtype)
    program = program_of(expression, name)
    found = run_opencl(program, {"X": x}, device(name))[program.outputs[0].name]
    assert np.array_equal(found, expression.evaluate(x))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_cuda_text_wraps_around_as_numpy_does():
    expression, x = hashed("int64")
    program = program_of(expression, "v100")
    found = executed(program, emit(program, device("v100"), "cuda"), {"X": x})[program.outputs[0].name]
    assert np.array_equal(found, expression.evaluate(x))


def test_sums_of_64_bit_literals_are_written_in_64_bits():
    X, large = rg.tensor("X", (N,), "int64"), rg.cast(2**31 - 1, "int64")
    expression = rg.compute((N,), lambda i: X[i] + (large + large))
    text = lambda name: emit(program_of(expression, name), device(name)).text
    assert "2147483647ULL + 2147483647ULL" in text("v100")
    assert "2147483647UL + 2147483647UL" in text("mi50")


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_a_python_integer_that_meets_nothing_else_is_int64_where_int32_is_too_narrow(number):
    i = rg.reduce_axis("i", 3)
    assert rg.cast(number, "int64").value.value == number
    assert (rg.select(i < 2, 0, number)).dtype == "int64"
    with pytest.raises(RollergenError, match="does not fit int64; expected"):
        rg.cast(2**64, "int64")


def test_a_python_float_is_cast_without_rounding_to_float32_first():
    X = rg.tensor("X", (4,), "float64")
    expression = rg.compute((4,), lambda i: X[i] + rg.cast(0.1, "float64"))
    program = program_of(expression, "cpu")
    found = run_opencl(program, {"X": np.zeros(4)}, device("cpu"))[program.outputs[0].name]
    assert (found == 0.1).all()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16"])
def test_what_is_shifted_past_a_narrow_integer_is_cut_off_before_it_is_widened(dtype):
    X, k = rg.tensor("X", (8, N), dtype), rg.reduce_axis("k", 8)
    expression = rg.compute((N,), lambda i: rg.sum(rg.cast(X[k, i] << (X[k, i] & 15), "int32"), axis=k))
    x = np.arange(8 * N).reshape(8, N).astype(dtype)
    for name in ("k80", "cpu"):
        program = program_of(expression, name)
        found = run_opencl(program, {"X": x}, device(name))[program.outputs[0].name]
        assert np.array_equal(found, expression.evaluate(x))
