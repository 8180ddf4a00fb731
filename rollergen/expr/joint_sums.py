"""Sums over the same axes that share a factor (gated products) as one reduction with a component for each.

The factor that they share is then read once, and what is computed from all of them is one epilogue.

Before (SwiGLU): ``silu(sum(x[i, k] * g[j, k], axis=k)) * sum(x[i, k] * u[j, k], axis=k)``.
After: ``silu(s[0]) * s[1]`` with ``s = sum(x[i, k] * g[j, k], x[i, k] * u[j, k], axis=k)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollergen.expr.reductions import Reduce, free_axes
from rollergen.expr.values import Value, loads, named_combiner, transform


def joint_sums(body: Value, nodes: Sequence[Reduce], axes: Iterable[str]) -> Value | None:
    """`body` with its reductions `nodes` as one; None unless all are sums of one dtype over the same axes, for every
    point of `axes`, and share a load that is the same all along one of these (else nothing is gained by one pass)."""
    own, first = frozenset(axes), nodes[0]
    plain = named_combiner("sum", first.dtype)
    if any(node.combiner != plain or node.axes != first.axes or not own <= free_axes(node) for node in nodes):
        return None
    shared = frozenset.intersection(*(frozenset(loads(*node.bodies)) for node in nodes))
    if not any(own - load.axes() for load in shared):
        return None
    bodies = tuple(dict.fromkeys(node.bodies[0] for node in nodes))
    combiner = named_combiner("sum", first.dtype, len(bodies))

    def change(node: Value) -> Value | None:
        if not isinstance(node, Reduce):
            return None
        return Reduce(combiner, first.axes, bodies, bodies.index(node.bodies[0]))

    return transform(body, change)


def is_joint(node: Reduce) -> bool:
    """Whether the reduction is several sums as one."""
    count = len(node.bodies)
    return count > 1 and node.combiner == named_combiner("sum", node.bodies[0].dtype, count)
