"""Vectors along a lane: where they are whole, under which tests, in which straight pieces where their address wraps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rollergen.expr.index import Bounds, FloorDiv, Index, Mod
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import (
    BITS,
    STORAGE_BYTES,
    Broadcast,
    Build,
    Convert,
    Expr,
    Inside,
    Number,
    Operation,
    Position,
    position,
)
from rollergen.lower.nest import Lane


def depends(offset: Index, tests: Iterable[Inside], lane: Lane) -> bool:
    """Whether anything differs between the lanes."""
    return lane.variable in offset.names() or any(varies(test, lane) for test in tests)


def varies(test: Inside, lane: Lane) -> bool:
    """Whether the test differs between the lanes."""
    return lane.variable in test.index.names()


def lane_stride(ranges: Mapping[str, Bounds], offset: Index, lane: Lane) -> int:
    """Elements between neighbouring lanes, where that is one number; else 0."""
    straight = straighten(offset, lane, ranges)
    return 0 if straight is None else straight[0].coefficient(lane.variable)


VectorPlan = tuple[Index, tuple[Inside, ...], tuple[Inside, ...]]


def vector_plan(
    ranges: Mapping[str, Bounds], offset: Index, tests: Collection[Inside], lane: Lane
) -> VectorPlan | None:
    """How a vector is accessed: (offset of lane 0, tests without the lane, conditions that make the vector whole).

    None: it is never whole, or its lanes do not follow one another.
    """
    return spaced_plan(ranges, offset, tests, lane, (1,))[1]


def spaced_plan(
    ranges: Mapping[str, Bounds], offset: Index, tests: Collection[Inside], lane: Lane, strides: Collection[int]
) -> tuple[int, VectorPlan | None]:
    """The `lane_stride`, and the `vector_plan` of that if it is one of `strides`."""
    straight = straighten(offset, lane, ranges)
    stride = 0 if straight is None else straight[0].coefficient(lane.variable)
    if straight is None or stride not in strides:
        return stride, None
    offset, wraps = straight
    if not tests and not wraps:
        return stride, (offset.without(lane.variable), (), ())
    split = whole_tests(ranges, tests, lane)
    if split is None:
        return stride, None
    common, edge = split
    edge = _joined(needed((*wraps, *edge), ranges))
    return stride, (offset.without(lane.variable), common, edge)


def whole_tests(
    ranges: Mapping[str, Bounds], tests: Iterable[Inside], lane: Lane
) -> tuple[tuple[Inside, ...], tuple[Inside, ...]] | None:
    """The tests split in two: (those without the lane, conditions under which the others hold in every lane).

    None where that cannot be told at once.
    """
    common, edge = [], tuple[Inside, ...]()
    for test in tests:
        if not varies(test, lane):
            common.append(test)
            continue
        whole = _whole(test, lane, ranges)
        if whole is None:
            return None
        edge = (*edge, *whole)
    return tuple(common), _joined(needed(edge, ranges))


def straighten(index: Index, lane: Lane, ranges: Mapping[str, Bounds]) -> tuple[Index, tuple[Inside, ...]] | None:
    """`index` as ``start + c * lane`` plus the tests under which it is that; None: never.

    ``(r + c lane) // d`` and ``% d`` do not wrap within the vector where ``r % d < d - c (width - 1)``.
    """
    if not wrapping(index, lane):
        return index, ()
    result, tests = Index((), index.const), tuple[Inside, ...]()
    for atom, coefficient in index.terms:
        if isinstance(atom, str) or lane.variable not in atom.index.names():
            result = result + Index(((atom, coefficient),))
            continue
        inner = straighten(atom.index, lane, ranges)
        step = 0 if inner is None else inner[0].coefficient(lane.variable)
        room = atom.divisor - step * (lane.width - 1)
        if inner is None or step < 0 or room <= 0:
            return None
        start = inner[0].without(lane.variable)
        phase = (start % atom.divisor).simplify(ranges)
        tests = (*tests, *inner[1], Inside(phase, None, room))
        value = (start // atom.divisor).simplify(ranges) if isinstance(atom, FloorDiv) else phase
        if isinstance(atom, Mod):
            value = value + Index(((lane.variable, step),)) if step else value
        result = result + value * coefficient
    return result, tests


def wrapping(index: Index, lane: Lane) -> list[FloorDiv | Mod]:
    """The divisions and remainders of the index that vary along the lane."""
    return [atom for atom, _ in index.terms if not isinstance(atom, str) and lane.variable in atom.index.names()]


def _whole(test: Inside, lane: Lane, ranges: Mapping[str, Bounds]) -> tuple[Inside, ...] | None:
    """Tests under which `test` holds in every lane; None where it cannot be told at once."""
    straight = straighten(test.index, lane, ranges)
    if straight is None:
        return None
    index, tests = straight
    reach = index.coefficient(lane.variable) * (lane.width - 1)
    start = index.without(lane.variable)
    low = None if test.low is None else test.low - min(reach, 0)
    high = None if test.high is None else test.high - max(reach, 0)
    return (*tests, Inside(start, low, high))


def needed(tests: tuple[Inside, ...], ranges: Mapping[str, Bounds]) -> list[Inside]:
    """The tests that the variables' ranges leave open, with the bounds that they leave open."""
    kept = []
    for test in tests:
        low, high = test.index.bounds(ranges)
        need_low = test.low is not None and low < test.low
        need_high = test.high is not None and high >= test.high
        if need_low or need_high:
            kept.append(Inside(test.index, test.low if need_low else None, test.high if need_high else None))
    return kept


