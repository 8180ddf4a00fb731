"""Programs side by side: stages of one tensor op that differ in sizes are priced as one batch of the model.

A loop that only some of the programs have runs once in the others, at the place and stride of that digit; the sizes of
loops, the vectors, rows and buffers of copies, the vectors of stores and the swizzles become arrays with an entry for
each program.  Everything else, the serial loops among it, is what programs of one batch have in common.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, pairwise
from operator import attrgetter, mul
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.matrix_chains import is_matrix_chain
from rollergen.program.model.chains import price_chain
from rollergen.program.model.matrix_chains import price_matrix_chain
from rollergen.program.model.numeric import Number, is_nothing, size_key
from rollergen.program.model.price import Price, of_each, price_batch, programs
from rollergen.program.rprogram import (
    GRID,
    LANE,
    PARALLEL,
    SERIAL,
    UNROLL,
    BlockOrder,
    Copy,
    Loop,
    RProgram,
    Stage,
    StageLaunch,
)

Digit = tuple[str, str, str, bool, int]
"""A loop as programs share it: axis, kind, what accumulators make of it, whether it is unrolled and steps over threads
of its axis, and how many loops like it lie inside."""
Digits = tuple[Digit, ...]
Shape = tuple[Digits, Digits]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """As `functools.lru_cache`, but values found in other ways can be put in: the last ``limit`` of them.

    Threads may share it: each step is one of a dict's own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        if len(self._values) > self._limit:
            with suppress(StopIteration, RuntimeError):  # another thread took it, or put something in
                self._values.pop(next(iter(self._values)), None)

    def clear(self) -> None:
        self._values.clear()


price_cache: BoundedCache[tuple[Stage, Device], Price] = BoundedCache(256)
"""Prices of programs that search needs again: those of a draft, which was priced in a batch."""


def price_stages(stages: Sequence[Stage], device: Device) -> Price:
    """The price of stages that are one program each, in their order; those of one structure are priced together."""
    found = [price_cache.get((stage, device)) for stage in stages]
    lacking = [stage for stage, price in zip(stages, found, strict=True) if price is None]
    fresh = iter(price_batches(lacking, device))
    prices = [next(fresh) if price is None else price for price in found]
    for stage, price in zip(stages, prices, strict=True):
        price_cache.put((stage, device), price)
    return Price.joined(prices)


def keep_price(stage: Stage, device: Device, price: Price) -> None:
    """Caches the price of one program that was found in a batch."""
    price_cache.put((stage, device), price)


def price_batches(batches: Sequence[Stage], device: Device) -> list[Price]:
    """The price of each batch: those of one structure are priced as one, a chain by itself."""
    priced = lambda stage: (price_matrix_chain if is_matrix_chain(stage) else price_chain)(stage, device)
    found = {id(stage): priced(stage) for stage in batches if stage.inner is not None}
    for batch, members in side_by_side([stage for stage in batches if stage.inner is None], device):
        price, begin = price_batch(batch, device), 0
        for stage, count in members:
            found[id(stage)] = price.of(slice(begin, begin + count))
            begin += count
    return [found[id(stage)] for stage in batches]


def side_by_side(batches: Sequence[Stage], device: Device) -> Iterator[tuple[Stage, list[tuple[Stage, int]]]]:
    """Batches that join those of one structure, each with its members, in their order, and how many programs these
    are."""
    for stages in _alike(batches, device):
        for members in _joinable([_member(stage) for stage in stages]):
            yield _joined(members), [(member.stage, member.programs) for member in members]


def with_launches(program: RProgram, device: Device) -> RProgram:
    """The program with how each stage is launched: alone where that takes less, and as many blocks on a unit as fit."""
    price = price_stages(program.stages, device)
    bounded = device.kind.bounds_registers
    launches = [
        StageLaunch(alone, resident if bounded else 0)
        for alone, resident in zip(price.alone.tolist(), price.resident_blocks.tolist(), strict=True)
    ]
    return replace(program, launches=tuple(launches))


def _alike(stages: Sequence[Stage], device: Device) -> Iterable[list[Stage]]:
    """The stages, those together that may be programs of one batch.

    A swizzle is of the last two loops of a grid, so these are the last ones of a whole batch that has one: it takes in
    only what has no other loops in its grid."""
    widths = [(_grid(stage), stage.block_order.group_rows) for stage in stages]
    swizzled = dict.fromkeys([grid for grid, width in widths if not is_nothing(width)])
    of_grid = {grid: next((other for other in swizzled if _is_part(grid, other)), ()) for grid, _ in widths}
    of_grid.update({grid: grid for grid in swizzled})
    alike: dict[Hashable, list[Stage]] = {}
    for stage, (grid, _) in zip(stages, widths, strict=True):
        alike.setdefault((of_grid[grid], _common(stage, grid, device)), []).append(stage)
    return alike.values()


def _grid(stage: Stage) -> tuple[str, ...]:
    return tuple([loop.axis for loop in stage.loops if loop.kind == GRID])


