"""Takes: elements whose place is a number that is read.

    row = the position, from 0 to its extent - 1 whatever the id
    value = table[row * stride + ...]

Along a lane that the ids do not depend on a row's vector is read at once, else lane by lane.  There a thread that is
alone looks at the ids of all lanes at once: where all are positions already, as most are, it reads at them as they
are, for making positions of them takes longer than reading.

    if (no id is negative or too large) value = (table[ids[0] * stride], table[ids[1] * stride], ...)
    else value = (table[rows[0] * stride], table[rows[1] * stride], ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from rollergen.expr.index import Index
from rollergen.expr.takes import axes_of_ids, positions, widened
from rollergen.expr.values import Load, Partial, Take, Value
from rollergen.lower.access import fetch
from rollergen.lower.elements import Access, read_at
from rollergen.lower.expressions import (
    Broadcast,
    Build,
    Convert,
    Expr,
    Name,
    Number,
    Operation,
    Pick,
    is_narrow,
    register_dtype,
)
from rollergen.lower.masks import compare
from rollergen.lower.nest import Lane
from rollergen.lower.place import Scope, load_bounds
from rollergen.lower.writer import Writer

Evaluate = Callable[[Scope, Value], Expr]


def read_take(out: Writer, scope: Scope, take: Take, of: Evaluate) -> Expr:
    """The element, or with a lane that matters, the vector: an expression for it."""
    lane, row = scope.lane, take.row
    offset = row.offset().substitute(scope.place.axes).simplify(out.ranges)
    tests = scope.place.tests(load_bounds(scope.place, row), out.ranges)
    access = Access(scope.place.nest.parameters[row.buffer.name], offset, tests, row.fill, elements=row.buffer.elements)
    if lane is None or scope.place.nest.lane_axis not in axes_of_ids(take, scope.place.nest.op):
        alone = of_one_lane(scope)
        places = [one_lane(of(alone, one)) for one in positions(take)]
        return fetch(out, replace(access, offset=moved(out, offset, take, places)), lane, row.buffer.name.lower())
    vectors = lambda wish, every: [out.atom(wish, of(scope, one)) for one in every]
    apart = lambda every: [_lanes(vector, lane) for vector in every]
    if scope.place.nest.threads > 1:
        return _lane_by_lane(out, access, take, lane, apart(vectors("rows", positions(take))))
    ids = vectors("ids", [widened(one, extent) for one, extent in zip(take.ids, take.extents, strict=True)])
    dtype = register_dtype(row.dtype)
    name = Name(out.register(row.buffer.name.lower(), dtype, (), lane.width), dtype, lane.width)
    with out.when(_all_inside(out, ids, take.extents)):
        pairs = zip(take.ids, ids, strict=True)
        each = [_read_alone(out, scope, one, lane) or _lanes(vector, lane) for one, vector in pairs]
        out.assign(name, _lane_by_lane(out, access, take, lane, each))
    with out.otherwise():
        out.assign(name, _lane_by_lane(out, access, take, lane, apart(vectors("rows", positions(take)))))
    return name


def _lanes(value: Expr, lane: Lane) -> list[Expr]:
    return [Pick(value, number) if value.lanes > 1 else value for number in range(lane.width)]


def _read_alone(out: Writer, scope: Scope, value: Value, lane: Lane) -> list[Expr]:
    """Each lane's id, read where it lies: that takes less than picking it from a vector.  Empty where it is no plain
    element, or not there at every lane."""
    place = scope.place
    if not isinstance(value, Load) or is_narrow(value.dtype) or place.tests(load_bounds(place, value), out.ranges):
        return []
    offset = value.offset().substitute(place.axes).simplify(out.ranges)
    pointer = place.nest.parameters[value.buffer.name]
    at = [offset.substitute({lane.variable: Index.of(number)}) for number in range(lane.width)]
    return [read_at(out, Access(pointer, one), one, 1) for one in at]


def _lane_by_lane(out: Writer, access: Access, take: Take, lane: Lane, places: Sequence[Sequence[Expr]]) -> Expr:
    """A vector of the elements at each lane's own place."""
    lanes = []
    for number in range(lane.width):
        at = {lane.variable: Index.of(number)}
        own = tuple(replace(test, index=test.index.substitute(at).simplify(out.ranges)) for test in access.tests)
        each = [of_lanes[number] for of_lanes in places]
        here = replace(access, offset=moved(out, access.offset.substitute(at), take, each), tests=own)
        lanes.append(fetch(out, here, None, take.row.buffer.name.lower()))
    return Build(tuple(lanes))


def _all_inside(out: Writer, ids: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """Whether all ids are positions; as unsigned numbers, negative ones are the largest."""
    tests: list[Expr] = []
    for one, extent in zip(ids, extents, strict=True):
        bits = one if one.dtype.startswith("u") else Convert(one, f"u{one.dtype}", bits=True)
        inside = compare("lt", bits, Number(extent, bits.dtype))
        if inside.lanes > 1:
            inside = Operation("every", (out.let("inside", inside),), "bool")
        tests.append(inside)
    return reduce(lambda a, b: Operation("and", (a, b), "bool"), tests)


def moved(out: Writer, offset: Index, take: Take, places: Sequence[Expr]) -> Index:
    """The offset of the row at these positions."""
    for place, extent, stride in zip(places, take.extents, take.strides, strict=True):
        offset = offset + out.integer("row", place, (0, extent - 1)) * stride
    return offset


def of_one_lane(scope: Scope) -> Scope:
    """The scope for values that are the same in all lanes."""
    load: Callable[[Load], Expr] = lambda node: one_lane(scope.load(node))
    partial: Callable[[Partial], Expr] = lambda node: one_lane(scope.partial(node))
    variables = {name: one_lane(value) for name, value in scope.variables.items()}
    return replace(scope, lane=None, load=load, partial=partial, variables=variables)


def one_lane(value: Expr) -> Expr:
    """The first lane of a vector of equal ones."""
    if isinstance(value, Broadcast):
        return value.operand
    return Pick(value, 0) if value.lanes > 1 else value
