"""ONNX attention and rotary embeddings, by selections, products and a softmax."""

from __future__ import annotations

import math
from typing import Any

import onnx

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import broadcast_index
from rollergen.importers.onnx_operators.contractions import product
from rollergen.importers.onnx_operators.pointwise import np_dtype, pointwise
from rollergen.importers.onnx_operators.selections import same, selected, wrapped
from rollergen.importers.onnx_operators.table import Node, operator
from rollergen.importers.refusals import accepted_dtype


def by_heads(x: Tensor, heads: Any) -> Tensor:
    """(B, S, H D) as (B, H, S, D)."""
    if x.ndim == 4:
        return x
    b, s, hidden = x.shape
    return ops.permute(ops.reshape(x, (b, s, heads, hidden // heads)), (0, 2, 1, 3))


@operator("Attention")
def attention(n: Node) -> Any:
    q = by_heads(n.tensor(0), n.get("q_num_heads"))
    k, v = (by_heads(n.tensor(i), n.get("kv_num_heads")) for i in (1, 2))
    past = n.optional(4)
    if past is not None:
        k, v = ops.concat([past, k], 2), ops.concat([n.tensor(5), v], 2)
    scale = n.get("scale") or 1 / math.sqrt(q.shape[3])
    root = float(np_dtype(q).type(math.sqrt(scale)))
    scores = repeated_product(ops.mul(q, root), ops.mul(ops.permute(k, (0, 1, 3, 2)), root))
    cap = n.get("softcap", 0.0)
    if cap:
        scores = pointwise(lambda s: rg.tanh(s / cap) * cap, scores)
    allowed, biased = masked(n, q, k, scores, 0 if past is None else past.shape[2])
    precision = n.get("softmax_precision")
    wide = q.dtype if precision is None else accepted_dtype(onnx.helper.tensor_dtype_to_np_dtype(precision))
    weights = ops.cast(guarded_softmax(ops.cast(biased, wide), allowed), q.dtype)
    made = repeated_product(weights, v)
    if n.tensor(0).ndim == 3:
        b, h, s, d = made.shape
        made = ops.reshape(ops.permute(made, (0, 2, 1, 3)), (b, s, h * d))
    shown = {0: scores, 1: scores, 2: biased, 3: weights}[n.get("qk_matmul_output_mode", 0)]
    return made, k, v, shown


def repeated_product(a: Tensor, b: Tensor) -> Tensor:
    """A product by heads, where several heads of `a` may share one of `b`."""
    times = a.shape[1] // b.shape[1]
    if times == 1:
        return product(a, b)
    r = rg.reduce_axis("r", a.shape[3])
    shape = (*a.shape[:3], b.shape[3])
    return rg.compute(shape, lambda n, h, i, j: rg.sum(a[n, h, i, r] * b[n, h // times, r, j], axis=r))


def masked(n: Node, q: Tensor, k: Tensor, scores: Tensor, past: int) -> tuple[Any, Tensor]:
    """(whether a position may be seen, a function of its indices, or None; the scores with the mask added)."""
    mask, lengths, rows, columns = n.optional(3), n.optional(6), q.shape[2], k.shape[2]
    left, right = n.get("left_window_size", -1), n.get("right_window_size", -1)
    causal = bool(n.get("is_causal", 0))

    def bias(*i: Any) -> Any:
        b, _, row, column = i
        value: Any = rg.cast(0.0, scores.dtype)
        if mask is not None:
            at = broadcast_index(mask.shape, i)
            given = mask[at] if mask.dtype != "bool" else rg.select(mask[at], rg.cast(0.0, scores.dtype), -math.inf)
            short = mask.shape[-1] not in (1, columns)
            value = rg.select(column < mask.shape[-1], given, -math.inf) if short else given
        hidden = []
        if lengths is not None:
            place = rg.cast(row, "int64") + lengths[b] - rows
            here = rg.cast(column, "int64")
            hidden.append(here >= lengths[b])
        else:
            place, here = row + past, column
        if causal:
            hidden.append(here > place)
        if left >= 0:
            hidden.append(here < place - left)
        if right >= 0:
            hidden.append(here > place + right)
        for one in hidden:
            value = rg.select(one, -math.inf, value)
        return value

    if mask is None and lengths is None and not causal and left < 0 and right < 0:
        return None, scores
    biases = rg.compute(scores.shape, bias)
    return biases, ops.add(scores, biases)


def guarded_softmax(x: Tensor, biases: Tensor | None) -> Tensor:
    """softmax along the last axis; 0 in rows that the mask hides whole."""
    if biases is None:
        return ops.softmax(x)
    top = ops.amax(biases, -1, True)
    seen = pointwise(lambda v: v > -math.inf, top)
    safe = pointwise(lambda s, v: rg.select(s, v, 0), seen, x)
    return pointwise(lambda s, v: rg.select(s, v, 0), seen, ops.softmax(safe))


@operator("RotaryEmbedding")
def rotary_embedding(n: Node) -> Tensor:
    x = n.tensor(0)
    heads = by_heads(x, n.get("num_heads"))
    half = (n.get("rotary_embedding_dim", 0) or heads.shape[3]) // 2
    cos, sin = (positioned(n.tensor(i), n.optional(3)) for i in (1, 2))
    interleaved = n.get("interleaved", 0)

    def element(b: Any, h: Any, s: Any, d: Any) -> Any:
        pair, second = (d // 2, d % 2 == 1) if interleaved else (d % half, d >= half)
        first_at, second_at = (pair * 2, pair * 2 + 1) if interleaved else (pair, pair + half)
        x1, x2, c, z = heads[b, h, s, first_at], heads[b, h, s, second_at], cos[b, s, pair], sin[b, s, pair]
        return rg.select(second, z * x1 + c * x2, c * x1 - z * x2)

    made = rg.compute((*heads.shape[:3], 2 * half), element)
    if 2 * half < heads.shape[3]:
        made = ops.concat([made, ops.getitem(heads, (..., slice(2 * half, None)))], 3)
    return ops.reshape(ops.permute(made, (0, 2, 1, 3)), x.shape) if x.ndim == 3 else made


def positioned(cache: Tensor, ids: Tensor | None) -> Tensor:
    """Rows of `cache` by position (B, S)."""
    if ids is None:
        return cache
    taken = lambda axes, i: same(axes[0], wrapped(ids[i[:2]], cache.shape[0]))
    at = lambda axes, i: (axes[0], i[2])
    return rg.compute((*ids.shape, cache.shape[1]), lambda *i: selected(cache, taken, at, cache.shape[:1], i))
