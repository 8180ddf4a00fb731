"""ONNX's Loop runs as often as its specification says, and stacks what its steps give."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def looped(trips="", condition="", shape=(2, 3), given=True):
    """x doubled in each step while it is below 20, with every step's x kept; ``given``: what ``condition`` holds."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["v", "v"], ["doubled"]),
        helper.make_node("ReduceMax", ["doubled"], ["most"], keepdims=0),
        helper.make_node("Less", ["most", "end"], ["more"]),
        helper.make_node("Identity", ["doubled"], ["kept"]),
    ]
    body = helper.make_graph(
        nodes, "body", [value("i", INT64, []), value("go", BOOL, []), value("v", FLOAT, shape)],
        [value("more", BOOL, []), value("doubled", FLOAT, shape), value("kept", FLOAT, shape)],
        [numpy_helper.from_array(np.array(20, np.float32), "end")],
    )  # fmt: skip
    held = {"trips": np.array(trips or 0, np.int64), "condition": np.array(given)}
    inputs = ["trips" if trips != "" else "", "condition" if condition else "", "x"]
    loop = helper.make_node("Loop", inputs, ["y", "ys"], "again", body=body)
    results = [value("y", FLOAT, None), value("ys", FLOAT, None)]
    initial = [numpy_helper.from_array(one, name) for name, one in held.items()]
    graph = helper.make_graph([loop], "net", [value("x", FLOAT, shape)], results, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        ({"trips": 3}, 3),
        ({"trips": 0}, 0),
        ({"condition": "given"}, 5),
        ({"condition": "given", "given": False}, 0),
        ({"trips": 7, "condition": "given"}, 5),
        ({"trips": 3, "condition": "given"}, 3),
        ({"trips": 3, "shape": ()}, 3),
    ],
)
def test_a_loop_ends_where_its_trip_count_or_its_condition_ends_it(asked, steps):
    model = looped(**asked)
    x = np.ones(asked.get("shape", (2, 3)), np.float32)
    y, kept = rg.compile(model, None, "cpu", profile=False)(x)
    assert np.array_equal(y, x * 2**steps)
    assert kept.shape == (steps, *x.shape) and kept.dtype == np.float32
    assert all(np.array_equal(one, x * 2 ** (1 + n)) for n, one in enumerate(kept))
    runtime = pytest.importorskip("onnxruntime")
    wanted = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert np.array_equal(y, wanted[0]) and np.array_equal(kept, wanted[1])


def test_the_bodys_condition_is_ignored_where_none_is_given_first():
    """By the specification's table; ONNX Runtime heeds it."""
    y, kept = rg.compile(looped(trips=7), None, "cpu", profile=False)(np.ones((2, 3), np.float32))
    assert np.array_equal(y, np.full((2, 3), 128, np.float32)) and kept.shape == (7, 2, 3)


def test_a_loop_that_nothing_ends_is_refused_by_name():
    with pytest.raises(ArgumentError, match=r"again is a Loop without a trip count .*; expected input M or cond"):
        rg.compile(looped(), None, "cpu", profile=False)
