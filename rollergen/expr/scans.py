"""Prefixes of an axis: every element combined with all before it by an associative operation (a scan).

G. E. Blelloch, Prefix sums and their applications, CMU-CS-90-190 (1990).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rollergen.errors import DtypeError, ExpressionError, ShapeError, array_advice, shown
from rollergen.expr.dtypes import accumulator_dtype, reduced_dtype
from rollergen.expr.functions import cast
from rollergen.expr.index import Index
from rollergen.expr.language import Tensor, computed
from rollergen.expr.reductions import NAMED, Scan, check_identity, user_combiner, widen
from rollergen.expr.scalars import Expr
from rollergen.expr.slots import axis as axis_named
from rollergen.expr.values import Combiner, named_combiner


def scan(
    combine: str | Callable[[Any, Any], Any], x: Any, axis: int = -1, *, identity: Any = None,
    exclusive: bool = False, reverse: bool = False,
) -> Any:  # fmt: skip
    """Every element of `x` along `axis` combined with all before it.

    ``combine``: ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``; or a function of two values (of two tuples, where `x` is
    a tuple of tensors of one shape), associative, with its ``identity`` as `rg.reduce` has it: it need not commute.
    ``exclusive``: leaves out the element itself, so that the first result is the identity.  ``reverse``: combines each
    element with all behind it instead.  Returns a tensor of the shape of `x`, or a tuple of them.  Dtypes are those of
    reductions: int8 becomes int32, float16 is combined in float32.

    >>> import rollergen as rg
    >>> rg.scan("sum", rg.tensor("x", (4,))).evaluate([1, 2, 3, 4])
    array([ 1.,  3.,  6., 10.])
    >>> decayed = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # a recurrence: h = h * a + b
    >>> a, b = rg.tensor("a", (3,)), rg.tensor("b", (3,))
    >>> rg.scan(decayed, (a, b), identity=(1.0, 0.0))[1].evaluate([0.5, 0.5, 0.5], [1, 1, 1])
    array([1.  , 1.5 , 1.75])

    Raises ExpressionError for an unknown operation or axis and an identity that is none, ShapeError for tensors of
    several shapes, DtypeError for conditions.
    """
    several = isinstance(x, tuple)
    parts = x if several else (x,)
    first = _checked(parts, axis)
    at = axis % first.ndim
    bodies = [element_at(part, at, reverse) for part in parts]
    if isinstance(combine, str):
        if combine not in NAMED or several or identity is not None:
            raise ExpressionError(
                f"rg.scan: combine is {shown(combine)}; expected one of {', '.join(NAMED)}, of one tensor and without "
                "an identity, or a function"
            )
        dtype = accumulator_dtype(first.dtype)
        combiner, bodies = named_combiner(combine, dtype), [widen(bodies[0], dtype)]
    else:
        bodies = [widen(body, accumulator_dtype(body.dtype)) for body in bodies]
        combiner = _own(combine, identity, bodies, several)
    made = scanned(combiner, bodies, first.shape, at, exclusive=exclusive, reverse=reverse)
    results = tuple(made(c, reduced_dtype(part.dtype)) for c, part in enumerate(parts))
    return results if several else results[0]


def _checked(parts: Sequence[Any], axis: Any) -> Tensor:
    for part in parts:
        if not isinstance(part, Tensor):
            raise ExpressionError(f"rg.scan: x is {shown(part)}; expected a tensor{array_advice(part)}")
        if part.dtype == "bool":
            raise DtypeError(f'rg.scan of conditions; expected numbers, e.g. rg.ops.cast({part.label}, "int32")')
        if part.shape != parts[0].shape:
            raise ShapeError(f"rg.scan: {part.label} has shape {part.shape}; expected the first one's {parts[0].shape}")
    first: Tensor = parts[0]
    if isinstance(axis, bool) or not isinstance(axis, int) or not -first.ndim <= axis < first.ndim:
        raise ExpressionError(f"rg.scan: axis is {shown(axis)}; {first.label} has {first.ndim} dimensions")
    return first


def _own(combine: Any, identity: Any, bodies: list[Expr], several: bool) -> Combiner:
    """The user's combiner, its identity tried."""
    if not callable(combine):
        raise ExpressionError(f"rg.scan: combine is {shown(combine)}; expected one of {', '.join(NAMED)} or a function")
    identities = tuple(identity) if isinstance(identity, tuple) else (identity,)
    if len(identities) != len(bodies):
        raise ExpressionError(f"rg.scan: identity has {len(identities)} components, x {len(bodies)}")
    combiner = user_combiner(combine, identities, tuple(body.dtype for body in bodies), several, "rg.scan")
    check_identity(combiner, identities, tuple(bodies), "rg.scan")
    return combiner


BOUND = "prefix"
"""The axis that a scan binds."""


def element_at(x: Tensor, at: int, reverse: bool = False) -> Expr:
    """The element of `x` that the bound axis stands for, of every row."""
    slots = [axis_named(f"i{d}", extent) for d, extent in enumerate(x.shape)]
    slots[at] = bound(x.shape[at], reverse)
    return x[tuple(slots)]


def bound(extent: int, reverse: bool) -> Any:
    """The place that the bound axis of a scan stands for."""
    own = axis_named(BOUND, extent)
    return extent - 1 - own if reverse else own


def scanned(
    combiner: Combiner, bodies: Sequence[Expr], shape: tuple[int, ...], at: int, *, exclusive: bool = False,
    reverse: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    """What makes the named tensor of a component in a dtype: the scan of `bodies`, over axes ``i0``, ... and, in place
    of number `at`, `BOUND`; ``finish``: the element, of the expressions of all components."""
    extent, own = shape[at], Index.axis(f"i{at}")
    upto = Index.of(extent - 1) - own if reverse else own
    axes = tuple((f"i{d}", size) for d, size in enumerate(shape))
    values = tuple(body.value for body in bodies)

    def made(
        component: int, dtype: str, finish: Callable[..., Expr] | None = None, name: str | None = None
    ) -> Tensor:
        parts = [Scan(combiner, ((BOUND, extent),), values, c, upto, exclusive) for c in range(len(values))]
        nodes = [Expr(part, dict(axes)) for part in parts]
        result = nodes[component] if finish is None else finish(*nodes)
        return computed(name, axes, cast(result, dtype).value)

    return made
