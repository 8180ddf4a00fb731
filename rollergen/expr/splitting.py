"""Splitting a reduction into chunks (split-K) that are put together by a stage of their own, or added up in the output.

A reduction of any length is split: where no equal chunks of it exist, the last one is short, and what lies beyond the
end contributes the combiner's identity (nothing is read there).  A tuple-valued reduction has a workspace, and a
tensor op that fills it, for each component.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isinf, lcm

from rollergen.expr.dtypes import is_float
from rollergen.expr.guards import push_guards
from rollergen.expr.index import Bounds, FloorDiv, Index, Mod
from rollergen.expr.packing import fresh_buffer
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Combiner,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Value,
    Var,
    Within,
    loads,
    named_combiner,
    substitute_axes,
    transform,
    walk,
)

ADDED = ("float32", "int32")
"""Dtypes whose sums can be added to atomically."""

_LONGER = 16
"""A chunk is rounded up by at most one part in so many."""

TILE = 32
"""Elements of the longest tiles that contractions stage along what is reduced."""


def split_reduction(
    op: TensorOp, axis: str, parts: int, *, tile: int = TILE, whole: bool = False
) -> tuple[TensorOp, ...] | None:
    """(partial results over chunks of `axis`, one tensor op for each component; their combination with the original
    result).

    A workspace has shape [chunks, *spatial extents] and the accumulator's dtype.  The axis is cut into `parts` equal
    chunks where it divides.  Else the length of a chunk is rounded up to tiles of up to `tile` elements (a power of 2):
    there may be fewer chunks, and the last one is short.  None where there are several reductions, for row axes, if
    fewer than two chunks would be left, or, with `whole`, where the chunks are not equal or there are several
    components.
    """
    if len(op.reductions) != 1 or op.of_role("row") or parts < 2:
        return None
    reduction = op.reductions[0]
    extent = op.axis(axis).extent
    chunk = chunk_of(op, axis, parts, tile)
    parts = -(-extent // chunk)
    if parts < 2 or (whole and (extent % chunk or len(reduction.bodies) > 1)):
        return None
    partials = [_partial(op, axis, chunk, c) for c in range(len(reduction.bodies))]
    spatial = op.of_role("spatial")
    part = Axis(axis + "_part", parts, "reduce")
    place = (Index.axis(part.name), *(Index.axis(a.name) for a in spatial))
    # Spatial points outside `where` are never written: the second stage must not read them.
    bodies = tuple(Load(one.output, place, op.where, 0) for one in partials)
    second = replace(
        op, axes=(*spatial, part), reductions=(replace(reduction, axes=(part.name,), bodies=bodies),)
    )
    return (*partials, second)


def chunk_of(op: TensorOp, axis: str, parts: int, tile: int = TILE) -> int:
    """Elements of a chunk: an equal share of the axis where it divides.  Else the share is rounded up to whole windows
    and whole tiles (or halves, quarters, ... of tiles), the longest for which it grows by a sixteenth at most."""
    extent = op.axis(axis).extent
    share = -(-extent // parts)
    if extent % parts == 0:
        return share
    for period in dict.fromkeys((_period(op, axis), 1)):
        for halvings in range(tile.bit_length()):
            multiple = lcm(tile >> halvings, period)
            chunk = -(-share // multiple) * multiple
            if _LONGER * (chunk - share) <= share:
                return chunk
    return share


def _period(op: TensorOp, axis: str) -> int:
    """The step along the axis after which all remainders of it repeat (the taps of a window): chunks that are
    multiples of it begin at a known one."""
    divisors = [
        atom.divisor
        for load in op.body_loads()
        for index in load.indices
        for atom, _ in index.terms
        if isinstance(atom, (FloorDiv, Mod)) and axis in atom.index.axes()
    ]
    return lcm(*divisors)


def _partial(op: TensorOp, axis: str, chunk: int, number: int) -> TensorOp:
    """The tensor op that fills the workspace of one component."""
    several = len(op.reductions[0].bodies) > 1
    reduction, component = needed(op.reductions[0], number)
    extent, part = op.axis(axis).extent, axis + "_part"
    parts, position = -(-extent // chunk), Index.axis(part) * chunk + Index.axis(axis)
    spatial = op.of_role("spatial")
    axes = (
        Axis(part, parts),
        *spatial,
        *(Axis(a.name, chunk, "reduce") if a.name == axis else a for a in op.of_role("reduce")),
    )
    bodies = tuple(substitute_axes(body, {axis: position}) for body in reduction.bodies)
    if parts * chunk > extent:
        ranges = {a.name: (0, a.extent - 1) for a in axes}
        inside = Binary("lt", IndexValue(position), Const(extent, "int32"), "bool")
        identity = reduction.combiner.identity
        bodies = tuple(_where(inside, body, neutral, ranges) for body, neutral in zip(bodies, identity, strict=True))
    partial = Partial(reduction.name, bodies[component].dtype, component)
    name = fresh_buffer(op, f"{op.output.name}_parts" + (f"_{number}" if several else ""))
    return TensorOp(
        output=Buffer(name, (parts, *(a.extent for a in spatial)), partial.dtype, "temporary"),
        axes=axes,
        target=(Index.axis(part), *(Index.axis(a.name) for a in spatial)),
        result=partial,
        reductions=(replace(reduction, bodies=bodies),),
        where=op.where,
    )


def _where(inside: Binary, body: Value, neutral: Const, ranges: Mapping[str, Bounds]) -> Value:
    """`body` where its point is inside, else the combiner's identity: by the loads' own guards where their fills give
    it, as contractions want it."""
    pushed = push_guards(Select(inside, body, neutral, body.dtype), ranges)
    if all(_holds(load, neutral.dtype) for load in loads(pushed)):
        return transform(pushed, _by_window)
    return Select(inside, transform(push_guards(body, ranges), _by_window), neutral, body.dtype)


def _holds(load: Load, dtype: str) -> bool:
    """Whether the fill, once of `dtype`, is an element of the load's own dtype."""
    infinite = isinstance(load.fill, float) and isinf(load.fill)
    return load.dtype == dtype or load.fill in (-1, 0, 1) or (infinite and is_float(load.dtype))


