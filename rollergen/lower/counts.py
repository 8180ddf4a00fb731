"""How often serial loops run: they stop where their axis ends."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.index import Bounds, weighted_sum
from rollergen.lower.expressions import Expr, Number, Operation, position
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import PARALLEL, SERIAL


def is_uniform(nest: Nest, p: int) -> bool:
    """Whether there are barriers inside loop `p`, so that all threads must agree on its count."""
    if nest.threads == 1:
        return False
    return p < nest.barriers_within


def trip_count(place: Place, p: int, uniform: bool, ranges: Mapping[str, Bounds]) -> int | Expr:
    """Iterations of loop `p`: a serial loop stops where its axis ends, given the loops around it.

    ``uniform``: the same for all threads of a block (there are barriers inside): the thread whose
    share of the axis starts first counts, the others' overhang is the guards'.
    """
    loop, nest = place.nest.loops[p], place.nest
    if loop.kind != SERIAL or loop.axis in place.full:
        return loop.extent
    base = nest.start(loop.axis)
    for q, outer in enumerate(nest.loops[:p]):
        if outer.axis == loop.axis and not (uniform and outer.kind in PARALLEL):
            base = base + place.point[q] * outer.stride
    extent = nest.extents[loop.axis]
    base = base.simplify(ranges)
    low, high = base.bounds(ranges)
    if -(-(extent - high) // loop.stride) >= loop.extent:
        return loop.extent
    if not base.terms:
        return min(loop.extent, -(-(extent - base.const) // loop.stride))
    left = (base * -1 + (extent + loop.stride - 1)) if loop.stride > 1 else base * -1 + extent
    rest: Expr = position(left, ranges)
    if loop.stride > 1:
        rest = Operation("div", (rest, Number(loop.stride, rest.dtype)), rest.dtype)
    return clipped(rest, 0, -(-(extent - low) // loop.stride), loop.extent)


def clipped(value: Expr, low: int, high: int, limit: int) -> Expr:
    """`value`, known to be within [low, high], brought into [0, limit]."""
    if low < 0:
        value = _pick("gt", value, 0)
    return _pick("lt", value, limit) if high > limit else value


def _pick(order: str, value: Expr, limit: int) -> Expr:
    """The value or the limit, whichever the order puts first."""
    bound = Number(limit, value.dtype)
    return Operation("select", (Operation(order, (value, bound), "bool"), value, bound), value.dtype)


def whole_iterations(place: Place, p: int, out: Writer) -> int | Expr | None:
    """How many iterations of serial loop `p` lie wholly within its axis; None where the loop stays one.

    The innermost serial loop of the lanes' axis is written twice where that axis is masked: first the
    iterations in which every vector is whole, without tests, then the tail.  So is the outermost of several in
    which blocks of terms are added up: first the iterations in which all inside run to their ends.
    """
    nest, loop = place.nest, place.nest.loops[p]
    if loop.kind != SERIAL or nest.lane_axis != loop.axis or loop.axis in place.full or nest.threads > 1:
        return None
    deeper = [inner for inner in nest.loops[p + 1 :] if inner.axis == loop.axis]
    in_tile = p >= nest.tile_depth or not nest.op.reductions
    if nest.lead is not None or not in_tile:
        return None
    if any(inner.kind == SERIAL for inner in deeper):
        if p != nest.first_block:
            return None
    elif not place.unsure(loop.axis):
        return None
    outer = ((place.point[q], nest.loops[q].stride) for q in range(p) if nest.loops[q].axis == loop.axis)
    reach = sum((inner.extent - 1) * inner.stride for inner in deeper)
    left = (weighted_sum(outer) * -1 + (nest.extents[loop.axis] - 1 - reach + loop.stride)).simplify(out.ranges)
    low, high = left.bounds(out.ranges)
    if not left.terms:
        return max(0, min(loop.extent, left.const // loop.stride))
    at = position(left, out.ranges)
    whole = Operation("div", (at, Number(loop.stride, at.dtype)), at.dtype)
    return out.let(
        f"{nest.variables[p]}_whole", clipped(whole, low // loop.stride, high // loop.stride, loop.extent)
    )
