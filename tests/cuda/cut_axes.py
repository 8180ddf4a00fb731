"""What a program shows of each axis: how many tiles lie along it, whether one lies partly outside, and if not, why not."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, prod

from rollergen.bench.suites import Entry, suite
from rollergen.expr.canonical import canonicalize
from rollergen.program.rprogram import GRID, SERIAL, RProgram, Stage

ONE_TILE, NO_REMAINDER = "one tile", "no remainder"
LACKS = (ONE_TILE, NO_REMAINDER)
"""What an axis lacks that another cut, or another program, might give it."""

_SHORT = 4
"""Elements of one vector."""

_WINDOWS = ("depthwise_conv2d", "avg_pool2d")


def why_not(entry: Entry, program: RProgram) -> dict[str, str]:
    """The axes, by stage, that lack several tiles or a tile that lies partly outside, and why: one of `LACKS`, or a
    reason that lies in the operator or in the program."""
    several, outside, found = tiles(program), remainders(program), {}
    whole = _extents(entry.suite, entry.id)
    for stage in program.stages:
        for axis in stage.op.axes:
            name = f"{stage.name}.{axis.name}"
            if several[name] > 1 and name in outside:
                continue
            if several[name] == axis.extent > 1:
                found[name] = "a tile is one element"
            elif entry.kind in _WINDOWS and axis.role == "reduce":
                found[name] = "an axis of the window"
            elif axis.extent <= whole.get(axis.name, 0) <= _SHORT:
                found[name] = f"the operator's has at most {_SHORT} elements"
            else:
                found[name] = NO_REMAINDER if several[name] > 1 else ONE_TILE
    return found


@lru_cache(maxsize=256)
def _extents(name: str, id: str) -> dict[str, int]:
    """Of the axes at full size."""
    return {axis.name: axis.extent for d in canonicalize(suite(name).entry(id).make()).tensor_ops for axis in d.axes}


def tiles(program: RProgram) -> dict[str, int]:
    """How many tiles lie along each axis, by stage: blocks along spatial axes, steps of the staging along reduced
    ones (iterations of their serial loops where nothing is staged)."""
    found = {}
    for stage in program.stages:
        outside = max((copy.at_loop for copy in stage.copies), default=len(stage.loops))
        for axis in stage.op.axes:
            reduced = axis.role == "reduce"
            covered = prod(
                loop.extent for at, loop in stage.of_axis(axis.name) if not _outer(loop.kind, at, outside, reduced)
            )
            found[f"{stage.name}.{axis.name}"] = ceil(axis.extent / covered)
    return found


def _outer(kind: str, at: int, outside: int, reduced: bool) -> bool:
    return kind == GRID or (reduced and kind == SERIAL and at < outside)


def remainders(program: RProgram) -> list[str]:
    """Axes, by stage, whose loops cover more than the extent: a part of a tile lies outside."""
    return [
        f"{stage.name}.{axis.name}"
        for stage in program.stages
        for axis in stage.op.axes
        if _covered(stage, axis.name) > axis.extent
    ]


def _covered(stage: Stage, axis: str) -> int:
    return prod(loop.extent for _, loop in stage.of_axis(axis))
