"""Integers of every width and sign: interpreter, source and definition agree where they wrap around, convert and sum."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import INTEGERS, numpy_dtype
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl

T = rg.tensor


def wrapping(dtype):
    """Sums, differences, products and negations that pass the ends."""
    x, y = T("X", (13, 37), dtype), T("Y", (13, 37), dtype)
    element = lambda i, j: rg.maximum((x[i, j] * y[i, j] - x[i, j]) * y[i, j], -y[i, j]) + rg.abs(x[i, j])
    return rg.compute((13, 37), element)


def compared(dtype):
    x, y = T("X", (13, 37), dtype), T("Y", (13, 37), dtype)
    return rg.compute((13, 37), lambda i, j: rg.select(x[i, j] < y[i, j], x[i, j], y[i, j] - 1))


def product(dtype):
    return rg.ops.matmul(T("A", (20, 33), dtype), T("B", (33, 18), dtype))


def divided(dtype):
    """Quotients and remainders of either rounding, those of 0 and of the least integer by -1 among them."""
    x, y = T("X", (13, 37), dtype), T("Y", (13, 37), dtype)
    parts = lambda a, b: (a // b) ^ (a % b) ^ rg.divide(a, b, "trunc") ^ rg.remainder(a, b, "trunc") ^ a // 3 ^ a % 7
    return rg.compute((13, 37), lambda i, j: parts(x[i, j], y[i, j] & 3) ^ (x[i, j] // y[i, j]))


def raised(dtype):
    """Powers that pass the ends, and such as are negative."""
    x, y = T("X", (13, 37), dtype), T("Y", (13, 37), dtype)
    return rg.compute((13, 37), lambda i, j: (x[i, j] ** (y[i, j] & 7)) ^ ((x[i, j] & 3) - 1) ** y[i, j] ^ x[i, j] ** 5)


def bits(dtype):
    """Shifts by more bits than there are, and by less than none, among them."""
    x, y = T("X", (13, 37), dtype), T("Y", (13, 37), dtype)
    most = lambda a, b: (a << (b & 15)) ^ (a >> b) ^ (a << b) ^ ((a << 2) | ~b) ^ (a >> 3)
    return rg.compute((13, 37), lambda i, j: most(x[i, j], y[i, j]))


def extremes(dtype):
    x, k = T("X", (9, 50), dtype), rg.reduce_axis("k", 50)
    return rg.compute((9,), lambda i: rg.max(x[i, k], axis=k) - rg.min(x[i, k], axis=k))


def to_floats(dtype):
    x = T("X", (13, 37), dtype)
    return rg.compute((13, 37), lambda i, j: rg.cast(x[i, j], "float64") * 0.5)


EXPRESSIONS = {f.__name__: f for f in (wrapping, compared, product, divided, raised, bits, extremes, to_floats)}


def any_numbers(program, seed=0):
    """All that the dtypes hold, the ends among them."""
    random, made = np.random.default_rng(seed), {}
    for buffer in program.inputs:
        info = np.iinfo(numpy_dtype(buffer.dtype))
        made[buffer.name] = random.integers(info.min, info.max, buffer.shape, buffer.dtype, endpoint=True)
        made[buffer.name].flat[:3] = (info.min, info.max, info.min) if buffer.name != "Y" else (info.max, 0, info.max)
        made[buffer.name].flat[3:40] //= info.max // 99 or 1
    return made


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("device_name", ["cpu", "v100", "ipu"])
@pytest.mark.every(13)
def test_all_readers_wrap_around_at_the_ends_of_the_dtype(device_name, dtype, name):
    expression, spec = EXPRESSIONS[name](dtype), device(device_name)
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    arrays = any_numbers(program)
    result, blocks = interpreted(program, arrays, spec, most_blocks=200)
    out = program.outputs[0].name
    want, written = expression.evaluate(*(arrays[b.name] for b in program.inputs)), result.written[out]
    assert written.any() and np.array_equal(result.outputs[out][written], want[written])
    assert_traffic(program, result.traffic, spec, blocks)
    assert np.array_equal(run_opencl(program, arrays, spec)[out], want)


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.every(13)
def test_conversions_between_integers_keep_the_low_bits(source, target):
    x = T("X", (5, 67), source)
    expression, spec = rg.ops.cast(x, target), device("cpu")
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    arrays = any_numbers(program)
    want = arrays["X"].astype(target)
    assert np.array_equal(run_opencl(program, arrays, spec)[program.outputs[0].name], want)
    assert np.array_equal(interpreted(program, arrays, spec, 200)[0].outputs[program.outputs[0].name], want)
    assert np.array_equal(expression.evaluate(arrays["X"]), want)


@pytest.mark.every(11)
@pytest.mark.parametrize("target", [name for name in INTEGERS if name.startswith("uint")])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [1, 5, 131])
def test_negative_floats_wrap_around_as_unsigned_integers(columns, source, target):
    expression = rg.ops.cast(T("X", (3, columns), source), target)
    numbers = np.linspace(-2000.5, 250, 3 * columns).reshape(3, columns).astype(source)
    want = numbers.astype(np.int64).astype(target)
    assert np.array_equal(expression.evaluate(numbers), want)
    assert np.array_equal(rg.build(expression, "cpu", top_k=1, cache=False)(numbers), want)
    spec = device("mi50")
    program = construct(canonicalize(expression), spec, top_k=1)[0].program
    arrays, out = {"X": numbers}, program.outputs[0].name
    assert np.array_equal(interpreted(program, arrays, spec, 200)[0].outputs[out], want)
    assert np.array_equal(run_opencl(program, arrays, spec)[out], want)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_kernel_of_integers_is_built_explained_saved_and_loaded(dtype, tmp_path):
    expression = wrapping(dtype)
    kernel = rg.build(expression, "cpu", top_k=1, cache=False)
    arrays = any_numbers(kernel.program)
    want = expression.evaluate(*(arrays[name] for name in ("X", "Y")))
    assert dtype in str(kernel.signature) and f"X: {dtype}[13, 37]" in kernel.explain()
    assert np.array_equal(kernel(arrays["X"], arrays["Y"]), want.astype(dtype))
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert np.array_equal(loaded(arrays["X"], arrays["Y"]), want.astype(dtype))


@pytest.mark.every(7)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["wrapping", "product", "divided", "bits", "to_floats"])
def test_their_cuda_text_compiles(dtype, name):
    nvrtc = pytest.importorskip("rollergen.hal.compilers.nvrtc")
    spec = device("v100")
    source = emit(construct(canonicalize(EXPRESSIONS[name](dtype)), spec, top_k=1)[0].program, spec)
    nvrtc.compile_cuda(source.text, "sm_70")


def test_literals_outside_an_unsigned_dtype_are_refused():
    x = T("X", (4,), "uint8")
    with pytest.raises(rg.errors.DtypeError, match="-1 does not fit uint8; expected 0 to 255"):
        rg.compute((4,), lambda i: x[i] + -1)
    with pytest.raises(rg.errors.DtypeError, match="uint64 and int64: no integer holds both"):
        rg.ops.add(T("A", (4,), "uint64"), T("B", (4,), "int64"))
    assert rg.ops.add(T("A", (4,), "uint8"), T("B", (4,), "int8")).dtype == "int16"


def test_division_names_its_rounding():
    x = T("X", (4,), "int32")
    with pytest.raises(rg.errors.ExpressionError, match="rounding is 'up'; expected "):
        rg.compute((4,), lambda i: rg.divide(x[i], 2, "up"))
    with pytest.raises(rg.errors.DtypeError, match="// of float32 values; expected integers"):
        rg.compute((4,), lambda i: T("F", (4,))[i] // 2)
    with pytest.raises(rg.errors.DtypeError, match="has dtype float32; expected an integer one"):
        rg.ops.bitwise_and(T("F", (4,)), 2)
    values = np.array([7, -7, 7, -7], np.int32)
    assert rg.ops.remainder(x, -4).evaluate(values).tolist() == [-1, -3, -1, -3]
    assert rg.ops.fmod(x, -4).evaluate(values).tolist() == [3, -3, 3, -3]
    assert rg.ops.div(x, 4, rounding_mode="trunc").evaluate(values).tolist() == [1, -1, 1, -1]
    assert rg.ops.div(x, 4, rounding_mode="floor").evaluate(values).tolist() == [1, -2, 1, -2]
    assert rg.ops.div(x, 0, rounding_mode="floor").evaluate(values).tolist() == [0, 0, 0, 0]
