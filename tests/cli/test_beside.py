"""The verdict of a build stands beside NumPy's time, or PyTorch's where NumPy has no such function."""

import json

import numpy as np
import pytest

from rollergen.bench.beside import beside
from tests.cli.test_cli import ok

SQUARE = {"A": np.ones((8, 8), "float32"), "B": np.eye(8, dtype="float32")}
SIZES = ("m=8", "n=8", "k=8")


def test_a_build_tells_its_speed_beside_numpy_before_it_explains():
    text = ok("build", "matmul", "m=64", "n=64", "k=64", "--top-k", "1")
    assert "NumPy takes " in text and " times as fast" in text
    assert text.index("NumPy takes ") < text.index("candidates")
    found = json.loads(ok("build", "mk,kn->mn", "m=64", "n=64", "k=64", "--top-k", "1", "--json"))["check"]
    assert found["beside"]["library"] == "NumPy" and found["beside"]["seconds"] > 0


@pytest.mark.parametrize(
    "words",
    ["softmax shape=32x64", "conv2d n=1 c=4 h=8 w=8 f=4 kh=3 kw=3", "layer_norm shape=8x64", "amax shape=8x9 dim=-1",
     "max_pool2d n=1 c=4 h=9 w=9 kernel_size=3", "batch_norm shape=2x4x5x5", "linear m=8 n=8 k=8"],
)  # fmt: skip
def test_what_numpy_has_not_is_beside_pytorch(words):
    pytest.importorskip("torch")
    found = json.loads(ok("build", *words.split(), "--top-k", "1", "--json"))
    assert found["check"]["beside"]["library"] == "PyTorch"


def test_nothing_is_told_of_functions_that_compute_something_else():
    assert beside("matmul", SIZES, SQUARE, SQUARE["A"]).library == "NumPy"
    assert beside("matmul", SIZES, SQUARE, 2 * SQUARE["A"]) is None
    assert beside("matmul", SIZES, {name: one.astype("float16") for name, one in SQUARE.items()}, SQUARE["A"]) is None
    assert beside("matmul_bias_relu", SIZES, {**SQUARE, "bias": np.ones(8, "float32")}, SQUARE["A"]) is None
    assert beside("roller:M1", (), SQUARE, SQUARE["A"]) is None
