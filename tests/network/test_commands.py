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
    x, y = weights(1, 3, 6, 6), tmp_path / "y.npy"
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
    assert "NonZero_1: NonZero (the shape of the result depends on the data)" in written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "net.pt"), "MODEL is 'net.pt'; expected a path that ends in .onnx"),
        (("run", "none.onnx"), "MODEL is 'none.onnx'; there is no such file"),
        (("explain", "none.onnx", "m=3"), "'m=3' beside a model; expected no sizes"),
        (("explain", "matmul", "--html", "x.html"), "--html is 'x.html' with an operator; expected a model"),
    ],
)
def test_what_cannot_be_run_is_named(arguments, said):
    made = CliRunner().invoke(main, arguments)
    assert made.exit_code and said in " ".join(made.output.split())
