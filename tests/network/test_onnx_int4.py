"""Weights of int4 and uint4 in ONNX models: two to a byte in the model's kernels."""

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

rng = np.random.default_rng(0)


def model(dtype, extent=33):
    """A product of x with weights that are scaled by columns; odd rows, so that a byte is half empty."""
    held, low = getattr(ml_dtypes, dtype), -8 if dtype == "int4" else 0
    weights = {
        "w": rng.integers(low, low + 16, (24, extent)).astype(held),
        "scale": np.asarray(rng.random(extent) + 0.5, np.float32),
        "zero": rng.integers(low, low + 16, extent).astype(held),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["real"], axis=1),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (5, 24))
    initial = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", [info], [onnx.ValueInfoProto(name="y")], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_a_product_with_weights_of_four_bits_is_one_kernel_and_is_saved(dtype, tmp_path):
    proto, x = model(dtype), np.asarray(rng.integers(-3, 4, (5, 24)), np.float32)
    want = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    compiled = rg.compile(proto, device="cpu")
    (kernel,) = compiled.kernels
    stored = {b.shape for b in kernel.program.inputs if b.dtype == "uint8"}
    assert stored == {(24, 17), (17,)} and all(step.expression is not None for step in compiled.steps)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rg.load(compiled.save(tmp_path / "model"))(x), want, rtol=1e-5, atol=1e-5)


def test_values_of_four_bits_that_a_call_brings_are_left_to_onnx():
    info = helper.make_tensor_value_info("q", onnx.TensorProto.INT4, (4, 6))
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["q", "scale"], ["y"])], "net", [info],
        [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(np.float32(0.5), "scale")],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = rg.compile(proto, device="cpu")
    assert compiled.steps[0].reason == "q is int4, which weights alone may be"
    q = rng.integers(-8, 8, (4, 6)).astype(ml_dtypes.int4)
    assert np.array_equal(compiled(q), q.astype(np.float32) / 2)
