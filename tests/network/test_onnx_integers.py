"""Nodes of integers and of quantised values: their results are those of ONNX's reference implementation."""

import numpy as np
import pytest

import rollergen as rg

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

rng = np.random.default_rng(0)
ENDS = np.iinfo(np.uint64).max
LARGE = {
    "uint64": np.array([ENDS, ENDS - 1, 2**63 + 7, 5], "uint64"),
    "int64": np.array([2**63 - 1, -(2**63) + 1, -(2**53) - 1, -5], "int64"),
}


def numbers(dtype, *shape):
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def scales(*shape):
    return np.asarray(rng.random(shape) / 4 + 0.05, np.float32)


def of(operator, *arrays, known=(), **attributes):
    """A model of one node, its result by ONNX's reference, and the arrays that it is called with."""
    names = [f"x{n}" for n in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for n, (name, array) in enumerate(zip(names, arrays, strict=True)) if n not in known
    ]  # fmt: skip
    initial = [numpy_helper.from_array(arrays[n], names[n]) for n in known]
    node = helper.make_node(operator, names, ["y"], **attributes)
    graph = helper.make_graph([node], "net", infos, [onnx.ValueInfoProto(name="y")], initial)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    given = [array for n, array in enumerate(arrays) if n not in known]
    read = {name: array for n, (name, array) in enumerate(zip(names, arrays, strict=True)) if n not in known}
    return proto, ReferenceEvaluator(proto).run(None, read)[0], given


U8, I8 = np.uint8, np.int8
CASES = {
    "BitShift of uint64": ("BitShift", LARGE["uint64"], np.array([1, 2, 40, 0], "uint64"), {"direction": "RIGHT"}),
    "BitShift of uint8": ("BitShift", numbers(U8, 4), np.array([1, 2, 7, 0], U8), {"direction": "LEFT"}),
    "BitwiseXor": ("BitwiseXor", numbers("int16", 3, 4), numbers("int16", 4)),
    "BitwiseNot": ("BitwiseNot", numbers("int32", 3)),
    "Div of uint64": ("Div", LARGE["uint64"], np.array([3, 1, 2, 7], "uint64")),
    "Div of int64": ("Div", LARGE["int64"], np.array([3, 1, -2, 3], "int64")),
    "Mod of int64": ("Mod", LARGE["int64"], np.array([3, 10, -7, 3], "int64")),
    "Mod of int64, fmod": ("Mod", LARGE["int64"], np.array([3, 10, -7, 3], "int64"), {"fmod": 1}),
    "quantised along an axis": (
        "QuantizeLinear", scales(2, 3, 4) * 40 - 5, scales(3), np.array([0, 128, 255], U8), {"axis": 1}),
    "quantised in blocks": (
        "QuantizeLinear", scales(2, 6) * 99, scales(2, 2), np.array([[0, 9], [7, 3]], "int16"),
        {"axis": 1, "block_size": 3}),
    "dequantised in blocks": ("DequantizeLinear", numbers(I8, 4, 2), scales(2, 2), {"axis": 0, "block_size": 2}),
    "QLinearMatMul to uint8": (
        "QLinearMatMul", numbers(U8, 3, 5), scales(), np.array(100, U8), numbers(I8, 5, 4), scales(),
        np.array(-3, I8), np.array(9, np.float32), np.array(77, U8)),
    "QLinearConv by filters": (
        "QLinearConv", numbers(U8, 1, 2, 5, 6), scales(), np.array(120, U8), numbers(U8, 3, 2, 3, 3), scales(3),
        np.array([128], U8), scales(), np.array(100, U8), numbers("int32", 3) // 2**20,
        {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "MatMulInteger": ("MatMulInteger", numbers(U8, 3, 5), numbers(I8, 5, 4), np.array(9, U8), np.array(-7, I8)),
    "ConvInteger": ("ConvInteger", numbers(U8, 1, 2, 4, 4), numbers(U8, 3, 2, 2, 2), np.array(9, U8)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_node_of_integers_is_the_references(name):
    operator, *arrays = CASES[name]
    attributes = arrays.pop() if isinstance(arrays[-1], dict) else {}
    proto, wanted, given = of(operator, *arrays, **attributes)
    made = rg.compile(proto, given, "cpu", profile=False)
    assert all(layer.kernel is not None for layer in made.layers)  # none runs in the reference
    found = made(*given)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if wanted.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("saturate", "wanted"), [(1, [448.0, -448.0, 1.5]), (0, [np.nan, np.nan, 1.5])])
def test_a_cast_to_eight_bits_saturates_unless_told_otherwise(saturate, wanted):
    x = np.array([1e6, -1e6, 1.5], np.float32)
    proto, _, given = of("Cast", x, to=onnx.TensorProto.FLOAT8E4M3FN, saturate=saturate)
    found = rg.compile(proto, given, "cpu", profile=False)(*given)
    np.testing.assert_array_equal(found.astype(np.float32), wanted)


def test_a_zero_point_of_floats_is_zero():
    import ml_dtypes

    one = np.array([1], ml_dtypes.float8_e4m3fn)
    proto, _, given = of("QuantizeLinear", scales(3), scales(1), np.zeros(1, ml_dtypes.float8_e4m3fn), known=(2,))
    assert rg.compile(proto, given, "cpu", profile=False).layers[0].kernel is not None
    proto, _, given = of("QuantizeLinear", scales(3), scales(1), one, known=(2,))
    (layer,) = rg.compile(proto, given, "cpu", profile=False).layers
    assert layer.kernel is None and "a zero point of floats other than 0" in layer.reason


@pytest.mark.parametrize(("operator", "end"), [("ReduceMax", "min"), ("ReduceMin", "max")])
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool"])
def test_extremes_of_nothing_are_the_ends_of_the_range(operator, end, dtype):
    wanted = {"float32": -np.inf if end == "min" else np.inf, "bool": end == "max"}.get(dtype)
    wanted = getattr(np.iinfo(dtype), end) if wanted is None else wanted
    proto, _, given = of(operator, np.zeros((2, 0), dtype), np.array([1], "int64"), known=(1,))
    model = rg.compile(proto, given, "cpu", profile=False)
    assert all(layer.kernel is not None for layer in model.layers)
    np.testing.assert_array_equal(model(*given), np.full((2, 1), wanted, dtype))


@pytest.mark.parametrize("opset", [10, 13, 17, 18])
def test_weights_are_dequantised_in_every_operator_set(opset):
    """Before 19 ONNX's reference has no DequantizeLinear, and what it cannot make of constants rg.ops makes."""
    weights = {"w": numbers(I8, 5, 4), "s": np.float32(0.25), "z": np.array(3, I8)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), helper.make_node("MatMul", ["x", "d"], ["y"])]
    infos = [helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, (2, n)) for one, n in (("x", 5), ("y", 4))]
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], initial)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    x = scales(2, 5)
    made = rg.compile(proto, device="cpu", profile=False)
    np.testing.assert_allclose(made(x), x @ ((weights["w"].astype(np.float32) - 3) * 0.25), rtol=1e-5)
    assert all(layer.kernel is not None for layer in made.layers)
