"""Interpreter: the state of a stage that is being executed."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.program.interpreter.copies import Tile
from rollergen.program.interpreter.memory import Memory
from rollergen.program.interpreter.plan import StagePlan
from rollergen.program.interpreter.points import Array, Box, grid_loops
from rollergen.program.rprogram import Stage
from rollergen.program.traffic import TrafficCounter


@dataclass
class StageRun:
    """One stage being executed: the tiles that copies have filled (``rings``: of asynchronous ones, by buffer),
    which elements it has stored, how often it has added to each, and the number of the ``block`` that runs."""

    plan: StagePlan
    memory: Memory
    counter: TrafficCounter
    tiles: dict[int, Tile] = field(default_factory=dict)
    rings: dict[int, dict[int, Tile]] = field(default_factory=dict)
    stored: Any = None
    added: Any = None
    block: int = 0

    def __post_init__(self) -> None:
        elements = self.stage.op.output.elements
        self.stored = np.zeros(elements, dtype=bool)
        self.added = np.zeros(elements if self.stage.store.adds else 0, dtype=np.int32)

    @property
    def stage(self) -> Stage:
        return self.plan.stage

    @property
    def name(self) -> str:
        return f"stage {self.stage.name}"


@dataclass
class TilePass:
    """One pass over a tile of outputs: the box it covers, finished reductions, values kept for later."""

    box: Box
    partials: dict[tuple[str, int], Array] = field(default_factory=dict)
    kept: dict[str, Array] = field(default_factory=dict)


def cut(array: Array, stage: Stage, box: Box, leaf: Box) -> Array:
    """The part of `array` (one dimension for each loop that is not of the grid, over `box`) that belongs to
    `leaf`, as a view; dimensions of size 1 stay."""
    grid = grid_loops(stage)
    part = tuple(
        slice(leaf.start(p) - box.start(p), leaf.ranges[p][1] - box.start(p)) if size > 1 else slice(None)
        for p, size in enumerate(np.shape(array), start=grid)
    )
    return array[(..., *part)]  # the ellipsis keeps a view where there is no dimension at all


def shape_of(stage: Stage, box: Box) -> tuple[int, ...]:
    """Sizes of the dimensions of arrays over `box`."""
    return tuple(box.size(p) for p in range(grid_loops(stage), len(stage.loops)))
