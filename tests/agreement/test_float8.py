"""float8_e4m3fn and float8_e5m2: stored as eight bits, computed with as float32, rounded to nearest even."""

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype, rounded
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl

T = rg.tensor
DTYPES = ("float8_e4m3fn", "float8_e5m2")


def words(dtype):
    """Every value of the dtype."""
    return np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype))


def same(a, b):
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    return bool(np.all((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))))


def program_of(expression, name):
    return construct(canonicalize(expression), device(name), top_k=1)[0].program


def between(dtype):
    """All values as float32, what lies halfway between two and next to that, and numbers of every exponent."""
    held = np.sort(words(dtype).astype(np.float32)[np.isfinite(words(dtype).astype(np.float32))])
    middle = ((held[1:].astype(np.float64) + held[:-1]) / 2).astype(np.float32)
    sides = [np.nextafter(middle, np.float32(way)) for way in (np.inf, -np.inf)]
    random = np.random.default_rng(0).integers(0, 2**32, 3000, np.uint32).view(np.float32)
    last = np.array([np.inf, -np.inf, np.nan, 464, 465, 480, 61439, 61440, -1e30], np.float32)
    return np.concatenate([held, middle, *sides, random, last])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_is_read_as_the_number_that_it_stands_for(dtype):
    expression = rg.ops.cast(T("X", (256,), dtype), "float32")
    for name in ("cpu", "v100", "ipu"):
        program, arrays = program_of(expression, name), {"X": words(dtype)}
        result = interpreted(program, arrays, device(name), 200)[0]
        for got in (result.outputs, run_opencl(program, arrays, device(name))):
            assert same(got[program.outputs[0].name], words(dtype).astype(np.float32))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_rounded_once_to_nearest_even(dtype, source):
    with np.errstate(invalid="ignore"):
        numbers = between(dtype).astype(source)
    if source == "float64":
        numbers = np.concatenate([numbers, numbers * (1 + 2.0**-40)])
    expression = rg.ops.cast(T("X", numbers.shape, source), dtype)
    program, arrays = program_of(expression, "cpu"), {"X": numbers}
    with np.errstate(all="ignore"):
        want = rounded(numbers, dtype)
        interpretation = interpreted(program, arrays, device("cpu"), 200)[0].outputs
    assert same(interpretation[program.outputs[0].name], want)
    assert same(run_opencl(program, arrays, device("cpu"))[program.outputs[0].name], want)


def test_rounding_goes_through_no_other_format():
    """1 + 2^-4 lies halfway between two of float8_e4m3fn; what is added to it float32 does not hold."""
    numbers = np.array([1 + 2.0**-4, 1 + 2.0**-4 + 2.0**-40, 1 + 2.0**-4 - 2.0**-40])
    assert rounded(numbers, "float8_e4m3fn").astype(float).tolist() == [1.0, 1.125, 1.0]


EXPRESSIONS = {
    "product": lambda dtype: rg.ops.matmul(T("A", (20, 33), dtype), T("B", (33, 18), dtype), dtype="float32"),
    "sum of rows": lambda dtype: rg.ops.sum(T("X", (50, 70), dtype), dim=1),
    "arithmetic": lambda dtype: rg.ops.relu(rg.ops.add(T("X", (13, 37), dtype), T("Y", (13, 37), dtype))),
    "transposed": lambda dtype: rg.ops.permute(T("X", (50, 70), dtype), (1, 0)),
}


@pytest.mark.every(11)
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device_name", ["cpu", "v100", "ipu"])
def test_all_readers_agree_with_the_definition(device_name, dtype, name):
    expression = EXPRESSIONS[name](dtype)
    program, random = program_of(expression, device_name), np.random.default_rng(0)
    arrays = {b.name: random.integers(-1, 2, b.shape).astype(numpy_dtype(b.dtype)) for b in program.inputs}
    result, blocks = interpreted(program, arrays, device(device_name), most_blocks=200)
    out = program.outputs[0]
    want = rounded(expression.evaluate(*(arrays[b.name] for b in program.inputs)), out.dtype).astype(np.float64)
    written = result.written[out.name]
    assert written.any() and np.array_equal(result.outputs[out.name].astype(np.float64)[written], want[written])
    assert_traffic(program, result.traffic, device(device_name), blocks)
    assert np.array_equal(run_opencl(program, arrays, device(device_name))[out.name].astype(np.float64), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_is_built_saved_loaded_and_takes_tensors_of_torch(dtype, tmp_path):
    torch = pytest.importorskip("torch")
    kernel = rg.build(rg.ops.add(T("X", (9, 40), dtype), T("Y", (9, 40), dtype)), "cpu", top_k=1, cache=False)
    x = np.random.default_rng(0).standard_normal((9, 40)).astype(numpy_dtype(dtype))
    want = (x.astype(np.float32) * 2).astype(numpy_dtype(dtype))
    assert dtype in str(kernel.signature) and np.array_equal(kernel(x, x).view(np.uint8), want.view(np.uint8))
    assert np.array_equal(rg.load(kernel.save(tmp_path / "kernel"))(x, x).view(np.uint8), want.view(np.uint8))
    given = torch.from_numpy(x.view(np.uint8)).view(getattr(torch, dtype))
    made = kernel(given, given)
    assert made.dtype == given.dtype and np.array_equal(made.view(torch.uint8).numpy(), want.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_their_cuda_text_compiles(dtype):
    nvrtc = pytest.importorskip("rollergen.hal.compilers.nvrtc")
    for make in EXPRESSIONS.values():
        nvrtc.compile_cuda(emit(program_of(make(dtype), "v100"), device("v100")).text, "sm_70")


def test_a_number_beyond_the_largest_is_refused_as_a_literal():
    with pytest.raises(rg.errors.DtypeError, match="does not fit float8_e4m3fn"):
        rg.ops.add(T("X", (4,), "float8_e4m3fn"), 500.0)
    assert float(ml_dtypes.finfo("float8_e4m3fn").max) == 448


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_read_elements_that_lie_apart(dtype):
    x = T("X", (12, 6), dtype)
    program = program_of(rg.compute((6, 3), lambda i, j: x[i * 2, j * 2]), "ipu")
    arrays = {"X": words(dtype)[:72].reshape(12, 6)}
    result = interpreted(program, arrays, device("ipu"), 200)[0]
    assert same(result.outputs[program.outputs[0].name], arrays["X"][::2, ::2])
