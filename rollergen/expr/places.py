"""Results that are stored at places which are numbers that are read: what readers of programs know of `rg.put`.

The target of such a tensor op is where the block would lie if it began at 0, or if its ids were 0, 1, 2, ...; so that
what looks at targets alone sees a block of the right shape.  The elements lie a distance behind it that is a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rollergen.expr.limits import Among, Count, Extent
from rollergen.expr.values import TAKE_MODES, Buffer, Value, axes_of
from rollergen.hal.dataclass import dataclass

if TYPE_CHECKING:
    from rollergen.expr.tensor_op import TensorOp


@dataclass(frozen=True, slots=True)
class Updated(Buffer):
    """An argument of the call of which elements are written and the others stay: an output that the caller brings."""


@dataclass(frozen=True, slots=True)
class Put(Value):
    """The result of a tensor op: ``value``, stored ``shift * multiple`` elements behind the target.

    ``ids``: numbers that are read of which ``shift`` is made, each of another place, with the ``extents`` of their
    dimensions and what those outside mean.
    """

    value: Value
    shift: Value
    multiple: Extent
    ids: tuple[Value, ...] = ()
    extents: tuple[Count, ...] = ()
    mode: Annotated[str, Among(TAKE_MODES)] = "raise"

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype

    def children(self) -> tuple[Value, ...]:
        return (self.value, self.shift, *self.ids)

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return Put(children[0], children[1], self.multiple, children[2:], self.extents, self.mode)

    def moved_along(self, axis: str) -> bool:
        """Whether neighbours along the axis lie apart."""
        return axis in axes_of(self.shift)

    def side_by_side(self, axis: str) -> int:
        """Elements along the axis that stay side by side, and begin at multiples of so many: a bound of vectors."""
        return 1 if self.moved_along(axis) else self.multiple


def put_of(op: TensorOp) -> Put | None:
    """Where the op's results are put; None of one that stores them at its target."""
    return op.result if isinstance(op.result, Put) else None


def updated(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Those that the caller brings."""
    return tuple(one for one in buffers if isinstance(one, Updated))
