"""Which kind of stage a tensor op is, and what each of its axes does in a contraction."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.program.assemble.nest import lane_stride
from rollergen.program.assemble.plan import Roles
from rollergen.tile.rules import contiguous_axis

SCAN, CHAIN, ROW, ELEMENTWISE = "scan", "chain", "row", "elementwise"
CONTRACTION, REDUCTION = "contraction", "reduction"


def kind_of(op: TensorOp) -> str:
    """The kind of stage that computes the tensor op.

    "scan": every point of a row has a value of its own. "row": rows are kept and read again. "elementwise": nothing is
    reduced. "contraction": a load is reused along a spatial axis, or neighbours in the output are neighbours in memory,
    or windows overlap or touch. "reduction": none of these, or several. "chain": the sums of
    one contraction weigh the terms of another.
    """
    if op.scans:
        return SCAN
    if op.of_role("inner"):
        return CHAIN
    if op.of_role("row"):
        return ROW
    if not op.reductions:
        return ELEMENTWISE
    return CONTRACTION if contraction_of(op) is not None else REDUCTION


def contraction_of(op: TensorOp) -> Roles | None:
    """The best roles of the axes of a contraction; None if `op` is no contraction."""
    if len(op.reductions) != 1 or op.of_role("row"):
        return None
    return next(contraction_roles(op), None)


def reused_along(op: TensorOp, axis: str) -> bool:
    """Whether some load of the reduction is the same for all points along `axis`."""
    return any(axis not in load.axes() for load in op.body_loads())


def contraction_roles(op: TensorOp) -> Iterator[Roles]:
    """Sensible roles of the axes, best first; none where no spatial axis helps.

    n is the output's contiguous axis where it has reuse, or is contiguous in a load or slides a window over its
    last dimension; m the longest other axis with reuse.  k is the outermost reduce axis (taps of a
    window stay inside it).
    """
    spatial = list(op.of_role("spatial"))
    store = op.stored()
    n = contiguous_axis(store)
    names = {a.name for a in spatial}
    if n not in names:
        return
    if not (reused_along(op, n) or _contiguous_somewhere(op, n) or slides(op, n)):
        return
    others = [a for a in spatial if a.name != n and reused_along(op, a.name)]
    m = max(others, key=lambda a: a.extent).name if others else None
    reduced = sorted(op.of_role("reduce"), key=lambda a: [x.name for x in op.axes].index(a.name))
    batch = tuple(a.name for a in spatial if a.name not in (n, m))
    yield Roles(n, m, batch, reduced[0].name, tuple(a.name for a in reduced[1:]))


def slides(op: TensorOp, axis: str) -> bool:
    """Whether a load's last dimension is a window that moves along `axis` by no more than the window's length."""
    reduced = {a.name: a.extent for a in op.of_role("reduce")}
    for load in op.body_loads():
        last = load.indices[-1] if load.indices else Index()
        taps = [(str(a), c) for a, c in last.terms if a in reduced]
        if len(taps) == 1 and len(last.terms) == 2:
            (tap, dilation), stride = taps[0], _stride(last, axis)
            if dilation > 0 and 0 < stride <= dilation * reduced[tap]:
                return True
    return False


def _stride(index: Index, axis: str) -> Fraction:
    """How far the index moves on for a step along the axis, in the mean; 0 where its terms are other than c*axis and
    c*((b*axis + ...) // d), as windows of adaptive pooling begin."""
    stride = Fraction(index.coefficient(axis))
    for atom, coefficient in index.terms:
        if isinstance(atom, FloorDiv) and atom.index.is_affine:
            stride += Fraction(coefficient * atom.index.coefficient(axis), atom.divisor)
    return stride


def _contiguous_somewhere(op: TensorOp, axis: str) -> bool:
    return any(lane_stride(load, axis) == 1 for load in op.body_loads())
