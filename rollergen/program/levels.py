"""Levels of accumulators: how many terms each adds up one after the other (see `Accumulator.flush`).

A chain of n additions errs by up to n/2 units where all roundings fall on one side, as those of equal terms do
(Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2).  Blocks that are added up by
themselves, and their sums likewise, err by their own lengths.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from rollergen.expr.definition import Reduction
from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Binary, walk
from rollergen.program.rprogram import GRID, PARALLEL, SERIAL, UNROLL, Loop, Stage


def adds(reduction: Reduction) -> bool:
    """Whether the reduction adds rounded values: errors of sums grow with the length of the chain, those of products
    with the number of factors in any order; maxima, choices and integers round nothing."""
    nodes = (node for value in reduction.combiner.combine for node in walk(value))
    return any(isinstance(node, Binary) and node.op in ("add", "sub") and is_float(node.dtype) for node in nodes)


def flush_depths(stage: Stage, reduction: Reduction) -> tuple[int, ...]:
    """The depths inside ``at_loop`` at which accumulators of the reduction start anew."""
    return stage.accumulator.flush if stage.accumulator.flush and adds(reduction) else ()


def chain_lengths(stage: Stage) -> tuple[int, ...]:
    """Terms that one accumulator adds up, innermost level first; last, where partial results wait in the output, the
    visits whose results are added up there."""
    first = sum(loop.kind in (GRID, *PARALLEL) for loop in stage.loops)
    start = max(stage.accumulator.at_loop, first)
    ends = (len(stage.loops), *reversed(stage.accumulator.flush), start)
    levels = [chained(stage, range(begin, end)) for end, begin in pairwise(ends)]
    return (*levels, chained(stage, range(first, start))) if stage.accumulator.carry else tuple(levels)


def chained(stage: Stage, positions: range) -> int:
    """Terms that the loops at these positions bring to one accumulator."""
    return prod(stage.loops[p].extent for p in positions if is_chained(stage, p, stage.loops[p]))


def is_chained(stage: Stage, position: int, loop: Loop) -> bool:
    """Whether the iterations of the loop go into one accumulator, one after the other."""
    if loop.kind not in (SERIAL, UNROLL) or position in stage.accumulator.separate:
        return False
    return stage.definition.axis(loop.axis).role != "spatial"
