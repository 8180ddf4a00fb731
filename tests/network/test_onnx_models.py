"""Models of ONNX, compiled: their results are those of ONNX's reference implementation."""

from functools import cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, ShapeError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
rng = np.random.default_rng(0)


def weights(*shape):
    return (rng.standard_normal(shape) / 4).astype(np.float32)


def model(nodes, inputs, outputs, opset=18, **constants):
    """``nodes``: (operator, inputs, outputs, attributes); names are separated by blanks."""
    made = [helper.make_node(op, ins.split(), outs.split(), **attributes) for op, ins, outs, attributes in nodes]
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    results = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs]
    initial = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(made, "net", infos, results, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def convolutions():
    """A shape that is computed, a norm to fold, a residual."""
    return model(
        [
            ("Conv", "x w", "c", {"pads": [1, 1, 1, 1]}),
            ("BatchNormalization", "c gamma beta mean var", "n", {}),
            ("Relu", "n", "r", {}), ("Conv", "r w2 b2", "d", {"pads": [1, 1, 1, 1]}), ("Add", "d r", "s", {}),
            ("Shape", "s", "shape", {}), ("Gather", "shape zero", "batch", {"axis": 0}),
            ("Concat", "batch rest", "wanted", {"axis": 0}), ("Reshape", "s wanted", "flat", {}),
            ("Gemm", "flat w3 b3", "y", {"transB": 1}),
        ],
        [("x", FLOAT, [1, 3, 6, 6])], [("y", FLOAT, [1, 5])],
        w=weights(4, 3, 3, 3), gamma=weights(4), beta=weights(4), mean=weights(4), var=weights(4) ** 2 + 1,
        w2=weights(4, 4, 3, 3), b2=weights(4), zero=np.array([0]), rest=np.array([-1]), w3=weights(5, 144), b3=weights(5),
    )  # fmt: skip


def sorted_rows():
    """A result whose shape depends on data, and a parameter from outside: no counterparts."""
    return model(
        [("MatMul", "x w", "p", {}), ("NonZero", "p", "where", {}), ("Size", "where", "count", {}),
         ("Relu", "p", "r", {}), ("CumSum", "r axis", "c", {}), ("Mul", "c c", "y", {})],
        [("x", FLOAT, [3, 4]), ("axis", INT64, [])], [("y", FLOAT, [3, 5]), ("count", INT64, [])], w=weights(4, 5),
    )  # fmt: skip


def chosen():
    """A branch that reads values from outside of it."""
    then = helper.make_graph(
        [helper.make_node("Mul", ["r", "r"], ["t"])], "then", [], [helper.make_tensor_value_info("t", FLOAT, [3, 4])]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["r"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, [3, 4])]
    )
    return model(
        [("Relu", "x", "r", {}), ("ReduceSum", "x", "total", {"keepdims": 0}), ("Greater", "total zero", "c", {}),
         ("If", "c", "y", {"then_branch": then, "else_branch": other})],
        [("x", FLOAT, [3, 4])], [("y", FLOAT, [3, 4])], zero=np.array(0, np.float32),
    )  # fmt: skip


def old_softmax():
    """Of all axes from the second on, as before operator set 13."""
    return model([("Softmax", "x", "y", {})], [("x", FLOAT, [2, 3, 4])], [("y", FLOAT, [2, 3, 4])], opset=11)


def embedding():
    """Rows at places that are read, normalised: one step."""
    return model(
        [("Gather", "table ids", "e", {}), ("LayerNormalization", "e g b", "y", {})],
        [("ids", INT64, [7])], [("y", FLOAT, [7, 8])], table=weights(500, 8), g=weights(8), b=weights(8),
    )  # fmt: skip


MODELS = {one.__name__: one for one in (convolutions, sorted_rows, chosen, embedding)}
GIVEN = {"sorted_rows": [weights(3, 4), np.array(1)], "embedding": [np.array([3, 0, 499, 7, 7, 1, 2])]}


def arguments(name, proto):
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return GIVEN.get(name) or [weights(*shape)]


@pytest.mark.parametrize("name", MODELS)
def test_a_models_result_is_the_references(name):
    proto = MODELS[name]()
    given = arguments(name, proto)
    ours = rg.compile(proto, None, "cpu", profile=False)
    wanted = ReferenceEvaluator(proto).run(None, dict(zip((i.name for i in proto.graph.input), given, strict=True)))
    for _ in range(2):
        made = ours(*given)
        for one, other in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@cache
