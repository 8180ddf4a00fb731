"""Filling a copy: vectors along one axis, by one thread or by all threads of the block.

A fill also visits what serial loops inside will not reach: those elements, like guarded ones, hold
the load's fill value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.lower.access import put
from rollergen.lower.copies import Staged, axis_digits, buffer_access, fetch_load, positions_of, strides, varying
from rollergen.lower.elements import Access
from rollergen.lower.expressions import (
    Broadcast,
    Element,
    Expr,
    Inside,
    Pick,
    Pointer,
    Shuffle,
    is_narrow,
    moved_dtype,
    register_dtype,
)
from rollergen.lower.ir import Route, Write
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.place import Place, Registers
from rollergen.lower.writer import Nested, Writer
from rollergen.program.rprogram import SERIAL, Copy

_ZERO = Index()


def _filling(place: Place, copy: Copy, changes: Mapping[int, Index]) -> Place:
    """The place with loop variables bound for a fill, which also visits what the loops will not reach."""
    nest = place.nest
    stopping = {loop.axis for loop in nest.loops[copy.at_loop :] if loop.kind == SERIAL}
    loose = frozenset(axis for axis in copy.order if axis in stopping and nest.spans[axis] > nest.extents[axis])
    return place.bind(changes, loose)


def _bind(place: Place, copy: Copy, axis: str, position: Index, *, lanes: bool = True) -> dict[int, Index]:
    """Loop variables that bring the axis to a position of the buffer."""
    nest = place.nest
    digits = axis_digits(nest, copy, axis, lanes=lanes)
    if not digits:
        return {}
    position = position * copy.every_of(axis)
    last, _ = digits[-1]
    unit = nest.loops[last].stride
    if all(nest.loops[p].stride == unit * weight for p, weight in digits):
        changes = dict.fromkeys([p for p, _ in digits], _ZERO)
        changes[last] = position
        return changes
    return {
        p: (position // weight) % nest.loops[p].extent if n else position // weight
        for n, (p, weight) in enumerate(digits)
    }


def _symbol(out: Writer, width: int) -> Lane | None:
    """A lane of its own for groups of `width` elements."""
    if width == 1:
        return None
    lane = Lane(f"element_{width}", width)
    out.ranges[lane.variable] = (0, width - 1)
    return lane


def copied_value(out: Writer, place: Place, load: Load, lane: Lane | None) -> Expr:
    """The load's elements as they are copied: narrow floats as bits, one of a kind in every lane."""

    value = fetch_load(out, place, load, lane, lambda access: as_bits(load, access))
    return Broadcast(value, lane.width) if lane is not None and value.lanes == 1 else value


def as_bits(load: Load, access: Access) -> Access:
    """The access to elements of `load` that are only moved: of narrow floats to their bits."""
    if not is_narrow(access.pointer.dtype):
        return access
    return replace(access, pointer=_moved(access.pointer), fill=_bits(load))


def _moved(pointer: Pointer) -> Pointer:
    return replace(pointer, dtype=moved_dtype(pointer.dtype))


def _bits(load: Load) -> int:
    return int(np.array(load.fill, numpy_dtype(load.dtype)).view(moved_dtype(load.dtype)))


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that one thread moves: how to reach one, by its step variable."""

    copy: Copy
    staged: Staged
    lane: Lane | None
    positions: tuple[Index, ...]
    place: Place


def move(out: Writer, groups: Groups, value: Expr, route: Route = Route.REGISTERS) -> None:
    """A group's value into the buffer: as a vector, or element by element."""
    staged, lane = groups.staged, groups.lane
    pointer = _moved(staged.pointer)
    if lane is None or groups.copy.along == groups.copy.order[-1]:
        positions = groups.positions if lane is None else _at_element(groups.positions, lane, 0)
        access = buffer_access(out, staged, positions)
        if lane is not None:
            offset = access.offset + Index.axis(lane.variable)
            access = Access(access.pointer, offset, alignment=access.alignment)
        put(out, _written(access, pointer, route), value, lane)
        return
    value = out.atom("group", value)
    elements = [Pick(value, e) if value.lanes > 1 else value for e in range(lane.width)]
    if staged.copy.swizzle > 1:
        for e, one in enumerate(elements):
            access = buffer_access(out, staged, _at_element(groups.positions, lane, e))
            put(out, _written(access, pointer, route), one, None)
        return
    step = strides(staged)[groups.copy.order.index(groups.copy.along)]
    first = buffer_access(out, staged, _at_element(groups.positions, lane, 0))
    place, short = out.place(pointer, first.offset)
    for e, one in enumerate(elements):
        out.write(Write(place, short + e * step, one, asynchronous=route))


