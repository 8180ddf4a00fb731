"""Takes: elements whose place is a number that is read.

    row = the position, from 0 to its extent - 1 whatever the id
    value = table[row * stride + ...]

Along a lane that the ids do not depend on a row's vector is read at once, else lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rollergen.expr.index import Index
from rollergen.expr.takes import positions
from rollergen.expr.values import Load, Partial, Take, Value, axes_of
from rollergen.lower.access import fetch
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Broadcast, Build, Expr, Pick
from rollergen.lower.place import load_bounds
from rollergen.lower.writer import Writer

if TYPE_CHECKING:
    from rollergen.lower.arithmetic import Scope

Evaluate = Callable[["Scope", Value], Expr]


def read_take(out: Writer, scope: Scope, take: Take, of: Evaluate) -> Expr:
    """The element, or with a lane that matters, the vector: an expression for it."""
    lane, row, places = scope.lane, take.row, positions(take)
    offset = row.offset().substitute(scope.place.axes).simplify(out.ranges)
    tests = scope.place.tests(load_bounds(scope.place, row), out.ranges)
    access = Access(scope.place.nest.parameters[row.buffer.name], offset, tests, row.fill, elements=row.buffer.elements)
    wish = row.buffer.name.lower()
    if lane is None or scope.place.nest.lane_axis not in axes_of_all(take.ids):
        alone = of_one_lane(scope)
        return fetch(out, _moved(out, access, take, [one_lane(of(alone, one)) for one in places]), lane, wish)
    vectors = [out.atom("rows", of(scope, one)) for one in places]
    lanes = []
    for number in range(lane.width):
        at = {lane.variable: Index.of(number)}
        own = tuple(replace(test, index=test.index.substitute(at).simplify(out.ranges)) for test in tests)
        here = replace(access, offset=offset.substitute(at), tests=own)
        each = [Pick(vector, number) if vector.lanes > 1 else vector for vector in vectors]
        lanes.append(fetch(out, _moved(out, here, take, each), None, wish))
    return Build(tuple(lanes))


def axes_of_all(values: tuple[Value, ...]) -> frozenset[str]:
    return frozenset().union(*map(axes_of, values))


def _moved(out: Writer, access: Access, take: Take, places: list[Expr]) -> Access:
    """The access to the row at these positions."""
    offset = access.offset
    for place, extent, stride in zip(places, take.extents, take.strides, strict=True):
        offset = offset + out.integer("row", place, (0, extent - 1)) * stride
    return replace(access, offset=offset)


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
