"""Interpreter: the accumulators of one reduction, level by level (see `Accumulator.flush`)."""

from __future__ import annotations

from rollergen.expr.tensor_op import Reduction
from rollergen.hal.dataclass import dataclass
from rollergen.program.interpreter import reduce
from rollergen.program.interpreter.points import Box
from rollergen.program.interpreter.reduce import Parts
from rollergen.program.interpreter.run import cut, shape_of
from rollergen.program.loops import flush_depths
from rollergen.program.rprogram import Stage


@dataclass(frozen=True)
class _Block:
    """Accumulators of a level for what is in ``box``."""

    box: Box
    parts: Parts


class Levels:
    """Accumulators of a pass over `box`, into which leaves at `depth` go.

    Blocks that begin inside the leaves' depth are whole in each leaf and need no accumulators that last; blocks that
    begin outside are of several leaves.
    """

    def __init__(self, stage: Stage, reduction: Reduction, box: Box, depth: int) -> None:
        self._stage, self._combiner = stage, reduction.combiner
        self._flush = flush_depths(stage, reduction)
        self._within = tuple(f for f in self._flush if f >= depth)
        self._open = [self._started(box, 0)]

    def add(self, leaf: Box, bodies: Parts) -> None:
        """The values at all points of a leaf, which come in the order of the nest."""
        stage, combiner, shape = self._stage, self._combiner, shape_of(self._stage, leaf)
        together = bool(stage.accumulator.gathered)
        self._reach(leaf)
        if self._within:
            bodies = reduce.blocks(stage, combiner, self._within, bodies, shape)
            shape, together = bodies[0].shape, False
        block = self._open[-1]
        own = tuple(cut(array, stage, block.box, leaf) for array in block.parts)
        reduce.accumulate(combiner, own, bodies, shape, together)

    def finished(self) -> Parts:
        """The reduction over all leaves, lanes and threads put together."""
        self._close(1)
        separate = not self._flush
        return reduce.finished(self._stage, self._combiner, self._open[0].parts, separate)

    def _reach(self, leaf: Box) -> None:
        """Blocks that the leaf is not in closed, those that it is in begun."""
        across = len(self._flush) - len(self._within)
        for level in range(1, across + 1):
            depth = self._flush[level - 1]
            if level < len(self._open) and self._open[level].box.ranges[:depth] != leaf.ranges[:depth]:
                self._close(level)
            if level == len(self._open):
                inside = Box((*leaf.ranges[:depth], *self._open[0].box.ranges[depth:]))
                self._open.append(self._started(inside, level))

    def _started(self, box: Box, level: int) -> _Block:
        shape = reduce.accumulator_shape(self._stage, box, level == len(self._flush))
        return _Block(box, reduce.identities(self._combiner, shape))

    def _close(self, level: int) -> None:
        """The blocks of this level and inside combined into those outside."""
        stage, combiner = self._stage, self._combiner
        while len(self._open) > level:
            block = self._open.pop()
            parts = block.parts
            if len(self._open) == len(self._flush):
                parts = reduce.chains(stage, combiner, parts)
            own = tuple(cut(array, stage, self._open[-1].box, block.box) for array in self._open[-1].parts)
            reduce.accumulate(combiner, own, parts, parts[0].shape)
