"""Reductions over axes: the node, and `sum`, `max`, `min`, `prod`, `reduce` of the public language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rollergen.errors import DtypeError, ExpressionError, shown
from rollergen.expr.dtypes import accumulator_dtype, check_scalar, dtype_name, is_float, reduced_dtype
from rollergen.expr.functions import cast
from rollergen.expr.identities import counterexample
from rollergen.expr.index import Index
from rollergen.expr.scalars import Expr, as_expr, is_scalar, merge_axes, python_scalar
from rollergen.expr.show import show
from rollergen.expr.slots import IndexExpr, ReduceAxis
from rollergen.expr.values import (
    Binary,
    Cast,
    Combiner,
    Const,
    IndexValue,
    Load,
    Select,
    Take,
    Unary,
    Value,
    Var,
    named_combiner,
    substitute_axes,
    transform,
    walk,
)
from rollergen.hal.dataclass import dataclass

NAMED = ("sum", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class Reduce(Value):
    """Component ``component`` of ``combiner`` over ``axes`` (name, extent) of the tuple ``bodies``.

    Exists in the language only; stages hold a `Reduction` and `Partial` values instead.
    """

    combiner: Combiner
    axes: tuple[tuple[str, int], ...]
    bodies: tuple[Value, ...]
    component: int = 0

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.bodies[self.component].dtype

    @property
    def bound(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def key(self) -> tuple[Combiner, tuple[tuple[str, int], ...], tuple[Value, ...]]:
        """What its components have in common."""
        return self.combiner, self.axes, self.bodies

    def children(self) -> tuple[Value, ...]:
        return self.bodies

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return replace(self, bodies=children)

    def __str__(self) -> str:
        names = ", ".join(self.bound)
        bodies = ", ".join(show(body) for body in self.bodies)
        return f"{self.combiner.name}({bodies}, axis={names})" + (f"[{self.component}]" if self.component else "")


_WHOLE = Index()


@dataclass(frozen=True, slots=True)
class Scan(Reduce):
    """A reduction of the elements of its one axis up to number ``upto``, that one included unless it is ``exclusive``:
    a prefix of the axis (`rg.scan`)."""

    upto: Index = _WHOLE
    exclusive: bool = False

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self.combiner, self.axes, self.bodies, self.upto, self.exclusive

    def __str__(self) -> str:
        (name,), bodies = self.bound, ", ".join(show(body) for body in self.bodies)
        part = f"{name} {'<' if self.exclusive else '<='} {self.upto}"
        return f"{self.combiner.name}({bodies}, {part})" + (f"[{self.component}]" if self.component else "")


def scans_of(value: Value) -> tuple[Scan, ...]:
    """Every `Scan` node, inner ones first."""
    return tuple(node for node in walk(value) if isinstance(node, Scan))


def without_unit_axes(value: Value) -> Value:
    """`value` with no reduction over an axis of extent 1: where there is no longer one, its only element is the result.

    A floating sum begins with 0, as NumPy's: -0 becomes 0.

    Before: ``sum(x[2 * i + k], axis=k)`` with k of extent 1.  After: ``x[2 * i] + 0``.
    """

    def change(node: Value) -> Value | None:
        if not isinstance(node, Reduce) or all(extent > 1 for _, extent in node.axes):
            return None
        first = {name: Index() for name, extent in node.axes if extent == 1}
        bodies = tuple(substitute_axes(body, first) for body in node.bodies)
        axes = tuple(axis for axis in node.axes if axis[1] > 1)
        if axes:
            return replace(node, axes=axes, bodies=bodies)
        if isinstance(node, Scan) and node.exclusive:
            return node.combiner.identity[node.component]
        element = bodies[node.component]
        if node.combiner.name == "sum" and is_float(node.dtype):
            return Binary("add", element, node.combiner.identity[0], node.dtype)
        return element

    return transform(value, change)


def sum(x: Any, axis: Any = None, *, acc: Any = None, dtype: Any = None) -> Expr:
    """Sum of `x` over one axis or a tuple of axes made by `rg.reduce_axis`.

    `acc` is the accumulator's dtype and `dtype` the result's.  By default
    float16 and bfloat16 accumulate in float32, int8 in int32, and the result has the dtype of `x`
    (int8: int32).  Operands narrower than the accumulator are widened before they are multiplied.

    >>> import rollergen as rg
    >>> A, k = rg.tensor("A", (2, 3)), rg.reduce_axis("k", 3)
    >>> rg.compute((2,), lambda i: rg.sum(A[i, k], axis=k)).evaluate([[1, 2, 3], [4, 5, 6]])
    array([ 6., 15.])

    Raises ExpressionError for an axis that is not a reduction axis, DtypeError for conditions.
    """
    return _named("sum", x, axis, acc, dtype)


def max(x: Any, axis: Any = None, *, acc: Any = None, dtype: Any = None) -> Expr:
    """Largest value of `x` over `axis`, NaN if any is; arguments as `sum`."""
    return _named("max", x, axis, acc, dtype)


def min(x: Any, axis: Any = None, *, acc: Any = None, dtype: Any = None) -> Expr:
    """Smallest value of `x` over `axis`, NaN if any is; arguments as `sum`."""
    return _named("min", x, axis, acc, dtype)


def prod(x: Any, axis: Any = None, *, acc: Any = None, dtype: Any = None) -> Expr:
    """Product of `x` over `axis`; arguments as `sum`."""
    return _named("prod", x, axis, acc, dtype)


def reduce(combine: Callable[[Any, Any], Any], identity: Any, x: Any, axis: Any = None) -> Any:
    """A reduction by your own operation: one value, or a tuple of values (argmax, Welford).

    ``combine(a, b)`` gets two values, or two tuples if `x` is a tuple, and returns the same; it
    must be associative and commutative, since programs combine in any order.  ``identity`` (a
    number, or one for each component) leaves the other operand unchanged, which is tried on numbers
    that `x` may be.  Returns an expression, or a tuple of them.

    >>> import rollergen as rg
    >>> A, k = rg.tensor("A", (2, 3)), rg.reduce_axis("k", 3)
    >>> def larger(a, b):
    ...     first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    ...     return rg.select(first, a[0], b[0]), rg.select(first, a[1], b[1])
    >>> argmax = lambda i: rg.reduce(larger, (float("-inf"), 2**31 - 1), (A[i, k], k), axis=k)[1]
    >>> rg.compute((2,), argmax).evaluate([[1, 7, 3], [5, 5, 4]])
    array([1, 0])

    Raises ExpressionError for an identity that changes an operand, and for what is no function, number or reduction
    axis.  (0 is no identity of max(abs(a), abs(b)), which turns -1 into 1: reduce rg.abs(x) instead.)
    """
    if not callable(combine):
        raise ExpressionError(
            f"rg.reduce(combine, identity, x, axis): combine is {shown(combine)}; expected a function of two operands"
        )
    several = isinstance(x, tuple)
    bodies = tuple(as_expr(part, "rg.reduce") for part in (x if several else (x,)))
    identities = tuple(identity) if isinstance(identity, tuple) else (identity,)
    if len(identities) != len(bodies):
        raise ExpressionError(f"rg.reduce: identity has {len(identities)} components, the reduced value {len(bodies)}")
    widened = tuple(widen(body, accumulator_dtype(body.dtype)) for body in bodies)
    combiner = user_combiner(combine, identities, tuple(body.dtype for body in widened), several)
    bound = _bound_axes("reduce", axis, widened)
    check_identity(combiner, identities, widened)
    results = tuple(
        cast(_reduce_node(combiner, bound, widened, c), reduced_dtype(body.dtype)) for c, body in enumerate(bodies)
    )
    return results if several else results[0]


def check_identity(
    combiner: Combiner, identities: tuple[Any, ...], bodies: tuple[Expr, ...], where: str = "rg.reduce"
) -> None:
    """ExpressionError where the identities change a value that the bodies may have."""
    extents = dict(merge_axes(*(body.axes for body in bodies)))
    found = counterexample(combiner, tuple(body.value for body in bodies), extents)
    if found is None:
        return
    identity, element, made = (
        str(part[0] if len(part) == 1 else part) for part in (identities, found.element, found.made)
    )
    operands = f"{element}, {identity}" if found.behind else f"{identity}, {element}"
    raise ExpressionError(
        f"{where}: identity {identity} is none of {combiner.name}: combine({operands}) gives {made}; "
        f"expected {element}, as an identity leaves every operand unchanged"
    )


def _named(name: str, x: Any, axis: Any, acc: Any, dtype: Any) -> Expr:
    if isinstance(x, ReduceAxis) and isinstance(axis, Expr) and not isinstance(axis, ReduceAxis):
        raise ExpressionError(f"rg.{name}(x, axis): the arguments look swapped: the axis {x.name} stands first")
    body = as_expr(x, f"rg.{name}")
    if body.dtype == "bool":
        raise DtypeError(f'rg.{name} of conditions; expected numbers, e.g. rg.cast(condition, "int32")')
    accumulator = dtype_name(acc, f"rg.{name}'s acc") if acc is not None else accumulator_dtype(body.dtype)
    widened = widen(body, accumulator)
    node = _reduce_node(named_combiner(name, accumulator), _bound_axes(name, axis, (widened,)), (widened,), 0)
    return cast(node, dtype_name(dtype, f"rg.{name}'s dtype") if dtype is not None else reduced_dtype(body.dtype))


def _reduce_node(combiner: Combiner, bound: tuple[ReduceAxis, ...], bodies: tuple[Expr, ...], component: int) -> Expr:
    axes = tuple((axis.name, axis.extent) for axis in bound)
    free = dict(merge_axes(*(body.axes for body in bodies), dict(axes)))
    for name, _ in axes:
        free.pop(name)
    return Expr(Reduce(combiner, axes, tuple(body.value for body in bodies), component), free)


def _bound_axes(name: str, axis: Any, bodies: tuple[Expr, ...]) -> tuple[ReduceAxis, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if not isinstance(one, ReduceAxis):
            raise ExpressionError(f"rg.{name}: {_wrong_axis(name, one)}")
    names = [one.name for one in axes]
    inner = {b for body in bodies for node in walk(body.value) if isinstance(node, Reduce) for b in node.bound}
    for one in names:
        if names.count(one) > 1:
            raise ExpressionError(f"rg.{name}: axis={tuple(names)} names {one!r} twice")
        if one in inner:
            raise ExpressionError(f"rg.{name}: a reduction inside already runs over an axis {one!r}; rename one")
    if not axes:
        raise ExpressionError(f"rg.{name}: axis is empty; expected at least one rg.reduce_axis")
    return axes


def _wrong_axis(name: str, axis: Any) -> str:
    if axis is None:
        text = 'axis is missing; expected axis=k with k = rg.reduce_axis("k", extent)'
        return text + (f" (rg.{name}imum compares two values)" if name in ("max", "min") else "")
    if isinstance(axis, IndexExpr):
        return f"axis is {axis.index}, an axis of the result or a compound index; expected an rg.reduce_axis"
    if isinstance(axis, int):
        return f"axis is {axis}; expected an rg.reduce_axis (positions are for whole tensors: rg.ops.{name})"
    return f"axis is {shown(axis)}; expected an rg.reduce_axis or a tuple of them"


def widen(body: Expr, dtype: str) -> Expr:
    """`body` computed in the accumulator's `dtype`: its leaves are converted, not its result."""
    if body.dtype == dtype:
        return body
    return Expr(_widen(body.value, body.dtype, dtype), body.axes)


