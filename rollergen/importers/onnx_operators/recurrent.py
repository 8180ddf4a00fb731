"""ONNX's linear attention over short sequences, one step after the other, and optimisers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.language import Tensor
from rollergen.importers.onnx_operators.attention import by_heads
from rollergen.importers.onnx_operators.pointwise import pointwise
from rollergen.importers.onnx_operators.table import Node, operator
from rollergen.importers.refusals import Refused

STEPS = 8
"""Longer sequences are refused: every step is an expression of its own."""

def stacked(tensors: list[Tensor], axis: int) -> Tensor:
    parts = [ops.reshape(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in tensors]
    return parts[0] if len(parts) == 1 else ops.concat(parts, axis)


def _refuse_long(steps: int) -> None:
    if steps > STEPS:
        raise Refused("sequential", f"{steps} steps, {STEPS} at most are one expression")


@operator("LinearAttention")
def linear_attention(n: Node) -> Any:
    """A state (B, heads, keys, values) that every position decays, corrects, adds to and reads."""
    query, key, value = n.tensor(0), n.tensor(1), n.tensor(2)
    past, decay, beta = (n.optional(i) for i in (3, 4, 5))
    heads, shared = n.get("q_num_heads"), n.get("kv_num_heads")
    _refuse_long(query.shape[1])
    q, k, v = (ops.cast(by_heads(t, h), "float32") for t, h in ((query, heads), (key, shared), (value, shared)))
    b, _, steps, depth = q.shape
    group, scale = heads // shared, n.get("scale", 0.0) or 1 / math.sqrt(depth)
    shape = (b, shared, depth, v.shape[3])
    state = rg.compute(shape, lambda *i: rg.cast(0.0, "float32")) if past is None else ops.cast(past, "float32")
    rate = None if decay is None else ops.cast(by_heads(decay, shared), "float32")
    trust = None if beta is None else ops.cast(by_heads(beta, beta.shape[2]), "float32")
    read = []
    for t in range(steps):
        state = _moved(state, k, v, rate, trust, t)
        m = rg.reduce_axis("m", depth)
        now = lambda n, h, j, state=state, t=t, m=m: scale * rg.sum(q[n, h, t, m] * state[n, h // group, m, j], axis=m)
        read.append(rg.compute((b, heads, v.shape[3]), now))
    made = ops.reshape(ops.permute(stacked(read, 2), (0, 2, 1, 3)), (b, steps, heads * v.shape[3]))
    return ops.cast(made, query.dtype), ops.cast(state, query.dtype if past is None else past.dtype)


def _moved(state: Tensor, k: Tensor, v: Tensor, rate: Tensor | None, trust: Tensor | None, t: int) -> Tensor:
    at = lambda x, h: 0 if x.shape[1] == 1 else h
    if rate is not None:
        before, wide = state, rate.shape[3] > 1
        kept = lambda n, h, m: rg.exp(rate[n, at(rate, h), t, m if wide else 0])
        state = rg.compute(state.shape, lambda n, h, m, j: before[n, h, m, j] * kept(n, h, m))
    b, heads, depth, width = state.shape
    written = rg.compute((b, heads, width), lambda n, h, j: v[n, h, t, j])
    if trust is not None:
        m = rg.reduce_axis("m", depth)
        held, values = state, written
        known = rg.compute(written.shape, lambda n, h, j: rg.sum(held[n, h, m, j] * k[n, h, t, m], axis=m))
        written = rg.compute(
            known.shape, lambda n, h, j: trust[n, at(trust, h), t, 0] * (values[n, h, j] - known[n, h, j])
        )
    old, new = state, written
    return rg.compute(state.shape, lambda n, h, m, j: old[n, h, m, j] + k[n, h, t, m] * new[n, h, j])


def parameters(n: Node, count: int) -> list[tuple[Tensor, ...]]:
    """For each tensor its value, gradient and `count` states, which come one kind after the other."""
    tensors = (len(n.inputs) - 2) // (2 + count)
    return [tuple(n.tensor(2 + kind * tensors + i) for kind in range(2 + count)) for i in range(tensors)]


def kinds_in_turn(made: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(one for kind in zip(*made, strict=True) for one in kind)


@operator("Momentum")
def momentum(n: Node) -> Any:
    rate, at, norm, alpha, beta = n.tensor(0), n.tensor(1), n.get("norm_coefficient"), n.get("alpha"), n.get("beta")
    nesterov = n.get("mode") == "nesterov"
    made = []
    for x, g, v in parameters(n, 1):
        step = lambda x, g, v, t: v * alpha + (g + x * norm) * rg.select(t > 0, rg.cast(beta, x.dtype), 1.0)
        new = pointwise(step, x, g, v, at)
        moved = lambda x, g, w: g + x * norm + w * alpha if nesterov else w
        made.append((pointwise(lambda x, g, w, r, moved=moved: x - moved(x, g, w) * r, x, g, new, rate), new))
    return kinds_in_turn(made)


@operator("Adagrad")
def adagrad(n: Node) -> Any:
    rate, at = n.tensor(0), n.tensor(1)
    norm, eps, slower = n.get("norm_coefficient", 0.0), n.get("epsilon", 0.0), n.get("decay_factor", 0.0)
    made = []
    for x, g, h in parameters(n, 1):
        squares = pointwise(lambda x, g, h: h + (g + x * norm) * (g + x * norm), x, g, h)
        step = lambda x, g, h, r, t: x - r / (1 + rg.cast(t, x.dtype) * slower) * (g + x * norm) / (rg.sqrt(h) + eps)
        made.append((pointwise(step, x, g, squares, rate, at), squares))
    return kinds_in_turn(made)


@operator("Adam")
def adam(n: Node) -> Any:
    rate, at = n.tensor(0), n.tensor(1)
    norm, after = n.get("norm_coefficient", 0.0), n.get("norm_coefficient_post", 0.0)
    alpha, beta, eps = n.get("alpha", 0.9), n.get("beta", 0.999), n.get("epsilon", 0.0)
    made = []
    for x, g, v, h in parameters(n, 2):
        mean = pointwise(lambda x, g, v: v * alpha + (g + x * norm) * (1 - alpha), x, g, v)
        square = pointwise(lambda x, g, h: h * beta + (g + x * norm) * (g + x * norm) * (1 - beta), x, g, h)

        def step(x: Any, v: Any, h: Any, r: Any, t: Any) -> Any:
            steps = rg.cast(t, x.dtype)
            lacking = lambda base: 1 - rg.pow(rg.cast(base, x.dtype), steps)
            grown = r * rg.sqrt(lacking(beta)) / lacking(alpha)
            return (x - rg.select(t > 0, grown, r) * v / (rg.sqrt(h) + eps)) * (1 - after)

        made.append((pointwise(step, x, mean, square, rate, at), mean, square))
    return kinds_in_turn(made)
