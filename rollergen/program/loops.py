"""What follows from a stage's loops: levels of accumulators, parts of panels, tiles that begin earlier.

Levels say how many terms each accumulator adds up one after the other (see `Accumulator.flush`).  A chain of n
additions errs by up to n/2 units where all roundings fall on one side, as those of equal terms do (Higham, "Accuracy
and Stability of Numerical Algorithms", 2nd edition, section 4.2).  Blocks that are added up by themselves, and their
sums likewise, err by their own lengths.

The panel of a contraction that is prefetched while one is computed: which part of it at which step.  Tiles begin
earlier than their number says where they end with their axis (see `Stage.guards`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE, is_float
from rollergen.expr.index import Index
from rollergen.expr.packing import is_in_panels
from rollergen.expr.positions import combiner_in_order
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Binary, Combiner, Load, Take, axes_of, takes, walk
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import in_a_word
from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL, Loop, Stage


def adds(reduction: Reduction) -> bool:
    """Whether the reduction adds rounded values.

    Errors of sums grow with the length of the chain, those of products with the number of factors in any order. Maxima,
    choices and integers round nothing.
    """
    nodes = (node for value in reduction.combiner.combine for node in walk(value))
    return any(isinstance(node, Binary) and node.op in ("add", "sub") and is_float(node.dtype) for node in nodes)


def flush_depths(stage: Stage, reduction: Reduction) -> tuple[int, ...]:
    """The depths inside ``at_loop`` at which accumulators of the reduction start anew."""
    return stage.accumulator.flush if stage.accumulator.flush and adds(reduction) else ()


def chain_lengths(stage: Stage) -> tuple[int, ...]:
    """Terms that one accumulator adds up, innermost level first.

    Where partial results wait in the output, the number of passes that add to it comes last.
    """
    first = sum(loop.kind in (GRID, *PARALLEL) for loop in stage.loops)
    start = max(stage.accumulator.at_loop, first)
    ends = (len(stage.loops), *reversed(stage.accumulator.flush), start)
    levels = [chained(stage, range(begin, end)) for end, begin in pairwise(ends)]
    return (*levels, chained(stage, range(first, start))) if stage.accumulator.carry else tuple(levels)


LONGEST = 8192
"""Terms of the longest chain that any program should have: with threads, where a second register tile costs occupancy,
GPU libraries add up as many and more."""


def added_terms(stage: Stage) -> int:
    """The length of a chain whose error bounds that of the stage's sums.

    The chains of all levels follow each other; those of lanes and threads are halved again and again. A chain beyond
    `LONGEST` counts as one of that length: what a program that has one loses is an error of its own.
    """
    lanes = prod(loop.extent for loop in stage.loops if loop.kind in (LANE, *PARALLEL) and _reduces(stage, loop))
    separate = prod(stage.loops[p].extent for p in stage.accumulator.separate)
    multiplied = stage.op.multiplied
    rounded = in_a_word(multiplied[0]) if multiplied else 1  # sums, by each of the products in a word
    longest = max(chain_lengths(stage)) if stage.op.scans else LONGEST  # prefixes are added up one after the other
    chains = sum(min(rounded * length, longest) for length in chain_lengths(stage))
    return chains + separate - 1 + (lanes - 1).bit_length()


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


def in_order(stage: Stage, reduction: Reduction) -> Combiner | None:
    """`combiner_in_order`, where each accumulator's terms come in the order of their places: its loops stand by falling
    stride."""
    own = [x.stride for p, x in enumerate(stage.loops) if x.axis in reduction.axes and is_chained(stage, p, x)]
    return combiner_in_order(reduction) if own == sorted(own, reverse=True) and not stage.op.scans else None


@dataclass(frozen=True, slots=True)
class PanelPart:
    """The loops that share out the prefetching of a panel, by position.

    ``inner``: a serial loop between the panels and the steps of the reduction, whose iterations share the vectors of a
    step, so many ``each``. ``vectors``: the unrolled loops over these. ``depth``: where a step begins.
    """

    inner: int
    vectors: tuple[int, ...]
    depth: int
    each: int


def panel_part(stage: Stage) -> PanelPart | None:
    """How the iterations inside a loop that is prefetched share the next panel; None: as rows are fetched.

    Of the one reduction of a stage whose accumulators lie inside serial loops along two axes and whose steps are
    serial: at each step every iteration of the inner of them asks for as many vectors, of all that are written out, as
    make up all of it.  Vectors lie along the axis of the outer, or along the reduction: then a panel is as many rows,
    all of which are asked for by every iteration, for what is asked for while too much is in flight is dropped.  (One
    core of a Zen 4, none, each row once, each by all: 8 rows times 4096 rows of 4096 7.7, 4.9, 4.0 ms, 16 times 3072 of
    768 1.10, .71, .73 ms.)"""
    p, reductions = stage.prefetch, stage.op.reductions
    if p < 0 or len(reductions) != 1:
        return None
    axis = stage.loops[p].axis
    roles = {one.name: one.role for one in stage.op.axes}
    spatial = [q for q, loop in enumerate(stage.loops) if roles[loop.axis] == "spatial" and loop.kind not in PARALLEL]
    inner = [q for q in spatial if p < q < stage.accumulator.at_loop and stage.loops[q].kind == SERIAL]
    vectors = [q for q in spatial if stage.loops[q].axis == axis and stage.loops[q].kind == UNROLL]
    lanes = [loop for loop in stage.loops if loop.kind == LANE and (loop.axis == axis or roles[loop.axis] == "reduce")]
    steps = [q for q, loop in enumerate(stage.loops) if roles[loop.axis] == "reduce" and loop.kind == SERIAL]
    if len(inner) != 1 or len(vectors) != 1 or len(lanes) != 1 or not steps or stage.loops[inner[0]].axis == axis:
        return None
    depth = max(steps) + 1
    if not stage.accumulator.at_loop < depth <= vectors[0]:
        return None
    inside = range(depth, len(stage.loops))
    written_out = [q for q in inside if stage.loops[q].kind == UNROLL and roles[stage.loops[q].axis] == "reduce"]
    count, tiles = prod(stage.loops[q].extent for q in (*written_out, *vectors)), stage.loops[inner[0]].extent
    each = -(-count // tiles) if lanes[0].axis == axis else count
    return PanelPart(inner[0], (*written_out, *vectors), depth, each)


def shared_panels(stage: Stage) -> tuple[int, ...]:
    """The loads, by number, of panels along the lanes, or of rows along a reduction's lanes, that tiles of another axis
    share, one after the other."""
    lane, copied = stage.loops[-1] if stage.loops else None, {copy.load for copy in stage.copies}
    if lane is None or lane.kind != LANE or len(stage.op.of_role("reduce")) != 1:
        return ()
    inside = stage.loops[: stage.accumulator.at_loop]
    tiled = {one.axis for one in inside if one.kind == SERIAL and stage.op.axis(one.axis).role == "spatial"}
    return tuple(
        number for number, load in enumerate(stage.op.loads())
        if number not in copied and _along(stage, load, lane.axis) and not tiled <= load.axes()
    )  # fmt: skip


def _along(stage: Stage, load: Load, lane: str) -> bool:
    """Whether the load's vectors are those of a panel, or lie along a row of a reduction."""
    rows = stage.op.axis(lane).role == "reduce" and bool(load.indices) and load.indices[-1] == Index.axis(lane)
    return rows or is_in_panels(load, lane)


