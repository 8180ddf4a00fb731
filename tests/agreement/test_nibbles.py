"""int4 and uint4: arguments of two elements to a byte, which expressions read as int8 and uint8."""

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.emit import emit
from rollergen.errors import ArgumentError, DtypeError, ExpressionError, ShapeError
from rollergen.expr.canonical import canonicalize
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from tests.agreement.readers import assert_traffic, device, interpreted, run_opencl

DTYPES = ("int4", "uint4")
SHAPES = ((), (1,), (7,), (8,), (6, 10), (7, 5), (2, 3, 5))
rng = np.random.default_rng(0)


def numbers(dtype, *shape):
    """All sixteen numbers, as often as fits."""
    every = np.arange(16) - (8 if dtype == "int4" else 0)
    return np.resize(rng.permutation(every), shape).astype(getattr(ml_dtypes, dtype))


def weighted(dtype, m=5, n=34, k=20):
    """A product with weights that are scaled by columns."""
    x, scale = rg.tensor("x", (m, k)), rg.tensor("scale", (n,))
    w = rg.tensor("w", (k, n), dtype, constant=True)
    return rg.ops.matmul(x, rg.ops.dequantize(w, scale, axis=1))


@pytest.mark.every(11)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_is_read_wherever_it_stands(dtype, shape):
    array = numbers(dtype, *shape)
    expression = rg.ops.cast(rg.tensor("w", shape, dtype), "float32")
    assert np.array_equal(expression.evaluate(array), array.astype(float))
    for name in ("cpu", "v100", "mi50", "ipu"):
        program = construct(canonicalize(expression), device(name), top_k=1)[0].program
        result = interpreted(program, {"w": rg.pack(array)}, device(name), 200)[0]
        for got in (result.outputs, run_opencl(program, {"w": rg.pack(array)}, device(name))):
            assert np.array_equal(got[program.outputs[0].name], array.astype(float))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cpu", "v100", "a100", "mi50", "ipu"])
@pytest.mark.every(3)
def test_weights_of_a_product_move_as_bytes_of_two(name, dtype):
    expression = weighted(dtype)
    array = numbers(dtype, 20, 34)
    arrays = {"x": rng.integers(-3, 4, (5, 20)).astype("float32"), "w": rg.pack(array), "scale": np.ones(34, "float32")}
    want = arrays["x"] @ array.astype("float32")
    assert np.array_equal(expression.evaluate(arrays["x"], array, arrays["scale"]), want)
    program = construct(canonicalize(expression), device(name), top_k=1)[0].program
    (stored,) = (b for b in program.inputs if b.name == "w")
    assert (stored.dtype, stored.shape, stored.packs) == ("uint8", (20, 17), f"{dtype}[20, 34]")
    result, blocks = interpreted(program, arrays, device(name), most_blocks=200)
    assert np.array_equal(result.outputs[program.outputs[0].name], want)
    assert_traffic(program, result.traffic, device(name), blocks)
    assert np.array_equal(run_opencl(program, arrays, device(name))[program.outputs[0].name], want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_takes_arrays_of_ml_dtypes_and_their_bytes(dtype):
    array, x = numbers(dtype, 20, 34), rng.integers(-3, 4, (5, 20)).astype("float32")
    kernel = rg.build(weighted(dtype), "cpu", cache=False, profile=False)
    assert f"w: {dtype}[20, 34]" in str(kernel.signature)
    for _ in range(2):
        for weights in (array, rg.pack(array), numbers(dtype, 20, 34)):
            values = weights if weights.dtype != np.uint8 else array
            assert np.array_equal(kernel(x, weights, np.ones(34, "float32")), x @ values.astype("float32"))


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (np.zeros((20, 34), ml_dtypes.uint4), DtypeError, r"w is uint4\[20, 34\]; expected int4\[20, 34\] of ml_dtypes, or"),
        (np.zeros((20, 33), ml_dtypes.int4), DtypeError, r"w is int4\[20, 33\]; expected int4\[20, 34\]"),
        (np.zeros((20, 34), np.int8), DtypeError, r"two to a byte, uint8\[20, 17\], as rg.pack makes them: kernel\(x"),
        (np.zeros((20, 34), np.uint8), ShapeError, r"w is uint8\[20, 34\]; expected int4\[20, 34\] of ml_dtypes, or"),
    ],
)
def test_other_arrays_are_refused_by_what_would_be_taken(array, error, text):
    kernel = rg.build(weighted("int4"), "cpu", cache=False, profile=False)
    with pytest.raises(error, match=text):
        kernel(np.zeros((5, 20), "float32"), array, np.ones(34, "float32"))


