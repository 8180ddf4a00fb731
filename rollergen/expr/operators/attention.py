"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import Number, flag, number, require_float
from rollergen.expr.operators.normalisation import softmax


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, scale: Number | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``softmax(query @ key^T * scale) @ value``: (..., M, D), (..., N, D) and (..., N, E) into (..., M, E).

    Leading axes (batch, heads) are equal.  `scale` is 1 / sqrt(D) unless given; `causal` lets row m see the
    keys 0 to m only (PyTorch's `is_causal`).  Scores are accumulated and kept in the accumulator's dtype; the weights,
    as PyTorch's, are rounded to that of `value`: both products are of operands that matrix units take.

    >>> import rollergen as rg
    >>> q, k, v = (rg.tensor(n, (8, 16, 4)) for n in "qkv")
    >>> rg.ops.attention(q, k, v, causal=True).shape
    (8, 16, 4)

    Raises ShapeError for shapes that do not match.
    """
    for tensor in (query, key, value):
        require_float(tensor, "attention")
    _check_shapes(query, key, value)
    (*lead, m, depth), n, e = query.shape, key.shape[-2], value.shape[-1]
    factor = 1 / math.sqrt(depth) if scale is None else number(scale, "attention", "scale")
    flag(causal, "attention", "causal")
    wide = accumulator_dtype(query.dtype)
    d, s = rg.reduce_axis("d", depth), rg.reduce_axis("s", n)

    def score(*i: Any) -> Any:
        *batch, row, column = i
        product = rg.sum(query[(*batch, row, d)] * key[(*batch, column, d)], axis=d, dtype=wide) * factor
        return rg.select(column <= row, product, -math.inf) if causal else product

    exact = softmax(rg.compute((*lead, m, n), score))
    weights = rg.compute(exact.shape, lambda *i: rg.cast(exact[i], query.dtype))

    def mixed(*i: Any) -> Any:
        *batch, row, column = i
        return rg.sum(weights[(*batch, row, s)] * value[(*batch, s, column)], axis=s)

    return rg.compute((*lead, m, e), mixed, name)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if key.dtype != query.dtype or value.dtype != query.dtype:
        raise ExpressionError(
            f"attention: dtypes are {query.dtype}, {key.dtype} and {value.dtype}; expected equal ones: cast first"
        )
    lead = query.shape[:-2]
    fits = query.ndim >= 2 and key.ndim == value.ndim == query.ndim and key.shape[:-2] == value.shape[:-2] == lead
    if not fits or key.shape[-1] != query.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"attention: query has shape {query.shape}, key {key.shape} and value {value.shape}; "
            "expected (..., M, D), (..., N, D) and (..., N, E) with equal leading axes"
        )
