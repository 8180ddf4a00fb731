"""Tiles that begin earlier than their number says, so that they end with their axis (see `Stage.guards`)."""

from __future__ import annotations

from math import prod

from rollergen.program.rprogram import LANE, UNROLL, Stage

OVERLAP = "overlap"


def tile_of(stage: Stage, axis: str) -> tuple[int, int]:
    """(depth inside all loops that say where a tile of `axis` begins, points of the tile along it).

    The tile is that of the unrolled and lane loops."""
    own = [(p, loop) for p, loop in enumerate(stage.loops) if loop.axis == axis]
    depth = 1 + max((p for p, loop in own if loop.kind not in (UNROLL, LANE)), default=-1)
    return depth, prod(loop.extent for _, loop in own if loop.kind in (UNROLL, LANE))
