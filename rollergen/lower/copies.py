"""Copies: where a load's tile is kept, and how it is read from there.

    whole block, local memory     filled by all threads together
    one thread, private array     filled by the thread
    registers                     every thread its own fragment

How they are filled is `fills.py`; how ahead of their use, `pipelines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import prod

from rollergen.expr.index import Index, linear, weighted_sum
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.lower.access import fetch
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Expr, Operation, Pointer, Position, Read, register_dtype
from rollergen.lower.ir import LOCAL, PRIVATE, Write
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.place import Place, Registers, Source, load_bounds
from rollergen.lower.vectors import alignment
from rollergen.lower.writer import Writer
from rollergen.program.conversions import CONVERTING
from rollergen.program.matrix import PANEL_ALIGNMENT
from rollergen.program.rprogram import GRID, LANE, PARALLEL, Copy
from rollergen.program.windows import inner_loops, shares_lines, window_digits, window_shape

ARRAY_BYTES = {LOCAL: 16, PRIVATE: 64}
"""Alignment of the arrays: the widest vectors that the kernel reads from them."""

FRAGMENT_BYTES = 128
"""Of those that matrix instructions read: more than any of their loads asks for."""


@dataclass(frozen=True, slots=True)
class Staged(Source):
    """A copy's buffer in memory; ``stage``: offset of the tile in use, where there are several."""

    copy: Copy
    pointer: Pointer
    shape: tuple[int, ...]
    stage: Index = field(default_factory=Index)

    @property
    def pitch(self) -> int:
        return self.shape[-1] + self.copy.padding

    @property
    def tile(self) -> int:
        """Elements of one tile, padding included."""
        return prod(self.shape[:-1]) * self.pitch


def in_registers(copy: Copy, nest: Nest) -> bool:
    return copy.to_layer == nest.registers


def is_shared(copy: Copy, nest: Nest) -> bool:
    """Whether several threads fill and read the copy's buffer."""
    return copy.to_layer != nest.registers and nest.threads > 1


def buffer_shape(nest: Nest, copy: Copy) -> tuple[int, ...]:
    """Elements of the copy's buffer along each of its dimensions, without padding."""
    if nest.stage.inner is not None:
        return nest.stage.buffer_shape(copy, block=is_shared(copy, nest))
    whole = window_shape(nest.stage, copy) if copy.window else None
    return whole or copy.elements(tuple([positions_of(nest, axis_digits(nest, copy, axis)) for axis in copy.order]))


def positions_of(nest: Nest, digits: tuple[tuple[int, int], ...]) -> int:
    """The number of positions that the digits count."""
    return digits[0][1] * nest.loops[digits[0][0]].extent if digits else 1


def copies_at(nest: Nest, depth: int) -> Sequence[Copy]:
    """Copies made at this depth (none lies outside the thread loops)."""
    return nest.copies.get(depth, ())


def allocate_buffers(out: Writer, nest: Nest) -> dict[Copy, Staged]:
    """The arrays of all copies into memory."""
    buffers = {}
    for copy in nest.stage.copies:
        if in_registers(copy, nest):
            continue
        load = nest.load(copy)
        shape = buffer_shape(nest, copy)
        scope = LOCAL if is_shared(copy, nest) else PRIVATE
        staged = Staged(copy, Pointer("", load.dtype, scope, writable=True), shape)
        elements = staged.tile * max(1, copy.depth)
        wish = f"{load.buffer.name}_{copy.to_layer}"
        whole = nest.instruction and nest.stage.compute.factors not in CONVERTING
        begin = FRAGMENT_BYTES if whole else ARRAY_BYTES[scope]
        begin = PANEL_ALIGNMENT if copy.panel else begin
        pointer = out.array(wish, scope, load.dtype, elements, begin, whole_kernel=True)
        buffers[copy] = Staged(copy, pointer, shape)
    return buffers


def axis_digits(nest: Nest, copy: Copy, axis: str, *, lanes: bool = True) -> tuple[tuple[int, int], ...]:
    """The digits (loop position, weight) of a position along `axis` of the copy's buffer."""
    block = is_shared(copy, nest)
    weights, weight = [], 1
    for p, loop in nest.rising.get(axis, ()):
        if loop.kind == GRID or not (block if loop.kind in PARALLEL else p >= copy.at_loop):
            continue
        if lanes or loop.kind != LANE:
            weights.append((p, weight))
            weight *= loop.extent
    return tuple(reversed(weights))


