"""Copies: a load's tile staged in a layer of the block, in a private array, or in registers.

    whole block, local memory     groups of adjacent elements, thread t moves t, t + T, ...
    one thread, private array     a loop for each axis, vectors along one of them
    registers                     every thread its own fragment, unrolled

A buffer shared by threads has a barrier before it is overwritten and one after.  With depth 2 the
next tile waits in registers while this one is used; with more, tiles are written ahead into a ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import prod

from rollergen.errors import ProgramError
from rollergen.expr.index import Bounds, Index, linear, weighted_sum
from rollergen.expr.values import Load
from rollergen.lower.access import Access, fetch, put, register_dtype
from rollergen.lower.ir import (
    LOCAL,
    PRIVATE,
    Broadcast,
    Element,
    Expr,
    Inside,
    Operation,
    Pick,
    Pointer,
    Position,
    Shuffle,
)
from rollergen.lower.place import Lane, Nest, Place, Registers, Source, load_bounds
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import LANE, Copy

RAW = "uint16"
ARRAY_BYTES = {LOCAL: 16, PRIVATE: 64}
"""Alignment of the arrays: the widest vectors that the kernel reads from them."""


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
    return copy.to_layer == nest.device.layers[0].name


def is_shared(copy: Copy, nest: Nest) -> bool:
    """Whether several threads fill and read the copy's buffer."""
    return nest.threads > 1 and not in_registers(copy, nest)


def copies_at(nest: Nest, depth: int) -> list[Copy]:
    """Copies made at this depth (none lies outside the thread loops)."""
    return [c for c in nest.stage.copies if max(c.at_loop, nest.first_inner) == depth]


def allocate_buffers(out: Writer, nest: Nest) -> dict[Copy, Staged]:
    """The arrays of all copies into memory."""
    buffers = {}
    for copy in nest.stage.copies:
        if in_registers(copy, nest):
            continue
        load = nest.load(copy)
        shape = nest.stage.buffer_shape(copy, block=is_shared(copy, nest))
        scope = LOCAL if is_shared(copy, nest) else PRIVATE
        staged = Staged(copy, Pointer("", load.dtype, scope, writable=True), shape)
        elements = staged.tile * max(1, copy.depth)
        wish = f"{load.buffer.name}_{copy.to_layer}"
        pointer = out.array(wish, scope, load.dtype, elements, ARRAY_BYTES[scope], whole_kernel=True)
        buffers[copy] = replace(staged, pointer=pointer)
    return buffers


# Positions -------------------------------------------------------------------------------------


def axis_digits(nest: Nest, copy: Copy, axis: str, *, lanes: bool = True) -> tuple[tuple[int, int], ...]:
    """(loop position, weight) of each digit of a position along `axis` of the copy's buffer."""
    key = (copy.load, copy.at_loop, copy.to_layer, axis, lanes)
    known = nest.digits.get(key)
    if known is None:
        known = nest.digits[key] = _axis_digits(nest, copy, axis, lanes)
    return known


def _axis_digits(nest: Nest, copy: Copy, axis: str, lanes: bool) -> tuple[tuple[int, int], ...]:
    inner = nest.stage.inner_loops(axis, copy.at_loop, block=is_shared(copy, nest))
    weights, weight = [], 1
    for p, loop in reversed(inner):
        if lanes or loop.kind != LANE:
            weights.append((p, weight))
            weight *= loop.extent
    return tuple(reversed(weights))


def _position(place: Place, digits: Sequence[tuple[int, int]]) -> Index:
    return weighted_sum((place.point[p], weight) for p, weight in digits)


def staged_access(out: Writer, place: Place, staged: Staged) -> Access:
    """Where the copy's buffer holds the element for this point."""
    positions = tuple(_position(place, axis_digits(place.nest, staged.copy, axis)) for axis in staged.copy.order)
    return _buffer_access(out, staged, tuple(p.simplify(out.ranges) for p in positions))