def _widen(value: Value, narrow: str, wide: str) -> Value:
    if value.dtype != narrow:
        return value
    match value:
        case Const():
            return Const(check_scalar(value.value, wide, "acc"), wide)
        case IndexValue():
            return Cast(value, wide)
        case Unary():
            return Unary(value.op, _widen(value.x, narrow, wide), wide)
        case Binary():
            return Binary(value.op, _widen(value.a, narrow, wide), _widen(value.b, narrow, wide), wide)
        case Select():
            cond = _widen_compared(value.cond, narrow, wide)
            return Select(cond, _widen(value.a, narrow, wide), _widen(value.b, narrow, wide), wide)
        case Load() | Take() | Cast() | Reduce() | Var():
            return Cast(value, wide)
    raise DtypeError(f"acc={wide} for a reduction of {show(value)} ({narrow})")


def _widen_compared(cond: Value, narrow: str, wide: str) -> Value:
    """`cond` of the same numbers as the values that it chooses between: a remainder corrects its own sign."""
    if cond.dtype != "bool":
        return _widen(cond, narrow, wide)
    if isinstance(cond, (Reduce, Load, Take)):
        return cond
    return cond.with_children(tuple(_widen_compared(child, narrow, wide) for child in cond.children()))


def user_combiner(
    combine: Any, identities: tuple[Any, ...], dtypes: tuple[str, ...], several: bool, where: str = "rg.reduce"
) -> Combiner:
    """The combiner of a function of two operands."""
    for identity in identities:
        if not is_scalar(identity):
            raise ExpressionError(f"{where}: identity is {shown(identity)}; expected a number, or a tuple of numbers")
    consts = tuple(
        Const(check_scalar(python_scalar(i), d, f"{where}'s identity"), d)
        for i, d in zip(identities, dtypes, strict=True)
    )
    lhs, rhs = (tuple(Expr(Var(f"{side}{c}", d), {}) for c, d in enumerate(dtypes)) for side in ("lhs", "rhs"))
    made = combine(lhs, rhs) if several else combine(lhs[0], rhs[0])
    parts: Sequence[Any] = made if isinstance(made, tuple) else (made,)
    if len(parts) != len(dtypes):
        raise ExpressionError(f"{where}: combine returned {len(parts)} components; expected {len(dtypes)}")
    values = []
    for part, dtype in zip(parts, dtypes, strict=True):
        expr = as_expr(part, f"{where}'s combine")
        if expr.dtype != dtype:
            raise DtypeError(f"{where}: combine returned {expr.dtype} ({show(expr.value)}); expected {dtype}")
        values.append(expr.value)
    name = getattr(combine, "__name__", "reduce")
    name = name if name.isidentifier() and name not in NAMED else "reduce"
    return Combiner(name, consts, tuple(values))


def free_axes(value: Value) -> frozenset[str]:
    """Names of the axes that occur in `value` and that no reduction within it binds."""
    if isinstance(value, Load):
        return value.axes()
    if isinstance(value, IndexValue):
        return value.index.axes()
    names: frozenset[str] = frozenset().union(*(free_axes(child) for child in value.children()))
    names = names | value.row.axes() if isinstance(value, Take) else names
    names = names - set(value.bound) if isinstance(value, Reduce) else names
    return names | value.upto.axes() if isinstance(value, Scan) else names
