"""Puts: results stored at places that are numbers that are read.

    place = how far behind its target the element lies
    C[target + place * multiple] = value

A vector whose lanes have one place is stored at once, else lane by lane.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.places import put_of
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Pick
from rollergen.lower.place import Scope
from rollergen.lower.takes import of_one_lane, one_lane
from rollergen.lower.writer import Writer


def placed(out: Writer, scope: Scope, access: Access) -> Access:
    """The access to a point's result, where the op puts it."""
    nest = scope.place.nest
    put = put_of(nest.op)
    if put is None:
        return access
    most = nest.op.output.elements // put.multiple
    integer = lambda value: out.integer("place", value, (-most, most)) * put.multiple
    if scope.lane is None or not put.moved_along(nest.lane_axis or ""):
        shift = one_lane(evaluate(out, of_one_lane(scope), put.shift))
        return replace(access, offset=access.offset + integer(shift))
    places = out.atom("places", evaluate(out, scope, put.shift))
    return replace(access, moved=tuple(integer(Pick(places, number)) for number in range(scope.lane.width)))