def _written(access: Access, pointer: Pointer, route: Route) -> Access:
    if access.pointer == pointer and access.asynchronous == route:
        return access
    return replace(access, pointer=pointer, asynchronous=route)


def _at_element(positions: tuple[Index, ...], lane: Lane, e: int) -> tuple[Index, ...]:
    """Where an element of the group is: the lane is a term by itself of the position that it moves."""
    found = [p.without(lane.variable) for p in positions]
    return tuple([q if q is p else q + e for p, q in zip(positions, found, strict=True)] if e else found)


def fill_private(out: Writer, place: Place, staged: Staged, load: Load) -> None:
    """One thread fills its array: a loop for each axis, vectors along one (or square blocks, transposed)."""
    if staged.copy.turns(staged.shape):
        _fill_transposed(out, place, staged, load)
        return
    copy = staged.copy
    lane = _symbol(out, copy.vector)
    with Nested() as nested:
        positions = []
        changes: dict[int, Index] = {}
        for axis, extent in zip(copy.order, staged.shape, strict=True):
            steps = extent // copy.vector if axis == copy.along else extent
            at = Index()
            if steps > 1:
                at = nested.loop(out.loop(out.names.fresh(axis), steps, (0, steps - 1)))
            if axis == copy.along and lane is not None:
                at = at * copy.vector + Index.axis(lane.variable)
            positions.append(at)
            changes |= _bind(place, copy, axis, at)
        there = _filling(place, copy, changes)
        value = copied_value(out, there, load, lane)
        move(out, Groups(copy, staged, lane, tuple(positions), there), value)


