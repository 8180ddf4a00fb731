"""Joins: stages that do nothing but store whole tensors one behind the other.

Who writes the parts can write them there, and then the stage has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollergen.expr.index import Bounds, Index, linear
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Const, IndexValue, Load, Select, Value


def joined(op: TensorOp) -> Mapping[str, int] | None:
    """Where each tensor lies within the output: its first element, row-major; None where the op is no join.

    The parts cover the output: each element is one of a part, and each part is there once, with all its elements."""
    if op.reductions or op.where or not isinstance(op.result, Select) or op.points != op.output.elements:
        return None
    found: dict[str, int] = {}
    for axis, (low, high), part in _parts(op):
        if not isinstance(part, Load) or part.buffer.name in found or part.dtype != op.output.dtype:
            return None
        inner = {**op.ranges(), axis: (0, high - low - 1)}
        moved = {axis: Index.of(low) + (Index.axis(axis) if high - low > 1 else 0)}
        apart = (linear(op.target, op.output.shape) - linear(part.indices, part.buffer.shape)).substitute(moved)
        points = op.points // op.axis(axis).extent * (high - low)
        seen = all(bound.substitute(moved).always(inner) for bound in part.guard)
        if apart.terms or points != part.buffer.elements or not seen:
            return None
        found[part.buffer.name] = apart.const
    return found or None


def _parts(op: TensorOp) -> Iterator[tuple[str, Bounds, Value | None]]:
    """(axis, from where, up to where, what is stored there) by rising places along one axis; a part None where the
    choice is another."""
    name, low, value = "", 0, op.result
    while isinstance(value, Select):
        match value.cond:
            case Binary("lt", IndexValue(Index(((str(axis), 1),), 0)), Const(int(high))) if (
                name in ("", axis) and low < high <= op.axis(axis).extent
            ):
                yield axis, (low, high), value.a
                name, low, value = axis, high, value.b
            case _:
                yield op.axes[0].name, (0, 1), None
                return
    if low < op.axis(name).extent:
        yield name, (low, op.axis(name).extent), value
    else:
        yield name, (0, 1), None