def _buffer_access(out: Writer, staged: Staged, positions: tuple[Index, ...]) -> Access:
    *rows, column = positions
    row = linear(tuple(rows), staged.shape[:-1])
    if staged.copy.swizzle > 1:
        column = _swizzled(out, staged, row, column)
    offset = staged.stage + row * staged.pitch + column
    return Access(staged.pointer, offset, alignment=ARRAY_BYTES[staged.pointer.scope])


def _swizzled(out: Writer, staged: Staged, row: Index, column: Index) -> Index:
    """``column ^ (row % swizzle) * vector``."""
    turn = ((row % staged.copy.swizzle) * staged.copy.vector).simplify(out.ranges)
    mixed = Operation("xor", (Position(column), Position(turn)), "int32")
    return out.integer("column", mixed, (0, staged.shape[-1] - 1))


# Reading a load --------------------------------------------------------------------------------


def load_access(out: Writer, place: Place, load: Load) -> Access:
    """The element of `load` for this point, from the nearest memory that holds it."""
    source = place.source(load)
    if isinstance(source, Staged):
        return staged_access(out, place, source)
    offset = linear(load.indices, load.buffer.shape).substitute(place.axes).simplify(out.ranges)
    tests = place.tests(load_bounds(place, load), out.ranges)
    return Access(place.nest.parameters[load.buffer.name], offset, tests, load.fill)


def read_load(out: Writer, place: Place, load: Load, lane: Lane | None) -> Expr:
    """The load's value here: a register, or fetched from the nearest memory."""
    source = place.source(load)
    if isinstance(source, Registers):
        return place.element(source)
    swizzled = isinstance(source, Staged) and source.copy.swizzle > 1
    if swizzled and lane is not None:
        raise ProgramError(f"{place.nest.stage.name}: a swizzled copy of {load.buffer.name} is read along a lane loop")
    return fetch(out, load_access(out, place, load), lane, load.buffer.name.lower())


def varying(nest: Nest, place: Place, load: Load) -> frozenset[int]:
    """Positions of the loops on which the load's value depends, given where it is read from."""
    source = place.source(load)
    if isinstance(source, Registers):
        return frozenset(p for index in source.indices for p, _ in index)
    if isinstance(source, Staged):
        return frozenset(p for axis in source.copy.order for p, _ in axis_digits(nest, source.copy, axis))
    axes = load.axes()
    return frozenset(p for p, loop in enumerate(nest.loops) if loop.axis in axes)


# Filling ---------------------------------------------------------------------------------------


def _filling(place: Place, copy: Copy, changes: Mapping[int, Index]) -> Place:
    """The place with loop variables bound for a fill, which also visits what the loops will not reach."""
    nest = place.nest
    loose = frozenset(axis for axis in copy.order if nest.spans[axis] > nest.extents[axis])
    return place.bind(changes, loose)


def _bind(place: Place, copy: Copy, axis: str, position: Index, *, lanes: bool = True) -> dict[int, Index]:
    """Loop variables that bring the axis to a position of the buffer."""
    nest = place.nest
    digits = axis_digits(nest, copy, axis, lanes=lanes)
    if not digits:
        return {}
    strides = [nest.loops[p].stride for p, _ in digits]
    if all(stride == strides[-1] * weight for stride, (_, weight) in zip(strides, digits, strict=True)):
        changes = {p: Index() for p, _ in digits}
        changes[digits[-1][0]] = position
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


def _value(out: Writer, place: Place, load: Load, lane: Lane | None, raw: bool) -> Expr:
    access = load_access(out, place, load)
    if raw and access.pointer.dtype in ("float16", "bfloat16"):
        access = replace(access, pointer=replace(access.pointer, dtype=RAW), fill=_bits(load))
    return fetch(out, access, lane, load.buffer.name.lower())


def _bits(load: Load) -> int:
    import ml_dtypes
    import numpy as np

    dtype = ml_dtypes.bfloat16 if load.dtype == "bfloat16" else np.float16
    return int(np.array(load.fill, dtype).view(np.uint16))


@dataclass(frozen=True)
class _Groups:
    """The groups that one thread moves: how to reach one, by its step variable."""

    copy: Copy
    staged: Staged
    lane: Lane | None
    positions: tuple[Index, ...]
    place: Place