def _fill_transposed(out: Writer, place: Place, staged: Staged, load: Load) -> None:
    """Blocks of ``vector`` x ``vector`` elements, transposed in registers between vector reads and writes."""
    copy, width = staged.copy, staged.copy.vector
    lane = _symbol(out, width)
    assert lane is not None
    with Nested() as nested:
        base: dict[str, Index] = {}
        for axis, extent in zip(copy.order, staged.shape, strict=True):
            step = width if axis in (copy.along, copy.order[-1]) else 1
            at = Index()
            if extent > step:
                at = nested.loop(out.loop(out.names.fresh(axis), extent // step, (0, extent // step - 1)))
            base[axis] = at * step
        dtype = moved_dtype(load.dtype)
        rows = out.register(f"{load.buffer.name.lower()}_rows", dtype, (width,), width)
        row, last = out.names.fresh("row"), copy.order[-1]
        with out.loop(row, width, (0, width - 1), unroll=True) as at:
            source = base | {copy.along: base[copy.along] + Index.axis(lane.variable), last: base[last] + at}
            changes: dict[int, Index] = {}
            for axis in copy.order:
                changes |= _bind(place, copy, axis, source[axis])
            value = copied_value(out, _filling(place, copy, changes), load, lane)
            out.assign(Element(rows, (at,), dtype, width), value)
        turn(out, rows, dtype, width)
        pointer = replace(staged.pointer, dtype=dtype)
        with out.loop(row, width, (0, width - 1), unroll=True) as at:
            target = base | {copy.along: base[copy.along] + at}
            access = buffer_access(out, staged, tuple(target[axis] for axis in copy.order))
            access = replace(access, pointer=pointer, offset=access.offset + Index.axis(lane.variable))
            put(out, access, Element(rows, (at,), dtype, width), lane)


def fill_shared(
    out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str, route: Route = Route.REGISTERS
) -> None:
    """All threads of the block fill the buffer (without barriers)."""
    def fill(groups: Groups, _: Index) -> None:
        move(out, groups, copied_value(out, groups.place, load, groups.lane), route)

    each_group(out, place, staged, step, thread, fill)


def thread_part(staged: Staged, nest: Nest) -> tuple[int, int, int]:
    """A thread's part of a fill: (groups of a run, runs of the tile, groups that one thread moves at most)."""
    copy = staged.copy
    run = prod(copy.runs) // copy.vector if copy.runs else 1
    runs = prod(staged.shape) // copy.vector // run
    return run, runs, -(-runs // nest.threads) * run


def each_group(
    out: Writer, place: Place, staged: Staged, step: str, thread: Index, inside: Callable[[Groups, Index], None]
) -> None:
    """A loop over the groups that a thread moves, run after run; `inside` is given them and the step's number."""
    run, runs, steps = thread_part(staged, place.nest)

    def one(at: Index) -> None:
        number = at // run * place.nest.threads + thread
        if runs % place.nest.threads:
            with out.when(Inside(number, None, runs)):
                inside(_groups(out, place, staged, number, at % run), at)
        else:
            inside(_groups(out, place, staged, number, at % run), at)

    if steps == 1:
        one(Index())
        return
    with out.loop(step, steps, (0, steps - 1), unroll=True) as at:
        one(at)


def last_of_tile(place: Place, staged: Staged) -> Place:
    """The place of a tile's last element."""
    changes: dict[int, Index] = {}
    for axis, extent in zip(staged.copy.order, staged.shape, strict=True):
        changes |= _bind(place, staged.copy, axis, Index.of(extent - 1))
    return _filling(place, staged.copy, changes)


def _groups(out: Writer, place: Place, staged: Staged, number: Index, step: Index) -> Groups:
    """The group at a step of the run of this number."""
    copy = staged.copy
    lane = _symbol(out, copy.vector)
    positions = _decode(copy, staged.shape, number, step, lane, out.ranges)
    changes: dict[int, Index] = {}
    for axis, position in zip(copy.order, positions, strict=True):
        changes |= _bind(place, copy, axis, position)
    changes = {p: index.simplify(out.ranges) for p, index in changes.items()}
    return Groups(copy, staged, lane, positions, _filling(place, copy, changes))


def _decode(
    copy: Copy, shape: tuple[int, ...], number: Index, step: Index, lane: Lane | None, ranges: Mapping[str, Bounds]
) -> tuple[Index, ...]:
    """Positions of the group at a step of a run: ``along`` fastest, then the other axes, the last fastest."""
    group = tuple([copy.vector if axis == copy.along else 1 for axis in copy.order])
    runs = copy.runs or group
    starts = _digits(copy, tuple([extent // run for extent, run in zip(shape, runs, strict=True)]), number)
    positions = [start * run for start, run in zip(starts, runs, strict=True)]
    if copy.runs:  # else there is one group in each
        inside = _digits(copy, tuple([run // one for run, one in zip(runs, group, strict=True)]), step)
        positions = [at + within * one for at, within, one in zip(positions, inside, group, strict=True)]
    if lane is not None:
        positions[copy.order.index(copy.along)] += Index.axis(lane.variable)
    return tuple([position.simplify(ranges) for position in positions])


def _digits(copy: Copy, extents: tuple[int, ...], number: Index) -> tuple[Index, ...]:
    """Digits of a number along each axis of the order, that of ``along`` the fastest."""
    along = copy.order.index(copy.along)
    fastest_first = [along, *(d for d in reversed(range(len(extents))) if d != along)]
    digits: dict[int, Index] = {}
    for n, d in enumerate(fastest_first):
        last = n == len(fastest_first) - 1
        digits[d] = number if last else number % extents[d]
        number = number // extents[d]
    return tuple([digits[d] for d in range(len(extents))])


def fill_registers(out: Writer, place: Place, copy: Copy, load: Load) -> Registers:
    """A thread's fragment, ``vector`` elements at a time; each register a vector along the lane loop."""
    nest = place.nest
    lane = nest.lane if nest.lane_position in varying(nest, place, load) else None
    axes = [axis for axis in copy.order if axis_digits(nest, copy, axis, lanes=False)]
    registers = _fragment(out, nest, copy, load, axes, lane)
    group = _symbol(out, copy.vector) if lane is None and copy.along in axes else None
    with Nested() as nested:
        changes: dict[int, Index] = {}
        indices: list[Index] = []
        for axis in axes:
            width = group.width if group is not None and axis == copy.along else 1
            at = _steps(out, nested, nest, copy, axis, width)
            indices.append(at)
            element = at + Index.axis(group.variable) if group is not None and width > 1 else at
            changes |= _bind(place, copy, axis, element, lanes=False)
        changes = {p: index.simplify(out.ranges) for p, index in changes.items()}
        there = _filling(place, copy, changes)
        value = fetch_load(out, there, load, lane or group, lambda access: access)
        _assign_group(out, registers, axes, copy.along, indices, value, group)
    return registers


def _fragment(out: Writer, nest: Nest, copy: Copy, load: Load, axes: list[str], lane: Lane | None) -> Registers:
    """Registers for the copy's elements, indexed by the positions along `axes`."""
    digits = tuple([axis_digits(nest, copy, axis, lanes=False) for axis in axes])
    shape = tuple([positions_of(nest, own) for own in digits])
    dtype, lanes = register_dtype(load.dtype), lane.width if lane else 1
    return Registers(out.register(load.buffer.name.lower(), dtype, shape, lanes), digits, dtype, lanes)


def _steps(out: Writer, nested: Nested, nest: Nest, copy: Copy, axis: str, width: int) -> Index:
    """An unrolled walk over the positions along an axis of a fragment, `width` at a time."""
    extent = positions_of(nest, axis_digits(nest, copy, axis, lanes=False))
    if extent % width:
        raise ProgramError(
            f"{nest.stage.name}: a copy of {nest.load(copy).buffer.name} moves vectors of {width} along {axis}, "
            f"which has {extent} elements there; expected a multiple"
        )
    if extent == width:
        return Index()
    steps = extent // width
    return nested.loop(out.loop(out.names.fresh(axis), steps, (0, steps - 1), unroll=True)) * width


def _assign_group(
    out: Writer,
    registers: Registers,
    axes: list[str],
    along: str,
    indices: list[Index],
    value: Expr,
    group: Lane | None,
) -> None:
    """One register, or one for each element of the group."""
    if group is None:
        out.assign(Element(registers.name, tuple(indices), registers.dtype, registers.lanes), value)
        return
    if value.lanes > 1:
        value = out.atom("group", value)
    n = axes.index(along)
    for e in range(group.width):
        at = (*indices[:n], indices[n] + e, *indices[n + 1 :])
        one = Pick(value, e) if value.lanes > 1 else value
        out.assign(Element(registers.name, at, registers.dtype), one)


def turn(out: Writer, rows: str, dtype: str, width: int) -> None:
    """A square of registers transposed: in step d, blocks of d lanes change places between rows d apart.

    Rows a and b of a pair become (a's even blocks, b's even blocks) and (a's odd, b's odd), alternating.
    """
    step = 1
    while step < width:
        even = tuple(lane if not lane & step else width + lane - step for lane in range(width))
        odd = tuple(lane + step if not lane & step else width + lane for lane in range(width))
        with out.loop(out.names.fresh("pair"), width // 2, (0, width // 2 - 1), unroll=True) as pair:
            low = (pair // step) * (2 * step) + pair % step if step > 1 else pair * 2
            a = out.let("a", Element(rows, (low,), dtype, width))
            b = out.let("b", Element(rows, (low + step,), dtype, width))
            out.assign(Element(rows, (low,), dtype, width), Shuffle(a, b, even))
            out.assign(Element(rows, (low + step,), dtype, width), Shuffle(a, b, odd))
        step *= 2
