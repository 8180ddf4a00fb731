"""Levels of accumulators: how many terms each adds up one after the other (see `Accumulator.flush`).

A chain of n additions errs by up to n/2 units where all roundings fall on one side, as those of equal terms do
(Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2).  Blocks that are added up by
themselves, and their sums likewise, err by their own lengths.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from rollergen.expr.dtypes import is_float
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Binary, walk
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL, Loop, Stage


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
    passes whose results are added up there."""
    first = sum(loop.kind in (GRID, *PARALLEL) for loop in stage.loops)
    start = max(stage.accumulator.at_loop, first)
    ends = (len(stage.loops), *reversed(stage.accumulator.flush), start)
    levels = [chained(stage, range(begin, end)) for end, begin in pairwise(ends)]
    return (*levels, chained(stage, range(first, start))) if stage.accumulator.carry else tuple(levels)


LONGEST = 8192
"""Terms of the longest chain that any program should have: with threads, where a second register tile costs occupancy,
GPU libraries add up as many and more."""


def added_terms(stage: Stage) -> int:
    """The length of a chain that errs at most as a sum of the stage does: the chains of all levels one after the other,
    those of lanes and threads halved again and again.  A chain beyond `LONGEST` counts as one of that length: what a
    program that has one loses is an error of its own."""
    lanes = prod(loop.extent for loop in stage.loops if loop.kind in (LANE, *PARALLEL) and _reduces(stage, loop))
    separate = prod(stage.loops[p].extent for p in stage.accumulator.separate)
    return sum(min(length, LONGEST) for length in chain_lengths(stage)) + separate - 1 + (lanes - 1).bit_length()


def _reduces(stage: Stage, loop: Loop) -> bool:
    return stage.op.axis(loop.axis).role != "spatial"


def chained(stage: Stage, positions: range) -> int:
    """Terms that the loops at these positions bring to one accumulator."""
    return prod(stage.loops[p].extent for p in positions if is_chained(stage, p, stage.loops[p]))


def is_chained(stage: Stage, position: int, loop: Loop) -> bool:
    """Whether the iterations of the loop go into one accumulator, one after the other."""
    if loop.kind not in (SERIAL, UNROLL) or position in stage.accumulator.separate:
        return False
    return _reduces(stage, loop)
