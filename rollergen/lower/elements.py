"""An access' elements one by one, as vectors, and as vectors that are put together of several."""

from __future__ import annotations

from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.hal.dataclass import dataclass
from rollergen.lower import narrow_floats
from rollergen.lower.expressions import (
    BITS,
    STORAGE_BYTES,
    Call,
    Expr,
    Inside,
    Name,
    Number,
    Operation,
    Pointer,
    Read,
    Shuffle,
    is_narrow,
    moved_dtype,
    register_dtype,
)
from rollergen.lower.ir import PRIVATE, Route, Write
from rollergen.lower.lane_windows import LaneWindow, lane_window
from rollergen.lower.nest import Lane
from rollergen.lower.place import conjunction, guarded
from rollergen.lower.vectors import (
    NOTHING,
    alignment,
    both,
    coarsen,
    everywhere,
    lane_mask,
    needed,
    passing,
    varies,
    whole_tests,
    wrapping,
)
from rollergen.lower.writer import Writer
from rollergen.program.lane_windows import growing_place


@dataclass(frozen=True, slots=True)
class Access:
    """``pointer[offset]`` where every test holds, else ``fill``.

    ``alignment``: bytes to which the pointer is known to be aligned (0: only to its elements). ``asynchronous``: writes
    need not be waited for before the barrier that says so. ``elements``: of the array (0: unknown), less those that are
    ``missing`` at the call. ``masked``: vectors that are not whole are read at once where that can be.
    ``moved``: for each lane how far behind the offset it lies; empty: all at it.
    """

    pointer: Pointer
    offset: Index
    tests: tuple[Inside, ...] = ()
    fill: float | int = 0
    alignment: int = 0
    asynchronous: Route = Route.REGISTERS
    elements: int = 0
    masked: bool = False
    missing: Index = NOTHING
    moved: tuple[Index, ...] = ()

    def aligned(self, offset: Index, lanes: int) -> bool:
        """Whether `lanes` elements from `offset` on lie at a multiple of their size."""
        if lanes == 1 or self.alignment < lanes * STORAGE_BYTES[self.pointer.dtype]:
            return False
        return offset.const % lanes == 0 and all(c % lanes == 0 for _, c in offset.terms)

    def coarsened(self, lane: Lane | None) -> Access:
        """The same access without the lane in tests that all lanes pass or fail together."""
        if lane is None or not self.tests:
            return self
        return self.testing(tuple([coarsen(test, lane) for test in self.tests]))

    def testing(self, tests: tuple[Inside, ...]) -> Access:
        """The same access under these tests."""
        return replace(self, tests=tests)
def read_at(out: Writer, access: Access, offset: Index, lanes: int) -> Expr:
    """Elements from `offset` on, whatever that of the access is."""
    pointer, short = out.place(access.pointer, offset)
    aligned = access.aligned(offset, lanes)
    if not is_narrow(pointer.dtype) or pointer.dtype == "float16":
        return Read(pointer, short, register_dtype(pointer.dtype), lanes, aligned)
    word = moved_dtype(pointer.dtype)
    bits = Read(replace(pointer, dtype=word), short, word, lanes, aligned)
    return narrow_floats.value(out.functions, pointer.dtype, bits)


def gather_whole(out: Writer, access: Access, lane: Lane, wish: str) -> Expr:
    """From a window, or element by element; without tests of the lanes where it is known for a whole block that all of
    them hold."""
    if (window := lane_window(out.ranges, access.offset, access.tests, lane)) is not None:
        return _read_window(out, access, lane, wish, window)
    if (near := _read_near(out, access, lane)) is not None:
        return near
    split = whole_tests(out.ranges, access.tests, lane)
    common, edge = split or ((), ())
    if not edge or not all(out.is_fixed(test.index) for test in edge):
        return gather(out, access, lane, wish)
    dtype = register_dtype(access.pointer.dtype)
    name = Name(out.register(wish, dtype, (), lane.width), dtype, lane.width)
    condition = conjunction(edge)
    assert condition is not None
    with out.when(condition):
        out.assign(name, gather(out, replace(access, tests=common), lane, wish))
    with out.otherwise():
        out.assign(name, gather(out, access, lane, wish, rare=True))
    return name


def _read_near(out: Writer, access: Access, lane: Lane) -> Expr | None:
    """Lanes chosen from the vector that begins with the first one, elements that no test leaves masked; None where they
    do not lie within it, or chosen lanes of a vector cannot be read."""
    dtype, width, bits = access.pointer.dtype, lane.width, BITS[access.pointer.dtype]
    varying = [t.index for t in access.tests if wrapping(t.index, lane)]
    atom = growing_place(access.offset, varying, lane.variable, width)
    if atom is None or dtype != "float32" or (dtype, width) not in out.masked_loads or access.missing.terms:
        return None
    if not access.elements:
        return None
    first = lambda index: index.substitute({lane.variable: Index()}).simplify(out.ranges)

    def of_elements(test: Inside) -> Expr | None:
        elements = first(test.index) + Index.axis(lane.variable)
        return passing(out.ranges, elements, test, lane, bits)

    place = Index(((atom, 1),))
    behind = place - first(place)
    reach = behind.bounds({**out.ranges, lane.variable: (0, width - 1)})[1]
    mask: Expr | None = None
    of_lanes: Expr | None = None
    for test in access.tests:
        if not varies(test, lane):
            mask = both(mask, everywhere(test, lane, bits), bits, lane)
        elif wrapping(test.index, lane):
            mask = both(mask, of_elements(test), bits, lane)
        else:
            of_lanes = both(of_lanes, passing(out.ranges, test.index, test, lane, bits), bits, lane)
    for test in _within_array(out, access, lane, reach):
        mask = both(mask, of_elements(test), bits, lane)
    read = read_at(out, access, first(access.offset), width)
    assert isinstance(read, Read)
    order = out.lane_places(behind, lane.variable, width)
    chosen = replace(read, mask=mask, fill=access.fill)
    lanes = Call("lanes_chosen", (chosen, Read(order, Index(), "int32", width, aligned=True)), dtype, width)
    if of_lanes is None:
        return lanes
    return Operation("select", (of_lanes, lanes, Number(access.fill, dtype, width)), dtype, width)