def compiled_softmax():
    """Shared by tests that only call it."""
    return rg.compile(old_softmax(), None, "cpu", profile=False)


def test_a_softmax_before_operator_set_13_is_of_all_axes_from_its_own_on():
    x = weights(2, 3, 4)  # ONNX's reference takes one axis there too
    rows = np.exp(x.reshape(2, 12).astype(np.float64))
    wanted = (rows / rows.sum(1, keepdims=True)).reshape(x.shape)
    np.testing.assert_allclose(compiled_softmax()(x), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("convolutions", []),
        ("sorted_rows", [("NonZero", "the shape of the result depends on the data"),
                         ("Size", "the shape of where depends on data"),
                         ("CumSum", "a parameter that decides the program is computed from data: operand 1 of CumSum")]),
        ("chosen", [("If", "branches, loops or subgraphs")]),
        ("embedding", []),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_runs_in_the_reference_and_says_why(name, host):
    layers = rg.compile(MODELS[name](), None, "v100", profile=False).layers
    assert [(one.operators, one.reason) for one in layers if one.kernel is None] == host


def test_a_batch_norm_is_written_into_the_convolution_before_it():
    steps = rg.compile(convolutions(), None, "v100", profile=False).steps
    assert [step.operators for step in steps] == ["Conv, Relu", "Conv, Add, Reshape", "Gemm"]


def test_a_batch_norm_whose_weights_are_kept_once_is_written_into_the_transposed_convolution_before_it():
    """Exporters name equal weights by Identity."""
    proto = model(
        [("ConvTranspose", "x w", "c", {}), ("Identity", "gamma", "beta", {}),
         ("BatchNormalization", "c gamma beta beta var", "y", {})],
        [("x", FLOAT, [1, 4, 3, 3])], [("y", FLOAT, [1, 6, 5, 5])],
        w=weights(4, 6, 3, 3), gamma=weights(6), var=weights(6) ** 2 + 1,
    )  # fmt: skip
    ours, x = rg.compile(proto, None, "cpu", profile=False), weights(1, 4, 3, 3)
    assert [step.operators for step in ours.steps] == ["ConvTranspose"]
    np.testing.assert_allclose(ours(x), ReferenceEvaluator(proto).run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_steps_of_one_kernel_pack_a_weight_once_if_they_read_the_same():
    nodes = [("MatMul", f"{x} {w}", y, {}) for x, w, y in (("x", "w", "p"), ("p", "v", "q"), ("q", "w", "y"))]
    held = {name: weights(128, 128) for name in "wv"}
    proto = model(nodes, [("x", FLOAT, [64, 128])], [("y", FLOAT, [64, 128])], **held)
    ours, x = rg.compile(proto, None, "cpu", profile=False), weights(64, 128)
    np.testing.assert_allclose(ours(x), ReferenceEvaluator(proto).run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
    (kernel,), packed = ours.kernels, ours._execution._packed
    assert [key[0] for key in packed] == [kernel, kernel]
    for (memory, (read,)), name in zip(packed.values(), "wv", strict=True):
        np.testing.assert_array_equal(read, held[name])
        assert memory


def test_a_file_is_read_and_called_by_position_or_by_name(tmp_path):
    onnx.save(convolutions(), tmp_path / "small.onnx")
    ours, x = rg.compile(str(tmp_path / "small.onnx"), None, "cpu", profile=False), weights(1, 3, 6, 6)
    assert np.array_equal(ours(x), ours(x=x))
    assert ours.explain().startswith("small(x: float32[1, 3, 6, 6])")


def test_example_inputs_say_extents_that_are_not_fixed():
    proto = model([("Relu", "x", "y", {})], [("x", FLOAT, ["batch", 4])], [("y", FLOAT, ["batch", 4])])
    ours = rg.compile(proto, (weights(3, 4),), "cpu", profile=False)
    assert ours(weights(3, 4)).shape == (3, 4)
    with pytest.raises(ArgumentError, match=r"input x of net has shape \(batch, 4\); expected example_inputs"):
        rg.compile(proto, None, "v100")
    with pytest.raises(ShapeError, match=r"example input x of net has shape \(3, 5\); expected \(batch, 4\)"):
        rg.compile(proto, (weights(3, 5),), "v100")


def test_example_inputs_may_be_named():
    proto = model([("Sub", "a b", "y", {})], [("a", FLOAT, ["n"]), ("b", FLOAT, ["m"])], [("y", FLOAT, ["n"])])
    ours = rg.compile(proto, {"b": weights(1), "a": weights(3)}, "cpu", profile=False)
    assert [one.shape for one in ours.inputs] == [(3,), (1,)]
    with pytest.raises(ArgumentError, match="called with 0 arrays, a, c; expected one for each of a, b"):
        rg.compile(proto, {"a": weights(3), "c": weights(1)}, "v100")


def test_an_input_of_any_number_of_axes_has_those_of_its_example():
    proto = model([("Relu", "x", "y", {})], [("x", FLOAT, None)], [("y", FLOAT, None)])
    ours = rg.compile(proto, (weights(3, 4),), "cpu", profile=False)
    assert ours(weights(3, 4)).shape == (3, 4)
    with pytest.raises(ArgumentError, match="input x of net has no shape; expected example_inputs, which have one"):
        rg.compile(proto, None, "v100")


def test_a_model_of_long_names_can_be_saved(tmp_path):
    """Names that differ in their beginnings alone are kept apart."""
    a, b = (f"{letter}/{'n' * 300}" for letter in "ab")
    proto = model([("Sub", f"{a} {b}", "y", {})], [(a, FLOAT, [3]), (b, FLOAT, [3])], [("y", FLOAT, [3])])
    rg.compile(proto, None, "cpu", profile=False).save(tmp_path / "long")
    x, y = weights(3), weights(3) + 1
    assert np.array_equal(rg.load(tmp_path / "long")(x, y), x - y)


def test_what_cannot_be_compiled_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"model is '.*none\.onnx'; expected a file with an ONNX model"):
        rg.compile(tmp_path / "none.onnx", None, "v100")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ArgumentError, match=r"text\.onnx'; expected a file with an ONNX model"):
        rg.compile(tmp_path / "text.onnx", None, "v100")
    unknown = model([("Strange", "x", "y", {})], [("x", FLOAT, [4])], [("y", FLOAT, [4])])
    with pytest.raises(ArgumentError, match=r"Strange_0 is Strange, which neither rg\.ops nor ONNX's reference has"):
        rg.compile(unknown, None, "v100")


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda m, x: m(), ("called with 0 arrays", "expected one for each of x")),
        (lambda m, x: m(x, x=x), ("called with 1 arrays, x", "expected one for each of x")),
        (lambda m, x: m(z=x), ("called with 0 arrays, z", "expected one for each of x")),
    ],
)
def test_arguments_that_do_not_fit_are_named(call, parts):
    with pytest.raises(ArgumentError) as raised:
        call(compiled_softmax(), weights(2, 3, 4))
    assert all(part in str(raised.value) for part in parts), str(raised.value)


