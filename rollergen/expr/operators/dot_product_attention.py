"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import (
    Number,
    broadcast_extents,
    broadcast_index,
    flag,
    number,
    require_float,
    require_tensor,
)
from rollergen.expr.operators.normalisation import softmax
from rollergen.expr.operators.reductions import amax


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: Number = 0.0,
    is_causal: bool = False, scale: Number | None = None, enable_gqa: bool = False, *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``softmax(query @ key^T * scale) @ value``: (..., M, D), (..., N, D) and (..., N, E) into (..., M, E).

    Leading axes (batch, heads) broadcast; with `enable_gqa` several heads (axis -3) of the query share one of key and
    value.  `scale` is 1 / sqrt(D) unless given (where D is 0, all scores are); `is_causal` lets row m see the keys 0 to
    m only; `attn_mask` (..., M, N) is added to the scores, or (bool) says which are seen: a row that sees none is 0.
    Scores are summed and kept in the accumulator's dtype; the weights, as torch's, are rounded to that of `value`: both
    products are of operands that matrix units take.

    >>> import rollergen as rg
    >>> q, k, v = (rg.tensor(n, (8, 16, 4)) for n in "qkv")
    >>> rg.ops.scaled_dot_product_attention(q, k, v, is_causal=True).shape
    (8, 16, 4)

    Raises ShapeError for shapes that do not match, ExpressionError for a `dropout_p` other than 0.
    """
    for tensor in (query, key, value):
        require_float(tensor, "attention")
    if number(dropout_p, "attention", "dropout_p") != 0:
        raise ExpressionError(f"attention: dropout_p is {shown(dropout_p)}; expected 0: there are no random numbers")
    shared = _shared_heads(query, key, value, flag(enable_gqa, "attention", "enable_gqa"))
    _check_shapes(query, key, value)
    heads = lambda shape: (*shape[:-1], shape[-1] * shared) if shared > 1 else shape
    leads = ((query, query.shape[:-2]), *((t, heads(t.shape[:-2])) for t in (key, value)))
    (m, depth), n, e = query.shape[-2:], key.shape[-2], value.shape[-1]
    factor = 1 / math.sqrt(max(int(depth), 1)) if scale is None else number(scale, "attention", "scale")
    flag(is_causal, "attention", "is_causal")
    wide = accumulator_dtype(query.dtype)
    d, s = rg.reduce_axis("d", depth), rg.reduce_axis("s", n)
    lead = broadcast_extents("attention", *leads)
    if attn_mask is not None:
        _check_mask(attn_mask, query, (m, n))
        lead = broadcast_extents("attention", *leads, (attn_mask, attn_mask.shape[:-2]))

    def at(tensor: Tensor, batch: Any) -> tuple[Any, ...]:
        grouped = shared > 1 and tensor is not query
        own = broadcast_index(heads(tensor.shape[:-2]) if grouped else tensor.shape[:-2], batch)
        return (*own[:-1], own[-1] // shared) if grouped else own

    def score(*i: Any) -> Any:
        *batch, row, column = i
        product = query[(*at(query, batch), row, d)] * key[(*at(key, batch), column, d)]
        total = rg.sum(product, axis=d, dtype=wide) * factor
        if attn_mask is not None:
            seen = attn_mask[broadcast_index(attn_mask.shape, i)]
            total = rg.select(seen, total, -math.inf) if attn_mask.dtype == "bool" else total + rg.cast(seen, wide)
        return rg.select(column <= row, total, -math.inf) if is_causal else total

    scores = rg.compute((*lead, m, n), score)
    exact = softmax(scores)
    if attn_mask is not None:
        exact = _seen(exact, scores)
    weights = rg.compute(exact.shape, lambda *i: rg.cast(exact[i], query.dtype))

    def mixed(*i: Any) -> Any:
        *batch, row, column = i
        return rg.sum(weights[(*batch, row, s)] * value[(*at(value, batch), s, column)], axis=s)

    return rg.compute((*lead, m, e), mixed, name)


def _seen(weights: Tensor, scores: Tensor) -> Tensor:
    """`weights`, 0 in rows whose scores are all -inf."""
    top = amax(scores, -1, True)
    return rg.compute(weights.shape, lambda *i: rg.select(top[(*i[:-1], 0)] == -math.inf, 0.0, weights[i]))


def _check_mask(mask: Tensor, query: Tensor, scores: tuple[int, int]) -> None:
    require_tensor(mask, "attention", "attn_mask")
    if mask.dtype not in ("bool", query.dtype):
        raise ExpressionError(f"attention: attn_mask has dtype {mask.dtype}; expected bool or {query.dtype}")
    own = (1, 1, *mask.shape)[-2:]
    if any(extent not in (1, wanted) for extent, wanted in zip(own, scores, strict=True)):
        raise ShapeError(f"attention: attn_mask has shape {mask.shape}; expected (..., {scores[0]}, {scores[1]}), or 1")


def _shared_heads(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> int:
    """How many heads of the query share one of key and value."""
    if not grouped or query.ndim < 3 or key.ndim < 3 or value.ndim < 3:
        return 1
    times = query.shape[-3] // key.shape[-3]
    if key.shape[-3] != value.shape[-3] or times * key.shape[-3] != query.shape[-3]:
        raise ShapeError(
            f"attention: heads are {query.shape[-3]}, {key.shape[-3]} and {value.shape[-3]}; expected a multiple of "
            "those of key and value in query (enable_gqa)"
        )
    return times


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if key.dtype != query.dtype or value.dtype != query.dtype:
        raise ExpressionError(
            f"attention: dtypes are {query.dtype}, {key.dtype} and {value.dtype}; expected equal ones: cast first"
        )
    fits = query.ndim >= 2 and key.ndim >= 2 and value.ndim >= 2
    if not fits or key.shape[-1] != query.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"attention: query has shape {query.shape}, key {key.shape} and value {value.shape}; "
            "expected (..., M, D), (..., N, D) and (..., N, E) with equal leading axes"
        )