def _within_array(out: Writer, access: Access, lane: Lane, reach: int) -> tuple[Inside, ...]:
    """What the elements of a vector are tested for, so that none is read beyond the array; the lanes lie up to `reach`
    behind its first one.  A row's own bounds are bounds of the array, too, and the same for every row."""
    first = access.offset.substitute({lane.variable: Index()}).simplify(out.ranges)
    low, high = first.bounds(out.ranges)
    begins, ends = low >= 0, high + lane.width <= access.elements
    for test in access.tests:
        if wrapping(test.index, lane):
            least, most = (access.offset - test.index).bounds(out.ranges)
            begins |= test.low is not None and least + test.low >= 0
            ends |= test.high is not None and most + test.high <= access.elements
    if not ends and high + reach < access.elements:  # what no lane is chosen from is left out
        return Inside(access.offset, None if begins else 0, None), Inside(Index(), None, reach + 1)
    return (Inside(access.offset, None if begins else 0, None if ends else access.elements),)


def _read_window(out: Writer, access: Access, lane: Lane, wish: str, window: LaneWindow) -> Expr:
    """Lanes chosen from a window where all of them pass their tests, else from masked vectors, or one by one."""
    condition = conjunction(needed(window.whole, out.ranges))
    read = lambda at: read_at(out, access, at, window.width)

    def chosen() -> Expr:
        lanes = Shuffle(read(window.first), read(window.second), tuple(max(number, 0) for number in window.order))
        if min(window.order) >= 0:
            return lanes
        kept = tuple(lane.width + n if number < 0 else n for n, number in enumerate(window.order))
        return Shuffle(out.atom(wish, lanes), Number(access.fill, lanes.dtype, lane.width), kept)

    if condition is None:
        return chosen()
    dtype = register_dtype(access.pointer.dtype)
    name = Name(out.register(wish, dtype, (), lane.width), dtype, lane.width)
    with out.when(condition):
        out.assign(name, chosen())
    with out.otherwise():
        near = _read_near(out, access, lane) or _read_window_masked(out, access, lane, wish, window)
        out.assign(name, gather(out, access, lane, wish, rare=True) if near is None else near)
    return name


def _read_window_masked(out: Writer, access: Access, lane: Lane, wish: str, window: LaneWindow) -> Expr | None:
    """Lanes chosen from the window's two vectors, of which only the elements are read whose lanes pass their tests;
    None where chosen lanes of a vector cannot be read, two lanes are one element, or tests wrap within the vector."""
    dtype, width, bits = access.pointer.dtype, lane.width, BITS[access.pointer.dtype]
    used = [number for number in window.order if number >= 0]
    if dtype != "float32" or (dtype, width) not in out.masked_loads or len(set(used)) < len(used):
        return None
    passed = lane_mask(out.ranges, Index.axis(lane.variable), access.tests, lane, bits)
    if passed is None:
        return None
    for test in access.tests:
        if not varies(test, lane):
            passed = Operation("and", (passed, everywhere(test, lane, bits)), passed.dtype, width)
    passed = out.atom(f"{wish}_passed", passed)
    nothing, parts = Number(0, passed.dtype, width), []
    for part, at in enumerate((window.first, window.second)):
        own = {number - part * window.width: n for n, number in enumerate(window.order)}
        lanes = tuple(own.get(n, width) if n < window.width else width for n in range(width))
        read = read_at(out, access, at, width)
        assert isinstance(read, Read)
        parts.append(replace(read, mask=Shuffle(passed, nothing, lanes), fill=access.fill))
    reached = [number + (number >= window.width) * (width - window.width) for number in window.order]
    unread = max({*range(2 * width)} - {*reached})  # it holds the fill
    order = tuple(number if number >= 0 else unread for number in reached)
    return Shuffle(parts[0], parts[1], order)


def gather(out: Writer, access: Access, lane: Lane, wish: str, rare: bool = False) -> Expr:
    """Element by element through an aligned private array.

    Unrolled, so that the compiler keeps the array in registers; where it is `rare` (the path of tails)
    a loop, so that the tail's code stays short.
    """
    dtype = register_dtype(access.pointer.dtype)
    array = out.array(f"{wish}_lanes", PRIVATE, dtype, lane.width, alignment(dtype, lane.width))
    offset = (lambda: access.offset) if rare else out.each_lane(access.offset, lane.variable, lane.width)
    with out.loop(lane.variable, lane.width, (0, lane.width - 1), unroll=not rare) as at:
        out.write(Write(array, at, guarded(access.tests, read_at(out, access, offset(), 1), access.fill)))
    return Read(array, Index(), dtype, lane.width, aligned=True)