def _move(out: Writer, groups: _Groups, value: Expr) -> None:
    """A group's value into the buffer: as a vector, or element by element."""
    staged, lane = groups.staged, groups.lane
    pointer = staged.pointer
    if pointer.dtype in ("float16", "bfloat16"):
        pointer = replace(pointer, dtype=RAW)
    if lane is None or groups.copy.along == groups.copy.order[-1]:
        positions = groups.positions if lane is None else _at_element(groups.positions, lane, 0)
        access = _buffer_access(out, staged, positions)
        if lane is not None:
            access = replace(access, offset=access.offset + Index.axis(lane.variable))
        put(out, replace(access, pointer=pointer), value, lane)
        return
    value = out.atom("group", value)
    for e in range(lane.width):
        access = _buffer_access(out, staged, _at_element(groups.positions, lane, e))
        one = Pick(value, e) if value.lanes > 1 else value
        put(out, replace(access, pointer=pointer), one, None)


def _at_element(positions: tuple[Index, ...], lane: Lane, e: int) -> tuple[Index, ...]:
    return tuple(p.substitute({lane.variable: Index.of(e)}) for p in positions)


def fill_private(out: Writer, place: Place, staged: Staged, load: Load) -> None:
    """One thread fills its array: a loop for each axis, vectors along one (or square blocks, turned)."""
    if _turns(staged):
        _fill_turned(out, place, staged, load)
        return
    copy = staged.copy
    lane = _symbol(out, copy.vector)
    with ExitStack() as stack:
        positions = []
        changes: dict[int, Index] = {}
        for axis, extent in zip(copy.order, staged.shape, strict=True):
            steps = extent // copy.vector if axis == copy.along else extent
            at = Index()
            if steps > 1:
                at = stack.enter_context(out.loop(out.names.fresh(axis), steps, (0, steps - 1)))
            if axis == copy.along and lane is not None:
                at = at * copy.vector + Index.axis(lane.variable)
            positions.append(at)
            changes |= _bind(place, copy, axis, at)
        there = _filling(place, copy, changes)
        value = _value(out, there, load, lane, raw=True)
        _move(out, _Groups(copy, staged, lane, tuple(positions), there), value)


def _turns(staged: Staged) -> bool:
    """Whether vectors read along one axis are stored along another, in whole square blocks."""
    copy, width = staged.copy, staged.copy.vector
    square = width > 1 and width & (width - 1) == 0 and staged.shape[-1] % width == 0
    return square and copy.along != copy.order[-1] and copy.swizzle <= 1


