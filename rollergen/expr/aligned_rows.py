"""Factors of a product whose rows begin at no multiple of a vector, copied into rows that do.

Like packing, each copy is an ordinary elementwise tensor op into a temporary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.guards import secured
from rollergen.expr.index import Index
from rollergen.expr.packing import Prepared, fresh_buffer, replace_load
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Buffer, Cast, Load, Value, Within, transform

REUSE = 256
"""Results for which an element of each copied factor is read, at least: a copy reads and writes it once more."""


def aligned_rows(op: TensorOp, row_bytes: int) -> Iterator[Prepared]:
    """`op` over factors whose rows are multiples of `row_bytes`, and the copies that make them: for all factors whose
    rows are none, then for fewer of them.

    A factor of shape [.., r] becomes one of shape [.., r'], where r' is the least multiple at or above r, with zeros
    behind r.  The axis of its rows is as long in `op`, which stores no results behind r.  Nothing where `op` is no sum
    of products of two plain loads over one axis, where rows are aligned, or where few results read what would be
    copied.
    """
    misaligned = [load for load in plain_factors(op) if load.buffer.shape[-1] % _multiple(op, row_bytes)]
    often = [load for load in misaligned if _reuse(op, load) >= REUSE]
    for count in range(len(often), 0, -1):
        for chosen in combinations(often, count):
            yield _over_copies(op, [(load, _axes(load)) for load in chosen], row_bytes)


def rows_along_sum(op: TensorOp, row_bytes: int) -> Prepared | None:
    """`op` over factors whose rows run along the reduce axis and are multiples of `row_bytes`, and the copies that make
    them: as `aligned_rows`, for all factors that lie otherwise."""
    rows = {load: (*(axis for axis in _axes(load) if axis != _k(op)), _k(op)) for load in plain_factors(op)}
    misaligned = lambda load: load.buffer.shape[-1] % _multiple(op, row_bytes)
    chosen = [load for load, axes in rows.items() if axes != _axes(load) or misaligned(load)]
    if not chosen or any(_reuse(op, load) < REUSE for load in chosen):
        return None
    return _over_copies(op, [(load, rows[load]) for load in chosen], row_bytes)


def with_longer_rows(made: Prepared, row_bytes: int) -> Prepared:
    """`made`, the rows of whose elementwise copies are multiples of `row_bytes` where they run along a spatial axis of
    the product, which alone reads them; `made` itself where there are no others."""
    op, copies = made.op, []
    read_twice = {load.buffer for copy in made.copies for load in copy.loads()}
    for copy in made.copies:
        multiple = max(1, row_bytes // ITEMSIZE[copy.output.dtype])
        loads = [load for load in op.loads() if load.buffer == copy.output]
        axis = _row_axis(op, loads[0]) if len(loads) == 1 and not copy.reductions else None
        fits = axis is None or copy.output.shape[-1] != axis.extent or axis.extent % multiple == 0
        if axis is None or fits or copy.output in read_twice:
            copies.append(copy)
            continue
        extent = -(-axis.extent // multiple) * multiple
        copies.append(_lengthened(copy, extent))
        longer = replace(op, axes=tuple(replace(one, extent=extent) if one == axis else one for one in op.axes))
        op = _within(replace_load(longer, loads[0], replace(loads[0], buffer=copies[-1].output)), op)
    return Prepared(tuple(copies), op) if op is not made.op else made


def _row_axis(op: TensorOp, load: Load) -> Axis | None:
    """The spatial axis that is the index of a load's last dimension, and of nothing else there or in a bound."""
    index, others = load.indices[-1], [*load.indices[:-1], *(bound.index for bound in load.guard)]
    alone = lambda axis: index == Index.axis(axis.name) and all(axis.name not in one.axes() for one in others)
    return next((axis for axis in op.of_role("spatial") if not op.where and alone(axis)), None)


def _lengthened(copy: TensorOp, extent: int) -> TensorOp:
    """The copy with rows of so many elements, what it reads behind its own being the fill of that."""
    axes = (*copy.axes[:-1], replace(copy.axes[-1], extent=extent))
    output = replace(copy.output, shape=(*copy.output.shape[:-1], extent))
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    kept = lambda value: secured(value, ranges) if isinstance(value, Load) else None
    return replace(copy, axes=axes, output=output, result=transform(copy.result, kept))


def plain_factors(op: TensorOp) -> tuple[Load, ...]:
    """The loads that a sum over one axis multiplies, each with an axis for a dimension; none where the tensor op is
    something else."""
    if len(op.reductions) != 1 or len(op.of_role("reduce")) != 1 or op.of_role("row") or op.where:
        return ()
    found: dict[Load, None] = {}
    for body in op.reductions[0].bodies:
        parts = (body.a, body.b) if isinstance(body, Binary) and body.op == "mul" else ()
        factors = [_plain(part, _k(op)) for part in parts]
        if op.reductions[0].combiner.name != "sum" or not factors or None in factors:
            return ()
        found |= dict.fromkeys(factors)  # type: ignore[arg-type]
    return tuple(found)


def _plain(value: Value, k: str) -> Load | None:
    """The load that `value` is, but for a conversion, if its indices are axes, k among them, and nothing guards it."""
    load = value.x if isinstance(value, Cast) else value
    if not isinstance(load, Load) or load.guard or load.buffer.packs or k not in load.axes():
        return None
    axes = [index.axes() for index in load.indices]
    plain = all(len(own) == 1 and index == Index.axis(min(own)) for own, index in zip(axes, load.indices, strict=True))
    return load if plain and len(load.axes()) == len(axes) else None


def _axes(load: Load) -> tuple[str, ...]:
    """The axis of each dimension of a plain load."""
    return tuple(min(index.axes()) for index in load.indices)


def _k(op: TensorOp) -> str:
    return op.of_role("reduce")[0].name


def _multiple(op: TensorOp, row_bytes: int) -> int:
    """Elements that rows are multiples of."""
    return max(1, row_bytes // min(ITEMSIZE[load.dtype] for load in plain_factors(op)))


def _reuse(op: TensorOp, load: Load) -> int:
    return prod(axis.extent for axis in op.of_role("spatial") if axis.name not in load.axes())


def _over_copies(op: TensorOp, chosen: Sequence[tuple[Load, tuple[str, ...]]], row_bytes: int) -> Prepared:
    """`op` over copies of the factors, each with its axes in the order given."""
    multiple = _multiple(op, row_bytes)
    longer = {axes[-1]: -(-op.axis(axes[-1]).extent // multiple) * multiple for _, axes in chosen}
    made = replace(op, axes=tuple(replace(axis, extent=longer.get(axis.name, axis.extent)) for axis in op.axes))
    copies = []
    for load, axes in chosen:
        copies.append(_copy(made, load, axes))
        made = replace_load(made, load, Load(copies[-1].output, tuple(map(Index.axis, axes))))
    return Prepared(tuple(copies), _within(made, op))


def _copy(made: TensorOp, load: Load, names: tuple[str, ...]) -> TensorOp:
    """``rows[names..] = load``, zero behind its rows."""
    axes = tuple(replace(made.axis(name), role="spatial") for name in names)
    name = fresh_buffer(made, f"{load.buffer.name}_rows")
    rows = Buffer(name, tuple(axis.extent for axis in axes), load.dtype, "temporary")
    source = secured(load, {axis.name: (0, axis.extent - 1) for axis in axes}) or load
    return TensorOp(rows, axes, tuple(map(Index.axis, names)), source)


def _within(made: TensorOp, op: TensorOp) -> TensorOp:
    """`made`, whose axes may be longer than those of `op`, with no access behind theirs."""
    ends = [Within(Index.axis(a.name), 0, a.extent) for a in op.of_role("spatial") if made.axis(a.name) != a]
    ranges = made.ranges()
    kept = lambda value: secured(value, ranges) if isinstance(value, Load) else None
    reductions = tuple(
        replace(one, bodies=tuple(transform(body, kept) for body in one.bodies)) for one in made.reductions
    )
    return replace(made, reductions=reductions, result=transform(made.result, kept), where=tuple(ends))
