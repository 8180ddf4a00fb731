"""``rollergen run`` and ``rollergen explain`` of ONNX files."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import rollergen as rg
from rollergen.__main__ import main

onnx = pytest.importorskip("onnx")
from tests.network.test_onnx_models import convolutions, sorted_rows, weights  # noqa: E402


@pytest.fixture
def file(tmp_path):
    onnx.save(convolutions(), tmp_path / "small.onnx")
    return str(tmp_path / "small.onnx")


def told(*arguments, code=0):
    made = CliRunner().invoke(main, arguments)
    assert made.exit_code == code, made.output
    return made.output


def test_a_model_is_run_checked_and_timed_and_its_result_written(file, tmp_path):
    x, y = weights(1, 3, 6, 6), tmp_path / "y.result"  # as it is called, whatever NumPy calls its files
    np.save(tmp_path / "x.npy", x)
    given = ("--input", str(tmp_path / "x.npy"), "--output", str(y), "--save", str(tmp_path / "saved"))
    text = told("run", file, "--no-profile", *given)
    assert np.array_equal(rg.load(tmp_path / "saved")(x), np.load(y))
    assert "small(x: float32[1, 3, 6, 6])" in text and "one call takes" in text
    assert text.index("correct:") < text.index("small(x")  # the verdict comes first
    wanted = onnx.reference.ReferenceEvaluator(file).run(None, {"x": x})[0]
    np.testing.assert_allclose(np.load(y), wanted, rtol=1e-5, atol=1e-5)


def test_facts_are_one_object(file):
    facts = json.loads(told("run", file, "--no-profile", "--json"))
    assert [one["operators"] for one in facts["layers"]] == ["Conv, Relu", "Conv, Add, Reshape", "Gemm"]
    assert facts["compared_elements"] > 0 and facts["measured_s"] > 0
    assert facts["layers"][2]["flops"] == 2 * 144 * 5 + 5  # a product and a sum for each weight, and the bias


def test_a_page_shows_every_layer_of_a_device_that_is_not_there(tmp_path):
    onnx.save(sorted_rows(), tmp_path / "rows.onnx")
    page = tmp_path / "report.html"
    text = told("explain", str(tmp_path / "rows.onnx"), "--device", "v100", "--html", str(page))
    assert "3 steps run by the model's own library" in text
    written = page.read_text("utf-8")
    assert written.count('class="host"') == 3 and written.count("<circle") == written.count('class="kernel"')
    bandwidth = rg.load_device("v100").layer("dram").bandwidth_gb_s
    assert written.count("<path") == 1 and f"dram {bandwidth:,.4g} GB/s, fma " in written  # the roofline
    assert "NonZero_1: NonZero (the shape of the result depends on the data)" in written


def named_rows(tmp_path):
    """A file whose rows have a name."""
    value = lambda name, width: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", width])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Softmax", ["x"], ["y"])], "rows", [value("x", 6)], [value("y", 6)]
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "named.onnx")
    return str(tmp_path / "named.onnx")


def test_extents_with_a_name_take_their_sizes_from_the_command_line(tmp_path):
    file = named_rows(tmp_path)
    assert "named(x: float32[5, 6])" in told("explain", file, "N=5", "--device", "v100")
    assert "named(x: float32[3, 6])" in told("run", file, "N=3", "--no-profile")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "input x of named has shape (N, 6); expected example_inputs, whose shapes become the model's, or dims={'N': (1, 64)} for all sizes between (rollergen run and explain take sizes, such as N=1)"),
        (("M=2",), "no input of named has an extent 'M'; expected N"),
        (("N=0",), "N is 0; expected an integer of at least 1, such as N=4"),
        (("N=two",), "N is 'two'; expected an integer"),
    ],
)
def test_sizes_that_a_model_does_not_have_are_named(tmp_path, words, said):
    assert said in " ".join(told("explain", named_rows(tmp_path), *words, "--device", "v100", code=2).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "net.pt"), "MODEL is 'net.pt'; expected a path that ends in .onnx"),
        (("run", "none.onnx"), "MODEL is 'none.onnx'; there is no such file"),
        (("run", "none.onnx", "N=2", "--input", "x.npy"), "'N=2' beside --input; expected one of them"),
        (("explain", "matmul", "--html", "x.html"), "--html is 'x.html' with an operator; expected a model"),
    ],
)
def test_what_cannot_be_run_is_named(arguments, said):
    made = CliRunner().invoke(main, arguments)
    assert made.exit_code and said in " ".join(made.output.split())
