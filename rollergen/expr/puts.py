"""Blocks written into a given tensor, in place, at a position of the call: appending to a cache, copying rows by ids.

>>> import rollergen as rg
>>> cache, new, pos = rg.tensor("cache", (4, 2)), rg.tensor("new", (1, 2)), rg.scalar("pos", "int32", 0, 3)
>>> rg.put(cache, new, pos).evaluate(cache=[[0, 0]] * 4, new=[[1, 2]], pos=2)
array([[0., 0.],
       [0., 0.],
       [1., 2.],
       [0., 0.]])
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any, NoReturn

from rollergen.errors import ArgumentError, DtypeError, ExpressionError, ShapeError, array_advice, shown
from rollergen.expr.arithmetic import wide
from rollergen.expr.dtypes import is_integer
from rollergen.expr.index import Index, linear
from rollergen.expr.language import Producer, Tensor, computed
from rollergen.expr.places import Put, Updated
from rollergen.expr.scalars import Expr, as_expr
from rollergen.expr.show import show
from rollergen.expr.takes import check_different, check_ids, id_bounds, place_of
from rollergen.expr.values import TAKE_MODES, Binary, Cast, Const, IndexValue, Load, Value, loads
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np


@dataclass(frozen=True, eq=False, slots=True)
class InPlace(Tensor):
    """The given tensor ``target`` after a block was written into it: an output of `rg.build`, and nothing else."""

    target: Tensor

    @property
    def put(self) -> Put:
        """What is written, and where."""
        body = self._made.body
        assert isinstance(body, Put)
        return body

    @property
    def block(self) -> Tensor:
        """What is written, as a tensor of its own."""
        return computed(self.name, self._made.axes, self.put.value)

    @property
    def _made(self) -> Producer:
        assert self.producer is not None
        return self.producer

    def _element(self, slots: tuple[Any, ...], mode: str) -> NoReturn:
        raise ExpressionError(
            f"{self.label} is updated in place by the call; expected it as an output of rg.build alone, and the given "
            "tensor in the expression of the next kernel"
        )

    def evaluate(self, *arrays: Any, **named: Any) -> Any:
        """The target after a call, by the definition: its array comes first, the others as `Tensor.evaluate` has them;
        none is changed."""
        from rollergen.expr.reference import Evaluation, bound_arrays  # which no build needs

        if arrays:
            before, arrays = arrays[0], arrays[1:]
        elif self.target.name in named:
            before = named.pop(self.target.name)
        else:
            raise ArgumentError(f"no array for {self.target.label}, which is updated; expected it first, or by name")
        known = bound_arrays(self, arrays, named)
        whole = bound_arrays(self.target, (before,), {})[self.target.buffer.name]
        flat = whole.astype(wide(self.dtype)).reshape(-1)
        at = self.places(known)
        flat[at] = Evaluation(known).tensor(self.block, _mesh(self.block.shape))
        return flat.reshape(self.shape)

    def places(self, known: dict[str, Any]) -> Any:
        """The row-major number of the element of the target that each of the block is written to.

        ArgumentError for ids outside where these are an error, and for two that are one place.
        """
        from rollergen.expr.reference import Evaluation

        put, evaluation = self.put, Evaluation(known)
        of = lambda value: evaluation.tensor(computed(None, self._made.axes, value), _mesh(self.block.shape))
        for load, extent in zip(loads(*put.ids), put.extents, strict=True):
            if put.mode == "raise":
                check_ids(known[load.buffer.name], extent, load.buffer.name)
            check_different(known[load.buffer.name], extent, load.buffer.name)
        return of(IndexValue(linear(self._made.target, self.shape), "int64")) + put.multiple * of(put.shift)


def _mesh(shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(np.ogrid[tuple(slice(0, extent) for extent in shape)])


def put(target: Tensor, values: Tensor, at: Any, axis: Any = 0, mode: str = "raise") -> Tensor:
    """`target` with the block `values` written into it, beginning at `at` along `axis`: an output of `rg.build`.

    A call updates the array that is passed for `target`, which comes before the other arguments, and returns it;
    nothing but the block is written.  `values` has the dtype of `target`, as many axes, and its extents along all but
    `axis`, where it may be shorter.

    ``at``: an int or an integer of the call (`rg.scalar`), where the block begins; or a given tensor of one axis of
    integers, an id for each element of `values` along `axis`, all different, negative ones from the end.  Of several
    axes both are tuples.  ``mode``: what lies outside the axis.  ``raise``: `rg.build` refuses a position whose bounds
    let the block leave the axis; a call refuses such ids, where they are in host memory.  ``wrap``: the remainder, as
    of a ring.  ``clip``: of a position the nearest at which the block fits.

    Raises ExpressionError for what is no given tensor or no position, an unknown mode or axis and bounds that leave
    the target, ShapeError for extents that do not fit, DtypeError for other dtypes.

    >>> import rollergen as rg
    >>> x, rows = rg.tensor("x", (3, 2)), rg.tensor("rows", (2, 2))
    >>> rg.put(x, rows, rg.tensor("ids", (2,), "int64")).evaluate([[0, 0]] * 3, [[1, 2], [3, 4]], [2, 0])
    array([[3., 4.],
           [0., 0.],
           [1., 2.]])
    """
    _check(target, values, mode)
    positions = dict(zip(_axes(axis, target), at if isinstance(axis, tuple) else (at,), strict=False))
    if len(positions) != (len(axis) if isinstance(axis, tuple) else 1):
        raise ExpressionError(f"rg.put: at is {shown(at)} and axis {shown(axis)}; expected a position for each axis")
    for n, (extent, own) in enumerate(zip(target.shape, values.shape, strict=True)):
        if own > extent or (own != extent and n not in positions) or own == 0:
            raise ShapeError(f"rg.put: values {values.shape} is no block of {target.label} {target.shape} along {axis}")
    names = tuple(f"i{n}" for n in range(values.ndim))
    index = tuple(map(Index.axis, names))
    moves = [_moved(target, values, n, one, mode) for n, one in positions.items()]
    multiple = gcd(*(stride for _, stride, _ in moves))
    shifts = [_times(shift, stride // multiple) for shift, stride, _ in moves]
    shift = shifts[0]
    for other in shifts[1:]:
        shift = Binary("add", shift, other, "int64")
    ids = tuple(value for _, _, checked in moves for value, _ in checked)
    extents = tuple(extent for _, _, checked in moves for _, extent in checked)
    body = Put(Load(values.buffer, index, source=values), shift, multiple, ids, extents, mode)
    axes = tuple(zip(names, values.shape, strict=True))
    buffer = Updated(target.buffer.name, target.shape, target.dtype, "output")
    return InPlace(target.name, target.shape, target.dtype, False, Producer(axes, body, index), buffer, target)


def _check(target: Any, values: Any, mode: Any) -> None:
    for one, what in ((target, "target"), (values, "values")):
        if not isinstance(one, Tensor):
            raise ExpressionError(f"rg.put: {what} is {shown(one)}; expected a tensor{array_advice(one)}")
    if target.producer is not None or target.constant or target.buffer.packs:
        raise ExpressionError(f"rg.put: target is {target!r}; expected a given tensor, neither constant nor packed")
    if mode not in TAKE_MODES:
        raise ExpressionError(f"rg.put: mode is {shown(mode)}; expected one of {', '.join(TAKE_MODES)}")
    if values.dtype != target.dtype:
        raise DtypeError(f"rg.put: values has dtype {values.dtype}; expected {target.dtype}, that of {target.label}")
    if values.ndim != target.ndim or not target.ndim:
        raise ShapeError(f"rg.put: values has {values.ndim} axes; expected those of {target.label}, {target.ndim}")


def _axes(axis: Any, target: Tensor) -> tuple[int, ...]:
    several = axis if isinstance(axis, tuple) else (axis,)
    for one in several:
        if isinstance(one, bool) or not isinstance(one, int) or not -target.ndim <= one < target.ndim:
            raise ExpressionError(f"rg.put: axis is {shown(one)}; {target.label} has {target.ndim} dimensions")
    if not several or len({one % target.ndim for one in several}) < len(several):
        raise ExpressionError(f"rg.put: axis is {shown(axis)}; expected different axes")
    return tuple(one % target.ndim for one in several)


Checked = list[tuple[Value, int]]


def _moved(target: Tensor, values: Tensor, n: int, at: Any, mode: str) -> tuple[Value, int, Checked]:
    """(How many positions along axis `n` the elements lie behind the target's begin, the distance of two of them, and
    with their extent the ids to be looked at)."""
    extent, own, stride = target.shape[n], values.shape[n], prod(target.shape[n + 1 :])
    here: Value = IndexValue(Index.axis(f"i{n}"), "int64")
    if isinstance(at, Tensor) and at.ndim == 1:
        id_ = _id(at, n, own, mode)
        return Binary("sub", _wide(place_of(id_, extent, mode)), here, "int64"), stride, [(id_, extent)]
    start = _start(at)
    if mode == "wrap" and own > 1:
        begun = place_of(start, extent, mode)
        within = Binary("remainder", Binary("add", _wide(begun), here, "int64"), Const(extent, "int64"), "int64")
        return Binary("sub", within, here, "int64"), stride, []
    free = extent if mode == "wrap" else extent - own + 1
    low, high = id_bounds(start, {})
    if mode == "raise" and not 0 <= low <= high < free:
        raise ExpressionError(
            f"rg.put: {show(start)} is {low} to {high}, where a block of {own} would leave axis {n} of {target.label}, "
            f'{extent} long; expected 0 to {free - 1}, or mode="clip" or "wrap"'
        )
    return _wide(place_of(start, free, "wrap" if mode == "wrap" else "clip")), stride, []


def _id(at: Tensor, n: int, own: int, mode: str) -> Value:
    """The id of each element along axis `n`."""
    if at.shape != (own,):
        raise ShapeError(f"rg.put: {at.label} has shape {at.shape}; expected an id for each of {own} along axis {n}")
    if not is_integer(at.dtype):
        raise DtypeError(f"rg.put: {at.label} has dtype {at.dtype}; expected an integer dtype")
    if at.producer is not None:
        raise ExpressionError("rg.put: the ids are computed; expected a given tensor, whose ids a call can compare")
    if mode == "clip":
        raise ExpressionError('rg.put: mode is "clip", where two ids may be one place; expected "raise" or "wrap"')
    return Load(at.buffer, (Index.axis(f"i{n}"),), source=at)


def _start(at: Any) -> Value:
    """Where a block begins, as an integer value without axes."""
    if isinstance(at, Tensor) and at.ndim == 0:
        at = at[()]
    if isinstance(at, bool) or not (isinstance(at, (int, Expr))):
        raise ExpressionError(f"rg.put: at is {shown(at)}; expected an int, an rg.scalar or a tensor of ids")
    value = Const(at, "int64") if isinstance(at, int) else as_expr(at, "rg.put: at").value
    if not is_integer(value.dtype) or (isinstance(at, Expr) and at.axes):
        raise ExpressionError(f"rg.put: at is {show(value)}; expected an integer without axes")
    return value


def _wide(value: Value) -> Value:
    if isinstance(value, Const):
        return Const(value.value, "int64")
    return value if value.dtype == "int64" else Cast(value, "int64")


def _times(shift: Value, count: int) -> Value:
    return shift if count == 1 else Binary("mul", shift, Const(count, "int64"), "int64")