def _by_window(value: Value) -> Value | None:
    """A load with a bound on the number of an element restated on the first of its digits, where that is one of the
    load's indices: ``k < 9 * C`` is ``k // 9 < C``, which the address needs anyway."""
    if not isinstance(value, Load):
        return None

    def restated(bound: Within) -> Within:
        for index, extent in zip(value.indices, value.buffer.shape, strict=True):
            if bound.low == 0 and bound.high % extent == 0 and bound.index // (bound.high // extent) == index:
                return Within(index, 0, extent)
        return bound

    return replace(value, guard=tuple(restated(bound) for bound in value.guard))


def needed(reduction: Reduction, component: int) -> tuple[Reduction, int]:
    """The reduction with only the components on which one depends, and that one's number there."""
    combiner, used, waiting = reduction.combiner, {component}, [component]
    while waiting:
        operands = {int(node.name[3:]) for node in walk(combiner.combine[waiting.pop()]) if isinstance(node, Var)}
        waiting += sorted(operands - used)
        used |= operands
    kept = sorted(used)
    if len(kept) == len(reduction.bodies):
        return reduction, component
    numbers = {f"{side}{old}": f"{side}{new}" for new, old in enumerate(kept) for side in ("lhs", "rhs")}
    renumbered = lambda node: replace(node, name=numbers[node.name]) if isinstance(node, Var) else None
    own = Combiner(
        combiner.name,
        tuple(combiner.identity[c] for c in kept),
        tuple(transform(combiner.combine[c], renumbered) for c in kept),
    )
    bodies = tuple(reduction.bodies[c] for c in kept)
    return replace(reduction, combiner=_by_name(own, bodies[0].dtype), bodies=bodies), kept.index(component)


def _by_name(combiner: Combiner, dtype: str) -> Combiner:
    """The named combiner that this one is, if it is one."""
    alike = lambda one: repr(float(one.identity[0].value)) == repr(float(combiner.identity[0].value))
    named = [named_combiner(name, dtype) for name in ("sum", "prod", "max", "min")]
    return next((one for one in named if one.combine == combiner.combine and alike(one)), combiner)


def add_reduction(op: TensorOp, axis: str, parts: int) -> tuple[TensorOp, TensorOp] | None:
    """(zeros in the output, partial sums over chunks of `axis`, to be added there).

    None where `split_reduction` is, and unless the result is a bare sum in the accumulator's dtype, one of `ADDED`.
    """
    split = split_reduction(op, axis, parts)
    if split is None or not is_added(op):
        return None
    zeros = TensorOp(
        output=op.output,
        axes=op.of_role("spatial"),
        target=op.target,
        result=Const(0.0 if is_float(op.output.dtype) else 0, op.output.dtype),
        where=op.where,
    )
    return zeros, replace(split[0], output=op.output, target=op.target)


def is_added(op: TensorOp) -> bool:
    """Whether the result is one bare sum, in the dtype of its accumulator, of those that can be added to."""
    if len(op.reductions) != 1 or len(op.reductions[0].bodies) > 1:
        return False
    reduction, dtype = op.reductions[0], op.output.dtype
    bare = op.result == Partial(reduction.name, dtype)
    return bare and reduction.combiner.name == "sum" and reduction.bodies[0].dtype == dtype and dtype in ADDED