NOTHING = Index()


def within(offset: Index, size: int, missing: Index) -> tuple[Inside, ...]:
    """Tests that the offset lies below `size`, less what is `missing` at the call, and not below 0."""
    if not missing.terms:
        return (Inside(offset, 0, size),)
    return Inside(offset, 0, None), Inside(offset + missing, None, size)


def _joined(tests: list[Inside]) -> tuple[Inside, ...]:
    """One test for each index: the tightest bounds."""
    found: dict[Index, Inside] = {}
    for test in tests:
        other = found.get(test.index, test)
        lows = [low for low in (test.low, other.low) if low is not None]
        highs = [high for high in (test.high, other.high) if high is not None]
        found[test.index] = Inside(test.index, max(lows, default=None), min(highs, default=None))
    return tuple(found.values())


def coarsen(test: Inside, lane: Lane | None) -> Inside:
    """Without the lane, where all lanes pass or fail together (everything else is a multiple)."""
    if lane is None or test.index.coefficient(lane.variable) != 1:
        return test
    rest = test.index - Index.axis(lane.variable)
    numbers = [c for _, c in rest.terms] + [rest.const, test.low or 0, test.high or 0]
    if any(number % lane.width for number in numbers) or lane.variable in rest.names():
        return test
    return replace(test, index=rest)


def edges_known(offset: Index, tests: Iterable[Inside], lane: Lane, unrolled: frozenset[str]) -> bool:
    """Whether which lanes are accessed, and where addresses wrap, are numbers to the compiler."""
    deciding = {name for test in tests if varies(test, lane) for name in test.index.axes()}
    for atom in wrapping(offset, lane):
        deciding |= atom.index.axes()
    return deciding - {lane.variable} <= unrolled


MASK_BITS = (32, 64)
"""Bits of a lane for which there are masks."""


def mask_bits(dtype: str) -> int:
    """Bits of a lane of the masks by which elements of `dtype` are stored: those of bytes are as wide as indices."""
    return max(BITS[dtype], MASK_BITS[0])


