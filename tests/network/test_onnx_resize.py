"""Resize of ONNX: elements that are nearest are taken as they are, whatever lies beside them."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402


def resized(x, scales, opset=19, **attributes):
    """(model, ONNX's reference) of one Resize of `x` by `scales`."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = helper.make_tensor_value_info("x", kind, x.shape)
    made = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([node], "g", [given], [made], [numpy_helper.from_array(np.float32(scales), "scales")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return rg.compile(proto, device="cpu", profile=False), ReferenceEvaluator(proto)


@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 0.4), (1, 1, 1.7, 2.3)])
@pytest.mark.parametrize("nearest_mode", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_infinities_and_nan_reach_only_what_is_nearest_to_them(nearest_mode, scales):
    x = np.random.default_rng(0).random((1, 2, 6, 5), np.float32)
    x[0, 0, 1, 2], x[0, 1, 3, 3], x[0, 1, 0, 0] = np.nan, -np.inf, np.inf
    model, reference = resized(x, scales, nearest_mode=nearest_mode)
    (places,) = reference.run(None, {"x": np.arange(x.size, dtype=np.float32).reshape(x.shape)})  # of x it makes 0 * inf
    np.testing.assert_array_equal(model(x), x.flat[places.astype(int)])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_stay_of_their_dtype(dtype, mode):
    x = np.random.default_rng(0).integers(0, 100, (1, 2, 4, 5)).astype(dtype)
    model, reference = resized(x, (1, 1, 2, 2), mode=mode)
    (want,) = reference.run(None, {"x": x})
    assert model(x).dtype == want.dtype
    np.testing.assert_array_equal(model(x), want)


@pytest.mark.parametrize(("nearest_mode", "rounded"), [("floor", np.floor), ("round_prefer_floor", lambda x: np.ceil(x - 0.5))])
def test_half_pixels_of_operator_set_11_are_counted_from_the_pixels_corner(nearest_mode, rounded):
    """(o + 1/2) / scale is the coordinate, which ONNX's reference does not know."""
    x, attributes = np.arange(5, dtype=np.float32).reshape(1, 5), {"nearest_mode": nearest_mode}
    model, _ = resized(x, (1, 2.5), 11, coordinate_transformation_mode="tf_half_pixel_for_nn", **attributes)
    places = rounded((np.arange(12) + 0.5) / 2.5).clip(0, 4)
    np.testing.assert_array_equal(model(x)[0], places)


def test_a_resize_that_nothing_can_run_is_named():
    x = np.zeros((1, 5), np.float32)
    with pytest.raises(ArgumentError, match="ONNX's reference cannot run Resize_0, Resize: ValueError: Invalid coord"):
        model, _ = resized(x, (1, 2), 11, mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn")
        model(x)
