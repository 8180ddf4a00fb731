"""What expressions read: which tensors, and that every read lies within its tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import rollergen.expr.guards as guards
from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.index import Bounds, Index, atom_bounds
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import IndexValue, Load, Select, Take, Value, Within, read_of

if TYPE_CHECKING:
    from rollergen.expr.language import Tensor

_ENUMERABLE = 1 << 20


def check_reads(body: Value, ranges: Mapping[str, Bounds], where: str) -> None:
    """Raise ShapeError, naming tensor, dimension and index, for a read that may fall outside.

    Reads under `Select` count only where the conditions on indices hold; along an axis of extent 0 none does.
    ExpressionError for an index that needs more than 64 bits.
    """
    _check(body, ranges, (), where)


def _check(value: Value, ranges: Mapping[str, Bounds], bounds: tuple[Within, ...], where: str) -> None:
    if any(high < low for low, high in ranges.values()):
        return
    match value:
        case Load():
            for position, (index, extent) in enumerate(zip(value.indices, value.buffer.shape, strict=True)):
                if index.terms:  # of a number alone it says more that it is outside
                    _refuse_if_too_large(index, ranges, where)
                if not guards.within_extent(index, extent, ranges, bounds):
                    _refuse_if_outside(value, position, index, extent, ranges, bounds, where)
        case IndexValue() | Within():
            _refuse_if_too_large(value.index, ranges, where)
        case Take():
            for child in (value.row, *value.ids):
                _check(child, ranges, bounds, where)
        case Select():
            _check(value.cond, ranges, bounds, where)
            _check(value.a, ranges, guards.merged(bounds + guards.implied_bounds(value.cond)), where)
            _check(value.b, ranges, guards.merged(bounds + guards.implied_bounds(value.cond, False)), where)
        case Reduce():
            inner = {**ranges, **{name: (0, extent - 1) for name, extent in value.axes}}
            for body in value.bodies:
                _check(body, inner, bounds, where)
        case _:
            for child in value.children():
                _check(child, ranges, bounds, where)


def _refuse_if_too_large(index: Index, ranges: Mapping[str, Bounds], where: str) -> None:
    """Also for what it divides, and for sums whose terms pass 64 bits before they cancel."""
    largest = abs(index.const)
    for atom, coefficient in index.terms:
        if not isinstance(atom, str):
            _refuse_if_too_large(atom.index, ranges, where)
        known = ranges[atom] if isinstance(atom, str) else atom_bounds(atom, ranges)
        largest += abs(coefficient) * max(1, *map(abs, known))
    if largest >= 2**63:
        raise ExpressionError(
            f"{where}: the index {index} needs numbers up to {largest}; expected indices below 2**63, which int64 holds"
        )


def _refuse_if_outside(
    load: Load, position: int, index: Index, extent: int, ranges: Mapping[str, Bounds],
    bounds: tuple[Within, ...], where: str,
) -> None:  # fmt: skip
    low, high = guards.guarded_bounds(index, guards.guarded_ranges(ranges, bounds), bounds)
    exact = _enumerated(index, ranges, bounds)
    if exact is not None:
        low, high = exact
    if (low >= 0 and high < extent) or low > high:
        return
    name = load.buffer.name.partition("#")[0]
    raise ShapeError(
        f"{where}: {name}[{', '.join(map(str, load.indices))}] reads index {position} ({index}) from {low} to {high}; "
        f"{name} has shape {load.buffer.shape}, so 0 to {extent - 1} is accepted: guard it, "
        f"e.g. rg.select(({index} >= 0) & ({index} < {extent}), {name}[...], 0)"
    )


def _enumerated(index: Index, ranges: Mapping[str, Bounds], bounds: tuple[Within, ...]) -> Bounds | None:
    """Exact bounds by trying every point, where these are few; what intervals cannot prove."""
    import numpy

    names = index.axes()
    related = [bound for bound in bounds if bound.index.axes() & names]
    names = names.union(*(bound.index.axes() for bound in related))
    points = 1
    for name in names:
        points *= ranges[name][1] - ranges[name][0] + 1
    if points > _ENUMERABLE:
        return None
    order = sorted(names)
    mesh = numpy.meshgrid(*(numpy.arange(ranges[n][0], ranges[n][1] + 1) for n in order), indexing="ij", sparse=True)
    at = dict(zip(order, mesh, strict=True))
    shape = numpy.broadcast_shapes(*(m.shape for m in mesh)) if mesh else ()
    reached = numpy.ones(shape, dtype=bool)
    for bound in related:
        reached = reached & bound.evaluate(at)
    values = numpy.broadcast_to(index.evaluate(at), shape)[reached]
    return (int(values.min()), int(values.max())) if values.size else (0, -1)


def given_tensors(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The given tensors that `outputs` read, in order of first appearance; ExpressionError if two share a name."""
    found = [tensor for tensor in producers_first(outputs, _read) if tensor.producer is None]
    names: dict[str, Tensor] = {}
    for tensor in found:
        other = names.setdefault(tensor.buffer.name, tensor)
        if other is not tensor:
            raise ExpressionError(
                f"two tensors are named {tensor.name!r}, of shapes {other.shape} and {tensor.shape}; names must differ"
            )
    return tuple(found)


def computed_tensors(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The computed tensors among `outputs` and all that they read, producers first."""
    return tuple(tensor for tensor in producers_first(outputs, _read) if tensor.producer is not None)


def _read(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that a computed one reads, as often as it does."""
    if tensor.producer is not None:
        yield from tensor.producer.appear
        yield from _sources(tensor.producer.body)


def _sources(value: Value) -> Iterator[Tensor]:
    """The tensors that a value reads; that of a take's rows before those of its ids."""
    if isinstance(value, (Load, Take)):
        yield read_of(value).source
    for child in value.children():
        yield from _sources(child)


def producers_first(tensors: Iterable[Tensor], read: Callable[[Tensor], Iterable[Tensor]]) -> list[Tensor]:
    """`tensors` and all that they read (``read``: of one tensor), each once and after what it reads."""
    order: dict[int, Tensor] = {}
    for tensor in tensors:
        _visit(tensor, read, order)
    return list(order.values())


def _visit(tensor: Tensor, read: Callable[[Tensor], Iterable[Tensor]], order: dict[int, Tensor]) -> None:
    if id(tensor) in order:
        return
    for one in read(tensor):
        _visit(one, read, order)
    order[id(tensor)] = tensor