def lane_mask(
    ranges: Mapping[str, Bounds], offset: Index, tests: Iterable[Inside], lane: Lane, bits: int
) -> Expr | None:
    """The mask, `bits` a lane, of the lanes that pass the tests; None where addresses or tests wrap in the vector."""
    straight = straighten(offset, lane, ranges)
    if straight is None or straight[1] or bits not in MASK_BITS:
        return None
    found: Expr | None = None
    for test in tests:
        if not varies(test, lane):
            continue
        line = straighten(test.index, lane, ranges)
        if line is None or line[1]:
            return None
        found = both(found, passing(ranges, line[0], test, lane, bits), bits, lane)
    return found


def read_masks(
    ranges: Mapping[str, Bounds], offset: Index, tests: Iterable[Inside], lane: Lane, stride: int, bits: int
) -> tuple[Expr | None, ...] | None:
    """Which elements of the vectors that hold the lanes pass the tests, one mask for each vector (None: all); lanes
    are `stride` elements apart, and vectors `lane.width` - 1 elements.  None where addresses or tests wrap.

    Elements between two lanes pass where both lanes do."""
    straight = straighten(offset, lane, ranges)
    if straight is None or straight[1] or bits not in MASK_BITS:
        return None
    found: list[Expr | None] = [None] * stride
    for test in tests:
        line = straighten(test.index, lane, ranges)
        if line is None or line[1]:
            return None
        if not varies(test, lane):
            every = everywhere(test, lane, bits)
            found = [both(mask, every, bits, lane) for mask in found]
            continue
        for part in range(stride):
            # In elements: lane l is element stride * l.
            start = line[0].substitute({lane.variable: Index()}) * stride
            step = line[0].coefficient(lane.variable)
            along = start + step * part * (lane.width - 1) + Index.axis(lane.variable) * step
            low = None if test.low is None else test.low * stride
            high = None if test.high is None else (test.high - 1) * stride + 1
            own = passing(ranges, along, Inside(along, low, high), lane, bits)
            found[part] = both(found[part], own, bits, lane)
    return tuple(found)


def everywhere(test: Inside, lane: Lane, bits: int) -> Expr:
    """A test of all lanes together as a mask."""
    dtype = f"mask{bits}"
    sides = Number(-1, dtype, lane.width), Number(0, dtype, lane.width)
    return Operation("select", (test, *sides), dtype, lane.width)


def passing(ranges: Mapping[str, Bounds], line: Index, test: Inside, lane: Lane, bits: int) -> Expr | None:
    """The lanes that pass the bounds of `test`, whose index is `line`, straight in the lane; None: always all."""
    step = line.coefficient(lane.variable)
    start = line.without(lane.variable).simplify(ranges)
    reached = Build(tuple(Number(step * e, f"int{bits}") for e in range(lane.width)))
    found: Expr | None = None
    for order, bound in (("ge", test.low), ("lt", test.high)):
        if bound is not None and not _always(order, start, step * (lane.width - 1), bound, ranges):
            limit = Broadcast(_limit(ranges, start * -1 + bound, step * (lane.width - 1), bits), lane.width)
            found = both(found, Operation(order, (reached, limit), f"mask{bits}", lane.width), bits, lane)
    return found


def _limit(ranges: Mapping[str, Bounds], limit: Index, reach: int, bits: int) -> Expr:
    """The limit for lanes between 0 and `reach` in integers of so many bits: what is too large for these is cut off
    where no lane reaches."""
    at = position(limit, ranges)
    if at.dtype == f"int{bits}" or bits == 64:
        return Position(limit, f"int{bits}")
    low, high = min(reach, 0), max(reach, 0) + 1
    above = Operation("select", (Inside(limit, low, None), at, Number(low, at.dtype)), at.dtype)
    return Convert(Operation("select", (Inside(limit, None, high), above, Number(high, at.dtype)), at.dtype), "int32")


def both(first: Expr | None, second: Expr | None, bits: int, lane: Lane) -> Expr | None:
    """The lanes of two masks; None: all."""
    if first is None or second is None:
        return first or second
    return Operation("and", (first, second), f"mask{bits}", lane.width)


