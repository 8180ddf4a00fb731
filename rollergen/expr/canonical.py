"""The canonical form: stages whose axes are as few as the accesses allow.

>>> import rollergen as rg
>>> graph = canonicalize(rg.ops.relu(rg.tensor("x", (64, 128, 128))))
>>> [(axis.name, axis.extent) for axis in graph.tensor_ops[0].axes]
[('i0', 1048576)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rollergen.expr.fusion import drop_trivial, fuse, simplify, split_axes
from rollergen.expr.implicit_gemm import implicit_gemm
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.stages import Graph, cut, fastest_cut
from rollergen.expr.tensor_op import TensorOp

__all__ = ["canonical_op", "canonicalize", "implicit_gemm"]


def canonicalize(
    outputs: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    rows: RowLimits = RowLimits(),
    seconds: Callable[[Graph], float] | None = None,
    bare: bool = False,
) -> Graph:
    """`outputs` as stages in canonical form; arguments and errors as `stages.cut`.

    ``seconds``: what stages take; None: they are cut no more than they have to be.  ``bare``: as `planning.Planner`.
    """
    if seconds is None:
        return _canonical(cut(outputs, inputs, rows))
    return fastest_cut(outputs, inputs, rows, _canonical, seconds, bare)


def _canonical(graph: Graph) -> Graph:
    return replace(graph, tensor_ops=tuple(canonical_op(one) for one in graph.tensor_ops))


def canonical_op(op: TensorOp) -> TensorOp:
    """`op` simplified, trivial axes dropped, divided axes split, adjacent axes merged."""
    return fuse(split_axes(drop_trivial(simplify(op))))
