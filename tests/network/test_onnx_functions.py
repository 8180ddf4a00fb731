"""Nodes of one floating operand are ONNX's at the ends of their ranges, and beside 0."""

import numpy as np
import pytest

import rollergen as rg

pytest.importorskip("onnx")
from tests.network.test_onnx_integers import of

SIZES = [0, 1e-30, 1e-8, 1e-4, 0.5, 1, 1.0001, 2.5, 5, 17, 20, 30, 88, 89, 90, 700, 1e9, 1e20, 3e38, np.inf]
NAMES = ["Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus", "Elu", "Celu", "Selu", "Mish", "Tanh", "Softsign"]


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_references_at_the_ends_of_its_range(name):
    """asinh of 1e20 was NaN, sinh of 89 infinite, and softplus of -20 nothing."""
    x = np.array([*SIZES, *(-size for size in SIZES), np.nan], np.float32)
    with np.errstate(all="ignore"):
        proto, wanted, given = of(name, x)
    made = rg.compile(proto, given, "cpu", profile=False)
    assert all(layer.kernel is not None for layer in made.layers)
    np.testing.assert_allclose(made(*given), wanted, rtol=2e-6, atol=1e-37)