def staged_access(out: Writer, place: Place, staged: Staged) -> Access:
    """The access to the copy's buffer at the element for this point."""
    return buffer_access(out, staged, _positions(out, place, staged))


def _positions(out: Writer, place: Place, staged: Staged) -> tuple[Index, ...]:
    """Of this point's element along each axis of the copy's buffer (of a window, each dimension of its tensor)."""
    if staged.copy.window:
        digits = window_digits(place.nest.stage, staged.copy)
        return tuple(place.number(own).simplify(out.ranges) for own in digits)
    nest, copy, ranges = place.nest, staged.copy, out.ranges
    numbers = [place.number(axis_digits(nest, copy, axis)) for axis in copy.order]
    if copy.every:
        numbers = [number // one for number, one in zip(numbers, copy.every, strict=True)]
    return tuple([number.simplify(ranges) for number in numbers])


def buffer_access(out: Writer, staged: Staged, positions: tuple[Index, ...]) -> Access:
    if staged.copy.swizzle > 1:
        row, column = _stored_row(out, staged, positions), positions[-1]
        if staged.copy.panel:
            within = (column % staged.copy.panel).simplify(out.ranges)
            offset = panel_offset(out, staged, positions) - within + _swizzled(out, staged, row, within)
        else:
            offset = staged.stage + row * staged.pitch + _swizzled(out, staged, row, column)
    else:
        offset = weighted_sum([(staged.stage, 1), *zip(positions, strides(staged), strict=True)])
    return Access(staged.pointer, offset, alignment=ARRAY_BYTES[staged.pointer.scope])


def _stored_row(out: Writer, staged: Staged, positions: tuple[Index, ...]) -> Index:
    """The row of the buffer that has the positions' element."""
    row, apart = linear(positions[:-1], staged.shape[:-1]), staged.copy.apart
    if not apart:
        return row
    group = (row // apart**2).simplify(out.ranges)
    within, row = (row % apart).simplify(out.ranges), (row % apart**2).simplify(out.ranges)
    return (group * apart**2 + within * apart + row // apart).simplify(out.ranges)


def panel_offset(out: Writer, staged: Staged, positions: tuple[Index, ...]) -> Index:
    """Where an element of a tile in panels would be without its swizzle."""
    panel, row, column = staged.copy.panel, _stored_row(out, staged, positions), positions[-1]
    number, within = (column // panel).simplify(out.ranges), (column % panel).simplify(out.ranges)
    return staged.stage + (number * prod(staged.shape[:-1]) + row) * panel + within


def corner_offset(out: Writer, place: Place, staged: Staged) -> Index:
    """Where what an asynchronous product reads begins, in a tile in panels: at the first of 8 rows, which no swizzle
    moves."""
    return panel_offset(out, staged, _positions(out, place, staged)).simplify(out.ranges)


def strides(staged: Staged) -> list[int]:
    """Elements from one position to the next along each axis of a buffer that is not swizzled."""
    found, stride = [1], staged.pitch
    for extent in staged.shape[-2::-1]:
        found.append(stride)
        stride *= extent
    found.reverse()
    return found


def _swizzled(out: Writer, staged: Staged, row: Index, column: Index) -> Index:
    """``column ^ (row % swizzle) * vector``; of whole vectors, so that they are seen to be aligned."""
    unit, turn = staged.copy.unit, (row % staged.copy.swizzle).simplify(out.ranges)
    group, within = (column // unit).simplify(out.ranges), (column % unit).simplify(out.ranges)
    if staged.copy.panel:
        return mixed(out, group, turn, staged.copy.swizzle) * unit + within
    if not within.terms:
        return mixed(out, group, turn, staged.shape[-1] // unit) * unit + within
    return mixed(out, column, turn * unit, staged.shape[-1])


def mixed(out: Writer, one: Index, other: Index, limit: int) -> Index:
    """The exclusive or of two indices, below the limit as both are."""
    mixed = Operation("xor", (Position(one), Position(other)), "int32")
    return out.integer("column", mixed, (0, limit - 1))


def piece_offset(
    out: Writer, staged: Staged, buffer: Index, row: Index, piece: Index, turn: Index | None = None
) -> Index:
    """Where a piece of ``vector`` elements of a row lies, in the buffer of that number; ``turn``: the row's number
    modulo the swizzle, where that is at hand."""
    copy = staged.copy
    turn = (row % max(copy.swizzle, 1)).simplify(out.ranges) if turn is None else turn
    if copy.panel:
        number, within = piece // copy.swizzle, (piece % copy.swizzle).simplify(out.ranges)
        within = mixed(out, within, turn, copy.swizzle)
        first = buffer * staged.tile + (number * staged.shape[0] + row) * copy.panel
        return (first + within * copy.vector).simplify(out.ranges)
    if copy.swizzle > 1:
        piece = mixed(out, piece, turn, staged.shape[-1] // copy.vector)
    return (buffer * staged.tile + row * staged.pitch + piece * copy.vector).simplify(out.ranges)


def _group_access(out: Writer, place: Place, staged: Staged, lane: Lane) -> Access | None:
    """Where a swizzled buffer holds the lanes' elements, if they lie within one of its vectors, whose elements stay
    neighbours: only the vectors of a row change places.  None where they may not."""
    *rows, column = _positions(out, place, staged)
    vector, row = staged.copy.vector, linear(tuple(rows), staged.shape[:-1])
    group, within = (column // vector).simplify(out.ranges), (column % vector).simplify(out.ranges)
    if lane.variable in group.axes() | row.axes():
        return None
    turn = (row % staged.copy.swizzle).simplify(out.ranges)
    column = mixed(out, group, turn, staged.shape[-1] // vector) * vector + within
    offset = staged.stage + row * staged.pitch + column
    return Access(staged.pointer, offset, alignment=ARRAY_BYTES[staged.pointer.scope])


def load_access(out: Writer, place: Place, load: Load) -> Access:
    """The element of `load` for this point, from the nearest memory that holds it."""
    source = place.source(load)
    if isinstance(source, Staged):
        return staged_access(out, place, source)
    offset = load.offset().substitute(place.axes).simplify(out.ranges)
    tests = place.tests(load_bounds(place, load), out.ranges)
    pointer = place.nest.parameters[load.buffer.name]
    size, missing = load.buffer.elements, place.nest.missing(load.buffer)
    masked = masked_lines(out, place.nest, load)
    return Access(pointer, offset, tests, load.fill, elements=size, masked=masked, missing=missing)


def masked_lines(out: Writer, nest: Nest, load: Load) -> bool:
    """Whether the load's vectors are read at once where a guard cuts them: of lines that outputs share."""
    if not out.masked_loads or nest.lane is None or (load.dtype, nest.lane.width) not in out.masked_loads:
        return False
    return shares_lines(nest.stage, load.indices)


def read_load(out: Writer, place: Place, load: Load, lane: Lane | None) -> Expr:
    """The load's value here: a register, or fetched from the nearest memory."""
    source = place.source(load)
    if isinstance(source, Registers):
        return place.element(source)
    return fetch_load(out, place, load, lane, lambda access: access)


def fetch_load(
    out: Writer, place: Place, load: Load, lane: Lane | None, adapted: Callable[[Access], Access]
) -> Expr:
    """The load's value here from memory, by an access that may be `adapted` first.

    Neighbours in a swizzled tile that are not of one of its vectors lie apart: those are read element by element.
    """
    source, wish = place.source(load), load.buffer.name.lower()
    if lane is None or not isinstance(source, Staged) or source.copy.swizzle <= 1:
        return fetch(out, adapted(load_access(out, place, load)), lane, wish)
    if all(lane.variable not in position.axes() for position in _positions(out, place, source)):
        return fetch(out, adapted(staged_access(out, place, source)), None, wish)
    whole = _group_access(out, place, source, lane)
    if whole is not None:
        return fetch(out, adapted(whole), lane, wish)
    dtype = register_dtype(adapted(Access(source.pointer, Index())).pointer.dtype)
    array = out.array(f"{wish}_lanes", PRIVATE, dtype, lane.width, alignment(dtype, lane.width))
    with out.loop(lane.variable, lane.width, (0, lane.width - 1), unroll=True) as at:
        out.write(Write(array, at, fetch(out, adapted(staged_access(out, place, source)), None, wish)))
    return Read(array, Index(), dtype, lane.width, aligned=True)


def varying(nest: Nest, place: Place, load: Load) -> frozenset[int]:
    """Positions of the loops on which the load's value depends, given where it is read from."""
    source = place.source(load)
    if isinstance(source, Registers):
        return frozenset([p for index in source.indices for p, _ in index])
    if isinstance(source, Staged) and source.copy.window:
        axes = load.axes()
        return frozenset(p for p in inner_loops(nest.stage, source.copy) if nest.loops[p].axis in axes)
    if isinstance(source, Staged):
        return frozenset([p for axis in source.copy.order for p, _ in axis_digits(nest, source.copy, axis)])
    axes = load.axes()
    return frozenset([p for p, loop in enumerate(nest.loops) if loop.axis in axes])