def _is_part(grid: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether the loops of a grid are some of another's, in its order."""
    left = iter(other)
    return all(axis in left for axis in grid)


def _common(stage: Stage, grid: tuple[str, ...], device: Device) -> Hashable:
    """What programs of a batch have in common, their ``grid`` aside.  Where threads are vectors' lanes also the widths
    of vectors and the guards, which decide which accesses there are."""
    serial = tuple([loop.axis for loop in stage.loops if loop.kind == SERIAL])
    whole = (
        stage.op, stage.kept_rows, stage.compute, stage.once, serial,
        # What is prefetched is told by the position of its loop.
        stage.prefetch if stage.prefetch < 0 else tuple(map(_KIND, stage.loops)),
        stage.accumulator.dtype, stage.accumulator.carry, stage.accumulator.combine, len(stage.accumulator.flush),
        tuple([_OF_COPIES(copy) for copy in stage.copies]),
        # The loops inside a window say how far it reaches, not the axes that these are of.
        tuple([() if copy.window else copy.order for copy in stage.copies]), _OF_STORES(stage.store),
        is_nothing(stage.store.boxes),
    )  # fmt: skip
    if device.kind.instruction_threads == 1:
        lanes = tuple([(loop.axis, loop.extent) for loop in stage.loops if loop.kind == LANE])
        return (*whole, lanes, tuple(map(_WIDTHS, stage.copies)), stage.store, stage.guards, stage.block_order)
    # Blocks that stride over an axis may step past its end in whole tiles, which no guard cuts.
    return (*whole, tuple([guard for guard in stage.guards if guard[0] in serial and guard[0] in grid]))


_OF_COPIES = attrgetter(
    "load", "from_layer", "to_layer", "along", "swizzle", "asynchronous", "window", "runs", "panel", "boxes", "every",
    "apart", "realigned",
)
_OF_STORES = attrgetter("streaming", "on_lines", "adds")
_WIDTHS = attrgetter("vector", "padding", "depth")


def _rising(loops: Sequence[Loop]) -> tuple[int, ...]:
    """Positions of the loops by rising stride, the outer ones last."""
    strides = [size_key(loop.stride) for loop in loops]
    return tuple(sorted(range(len(loops) - 1, -1, -1), key=strides.__getitem__))


@lru_cache(maxsize=256)
def _shape(
    loops: tuple[tuple[str, str], ...], rising: tuple[int, ...], separate: tuple[int, ...], gathered: tuple[int, ...]
) -> Shape:
    """The digits of loops of these axes and kinds, in the order of the nest and by rising stride."""
    passed: set[str] = set()
    beyond = {}
    for p in rising:
        axis, kind = loops[p]
        beyond[p] = kind == UNROLL and axis in passed
        passed |= {axis} if kind in PARALLEL else set()
    inside: dict[tuple[str, str, str, bool], int] = {}
    digits = {}
    for p in range(len(loops) - 1, -1, -1):
        key = *loops[p], _SEPARATE if p in separate else _GATHERED if p in gathered else "", beyond[p]
        inside[key] = inside.get(key, -1) + 1
        digits[p] = *key, inside[key]
    return tuple([digits[p] for p in range(len(loops))]), tuple([digits[p] for p in rising])


_SEPARATE, _GATHERED = "separate", "gathered"


class _Merged(NamedTuple):
    """A nest that has every program's loops: in its order, and the positions of each axis from the least stride on."""

    digits: Digits
    rising: tuple[tuple[int, ...], ...]


class _Member(NamedTuple):
    """A stage, or a batch of so many, with its digits in the order of the nest and by rising stride."""

    stage: Stage
    digits: Digits
    rising: Digits
    programs: int


def _member(stage: Stage) -> _Member:
    accumulator = stage.accumulator
    kinds = tuple(map(_KIND, stage.loops))
    shape = _shape(kinds, _rising(stage.loops), accumulator.separate, accumulator.gathered)
    return _Member(stage, *shape, programs(stage))


_KIND = attrgetter("axis", "kind")


def _by_structure(members: list[_Member]) -> list[list[_Member]]:
    """Those that have the same digits together (by identity: digits are long to compare, and few differ)."""
    alike: dict[int, list[_Member]] = {}
    for one in members:
        alike.setdefault(id(one.digits), []).append(one)
    return list(alike.values())


def _common_nest(structures: list[list[_Member]]) -> _Merged | None:
    return _merged(tuple([(own[0].digits, own[0].rising) for own in structures]))


def _joinable(members: list[_Member]) -> list[list[_Member]]:
    """The programs, those of one structure side by side; apart as far as no one nest has the loops of all in their
    order."""
    structures = _by_structure(members)
    return structures if _common_nest(structures) is None else [[one for own in structures for one in own]]


@lru_cache(maxsize=256)
def _merged(shapes: tuple[Shape, ...]) -> _Merged | None:
    """The nest of all; None where their orders contradict each other."""
    digits = _in_one_order([nest for nest, _ in shapes])
    if digits is None:
        return None
    position, by_axis = {digit: p for p, digit in enumerate(digits)}, []
    for axis in dict.fromkeys(axis for axis, *_ in digits):
        own = _in_one_order([tuple([one for one in rising if one[0] == axis]) for _, rising in shapes])
        if own is None:
            return None
        by_axis.append(tuple([position[digit] for digit in own]))
    return _Merged(digits, tuple(by_axis))


def _in_one_order(sequences: Sequence[Digits]) -> Digits | None:
    """All that the sequences have, in an order that is that of each; None if there is none."""
    behind: dict[Digit, set[Digit]] = {one: set() for sequence in sequences for one in sequence}
    for sequence in sequences:
        for before, after in pairwise(sequence):
            behind[after].add(before)
    found: list[Digit] = []
    while behind:
        free = next((one for one, waits in behind.items() if not waits), None)
        if free is None:
            return None
        del behind[free]
        found.append(free)
        for waits in behind.values():
            waits.discard(free)
    return tuple(found)


_STRIDE, _EXTENT = attrgetter("stride"), attrgetter("extent")


def _joined(members: list[_Member]) -> Stage:
    """Programs of one structure as one stage whose numbers are arrays."""
    structures = _by_structure(members)
    nest = _common_nest(structures)
    assert nest is not None
    if len(members) == 1:
        return members[0].stage
    column = partial(_column, counts=[member.programs for member in members])
    position = {digit: p for p, digit in enumerate(nest.digits)}
    places = [tuple([position[digit] for digit in own[0].digits]) for own in structures]
    loops = []
    for digit, own in zip(nest.digits, _sizes(structures, places, nest), strict=True):
        extents, strides = zip(*own, strict=True)
        loops.append(Loop(digit[0], column([*chain(*extents)]), column([*chain(*strides)]), digit[1]))
    every: Any = of_each(loops[0].extent, sum(member.programs for member in members))
    loops[0] = replace(loops[0], extent=every)
    stages = [one.stage for one in members]
    first = stages[0]
    of_members = [own for own, alike in zip(places, structures, strict=True) for _ in alike]
    at = lambda depths: _depth(depths, of_members)
    of_role = lambda role: tuple([p for p, digit in enumerate(nest.digits) if digit[2] == role])
    accumulator = replace(
        first.accumulator, at_loop=at([stage.accumulator.at_loop for stage in stages]),
        separate=of_role(_SEPARATE), gathered=of_role(_GATHERED),
        flush=tuple([at(depths) for depths in zip(*[stage.accumulator.flush for stage in stages], strict=True)]),
    )  # fmt: skip
    copies = []
    alike: tuple[Copy, ...]
    for alike in zip(*[stage.copies for stage in stages], strict=True):
        depths, vectors, paddings, buffers = zip(*map(_MOVED, alike), strict=True)
        copies.append(replace(
            alike[0], at_loop=at(depths), vector=column(vectors), padding=column(paddings), depth=column(buffers)
        ))  # fmt: skip
    return replace(
        first, loops=tuple(loops), copies=tuple(copies), accumulator=accumulator,
        store=replace(first.store, **{name: column([getattr(one.store, name) for one in stages]) for name in _STORED}),
        guards=tuple(dict.fromkeys([guard for stage in stages for guard in stage.guards])),
        block_order=BlockOrder(*map(column, zip(*[_ORDER(stage.block_order) for stage in stages], strict=True))),
    )  # fmt: skip


_MOVED = attrgetter("at_loop", "vector", "padding", "depth")
_STORED = ("vector", "across_rows", "vector_loads", "boxes")
_ORDER = attrgetter("group_rows", "launched", "cluster", "descending")


Sizes = tuple[Sequence[Number], Sequence[Number]]
"""Extents and strides of one loop in several programs."""


def _sizes(
    structures: list[list[_Member]], places: list[tuple[int, ...]], nest: _Merged
) -> Iterable[tuple[Sizes, ...]]:
    """Of every loop of the nest its sizes in the programs of each structure, whose own loops have these ``places``."""
    every = []
    for members, own in zip(structures, places, strict=True):
        alike = zip(*[one.stage.loops for one in members], strict=True)
        found = {p: (list(map(_EXTENT, each)), list(map(_STRIDE, each))) for p, each in zip(own, alike, strict=True)}
        absent = [1] * len(members)
        for rising in nest.rising if len(own) < len(nest.digits) else ():
            reached: list[Number] = absent
            for p in rising:
                if p in found:
                    reached = list(map(mul, *found[p]))
                else:
                    found[p] = absent, reached
        every.append([found[p] for p in range(len(nest.digits))])
    return zip(*every, strict=True)


def _depth(depths: Sequence[int], places: list[tuple[int, ...]]) -> int:
    """The position in the common nest of a depth in each program's own: behind all that any has outside."""
    return max([own[depth - 1] + 1 if depth else 0 for own, depth in zip(places, depths, strict=True)])


def _column(values: Sequence[Number], counts: list[int]) -> Any:
    """One figure of all programs; ``counts``: of how many each value is."""
    if max(counts) == 1:
        return values[0] if values.count(values[0]) == len(values) else np.array(values, dtype=np.int64)
    return np.concatenate([of_each(value, count) for value, count in zip(values, counts, strict=True)])
