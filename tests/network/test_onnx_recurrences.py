"""ONNX's RNN, GRU and LSTM are kernels that give what ONNX's reference gives, and ONNX Runtime where that leaves out
what is asked for."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
WIDTH, HIDDEN, GATES = 3, 4, {"RNN": 1, "GRU": 3, "LSTM": 4}
rng = np.random.default_rng(0)


def weights(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def recurrence(
    kind, steps, batch, *, biased=True, initial=False, peepholes=False, lengths=None, wanted=(0, 1, 2), known=True,
    **attributes,
):  # fmt: skip
    """(a model of one node, its arguments); ``known``: whether its weights are initializers."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = attributes.get("layout", 0)
    first = {"x": weights(batch, steps, WIDTH) if batch_first else weights(steps, batch, WIDTH)}
    state = (batch, directions, HIDDEN) if batch_first else (directions, batch, HIDDEN)
    gates = GATES[kind] * HIDDEN
    held = {"w": weights(directions, gates, WIDTH), "r": weights(directions, gates, HIDDEN)}
    held |= {"b": weights(directions, 2 * gates)} if biased else {}
    held |= {"p": weights(directions, 3 * HIDDEN)} if peepholes else {}
    held |= {} if lengths is None else {"lengths": np.array(lengths, np.int32)}
    if initial:
        first |= {"h0": weights(*state)} | ({"c0": weights(*state)} if kind == "LSTM" else {})
    order = ("x", "w", "r", "b", "lengths", "h0", "c0", "p")[: 8 if kind == "LSTM" else 6]
    names = [name if name in first or name in held else "" for name in order]
    count = 3 if kind == "LSTM" else 2
    outputs = [name if n in wanted else "" for n, name in enumerate(("y", "yh", "yc")[:count])]
    node = helper.make_node(kind, names, outputs, "cell", hidden_size=HIDDEN, **attributes)
    given = first if known else first | held
    kind_of = lambda one: INT32 if one.dtype == np.int32 else FLOAT
    infos = [helper.make_tensor_value_info(name, kind_of(one), one.shape) for name, one in given.items()]
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs if name]
    initial_arrays = [numpy_helper.from_array(one, name) for name, one in held.items()] if known else []
    graph = helper.make_graph([node], "net", infos, results, initial_arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), given


def compiled(model):
    made = rg.compile(model, None, "cpu", profile=False)
    assert not [(one.source, one.reason) for one in made.layers if one.kernel is None]
    return made


def assert_same(model, given, wanted):
    made = compiled(model)(**given)
    for one, other in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.every(7)
@pytest.mark.parametrize(
    ("kind", "steps", "batch", "asked"),
    [
        ("RNN", 1, 1, {}),
        ("RNN", 9, 2, {"direction": "bidirectional", "initial": True}),
        ("RNN", 30, 1, {"direction": "reverse", "biased": False, "wanted": (1,)}),
        ("GRU", 1, 2, {"linear_before_reset": 1, "initial": True}),
        ("GRU", 9, 1, {"direction": "reverse", "layout": 1}),
        ("GRU", 9, 3, {"direction": "bidirectional", "linear_before_reset": 1}),
        ("GRU", 30, 2, {"linear_before_reset": 1, "biased": False, "wanted": (0,)}),
        ("GRU", 30, 2, {"initial": True, "layout": 1}),
        ("LSTM", 1, 3, {"direction": "bidirectional"}),
        ("LSTM", 9, 1, {"peepholes": True, "initial": True}),
        ("LSTM", 9, 2, {"direction": "bidirectional", "initial": True, "layout": 1}),
        ("LSTM", 9, 2, {"direction": "reverse", "known": False}),
        ("LSTM", 30, 1, {"wanted": (1, 2), "biased": False}),
        ("LSTM", 30, 4, {"direction": "bidirectional", "peepholes": True}),
        ("LSTM", 9, 2, {"lengths": [9, 9]}),
    ],
)
def test_a_recurrence_is_kernels_that_give_the_references_result(kind, steps, batch, asked):
    model, given = recurrence(kind, steps, batch, **asked)
    assert_same(model, given, ReferenceEvaluator(model).run(None, given))


@pytest.mark.every(7)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("RNN", {"lengths": [9, 1, 4], "direction": "bidirectional"}),
        ("GRU", {"lengths": [2, 9, 1], "linear_before_reset": 1, "direction": "reverse"}),
        ("LSTM", {"lengths": [1, 5, 9], "known": False}),
        ("LSTM", {"lengths": [3, 9, 2], "direction": "bidirectional", "initial": True}),
        ("LSTM", {"clip": 0.4, "peepholes": True}),
        ("GRU", {"clip": 0.4}),
        ("LSTM", {"input_forget": 1}),
        ("RNN", {"activations": ["Relu"]}),
        ("GRU", {"activations": ["Sigmoid", "Softsign", "Sigmoid", "Tanh"], "direction": "bidirectional"}),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Softsign"]}),
    ],
)
def test_what_the_reference_leaves_out_is_as_onnx_runtime_has_it(kind, asked):
    runtime = pytest.importorskip("onnxruntime")
    model, given = recurrence(kind, 9, 3, **asked)
    assert_same(model, given, runtime.InferenceSession(model.SerializeToString()).run(None, given))


def test_all_steps_but_the_first_and_last_share_three_kernels():
    few, many = (compiled(recurrence("LSTM", steps, 2)[0]) for steps in (9, 30))
    assert len(few.kernels) == len(many.kernels)
    assert len(many.steps) - len(few.steps) == 21 * 3


def test_an_activation_with_numbers_of_its_own_is_refused_by_name():
    """ONNX's reference would compute the default one instead."""
    model, _ = recurrence("LSTM", 2, 1, activations=["HardSigmoid", "Tanh", "Tanh"])
    expected = "cell is LSTM with activation HardSigmoid; expected one of Relu, Sigmoid, Softplus, Softsign, Tanh"
    with pytest.raises(ArgumentError, match=expected):
        rg.compile(model, None, "v100")
