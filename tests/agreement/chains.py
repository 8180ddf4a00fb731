"""Attention with scores of one's own, for tests of chains of two contractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.stages import Graph
from rollergen.program.assemble.chain import chain_stage
from rollergen.program.chains import ChainTile, chain_roles
from rollergen.program.rprogram import RProgram

Score = Callable[[Any, Any, Any, Any], Any]
"""What becomes of the product of head h's row i and key j: of (product, h, i, j)."""

SCORES: dict[str, Score] = {
    "scaled": lambda s, h, i, j: s * 0.125,
    "causal": lambda s, h, i, j: rg.select(j <= i, s, -math.inf),
    "causal, told the other way": lambda s, h, i, j: rg.select(j > i, -math.inf, s * 0.5),
    "causal from the last row": lambda s, h, i, j: rg.select(j <= i + 7, s, -math.inf),
    "window": lambda s, h, i, j: rg.select((j <= i) & (j > i - 16), s, -math.inf),
    "softcap": lambda s, h, i, j: 30 * rg.tanh(s / 30),
    "ALiBi": lambda s, h, i, j: s - rg.cast(i - j, "float32") * rg.cast(h + 1, "float32") * 0.1,
    "prefix": lambda s, h, i, j: rg.select((j <= i) | (j < 5), s, -math.inf),
}


def attention(
    q: rg.Tensor, k: rg.Tensor, v: rg.Tensor, score: Score, *, divided: bool = True, plain: bool = False
) -> rg.Tensor:
    """(heads, rows, d), (heads, keys, d), (heads, keys, e) -> (heads, rows, e), written by hand; heads of q may share
    those of k.  ``divided``: the sums, else the weights; ``plain``: weights are sigmoids."""
    (heads, rows, depth), keys, columns = q.shape, k.shape[1], v.shape[2]
    shared = heads // k.shape[0]
    axis = lambda name, extent: rg.reduce_axis(name, extent)
    d, j, m, n = axis("d", depth), axis("j", keys), axis("m", keys), axis("n", keys)
    product = lambda h, i, c: rg.sum(q[h, i, d] * k[h // shared, c, d], axis=d)
    scores = rg.compute((heads, rows, keys), lambda h, i, c: score(product(h, i, c), h, i, c))
    if plain:
        weight = lambda h, i, c: 1 / (1 + rg.exp(-scores[h, i, c]))
        return rg.compute((heads, rows, columns), lambda h, i, e: rg.sum(weight(h, i, j) * v[h // shared, j, e], axis=j))
    largest = rg.compute((heads, rows), lambda h, i: rg.max(scores[h, i, m], axis=m))
    powers = rg.compute((heads, rows, keys), lambda h, i, c: rg.exp(scores[h, i, c] - largest[h, i]))
    total = rg.compute((heads, rows), lambda h, i: rg.sum(powers[h, i, n], axis=n))
    if divided:
        return rg.compute(
            (heads, rows, columns),
            lambda h, i, e: rg.sum(powers[h, i, j] * v[h // shared, j, e], axis=j) / total[h, i],
        )
    weights = rg.compute((heads, rows, keys), lambda h, i, c: powers[h, i, c] / total[h, i])
    return rg.compute((heads, rows, columns), lambda h, i, e: rg.sum(weights[h, i, j] * v[h // shared, j, e], axis=j))


def chained(expr: rg.Tensor) -> Graph:
    """Its stages where chains may be one."""
    return canonicalize(expr, None, RowLimits(chains=True))


def instruction_of(device):
    return max((one for one in device.instructions if one.dtype == "float32" and one.k == 1), key=lambda one: one.lanes)


def program(expr: rg.Tensor, device, tile: tuple[int, int, int, int]) -> RProgram:
    """Its one chain with so many (vectors, keys, keys side by side, columns side by side)."""
    graph, instruction = chained(expr), instruction_of(device)
    (op,) = graph.tensor_ops
    stage = chain_stage(op, chain_roles(op), ChainTile(instruction.lanes, *tile), instruction)
    return RProgram(device.name, graph.inputs, graph.outputs, (stage,))


def arrays_of(made: RProgram, seed: int = 0, scale: float = 1.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    draw = lambda b: random.random(b.shape) < 0.7 if b.dtype == "bool" else random.standard_normal(b.shape) * scale
    return {b.name: draw(b).astype(bool if b.dtype == "bool" else np.float32) for b in made.inputs}
