"""Where the results of a stage lie."""

from __future__ import annotations

from rollergen.lower.access import Access
from rollergen.lower.place import Place
from rollergen.lower.writer import Writer


def output_access(place: Place, out: Writer) -> Access:
    """Where the point's result lies, and the tests under which it may be touched."""
    nest = place.nest
    op = nest.op
    axes = [axis for axis, _ in nest.stage.guards if nest.roles[axis] != "reduce" and place.unsure(axis)]
    bounds = (*(place.axis_test(axis) for axis in axes), *op.where)
    offset = op.stored().offset().substitute(place.axes).simplify(out.ranges)
    pointer, size = nest.parameters[op.output.name], op.output.elements
    return Access(pointer, offset, place.tests(bounds, out.ranges), elements=size)
