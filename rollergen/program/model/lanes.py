"""Vectors along a lane loop: whether lanes are neighbours in memory, cross lines, or break at an edge."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.expr.index import Atom, Index
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.lane_windows import growing_place, window_places
from rollergen.program.model.facts import Facts, Operand
from rollergen.program.model.indices import alignment_of, divisors_of
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose, gcd, least, most, per_distinct
from rollergen.program.rprogram import LANE
from rollergen.program.windows import shares_lines


def evaluate_lanes(index: Index, coordinates: dict[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The index at each lane's coordinates (of axes not named: 0), as an array of the shape."""
    values = {axis: coordinates.get(axis, 0) for axis in index.names()}
    found = np.asarray(index.evaluate(values), dtype=np.int64)
    return found if found.shape == shape else np.broadcast_to(found, shape)


def lanes_apart(nest: Nest, operand: Operand, lane: int) -> int:
    """Elements between neighbouring lanes where that is 1 or 2 (a vector, or every other element of two); else 0."""
    return _steps_apart(operand.offset, nest.loops[lane].axis, nest.lanes)


@lru_cache(maxsize=256)
def _steps_apart(offset: Index, axis: str, lanes: int) -> int:
    places = evaluate_lanes(offset, {axis: np.arange(lanes)}, (lanes,))
    apart = set(np.diff(places).tolist())
    return apart.pop() if apart in ({1}, {2}) else 0


def chosen_lanes(nest: Nest, operand: Operand, lane: int) -> bool:
    """Whether the lanes are chosen from a window, which takes two vectors."""
    axis = nest.loops[lane].axis
    if not divisors_of(operand.offset, axis):
        return False
    # Programs that differ in the extent have longer ones than a vector, all of which are alike.
    shortest = int(np.min(nest.facts.extents[axis]))
    return window_places(operand.offset, axis, nest.lanes, shortest) is not None


def near_lanes(nest: Nest, device: Device, operand: Operand, lane: int) -> bool:
    """Whether the lanes are chosen from one vector, of which those are read that the guard leaves; of a window where
    the guard cuts it."""
    if nest.lockstep > 1 or (operand.buffer.dtype, nest.lanes) not in device.kind.masked_loads:
        return False
    if operand.buffer.dtype != "float32":
        return False
    axis = nest.loops[lane].axis
    tested = [bound.index for bound in operand.guard if divisors_of(bound.index, axis)]
    return growing_place(operand.offset, tested, axis, nest.lanes) is not None


def line_split(nest: Nest, layer: MemoryLayer | None, operand: Operand, width_bytes: int, begins: int) -> Number:
    """Lines that a vector touches on average: 1 where all start on a boundary of their own width.

    ``begins``: bytes at which arrays given by the caller begin; 0: on lines, like our own temporaries."""
    if layer is None or width_bytes > layer.transaction_bytes:
        return 1
    steps: dict[str, Number] = {}
    for loop in nest.loops:
        if loop.axis in operand.axes and loop.kind != LANE:
            moved = choose(loop.extent > 1, loop.stride, 0)
            steps[loop.axis] = gcd(steps.get(loop.axis, 0), moved)
    step = _offset_alignment(operand, steps) * operand.itemsize
    start = gcd(step, layer.transaction_bytes)
    if begins and operand.buffer.kind != "temporary":
        start = gcd(start, begins)
    return 1 + most(width_bytes - start, 0) / layer.transaction_bytes


def _offset_alignment(operand: Operand, steps: dict[str, Number]) -> Number:
    found = alignment_of(operand.offset, steps)
    constant = operand.offset.const
    return gcd(found, constant) if constant else found


def broken_share(nest: Nest, device: Device, operand: Operand, lane: int, *, read: bool) -> Number:
    """Share of the vectors along the lane that are moved element by element: those that wrap where a view divides,
    and those that a guard or the end of a masked axis cuts (but reads are masked there, and stores that the device can
    mask, if neither wraps)."""
    axis, lanes = nest.loops[lane].axis, nest.lanes
    if not read and masks_stores(nest, device) and not _wraps(operand, axis, lanes):
        return 0
    if read and near_lanes(nest, device, operand, lane):
        return 0
    chosen = read and chosen_lanes(nest, operand, lane)
    share: Number = _cut_share(operand, nest.facts, axis, lanes, read, chosen)
    if nest.stage.guard(axis) == "mask" and not read:
        share = share + choose(nest.overhangs.get(axis, False), lanes / nest.facts.extents[axis], 0)
    return least(share, 1.0)


