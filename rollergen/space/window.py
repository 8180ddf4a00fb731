"""The tiles of reductions over sliding windows: patches of neighbouring outputs, and threads along three axes."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, prod

from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import WindowPlan
from rollergen.program.assemble.window import window_loads
from rollergen.program.rprogram import THREAD, UNROLL
from rollergen.space.engine import Digit, Points, TileSpace, limit
from rollergen.space.rules import REGISTERS, THREADS, UNROLLED
from rollergen.tile.rules import AlignmentRules, thread_multiple

_TILES = (1, 2, 3, 4, 5, 6, 7, 8)
_MOST_OUTPUTS = 48
"""Of one thread."""
_MOST_UNROLLED = 448
"""Steps of the reduction, over all outputs of a thread, that are written out one after the other."""
_MOST_ACROSS = 64
"""Threads along an axis that a block may cover whole."""
_LEAST_THREADS, _MOST_THREADS = 64, 512


def window_tiles(op: TensorOp, device: Device, rules: AlignmentRules) -> TileSpace:
    """Patches along the innermost two axes along which windows slide; threads along these, then along another one."""
    along = _sliding(op)[-2:]
    beside = _beside(op, along)
    patch = tuple(f"{axis.name} of a patch" for axis in along)
    across = tuple(f"threads along {axis.name}" for axis in along)
    more = lambda *threads: _more_threads(prod(threads), beside, device, rules)
    digits = (
        *(Digit(name, axis.name, UNROLL, _tiles(axis)) for name, axis in zip(patch, along, strict=True)),
        *(
            Digit(name, axis.name, THREAD, lambda tile, axis=axis: _across(ceil_div(axis.extent, tile)), of=(own,))
            for name, own, axis in zip(across, patch, along, strict=True)
        ),
        Digit(_BESIDE, beside.name if beside else "", THREAD, more, of=across),
    )
    taps = prod(axis.extent for axis in op.of_role("reduce"))
    most = min(_MOST_THREADS, device.limits.threads_per_block)
    limits = (
        limit(REGISTERS, patch, lambda *tile: (prod(tile) > 1) & (prod(tile) <= _MOST_OUTPUTS)),
        limit(UNROLLED, patch, lambda *tile: prod(tile) * taps <= _MOST_UNROLLED),
        limit(THREADS, (*across, _BESIDE), lambda *threads: prod(threads) <= most),
    )
    return TileSpace(op, device, rules, digits, limits)


_BESIDE = "threads beside"


def window_plan(points: Points, at: int | None = None) -> WindowPlan:
    """The point at one position, or all of them as one plan of arrays."""
    size = lambda name: points[name] if at is None else int(points[name][at])
    pairs = lambda kind: tuple(
        [(digit.axis, size(digit.name)) for digit in points.digits if digit.kind == kind and digit.axis]
    )
    return WindowPlan(pairs(UNROLL), pairs(THREAD))


def _sliding(op: TensorOp) -> list[Axis]:
    """Spatial axes along which some window slides, outermost first."""
    reduced = {axis.name for axis in op.of_role("reduce")}
    indices = [index for number in window_loads(op) for index in op.loads()[number].indices]
    moving = {axis for index in indices if index.axes() & reduced for axis in index.axes() - reduced}
    return [axis for axis in op.of_role("spatial") if axis.name in moving]


def _beside(op: TensorOp, along: list[Axis]) -> Axis | None:
    """Another axis for a block's threads: one along which most operands stay the same, then the longest."""
    others = [axis for axis in op.of_role("spatial") if axis not in along]
    same = lambda axis: sum(axis.name not in load.axes() for load in op.body_loads())
    return max(others, key=lambda axis: (same(axis), axis.extent), default=None)


def _tiles(axis: Axis) -> list[int]:
    """Powers of 2, and what divides the axis."""
    return [t for t in _TILES if t <= axis.extent and (t & (t - 1) == 0 or axis.extent % t == 0)]


def _across(patches: int) -> list[int]:
    """Threads along an axis of so many patches: all of them, and powers of 2."""
    whole = [patches] if patches <= _MOST_ACROSS else []
    return sorted({*whole, *(t for t in (8, 16, 32) if t < 2 * patches)} or {1})


def _more_threads(across: int, beside: Axis | None, device: Device, rules: AlignmentRules) -> Iterable[int]:
    """Threads along the other axis that make a block whole execution widths, and not too few; none where it has not so
    many points."""
    unit, extent = thread_multiple(device, rules), beside.extent if beside else 1
    least = unit // gcd(unit, across)
    while across * least < _LEAST_THREADS and 2 * least <= extent:
        least *= 2
    return [least] if least <= extent else []