def test_inputs_are_ordered_by_the_tensors_that_were_made():
    x, w = rg.tensor("x", (3, 4)), rg.tensor("w", (3, 4), "int4")
    kernel = rg.build(rg.ops.add(x, rg.ops.cast(w, "float32")), "cpu", inputs=[w, x], cache=False, profile=False)
    array = numbers("int4", 3, 4)
    assert np.array_equal(kernel(array, np.ones((3, 4), "float32")), array.astype("float32") + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_text_for_cuda_compiles(dtype):
    nvrtc = pytest.importorskip("rollergen.hal.compilers.nvrtc")
    program = construct(canonicalize(weighted(dtype)), device("v100"), top_k=1)[0].program
    nvrtc.compile_cuda(emit(program, device("v100")).text, "sm_70")


def test_rows_begin_with_a_byte_the_first_number_in_its_low_bits():
    assert rg.pack([[1, 2, 3], [-1, -8, 7]]).tolist() == [[0x21, 0x03], [0x8F, 0x07]]
    assert rg.pack(np.array([15, 1], ml_dtypes.uint4)).tolist() == [0x1F]
    assert rg.pack(np.zeros((3, 0), np.int64)).shape == (3, 0)


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        ([1, 100], ArgumentError, "array has 1 to 100; expected integers from -8 to 15"),
        (np.array([-9], np.int8), ArgumentError, "array has -9 to -9"),
        ([1.0, 2.0], DtypeError, "array has dtype float64; expected integers"),
        ("abc", DtypeError, "array has dtype <U3"),
    ],
)
def test_what_four_bits_do_not_hold_is_not_packed(array, error, text):
    with pytest.raises(error, match=f"rg.pack: {text}"):
        rg.pack(array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_wrap_around_or_saturate_at_four_bits(dtype):
    values, held = np.arange(-40, 40), getattr(ml_dtypes, dtype)
    info = ml_dtypes.iinfo(held)
    x = rg.tensor("x", (80,), "int32")
    assert np.array_equal(rg.ops.cast(x, dtype).evaluate(values), values.astype(held).astype(int))
    assert rg.ops.cast(x, dtype).dtype == {"int4": "int8", "uint4": "uint8"}[dtype]
    saturated = rg.ops.cast(rg.tensor("x", (80,)), dtype, overflow="saturate")
    assert np.array_equal(saturated.evaluate(values.astype(float)), values.clip(info.min, info.max))


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_quantised_to_four_bits_and_back(dtype):
    info, x = ml_dtypes.iinfo(getattr(ml_dtypes, dtype)), rg.tensor("x", (50,))
    values = rng.normal(size=50) * 9
    q = rg.ops.quantize(x, 0.5, 3, dtype=dtype)
    steps = (np.rint(values / 0.5) + 3).clip(info.min, info.max)
    assert np.array_equal(q.evaluate(values), steps)
    assert np.array_equal(rg.ops.dequantize(q, 0.5, 3).evaluate(values), (steps - 3) * 0.5)
    with pytest.raises(ExpressionError, match=f"zero_point is 16; expected an integer from {info.min} to {info.max}"):
        rg.ops.quantize(x, 0.5, 16, dtype=dtype)


def test_other_dtypes_than_of_arguments_and_casts_name_what_is_taken():
    with pytest.raises(DtypeError, match=r"rg\.ops\.sum's dtype is 'int4'; expected one of float16"):
        rg.ops.sum(rg.tensor("x", (3,), "int8"), dtype="int4")
    with pytest.raises(DtypeError, match=r"expected one of float16, .*, int4, uint4"):
        rg.tensor("x", (3,), "int2")


@pytest.mark.parametrize("name", ["cpu", "v100", "mi50"])
@pytest.mark.every(2)
def test_weights_that_are_unpacked_first_are_unpacked_once(name):
    """Of several rows the model stores them; they ran at every call."""
    q, s = rg.tensor("q", (256, 512), "uint4", constant=True), rg.tensor("s", (2, 512), constant=True)
    x = rg.tensor("x", (64, 256))
    w = rg.compute((256, 512), lambda k, n: (rg.cast(q[k, n], "float32") - 8.0) * s[k // 128, n], name="w")
    graph = planned(rg.ops.matmul(x, w, name="y"), device(name))
    assert [(one.name, one.constant) for one in graph.temporaries] == [("w", True)]
    program = construct(graph, device(name), top_k=1)[0].program
    assert [stage.once for stage in program.stages if stage.op.output.name == "w"] == [True]
    price = predict(program, device(name))
    assert price.seconds == pytest.approx(sum(stage.seconds for stage in price.stages if not stage.once))
    random = np.random.default_rng(3)
    weights, scales = random.integers(0, 16, (256, 512)), random.integers(1, 4, (2, 512)).astype("f4")
    given = {"q": rg.pack(weights.astype("u1")), "s": scales, "x": random.integers(-3, 4, (64, 256)).astype("f4")}
    want = given["x"] @ ((weights - 8.0) * np.repeat(scales, 128, 0)).astype("f4")
    for got in (interpret(program, given, device(name)).outputs, run_opencl(program, given, device(name))):
        assert np.array_equal(got["y"], want)


def test_what_was_made_once_is_made_again_for_other_weights_and_when_told():
    s, x = rg.tensor("s", (64,), constant=True), rg.tensor("x", (32, 64))
    w = rg.compute((64, 64), lambda k, n: s[k] * rg.cast(k + n, "float32"), name="w")
    kernel = rg.build(rg.ops.matmul(x, w, name="y"), "cpu", cache=False, top_k=1)
    table = np.add.outer(np.arange(64), np.arange(64)).astype("f4")
    a, b = np.ones(64, "f4"), np.full(64, 2, "f4")
    given = lambda scales: {"s": scales, "x": np.eye(32, 64, dtype="f4")}
    assert np.array_equal(kernel(**given(a)), table[:32])
    assert np.array_equal(kernel(**given(b)), 2 * table[:32])
    b += 1
    kernel.repack()
    assert np.array_equal(kernel(**given(b)), 3 * table[:32])