def masks_stores(nest: Nest, device: Device) -> bool:
    """Whether chosen lanes of the stage's results go out by one instruction."""
    dtype = nest.facts.store.buffer.dtype
    return nest.lockstep == 1 and (dtype, nest.lanes) in device.kind.masked_stores


def masks_loads(nest: Nest, device: Device, operand: Operand, lane: int) -> bool:
    """Whether chosen lanes of the operand's vectors come in by one instruction (of every other element, by two): where
    lines are shared, for which equal vectors are to stay one read."""
    if nest.lockstep > 1 or (operand.buffer.dtype, nest.lanes) not in device.kind.masked_loads:
        return False
    if not shares_lines(nest.stage, operand.indices) or not lanes_apart(nest, operand, lane):
        return False
    return not _wraps(operand, nest.loops[lane].axis, nest.lanes)


def _wraps(operand: Operand, axis: str, lanes: int) -> bool:
    """Whether the addresses or the bounds of an operand divide within a vector along the axis: not where the divisor
    is a number of whole vectors, which begin at multiples of their width."""
    indices = (*operand.indices, *(bound.index for bound in operand.guard))
    return any(_cuts(atom, axis, lanes) for index in indices for atom, _ in index.terms)


def _cuts(atom: Atom, axis: str, lanes: int) -> bool:
    if isinstance(atom, str) or axis not in atom.index.axes():
        return False
    inner = atom.index
    steps = [c for term, c in inner.terms if term != axis] + [inner.const, atom.divisor]
    return inner.coefficient(axis) != 1 or any(step % lanes for step in steps)


SAMPLED_VECTORS = 1024


def _cut_share(operand: Operand, facts: Facts, axis: str, lanes: int, read: bool, chosen: bool) -> Number:
    """Of vectors spread evenly over the operand's axes, the share that is neither whole (reads: in a straight line, or
    `chosen` from a window) nor altogether outside."""
    bounded = any(
        divisors_of(bound.index, axis) if read else axis in bound.index.axes() for bound in operand.guard
    )
    if not bounded and not any(divisors_of(index, axis) for index in operand.indices):
        return 0.0
    names = tuple(sorted(operand.axes | {a for bound in operand.guard for a in bound.index.axes()}))
    extents = [facts.extents[name] for name in names]
    if max(map(np.size, extents)) == 1:
        return _sampled_share(operand, names, tuple(map(int, extents)), axis, lanes, read, chosen, bounded)
    of_one = lambda *row: _sampled_share(operand, names, row, axis, lanes, read, chosen, bounded)
    return per_distinct(of_one, extents)


@lru_cache(maxsize=256)
def _sampled_share(
    operand: Operand, names: tuple[str, ...], extents: tuple[int, ...], axis: str, lanes: int, read: bool,
    chosen: bool, bounded: bool,
) -> float:  # fmt: skip
    """`_cut_share` for these extents of the named axes.

    The spread is a fixed lattice (multiples of irrational steps), so that the answer never varies."""
    number = np.arange(SAMPLED_VECTORS)
    values = {}
    for n, (name, extent) in enumerate(zip(names, extents, strict=True)):
        spread = (number * np.sqrt(_PRIMES[n % len(_PRIMES)]) % 1.0)[:, None]
        if name == axis:
            vectors = max(1, extent // lanes)
            values[name] = (spread * vectors).astype(np.int64) * lanes + np.arange(lanes)
        else:
            values[name] = (spread * extent).astype(np.int64) + np.zeros(lanes, dtype=np.int64)
    places = np.broadcast_to(operand.offset.evaluate(values), (SAMPLED_VECTORS, lanes))
    passes = np.ones((SAMPLED_VECTORS, lanes), dtype=bool)
    for bound in operand.guard:
        passes &= np.broadcast_to(bound.evaluate(values), passes.shape)
    straight = chosen | _straight(places, read)
    for bound in operand.guard:
        if read and not chosen and divisors_of(bound.index, axis):
            straight &= _straight(np.broadcast_to(bound.index.evaluate(values), places.shape), True)
    whole = straight & (passes.all(axis=1) | (read and not bounded))
    return float((~whole & passes.any(axis=1)).mean())


def _straight(places: np.ndarray, read: bool) -> np.ndarray:
    """Of which vectors the lanes lie evenly (reads), or side by side."""
    steps = np.diff(places, axis=1)
    found: np.ndarray = (steps == (steps[:, :1] if read else 1)).all(axis=1)
    return found


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
