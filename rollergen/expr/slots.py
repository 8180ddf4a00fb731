"""What may stand in an index slot: axes, quasi-affine arithmetic on them, SymPy's forms of the same.

An axis answers ``+ - * // %`` with constants at once as an `Index` record (microseconds; no
import of SymPy).  It is a SymPy integer symbol to SymPy (``sympy.floor(i / 2)``, ``sympy.Mod(i, 3)``),
and whatever SymPy makes of it is turned back into a record by `sympy_forms`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from rollergen.errors import ExpressionError, NonAffineIndexError, shown
from rollergen.expr.dtypes import is_integer
from rollergen.expr.index import Index
from rollergen.expr.scalars import Expr, is_sympy, merge_axes
from rollergen.expr.values import IndexValue, index_number

_DATA_ADVICE = "expected axes combined by +, -, * // % with constants, or an integer value such as ids[i]"


class IndexExpr(Expr):
    """A quasi-affine integer of the axes; in arithmetic with values, an int32 number, or an int64 one where it may be
    too large for that."""

    __slots__ = ("index",)

    def __init__(self, index: Index, axes: Mapping[str, int]) -> None:
        super().__init__(IndexValue(index), axes)
        self.index = index

    def __repr__(self) -> str:
        return f"<index {self.index}>"

    def as_number(self) -> Expr:
        number = index_number(self.index, self.axes)
        return self if number.dtype == "int32" else Expr(number, self.axes)

    def __add__(self, other: Any) -> Any:
        return self._linear(other, Index.__add__, operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._linear(other, lambda a, b: b + a, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Any:
        return self._linear(other, Index.__sub__, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._linear(other, lambda a, b: b - a, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._scaled(other, Index.__mul__, operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._scaled(other, Index.__mul__, lambda a, b: b * a)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided(other, Index.__floordiv__, operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return _sympy(other) // self._sympy_()

    def __mod__(self, other: Any) -> Any:
        return self._divided(other, Index.__mod__, operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return _sympy(other) % self._sympy_()

    def __truediv__(self, other: Any) -> Any:
        return super().__truediv__(other) if _is_value(other) else self._sympy_() / _sympy(other)

    def __rtruediv__(self, other: Any) -> Any:
        return super().__rtruediv__(other) if _is_value(other) else _sympy(other) / self._sympy_()

    def __pow__(self, other: Any) -> Any:
        return super().__pow__(other) if _is_value(other) else self._sympy_() ** _sympy(other)

    def __neg__(self) -> IndexExpr:
        return IndexExpr(-self.index, self.axes)

    def _sympy_(self) -> Any:
        from rollergen.expr.sympy_forms import to_sympy

        return to_sympy(self.index)

    def _linear(self, other: Any, exact: Any, general: Any) -> Any:
        """Sum or difference with a number or an index; a value or SymPy form goes its own way."""
        if isinstance(other, IndexExpr):
            return IndexExpr(exact(self.index, other.index), merge_axes(self.axes, other.axes))
        constant = _constant(other)
        if constant is not None:
            return IndexExpr(exact(self.index, Index.of(constant)), self.axes)
        return self._other(other, general)

    def _scaled(self, other: Any, exact: Any, general: Any) -> Any:
        constant = _constant(other)
        if constant is not None:
            return IndexExpr(exact(self.index, constant), self.axes)
        return self._other(other, general)

    def _divided(self, other: Any, exact: Any, general: Any) -> Any:
        constant = _constant(other)
        if constant is not None and constant >= 1:
            return IndexExpr(exact(self.index, constant), self.axes)
        if constant == 0 and 0 in self.axes.values():
            return IndexExpr(Index.of(0), self.axes)  # no element has it, so that any index will do
        if constant == 0:
            raise ExpressionError(f"division of the index {self.index} by 0")
        return self._other(other, general)

    def _other(self, other: Any, general: Any) -> Any:
        if _is_value(other):
            return general(Expr(self.value, self.axes), other)
        return general(self._sympy_(), _sympy(other))


class ReduceAxis(IndexExpr):
    """An axis to be summed away: made by `rg.reduce_axis`, named in ``axis=`` of a reduction."""

    __slots__ = ("extent", "name")

    def __init__(self, name: str, extent: int) -> None:
        super().__init__(Index.axis(name), {name: extent})
        self.name = name
        self.extent = extent

    def __repr__(self) -> str:
        return f"reduce_axis({self.name!r}, {self.extent})"


def axis(name: str, extent: int) -> IndexExpr:
    """A spatial axis: what `rg.compute` hands to its function."""
    return IndexExpr(Index.axis(name), {name: extent})


def is_id(slot: Any) -> bool:
    """Whether what stands in an index slot is an integer that is read or computed, and no index of the axes."""
    return isinstance(slot, Expr) and not isinstance(slot, IndexExpr) and is_integer(slot.dtype)


def index_of(slot: Any, tensor: str, position: int) -> tuple[Index, Mapping[str, int]]:
    """The record of what stands in slot `position` of `tensor`, and the extents of its axes.

    Raises NonAffineIndexError, naming tensor, index and reason, for what is not quasi-affine.
    """
    if isinstance(slot, IndexExpr):
        return slot.index, slot.axes
    constant = _constant(slot)
    if constant is not None:
        return Index((), constant), {}
    where = f"index {position} of {tensor}"
    if isinstance(slot, Expr):
        raise NonAffineIndexError(f"{where} is a value ({shown(slot)}): {_DATA_ADVICE}")
    if is_sympy(slot):
        from rollergen.expr.sympy_forms import index_form

        try:
            return index_form(slot), {}
        except NonAffineIndexError as error:
            raise NonAffineIndexError(f"{where} is {slot}, which is not quasi-affine: {error}") from None
    if isinstance(slot, slice) or slot is Ellipsis or slot is None:
        raise ExpressionError(
            f"{where} is {shown(slot)}; expected one index for one element, e.g. an axis; rg.ops.getitem(x, index) is "
            "a part of a tensor"
        )
    if hasattr(slot, "producer"):
        raise NonAffineIndexError(f"{where} is the tensor {slot.name}: {_DATA_ADVICE}")
    raise NonAffineIndexError(
        f"{where} is {shown(slot)} ({type(slot).__name__}); "
        "expected axes combined by +, -, * // % with integer constants"
    )


def _constant(value: Any) -> int | None:
    """`value` as an int if it is an integer (not a bool), Python's, NumPy's or SymPy's; else None."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, Expr)):
        return None
    if is_sympy(value):
        return int(value) if value.is_Integer else None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _is_value(other: Any) -> bool:
    return isinstance(other, Expr) and not isinstance(other, IndexExpr)


def _sympy(value: Any) -> Any:
    import sympy

    try:
        made = sympy.sympify(value, strict=True)
    except sympy.SympifyError:
        made = None
    if not isinstance(made, sympy.Expr):
        raise ExpressionError(
            f"an index combined with {shown(value)} ({type(value).__name__}); expected axes and integer constants"
        )
    return made
