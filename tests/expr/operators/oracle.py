"""Operators against PyTorch in float64, which knows nothing of us."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollergen as rg

torch = pytest.importorskip("torch", reason="PyTorch is the oracle")
F = torch.nn.functional
rng = np.random.default_rng(3)


def given(*shapes: tuple[int, ...], positive: bool = False) -> tuple[list[Any], list[np.ndarray], list[Any]]:
    """Tensors of these shapes, arrays for them, and the same arrays as PyTorch's."""
    tensors = [rg.tensor(f"t{n}", shape) for n, shape in enumerate(shapes)]
    arrays = [rng.uniform(0.5, 4, shape) if positive else rng.standard_normal(shape) for shape in shapes]
    return tensors, arrays, [torch.tensor(array) for array in arrays]


def agree(expression: Any, arrays: Any, wanted: Any, rtol: float = 1e-12) -> None:
    """The definition's values and shape are those wanted (PyTorch's or NumPy's)."""
    found, wanted = expression.evaluate(*arrays), np.asarray(wanted)
    assert expression.shape == found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)