def prefetched_loads(stage: Stage, used: Iterable[Load]) -> tuple[Load, ...]:
    """The loads of the last reduction whose next element is prefetched.

    They change with the loop that is prefetched and, of a panel, with no loop inside its step but those over its
    vectors.
    """
    axis, part = stage.loops[stage.prefetch].axis, panel_part(stage)
    behind = () if part is None else [q for q in range(part.depth, len(stage.loops)) if q not in part.vectors]
    inside = {stage.loops[q].axis for q in behind if stage.loops[q].kind != LANE}
    return tuple(load for load in used if axis in load.axes() and not inside & set(load.axes()))


def asks_for_tile(stage: Stage) -> bool:
    """Whether what is prefetched of the output (`Store.prefetch_distance`) is where a register tile's results will be
    written, when the last block of its sums begins."""
    asks = bool(np.any(stage.store.prefetch_distance)) and bool(stage.accumulator.flush)
    return asks and not stage.op.of_role("row")


def block_loops(stage: Stage) -> tuple[int, ...]:
    """The loops over the innermost blocks of a tile's sums, by position."""
    blocks = range(stage.accumulator.at_loop, stage.accumulator.flush[-1])
    return tuple(p for p in blocks if stage.loops[p].kind == SERIAL)


AHEAD_BYTES = 8192
"""How far ahead of their use lines are asked for along a reduction: beyond the page at whose end prefetchers of the
hardware stop.  A row times 4096 x 4096 weights in words, four lines a step, on one core of a Zen 4: 798 us without, 740
with 1 KB, 622 with 2, 608 with 4.  Cold weights of 3 x 3 convolutions on one core of a Zen 5, us without, with 2, 4, 8
and 16 KB: 256 channels at 14 x 14 1283, 1160, 1100, 1070, 1070, 512 at 7 x 7 3600, 2000, 1890, 1810, 1920."""


