"""Integers that are arguments of the call, within bounds that are known when a kernel is built."""

from __future__ import annotations

from operator import index
from typing import Any

from rollergen.errors import DtypeError, ExpressionError, shown
from rollergen.expr.checks import check_name
from rollergen.expr.dtypes import dtype_name
from rollergen.expr.language import CALL_WORDS, Tensor
from rollergen.expr.scalars import Expr
from rollergen.expr.takes import Bounded
from rollergen.expr.values import Load
from rollergen.hal.dtypes import DTYPES


class Scalar(Expr):
    """The value of an integer argument; ``tensor`` is the argument itself, for ``inputs=`` and for `rg.ops`."""

    __slots__ = ("tensor",)
    tensor: Tensor

    def __repr__(self) -> str:
        buffer = self.tensor.buffer
        return f"<scalar {buffer.name}: {buffer.dtype}>"


def scalar(name: str, dtype: Any, low: int, high: int) -> Scalar:
    """An integer argument of the kernel, from `low` to `high`, both included: a length, a position.

    Within `rg.compute` it stands wherever a value does: in arithmetic, in conditions (``k < pos``) and
    in index slots (``table[pos + i, j]``).  A call takes an int, or an array of the dtype without axes, and raises
    ArgumentError for one outside. Like ids (`rg.take`), a value in a device's memory is not checked; the kernel still
    reads nothing outside its arrays. One kernel serves all values.

    >>> import rollergen as rg
    >>> x, pos = rg.tensor("x", (6,)), rg.scalar("pos", "int32", 0, 4)
    >>> two = rg.compute((2,), lambda i: x[pos + i] * rg.cast(pos, "float32"))
    >>> two.evaluate(x=[0, 1, 2, 3, 4, 5], pos=3)
    array([ 9., 12.])

    Raises ExpressionError for a name that is no identifier and for bounds that are none, DtypeError for a dtype that is
    not int32 or int64 or does not hold them.
    """
    check_name(name, "rg.scalar's name")
    if name in CALL_WORDS:
        raise ExpressionError(f"rg.scalar's name is {name!r}, an argument of every kernel's own; expected another name")
    kind = dtype_name(dtype, f"{name}'s dtype")
    if kind not in ("int32", "int64"):
        raise DtypeError(f"rg.scalar({name!r}): dtype is {shown(dtype)}; expected int32 or int64")
    low, high = _integer(low, f"rg.scalar({name!r}): low"), _integer(high, f"rg.scalar({name!r}): high")
    for bound, what in ((low, "low"), (high, "high")):
        least, most = DTYPES[kind].limits
        if not least <= bound <= most:
            raise DtypeError(f"rg.scalar({name!r}): {what} is {bound}, which {kind} does not hold")
    if low > high:
        raise ExpressionError(f"rg.scalar({name!r}): low is {low} and high is {high}; expected low <= high")
    buffer = Bounded(name, (), kind, "input", low=low, high=high)
    made = Tensor(name, (), kind, False, None, buffer)
    found = Scalar(Load(buffer, (), source=made), {})
    found.tensor = made
    return found


def _integer(bound: Any, where: str) -> int:
    try:
        if isinstance(bound, bool):
            raise TypeError
        return index(bound)
    except TypeError:
        raise ExpressionError(f"{where} is {shown(bound)}; expected an integer") from None