def test_a_graph_with_a_value_that_nobody_makes_is_named(tmp_path):
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2,))
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ArgumentError, match="empty has no output, as an empty or cut file has none"):
        rg.compile(tmp_path / "empty.onnx", device="v100")
    for reads, gives, text in (("q", "y", "Relu_0 reads q, which no input"), ("x", "z", "g gives z, which no input")):
        graph = helper.make_graph([helper.make_node("Relu", [reads], ["y"])], "g", [value("x")], [value(gives)])
        with pytest.raises(ArgumentError, match=text):
            rg.compile(helper.make_model(graph), device="v100")


def test_a_node_that_does_not_fit_what_it_reads_is_named():
    value = lambda name, *shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    soft = helper.make_node("Softmax", ["x"], ["y"], axis=7)
    for node, inputs in ((product, [value("x", 2, 3), value("w", 4, 5)]), (soft, [value("x", 2, 3)])):
        graph = helper.make_graph([node], "g", inputs, [value("y", 2, 5)])
        with pytest.raises(ArgumentError, match=f"{node.op_type}_0 does not fit what it reads: "):
            rg.compile(helper.make_model(graph), device="v100")


def test_sparse_weights_are_refused_by_name():
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2,))
    dense = helper.make_tensor("s", onnx.TensorProto.FLOAT, (1,), [1.0])
    places = helper.make_tensor("s_places", onnx.TensorProto.INT64, (1,), [0])
    sparse = [helper.make_sparse_tensor(dense, places, (2,))]
    node = helper.make_node("Add", ["x", "s"], ["y"])
    graph = helper.make_graph([node], "g", [value("x")], [value("y")], sparse_initializer=sparse)
    with pytest.raises(ArgumentError, match="weight s of g is sparse; expected dense initializers"):
        rg.compile(helper.make_model(graph), device="v100")
