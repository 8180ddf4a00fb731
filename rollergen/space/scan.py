"""The tiles of scans: rows side by side, and threads and elements of a step along each."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import ceil_div, lane_stride
from rollergen.program.assemble.plan import ScanPlan
from rollergen.program.assemble.scan import row_axis
from rollergen.program.model.memory import stride_sets
from rollergen.program.rprogram import LANE, SERIAL, THREAD, UNROLL
from rollergen.space.counts import POWERS, least_threads, power_below, thread_counts
from rollergen.space.engine import Digit, Rule, Tally, TileSpace, joint, limit, plans
from rollergen.space.rules import CACHE_SET, LONGER, REGISTERS, aligned_tiles
from rollergen.tile.rules import AlignmentRules, vector_lanes

_MOST_AT_ONCE = 64
"""Prefixes of one step that a thread has in registers."""


def scan_plans(op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally) -> Iterator[ScanPlan]:
    """One thread a row, rows side by side on threads or lanes; where a block has threads, rows that they share too."""
    side, (row,) = row_axis(op), op.of_role("row")
    rows = op.axis(side).extent if side else 1
    counts, most = thread_counts(device), power_below(rows)
    lanes = _lanes(op, side, device, rows)
    least = least_threads(device, rules)
    alone = [(count, 1) for count in counts if count <= max(2 * rows, least)]
    together = [
        (per_block, count // per_block) for count in counts for per_block in (1, 2, 4, 8, 16, 32)
        if count > per_block <= most and count // per_block <= 2 * row.extent
    ]  # fmt: skip
    at_once = [count for count in (1, 2, 4, 8) if count <= most]
    steps = [count for count in (1, 2, 4, 8, 16) if count <= row.extent]
    for width in lanes:
        across = _beside(op, device, rows, width) if width > 1 else [1]
        yield from _plans(op, device, rules, tally, side, alone, across, at_once, steps, width)
    if together:
        yield from _plans(op, device, rules, tally, side, together, [1], [1], steps, 1)


def _plans(
    op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally, side: str, pairs: list[tuple[int, int]],
    across: list[int], rows: list[int], steps: list[int], lanes: int,
) -> list[ScanPlan]:  # fmt: skip
    (row,) = op.of_role("row")
    beside = op.axis(side).extent if side else 1
    digits = (
        Digit("lanes", side, LANE, (lanes,)),
        *joint(("row_threads", side, THREAD), ("threads", row.name, THREAD), pairs),
        Digit("across", side, SERIAL, across),
        Digit("rows", side, UNROLL, rows),
        Digit("vector", row.name, UNROLL, steps),
    )
    least = least_threads(device, rules)
    limits = (
        _cache_set(op, row.name, device),
        limit(REGISTERS, "rows vector", lambda rows, vector: rows * vector <= _MOST_AT_ONCE),
        limit(LONGER, "across rows", lambda across, count: (across - 1) * count * lanes < beside),
        limit(LONGER, "threads vector", lambda count, vector: (count <= least) | (count * vector <= 2 * row.extent)),
    )
    space = TileSpace(op, device, rules, digits, limits)
    return plans(ScanPlan, aligned_tiles(space, tally))


def _cache_set(op: TensorOp, row: str, device: Device) -> Rule:
    """Where lanes are rows that lie side by side, one step reads and writes lines of several places along them.  Those
    of one set of the first cache are no more than its ways, else stores evict what is prefetched (measured on Zen 4:
    `cumsum` of 1024 x 1024 along 0 takes 113 us in steps of 4, 8 or 16 lines of a set of 8 ways cost up to 2.3 times as
    much, by how far the arrays lie apart)."""
    first, accesses = device.layers[1], (*op.loads(), op.stored())
    apart = [abs(lane_stride(one, row) or 0) * ITEMSIZE[one.dtype] for one in accesses]
    sets = [stride_sets(each, first.sets, first.transaction_bytes) for each in apart if each and first.ways]
    lines = lambda steps: sum(ceil_div(steps, each) for each in sets)
    return limit(CACHE_SET, "lanes vector", lambda lanes, steps: (lanes == 1) | (lines(steps) <= first.ways))


def _beside(op: TensorOp, device: Device, rows: int, lanes: int) -> list[int]:
    """How many vectors of rows one step along them may walk across, so that lines are read and written on: what is
    carried along them stays in half of the first cache."""
    carried = sum(ITEMSIZE[body.dtype] for reduction in op.reductions for body in reduction.bodies)
    most = device.layers[1].capacity_bytes // (2 * lanes * carried)
    return [count for count in POWERS if count <= min(most, ceil_div(rows, lanes))]


def _lanes(op: TensorOp, side: str, device: Device, rows: int) -> list[int]:
    """Widths of vectors across rows: where rows lie side by side in every array."""
    widest = min(vector_lanes(device, accumulator_dtype(op)), power_below(rows))
    beside = all(lane_stride(load, side) in (0, 1) for load in (*op.loads(), op.stored())) if side else False
    own = beside and any(lane_stride(load, side) == 1 for load in (op.stored(),)) and not op.takes()
    return sorted({1, widest, max(1, widest // 2)}, reverse=True) if own and not device.kind.threads else [1]
