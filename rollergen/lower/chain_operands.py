"""Operands and results of chains: elements of one row in each lane, or one for all of them; turned between the order of
memory and that of rows side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollergen.expr.chains import ROW, SUM
from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Binary, Cast, Const, Load, Partial, Select, Unary, Value, Var, axes_of, walk
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.elements import Access, read_at
from rollergen.lower.expressions import (
    Element,
    Expr,
    Inside,
    Name,
    Number,
    Operation,
    Pointer,
    Read,
    position,
    register_dtype,
)
from rollergen.lower.fills import turn
from rollergen.lower.ir import PRIVATE, Write
from rollergen.lower.masks import in_lanes
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, Scope, clipped, when_all
from rollergen.lower.writer import Writer
from rollergen.program.chains import ChainRoles, ChainTile, turned_loads
from rollergen.program.rprogram import GRID, UNROLL

_F32 = "float32"
_ZERO = Index()
Axes = Mapping[str, Index]


class ChainPlaces:
    """Where a chain's operands lie: the axes at a vector of rows, a key and a column.

    ``overhangs``: whether the last tile of rows does; lanes beyond the last row read its elements, and store nothing.
    ``vectors``: those of the tile that are read, computed and stored; of the last tile perhaps only the first ones.
    """

    def __init__(self, out: Writer, nest: Nest, roles: ChainRoles, tile: ChainTile) -> None:
        self.out, self.nest, self.roles, self.tile = out, nest, roles, tile
        self.vectors = range(tile.vectors)
        self._outermost = Place.outermost(nest)
        self._of = {(loop.axis, loop.kind): p for p, loop in enumerate(nest.loops)}
        of_axis = lambda axis: [p for p, loop in enumerate(nest.loops) if loop.axis == axis and loop.kind != GRID]
        self._key, self._column = of_axis(roles.key), of_axis(roles.column)
        grid = [p for p, loop in enumerate(nest.loops) if loop.axis == roles.rows and loop.kind == GRID]
        self.first_row = (Index.axis(nest.variables[grid[0]]) * tile.rows).simplify(out.ranges)
        self.fill()
        self._begin = _ZERO
        size = tile.keys * tile.rows
        self._turned = {one: out.array("turned", PRIVATE, one.dtype, size, 64) for one in turned_loads(nest.op, roles)}
        if nest.overhangs(roles.rows, tile.rows):
            self.overhangs = True
            left = self.first_row * -1 + nest.size(roles.rows)
            low, high = left.bounds(out.ranges)
            value = clipped(position(left, out.ranges), low, high, tile.rows)
            self.rows_left = out.integer("rows", value, (1, tile.rows))
            self.row_range = self.first_row, self.first_row + self.rows_left - 1

    def fill(self) -> None:
        """Here all rows of the tile exist."""
        self.overhangs, self.rows_left = False, Index((), self.tile.rows)
        self.row_range = self.first_row, self.first_row + (self.tile.rows - 1)

    def place(self, v: int = 0, key: Index = _ZERO, column: Index = _ZERO) -> Place:
        """The place of vector ``v`` of rows, of a key and of a column."""
        changes = {self._of[self.roles.rows, UNROLL]: Index((), v)}
        changes |= dict.fromkeys([*self._key, *self._column], Index())
        changes |= {self._key[1]: key, self._column[1]: column}
        return self._outermost.bind(changes)

    def scope(
        self, place: Place, *, lanes: bool = False, inner: Axes | None = None, row: Index | None = None,
        partials: Mapping[tuple[str, int], Expr] | None = None, variables: Mapping[str, Expr] | None = None,
    ) -> Scope:  # fmt: skip
        """What values mean at a place: in all ``lanes``, or for one ``row``, or where rows do not matter."""
        axes = {**place.axes, **(inner or {})}
        if row is not None:
            axes[self.roles.rows] = row
        known = partials or {}
        return Scope(
            place,
            self.nest.lane if lanes else None,
            lambda load: self._load(load, axes, lanes),
            lambda partial: known[partial.name, partial.component],
            variables or {},
        )

    def _load(self, load: Load, axes: Axes, lanes: bool) -> Expr:
        if not lanes or self.roles.rows not in load.axes():
            return self._element(load, axes)
        return self._gathered(load, axes)

    def _element(self, load: Load, axes: Axes) -> Expr:
        offset = self.nest.offset(load).substitute(axes).simplify(self.out.ranges)
        return read_at(self.out, Access(self.nest.parameters[load.buffer.name], offset), offset, 1)

    def turn_block(self, begin: Index, count: Index) -> None:
        """Loads of every row and key (`turned_loads`) of the block of ``count`` keys from ``begin`` on, to arrays
        [key][row]."""
        self._begin = begin
        for load, array in self._turned.items():
            self._turn_load(load, array, count)

    def _turn_load(self, load: Load, array: Pointer, count: Index) -> None:
        out, lanes, rows, key = self.out, self.tile.lanes, self.roles.rows, self.roles.key
        pointer, dtype = self.nest.parameters[load.buffer.name], load.dtype
        squares = (count // lanes).simplify(out.ranges)
        most = squares.bounds(out.ranges)[1]
        of_row = [self.existing(self.first_row + number) for number in range(self.tile.rows)]
        offset = self.nest.offset(load)
        at = lambda row, number: offset.substitute({**self.place().axes, rows: row, key: self._begin + number})
        for v in self.vectors if most else ():
            with out.loop(out.names.fresh("square"), number_of(squares, out.ranges), (0, most - 1)) as square:
                held = out.register("square_rows", dtype, (lanes,), lanes)
                element = lambda number, held=held: Element(held, (Index((), number),), dtype, lanes)
                for number, row in enumerate(of_row[v * lanes : (v + 1) * lanes]):
                    value = Read(*out.place(pointer, at(row, square * lanes).simplify(out.ranges)), dtype, lanes)
                    out.assign(element(number), value)
                turn(out, held, dtype, lanes)
                for number in range(lanes):
                    place = (square * lanes + number) * self.tile.rows + v * lanes
                    out.write(Write(array, place, element(number), aligned=True))
        start, stop = number_of(squares * lanes, out.ranges), number_of(count, out.ranges)
        if start != stop:
            with out.loop(out.names.fresh(key), stop, (0, self.tile.keys - 1), start=start) as here:
                for lane, row in enumerate(of_row[: len(self.vectors) * lanes]):
                    value = Read(*out.place(pointer, at(row, here).simplify(out.ranges)), dtype)
                    out.write(Write(array, here * self.tile.rows + lane, value))

    def _gathered(self, load: Load, axes: Axes) -> Expr:
        """An element of each lane's row, turned before (`turn_block`), or through an array."""
        lane = self.nest.lane
        assert lane is not None
        if load in self._turned:
            row = axes[self.roles.rows].substitute({lane.variable: Index()}) - self.first_row
            place = ((axes[self.roles.key] - self._begin) * self.tile.rows + row).simplify(self.out.ranges)
            return Read(self._turned[load], place, load.dtype, lane.width, aligned=True)
        out, dtype = self.out, register_dtype(load.dtype)
        array = out.array("lanes", PRIVATE, dtype, lane.width, 64)
        row = axes[self.roles.rows]
        for number in range(lane.width):
            at = row.substitute({lane.variable: Index((), number)})
            here = {**axes, self.roles.rows: self.existing(at)}
            out.write(Write(array, Index((), number), self._element(load, here)))
        return Read(array, Index(), dtype, lane.width, aligned=True)

    def existing(self, row: Index) -> Index:
        """The row, or the last one where it lies beyond."""
        if not self.overhangs:
            return row
        number = (row - self.first_row).simplify(self.out.ranges)
        last = self.rows_left - 1
        inside = Operation("lt", (position(number, self.out.ranges), position(last, self.out.ranges)), "bool")
        pair = (position(number, self.out.ranges), position(last, self.out.ranges))
        value = Operation("select", (inside, *pair), pair[0].dtype)
        return self.first_row + self.out.integer("row", value, (0, self.tile.rows - 1))