def _always(order: str, start: Index, reach: int, bound: int, ranges: Mapping[str, Bounds]) -> bool:
    """Whether every lane passes one bound, wherever the vector lies."""
    low, high = start.bounds(ranges)
    return low + min(reach, 0) >= bound if order == "ge" else high + max(reach, 0) < bound


_MOST_PIECES = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Lanes between two wraps: an offset that is straight in the lane, and the tests that make the piece."""

    offset: Index
    tests: tuple[Inside, ...]


def pieces(
    offset: Index, tests: tuple[Inside, ...], lane: Lane, ranges: Mapping[str, Bounds]
) -> tuple[Piece, ...] | None:
    """The lanes before, between and after the wraps of ``(r + lane) // d`` and ``% d``; None where that is not
    all that varies along the lane, or there would be more than four pieces.

    With ``phase = r % d``, lane l lies behind w wraps where ``w d <= phase + l < (w + 1) d``: there the quotient is
    ``r // d + w`` and the remainder ``phase + l - w d``.

    >>> i, l = Index.axis("i"), Index.axis("l")
    >>> [str(p.offset) for p in pieces((i + l) % 20, (), Lane("l", 16), {"i": (0, 99), "l": (0, 15)})]
    ['((i)%20) + l', '((i)%20) + l - 20']
    """
    found = {(a.index, a.divisor) for index in (offset, *(t.index for t in tests)) for a in wrapping(index, lane)}
    if len(found) != 1:
        return None
    ((inner, divisor),) = found
    step = Index.axis(lane.variable)
    start = inner - step
    turns = (divisor - 1 + lane.width - 1) // divisor
    if lane.variable in start.names() or turns >= _MOST_PIECES:
        return None
    phase = (start % divisor).simplify(ranges)
    made = []
    for turn in range(turns + 1):
        position = phase + step - turn * divisor
        quotient = (start // divisor).simplify(ranges) + turn
        straight = [Inside(_replaced(t.index, lane, position, quotient), t.low, t.high) for t in tests]
        own = Inside(phase + step, turn * divisor if turn else None, (turn + 1) * divisor if turn < turns else None)
        made.append(Piece(_replaced(offset, lane, position, quotient), (own, *straight)))
    return tuple(made)


def straight_pieces(
    offset: Index, tests: tuple[Inside, ...], lane: Lane, ranges: Mapping[str, Bounds]
) -> tuple[Piece, ...] | None:
    """The `pieces`, where the lanes of each are adjacent and nothing in its tests wraps; else None."""
    found = pieces(offset, tests, lane, ranges)
    if found is None or any(piece.offset.coefficient(lane.variable) != 1 for piece in found):
        return None
    indices = (index for piece in found for index in (piece.offset, *(test.index for test in piece.tests)))
    return None if any(wrapping(index, lane) for index in indices) else found


def piece_mask(ranges: Mapping[str, Bounds], piece: Piece, lane: Lane, bits: int) -> Expr:
    """The lanes that are one of the `straight_pieces`, as a mask of `bits` a lane."""
    found: Expr | None = None
    for test in piece.tests:
        found = both(found, passing(ranges, test.index, test, lane, bits), bits, lane)
    assert found is not None  # some lane of a vector that wraps is another piece's
    return found


def _replaced(index: Index, lane: Lane, position: Index, quotient: Index) -> Index:
    """The index with remainders along the lane put as `position`, quotients as `quotient`."""
    varying = wrapping(index, lane)
    result = Index(tuple((atom, c) for atom, c in index.terms if atom not in varying), index.const)
    for atom, coefficient in index.terms:
        if atom in varying:
            result = result + (position if isinstance(atom, Mod) else quotient) * coefficient
    return result


def alignment(dtype: str, lanes: int) -> int:
    """Bytes at which an array that vectors of `lanes` are read from begins."""
    return STORAGE_BYTES[dtype] * lanes