def _fill_turned(out: Writer, place: Place, staged: Staged, load: Load) -> None:
    """Blocks of ``vector`` x ``vector`` elements, turned in registers between vector reads and writes."""
    copy, width = staged.copy, staged.copy.vector
    lane = _symbol(out, width)
    assert lane is not None
    with ExitStack() as stack:
        base: dict[str, Index] = {}
        for axis, extent in zip(copy.order, staged.shape, strict=True):
            step = width if axis in (copy.along, copy.order[-1]) else 1
            at = Index()
            if extent > step:
                at = stack.enter_context(out.loop(out.names.fresh(axis), extent // step, (0, extent // step - 1)))
            base[axis] = at * step
        dtype = RAW if load.dtype in ("float16", "bfloat16") else load.dtype
        rows = out.register(f"{load.buffer.name.lower()}_rows", dtype, (width,), width)
        row, last = out.names.fresh("row"), copy.order[-1]
        with out.loop(row, width, (0, width - 1), unroll=True) as at:
            source = base | {copy.along: base[copy.along] + Index.axis(lane.variable), last: base[last] + at}
            changes: dict[int, Index] = {}
            for axis in copy.order:
                changes |= _bind(place, copy, axis, source[axis])
            value = _value(out, _filling(place, copy, changes), load, lane, raw=True)
            value = value if value.lanes > 1 else Broadcast(value, width)
            out.assign(Element(rows, (at,), dtype, width), value)
        _turn(out, rows, dtype, width)
        pointer = replace(staged.pointer, dtype=dtype)
        with out.loop(row, width, (0, width - 1), unroll=True) as at:
            target = base | {copy.along: base[copy.along] + at}
            access = _buffer_access(out, staged, tuple(target[axis] for axis in copy.order))
            access = replace(access, pointer=pointer, offset=access.offset + Index.axis(lane.variable))
            put(out, access, Element(rows, (at,), dtype, width), lane)


def _turn(out: Writer, rows: str, dtype: str, width: int) -> None:
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


@contextmanager
def _thread_groups(
    out: Writer, place: Place, staged: Staged, step: str, thread: Index
) -> Iterator[tuple[_Groups, Index]]:
    """A loop over the groups that a thread moves, with the step's number."""
    copy, nest = staged.copy, place.nest
    lane = _symbol(out, copy.vector)
    count = prod(staged.shape) // copy.vector
    steps = -(-count // nest.threads)
    with ExitStack() as stack:
        at = Index()
        if steps > 1:
            at = stack.enter_context(out.loop(step, steps, (0, steps - 1), unroll=True))
        group = at * nest.threads + thread
        if count % nest.threads:
            stack.enter_context(out.when(Inside(group, None, count)))
        known = nest.decoded.get(copy)
        if known is None:
            positions = _decode(copy, staged.shape, group, lane, out.ranges)
            changes: dict[int, Index] = {}
            for axis, position in zip(copy.order, positions, strict=True):
                changes |= _bind(place, copy, axis, position)
            changes = {p: index.simplify(out.ranges) for p, index in changes.items()}
            known = nest.decoded[copy] = positions, changes
        yield _Groups(copy, staged, lane, known[0], _filling(place, copy, known[1])), at


def _decode(
    copy: Copy, shape: tuple[int, ...], group: Index, lane: Lane | None, ranges: Mapping[str, Bounds]
) -> tuple[Index, ...]:
    """Positions of a group: ``along`` fastest, then the other axes, the last fastest."""
    extents = dict(zip(copy.order, shape, strict=True))
    extents[copy.along] //= copy.vector
    fastest_first = [copy.along, *(axis for axis in reversed(copy.order) if axis != copy.along)]
    positions: dict[str, Index] = {}
    rest = group
    for n, axis in enumerate(fastest_first):
        last = n == len(fastest_first) - 1
        positions[axis] = rest if last else rest % extents[axis]
        rest = rest // extents[axis]
    if lane is not None:
        positions[copy.along] = positions[copy.along] * copy.vector + Index.axis(lane.variable)
    return tuple(positions[axis].simplify(ranges) for axis in copy.order)


def fill_shared(out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str) -> None:
    """All threads of the block fill the buffer (without barriers)."""
    with _thread_groups(out, place, staged, step, thread) as (groups, _):
        _move(out, groups, _value(out, groups.place, load, groups.lane, raw=True))


@dataclass(frozen=True)
class Prefetch:
    """Registers that hold a thread's part of the next tile."""

    staged: Staged
    load: Load
    register: str
    lanes: int
    steps: int
    dtype: str

    def element(self, step: Index) -> Element:
        return Element(self.register, (step,) if self.steps > 1 else (), self.dtype, self.lanes)


def make_prefetch(out: Writer, nest: Nest, staged: Staged, load: Load) -> Prefetch:
    vector, threads = staged.copy.vector, nest.threads
    steps = -(-(prod(staged.shape) // vector) // threads)
    dtype = RAW if load.dtype in ("float16", "bfloat16") else load.dtype
    name = out.register(f"{load.buffer.name}_next", dtype, (steps,) if steps > 1 else (), vector)
    return Prefetch(staged, load, name, vector, steps, dtype)


def prefetch(out: Writer, place: Place, fetched: Prefetch, thread: Index, step: str) -> None:
    """A thread's part of the tile at this point into its registers."""
    with _thread_groups(out, place, fetched.staged, step, thread) as (groups, at):
        element = fetched.element(at)
        value = _value(out, groups.place, fetched.load, groups.lane, raw=True)
        out.assign(element, value)


def deposit(out: Writer, place: Place, fetched: Prefetch, staged: Staged, thread: Index, step: str) -> None:
    """The registers into the buffer of `staged`."""
    with _thread_groups(out, place, staged, step, thread) as (groups, at):
        _move(out, groups, fetched.element(at))


def fill_registers(out: Writer, place: Place, copy: Copy, load: Load) -> Registers:
    """A thread's fragment, ``vector`` elements at a time; each register a vector along the lane loop."""
    nest = place.nest
    lane = nest.lane if nest.lane_position in varying(nest, place, load) else None
    digits = tuple(axis_digits(nest, copy, axis, lanes=False) for axis in copy.order)
    digits = tuple(d for d in digits if d)
    shape = tuple(prod(nest.loops[p].extent for p, _ in d) for d in digits)
    dtype = register_dtype(load.dtype)
    lanes = lane.width if lane else 1
    registers = Registers(out.register(load.buffer.name.lower(), dtype, shape, lanes), digits, dtype, lanes)
    has_along = copy.along in copy.order and axis_digits(nest, copy, copy.along, lanes=False)
    group = lane or (_symbol(out, copy.vector) if has_along else None)
    with ExitStack() as stack:
        changes: dict[int, Index] = {}
        indices: list[Index] = []
        for axis in copy.order:
            own = axis_digits(nest, copy, axis, lanes=False)
            if not own:
                continue
            extent = prod(nest.loops[p].extent for p, _ in own)
            grouped = axis == copy.along and lane is None and group is not None
            if grouped and extent % copy.vector:
                raise ProgramError(
                    f"{nest.stage.name}: copy of {load.buffer.name} moves vectors of {copy.vector} along {axis}, "
                    f"which has {extent} elements there; expected a multiple"
                )
            steps = extent // copy.vector if grouped else extent
            at = Index()
            if steps > 1:
                name = out.names.fresh(axis)
                at = stack.enter_context(out.loop(name, steps, (0, steps - 1), unroll=True))
            at = at * copy.vector if grouped else at
            indices.append(at)
            lane_part = Index.axis(group.variable) if grouped and group is not None else Index()
            changes |= _bind(place, copy, axis, at + lane_part, lanes=False)
        changes = {p: index.simplify(out.ranges) for p, index in changes.items()}
        there = _filling(place, copy, changes)
        value = fetch(out, load_access(out, there, load), group, load.buffer.name.lower())
        _assign_group(out, registers, copy, tuple(indices), value, lane, group, nest)
    return registers


def _assign_group(
    out: Writer,
    registers: Registers,
    copy: Copy,
    indices: tuple[Index, ...],
    value: Expr,
    lane: Lane | None,
    group: Lane | None,
    nest: Nest,
) -> None:
    if lane is not None or group is None:
        out.assign(Element(registers.name, indices, registers.dtype, registers.lanes), value)
        return
    if value.lanes > 1:
        value = out.atom("group", value)
    axes = [axis for axis in copy.order if axis_digits(nest, copy, axis, lanes=False)]
    for e in range(group.width):
        at = tuple(i + e if axis == copy.along else i for axis, i in zip(axes, indices, strict=True))
        one = Pick(value, e) if value.lanes > 1 else value
        out.assign(Element(registers.name, at, registers.dtype, 1), one)


# Pipelines -------------------------------------------------------------------------------------


def stages_of(staged: Staged, at: Index, ranges: Mapping[str, Bounds]) -> Staged:
    """`staged` with the buffer for iteration `at` in use."""
    return replace(staged, stage=(at % staged.copy.depth).simplify(ranges) * staged.tile)


def next_exists(at: Index, ahead: int, count: int | Expr) -> Expr:
    """Whether iteration ``at + ahead`` is still one of the loop."""
    if isinstance(count, int):
        return Inside(at + ahead, None, count)
    return Operation("lt", (Position(at + ahead), count), "bool")