def number_of(index: Index, ranges: Mapping[str, Bounds]) -> int | Expr:
    """An index as a loop's end."""
    return index.const if not index.terms else position(index, ranges)


def turned_queries(places: ChainPlaces, queries: Value, target: Pointer, scale: float) -> None:
    """The queries of the tile, times ``scale``, to an array [inner][row], in which a vector is one element of
    neighbouring rows."""
    out, roles, tile, nest = places.out, places.roles, places.tile, places.nest
    sizes = [nest.extents[axis] for axis in roles.inner]
    count = 1
    for size in sizes:
        count *= size
    last = roles.inner[-1]
    whole = 0
    if isinstance(queries, Load) and queries.dtype == _F32 and len(roles.inner) == 1 and tile.lanes > 1:
        offset = nest.offset(queries)
        if offset.coefficient(last) == 1 and last not in offset.without(last).axes():
            whole = sizes[-1] // tile.lanes
            _turn_in(places, queries, target, whole, scale)
    left = count - whole * tile.lanes
    if left:
        rows = len(places.vectors) * tile.lanes
        with out.loop(out.names.fresh("row"), rows, (0, rows - 1)) as number:
            row = places.existing(places.first_row + number)
            with out.loop(out.names.fresh(last), count, (0, count - 1), start=whole * tile.lanes) as flat:
                inner, rest = {}, flat
                for axis, size in zip(reversed(roles.inner), reversed(sizes), strict=True):
                    inner[axis], rest = (rest % size).simplify(out.ranges), (rest // size).simplify(out.ranges)
                value = evaluate(out, places.scope(places.place(), inner=inner, row=row), queries)
                out.write(Write(target, flat * tile.rows + number, _scaled(value, scale)))


def _scaled(value: Expr, scale: float) -> Expr:
    factor = Number(scale, value.dtype, value.lanes)
    return value if scale == 1.0 else Operation("mul", (value, factor), value.dtype, value.lanes)


def _turn_in(places: ChainPlaces, queries: Load, target: Pointer, whole: int, scale: float) -> None:
    """Squares of as many rows as lanes, turned in registers."""
    out, tile, last = places.out, places.tile, places.roles.inner[-1]
    lanes = tile.lanes
    pointer = places.nest.parameters[queries.buffer.name]
    for v in places.vectors:
        with out.loop(out.names.fresh("square"), whole, (0, whole - 1)) as square:
            rows = out.register("square_rows", _F32, (lanes,), lanes)
            for number in range(lanes):
                row = places.existing(places.first_row + v * lanes + number)
                axes = {**places.place().axes, places.roles.rows: row, last: square * lanes}
                offset = places.nest.offset(queries).substitute(axes).simplify(out.ranges)
                value = Read(*out.place(pointer, offset), _F32, lanes)
                out.assign(Element(rows, (Index((), number),), _F32, lanes), _scaled(value, scale))
            turn(out, rows, _F32, lanes)
            for number in range(lanes):
                at = (square * lanes + number) * tile.rows + v * lanes
                out.write(Write(target, at, Element(rows, (Index((), number),), _F32, lanes), aligned=True))


Finished = Callable[[Index], Expr]
"""The results of a column for a vector of rows."""


def finished_results(places: ChainPlaces, result: Value, sums: Pointer, pair: tuple[str, str] | None) -> None:
    """The results of all rows and columns, of sums that are turned on their way to the output."""
    whole = _by_reciprocals(result)
    _store(places, sums, [_finished(places, whole, sums, pair, v) for v in places.vectors])


def _finished(places: ChainPlaces, result: Value, sums: Pointer, pair: tuple[str, str] | None, v: int) -> Finished:
    """What is the same for all columns of vector ``v`` of rows is computed here, once."""
    out, tile, lanes = places.out, places.tile, places.tile.lanes
    known: dict[tuple[str, int], Expr] = {}
    if pair is not None:
        known = {(ROW, number): Element(name, (Index((), v),), _F32, lanes) for number, name in enumerate(pair)}
    made: dict[Value, Name] = {}
    scope = places.scope(places.place(v=v), lanes=True, partials=known)
    for part in _of_rows(result, places.roles.column):
        if part not in made:
            made[part] = out.let("of_row", in_lanes(evaluate(out, scope, part), lanes))
    names = {part: f"of_row{number}" for number, part in enumerate(made)}
    variables, body = {names[part]: value for part, value in made.items()}, _replaced(result, names)

    def finished(column: Index) -> Expr:
        held = Read(sums, column * tile.rows + v * lanes, _F32, lanes, aligned=True)
        if body == Partial(SUM, _F32):
            return held
        known[SUM, 0] = out.let("sum", held)
        here = places.scope(places.place(v=v, column=column), lanes=True, partials=known, variables=variables)
        return in_lanes(evaluate(out, here, body), lanes)

    return finished


_TOTAL = Partial(ROW, _F32, 1)


def _by_reciprocals(value: Value) -> Value:
    """Divisions by a row's sum of weights as multiplications by one reciprocal of each row: a division costs ten times
    as much.  The sum is at least 1, as the largest score weighs 1, or it is 0 or NaN, and so are both."""
    children = value.children()
    value = value.with_children(tuple(map(_by_reciprocals, children))) if children else value
    if isinstance(value, Binary) and value.op == "div" and value.b == _TOTAL and value.dtype == _F32:
        return Binary("mul", value.a, Binary("div", Const(1.0, _F32), _TOTAL, _F32), _F32)
    return value


def _of_rows(value: Value, column: str) -> list[Value]:
    """The largest parts of the result that are the same for all columns."""
    arithmetic = isinstance(value, (Unary, Binary, Select, Cast)) and value.dtype != "bool"
    summed = any(isinstance(node, Partial) and node.name == SUM for node in walk(value))
    if arithmetic and not summed and column not in axes_of(value):
        return [value]
    return [part for child in value.children() for part in _of_rows(child, column)]


def _replaced(value: Value, names: Mapping[Value, str]) -> Value:
    if value in names:
        return Var(names[value], value.dtype)
    children = value.children()
    return value.with_children(tuple(_replaced(child, names) for child in children)) if children else value


def _store(places: ChainPlaces, sums: Pointer, finished: list[Finished]) -> None:
    """The results, turned, to where they belong; those beyond whole squares of columns by way of the sums' array."""
    out, tile, nest, roles = places.out, places.tile, places.nest, places.roles
    output, columns = nest.parameters[nest.op.output.name], nest.extents[roles.column]
    offset = nest.offset(nest.op.stored())
    alone = offset.coefficient(roles.column) == 1 and roles.column not in offset.without(roles.column).axes()
    whole = columns // tile.lanes if alone and tile.lanes > 1 else 0
    if whole:
        _turn_out(places, finished, whole)
    if columns > whole * tile.lanes:
        start = whole * tile.lanes
        with out.loop(out.names.fresh(roles.column), columns, (0, columns - 1), start=start) as at:
            for v, of_column in enumerate(finished):
                value = of_column(at)
                out.write(Write(sums, at * tile.rows + v * tile.lanes, value, aligned=True))
        left = places.rows_left
        stop = left.const if not left.terms else position(left, out.ranges)
        with out.loop(out.names.fresh("row"), stop, (0, tile.rows - 1)) as number:
            name = out.names.fresh(roles.column)
            with out.loop(name, columns, (0, columns - 1), start=start) as at:
                axes = {**places.place(column=at).axes, roles.rows: places.first_row + number}
                here = offset.substitute(axes).simplify(out.ranges)
                value = Read(sums, at * tile.rows + number, _F32)
                out.write(Write(*out.place(output, here), value))


def _turn_out(places: ChainPlaces, finished: list[Finished], whole: int) -> None:
    """Squares of as many columns as lanes, turned in registers."""
    out, tile, nest, roles = places.out, places.tile, places.nest, places.roles
    lanes, output = tile.lanes, nest.parameters[nest.op.output.name]
    for v in places.vectors:
        with out.loop(out.names.fresh("square"), whole, (0, whole - 1)) as square:
            rows = out.register("square_rows", _F32, (lanes,), lanes)
            for number in range(lanes):
                value = finished[v](square * lanes + number)
                out.assign(Element(rows, (Index((), number),), _F32, lanes), value)
            turn(out, rows, _F32, lanes)
            for number in range(lanes):
                axes = {**places.place(column=square * lanes).axes, roles.rows: places.first_row + v * lanes + number}
                here = nest.offset(nest.op.stored()).substitute(axes).simplify(out.ranges)
                there = places.rows_left * -1 + (v * lanes + number)
                beyond = there.bounds(out.ranges)[1] >= 0
                turned = Element(rows, (Index((), number),), _F32, lanes)
                with when_all(out, [Inside(there, None, 0)] if beyond else []):
                    out.write(Write(*out.place(output, here), turned))