def prefetches_lines(stage: Stage) -> bool:
    """Whether the loop to prefetch is one of a reduction, each iteration of which asks for what later ones read."""
    return stage.prefetch >= 0 and stage.op.axis(stage.loops[stage.prefetch].axis).role == "reduce"


def prefetched_lines(stage: Stage) -> tuple[tuple[Load, int], ...]:
    """(load, iterations) of what is asked for so many iterations ahead: panels that are read once, or at the taps of
    windows, of which each iteration of the loop to prefetch reads several lines, all behind those of the one before;
    and rows of a matrix.

    Hardware follows single lines by itself: the scales of those weights asked for, too, took 705 us.
    """
    if rows := next_rows(stage):
        return tuple((load, 1) for load in rows)
    loop, lane = stage.loops[stage.prefetch], stage.loops[-1]
    copied = {copy.load for copy in stage.copies}
    found: dict[str, list[Load]] = {}
    for number, load in enumerate(stage.op.loads()):
        if number not in copied and lane.kind == LANE and is_in_panels(load, lane.axis):
            found.setdefault(load.buffer.name, []).append(load)
    asked: list[tuple[Load, int]] = []
    for some in found.values():
        size = ITEMSIZE[some[0].dtype]
        inside = [one for one in stage.loops[stage.prefetch + 1 :] if one.axis in some[0].axes()]
        read = len(some) * prod(one.extent for one in inside) * size
        step = some[0].offset().coefficient(loop.axis) * loop.stride * size
        once = all(loop.axis in some[0].axes() for loop in stage.loops if loop.kind == SERIAL)
        taps = asking_depth(stage) > stage.prefetch + 1
        if (once or taps) and np.all(read == step) and np.all(step >= 2 * LINE_BYTES):  # of a program, or of a batch
            asked += [(load, -(-AHEAD_BYTES // step)) for load in some]
    return tuple(asked)


def next_rows(stage: Stage) -> tuple[Load, ...]:
    """The loads of rows of a matrix, of which an iteration of the loop to prefetch walks a few side by side to their
    ends, and asks at each place for what the next one reads there.

    Hardware's prefetchers begin anew with each page of each row.  (A row times 4096 x 4096 on one core of a Zen 4, us:
    eight rows at once 2716, so asked for 2302, 1 KB ahead in their rows 2315; times 11008 x 4096 7255, 6558, 6670.)
    """
    p, lane = stage.prefetch, stage.loops[-1]
    inside = {loop.axis for loop in stage.loops[p + 1 : stage.accumulator.at_loop] if loop.kind == SERIAL}
    if p >= stage.accumulator.at_loop or lane.kind != LANE or not inside or stage.loops[p].axis in inside:
        return ()
    copied = {copy.load for copy in stage.copies}
    serial = {loop.axis for loop in stage.loops if loop.kind == SERIAL}
    return tuple(
        load for number, load in enumerate(stage.op.loads())
        if number not in copied and serial <= load.axes() and not is_in_panels(load, lane.axis)
        and load.offset().coefficient(lane.axis) == 1
    )  # fmt: skip


def asking_depth(stage: Stage) -> int:
    """The depth inside all serial loops, where lines are asked for along a reduction."""
    return 1 + max(p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL)


def asks_near(stage: Stage, load: Load) -> bool:
    """Whether the load's lines are asked for into the first cache.  Rows that lie 4 KB apart fall into few of its sets:
    where several are read, lines asked for would drive them out, and go to the second cache.  The next rows of a matrix
    wait there for their pass, too (6.6 ms by way of it, 9.8 of the first).

    (One core of a Zen 4, lines 4 KB ahead: 8 rows times 4096 x 4096 take 2.9 ms by way of the second cache, 5.7 by way
    of the first; one row times 4096 x 11008 weights in words 1.70 and 1.51.)

    The next panel goes by way of the first cache, as a Zen 5 may drop what is asked for into the second alone.  (One
    core, cold weights, us by way of the second and the first: 3 x 3 of 256 channels at 14 x 14 970 or 1150, from one
    process to the next, and 980; 32 x 1024 x 4096 1260 and 1235, 128 x 768 x 3072 2475 and 2470.)"""
    if panel_part(stage) is not None:
        return is_in_panels(load, stage.loops[-1].axis)
    axes = {loop.axis for loop in stage.loops if loop.kind == UNROLL}
    shared = all(axis in load.axes() for axis in axes if stage.op.axis(axis).role == "spatial")
    return shared and load not in next_rows(stage)


def line_loops(stage: Stage, load: Load) -> tuple[int, ...]:
    """The unrolled loops inside that to prefetch, by position, each iteration of which reads the load elsewhere."""
    inside = range(stage.prefetch + 1, len(stage.loops))
    return tuple(p for p in inside if stage.loops[p].kind == UNROLL and stage.loops[p].axis in load.axes())


def prefetched_takes(stage: Stage) -> tuple[Take, ...]:
    """The takes of a stage without reductions that read elsewhere in the next iteration of the loop to prefetch."""
    axis = stage.loops[stage.prefetch].axis
    return tuple(take for take in takes(stage.op.result) if axis in axes_of(take))


LINE_BYTES = 64
"""Of the first cache of most CPUs, which alone prefetch takes; longer lines are asked for more than once."""


def asked_lanes(stage: Stage, take: Take) -> range:
    """The lanes at whose places a take is prefetched: one of each line, where they follow each other; every second one,
    where each has an id of its own.  Ids of neighbours often name one line: of 256 of a row of 64 lines on Zen 4, all
    lanes' places prefetched take .83 of the time without, every second one's .79, every fourth one's .93."""
    lane = stage.loops[-1]
    if lane.kind != LANE:
        return range(1)
    return range(0, lane.extent, 2 if ids_by_lane(stage, take) else LINE_BYTES // ITEMSIZE[take.dtype])


def ids_by_lane(stage: Stage, take: Take) -> bool:
    """Whether each lane of a stage that has lanes takes by an id of its own."""
    return any(stage.loops[-1].axis in axes_of(value) for value in take.ids)


OVERLAP = "overlap"


def tile_of(stage: Stage, axis: str) -> tuple[int, int]:
    """(depth inside all loops that say where a tile of `axis` begins, points of the tile along it).

    The tile is that of the unrolled and lane loops."""
    own = [(p, loop) for p, loop in enumerate(stage.loops) if loop.axis == axis]
    depth = 1 + max((p for p, loop in own if loop.kind not in (UNROLL, LANE)), default=-1)
    return depth, prod(loop.extent for _, loop in own if loop.kind in (UNROLL, LANE))


def scan_step(stage: Stage) -> int:
    """The depth inside the serial loops of a scan: where one step along its row, of the rows side by side, begins."""
    at_loop = stage.accumulator.at_loop
    return 1 + max((p for p, _ in stage.of_kind(SERIAL) if p >= at_loop), default=at_loop - 1)
