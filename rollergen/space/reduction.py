"""The tiles of reductions without operand reuse, and of rows that are reduced and read again: rows of a block, and
threads, vectors and chains along a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import ceil_div, copy_vector
from rollergen.program.assemble.plan import InnerProductPlan, ReductionPlan, Size
from rollergen.program.layers import REGISTERS
from rollergen.program.rprogram import LANE, SERIAL, THREAD, UNROLL
from rollergen.space.counts import POWERS, item_counts, least_threads, power_below, private_limit, thread_counts
from rollergen.space.engine import Digit, Rule, Tally, TileSpace, joint, limit, plans
from rollergen.space.rules import LONGER, UNROLLED, aligned_tiles
from rollergen.space.rules import REGISTERS as REGISTER_LIMIT
from rollergen.tile.rules import (
    AlignmentRules,
    contiguous_axis,
    padding_waste,
    vector_lanes,
)

_STEP = "lanes vector chains threads"
"""The digits of one step along a row."""


class _Line:
    """The axis that threads share out (the last reduced one, or a row's last), and the axis of rows outside it."""

    def __init__(self, op: TensorOp, device: Device, rules: AlignmentRules, *roles: str) -> None:
        self.op, self.device, self.rules = op, device, rules
        self.axis = op.of_role(*roles)[-1]
        spatial = op.of_role("spatial")
        self.across, self.rows = (spatial[-1].name, spatial[-1].extent) if spatial else ("", 1)
        lanes = vector_lanes(device, accumulator_dtype(op))
        self.lanes = min(lanes, power_below(self.axis.extent))

    def space(
        self, pairs: Iterable[tuple[int, int]], vectors: Sequence[int], chains: Sequence[int],
        limits: Iterable[Rule] = (), lanes: int = 1, turns: Callable[[int], Iterable[int]] = lambda threads: (1,),
    ) -> TileSpace:  # fmt: skip
        """The space of these choices.

        ``pairs``: rows side by side in a block, and threads of each. ``turns``: how many rows a block of so many
        threads a row may compute one after the other.
        """
        along = self.axis.name
        digits = (
            Digit("lanes", along, LANE, (lanes,)),
            *joint(("row_threads", self.across, THREAD), ("threads", along, THREAD), pairs),
            Digit("vector", along, UNROLL, vectors),
            Digit("chains", along, UNROLL, chains),
            Digit("rows", self.across, SERIAL, turns, of=("threads",)),
        )
        return TileSpace(self.op, self.device, self.rules, digits, tuple(limits))

    def not_longer(self, vectors: Sequence[int], least: int) -> Rule:
        """The limit that no step covers the axis twice; the ``least`` threads and vector stay, however short the axis
        is."""

        def allowed(lanes: Size, vector: Size, chains: Size, threads: Size) -> Any:
            smallest = (threads == least) & (vector * chains == vectors[0])
            return smallest | (threads * vector * lanes * chains <= 2 * self.axis.extent)

        return limit(LONGER, _STEP, allowed)

    def vectors(self, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of adjacent elements that a thread takes at once.

        Where threads exchange registers, scalar threads fetch vectors of 16 bytes: as many as all operands along the
        axis allow.
        """
        if self.lanes > 1:
            return (1,)
        if not self.device.kind.exchanges:
            return otherwise
        along = [load for load in self.op.loads() if contiguous_axis(load) == self.axis.name]
        if not along:
            return (1,)
        most = 16 // max(ITEMSIZE[load.dtype] for load in along)
        return (min(most, max(copy_vector(self.op, load, self.axis.name, most) for load in along)),)

    def together(self) -> Iterator[tuple[int, int]]:
        """Pairs of (rows side by side, threads of each) whose threads exchange registers.

        A row has an execution width or less, a block four or eight widths.
        """
        if self.device.kind.exchanges:
            for threads in (widths * self.device.execution_width for widths in (4, 8)):
                for per_row in (count for count in POWERS if 4 <= count <= self.device.execution_width):
                    if threads // per_row <= self.rows and threads <= self.device.limits.threads_per_block:
                        yield threads // per_row, per_row


def reduction_plans(
    op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally, *, brief: bool = False
) -> list[ReductionPlan]:
    """Threads, vectors and chains along the reduce axis, or several rows side by side.  ``brief``: blocks
    of one middling size only (for the parts of a split reduction, whose number varies instead)."""
    line = _Line(op, device, rules, "reduce")
    counts, vectors, least = thread_counts(device, 512), line.vectors((1, 4)), least_threads(device, rules)
    if brief and len(counts) > 2:
        counts, least = counts[-2:-1], counts[-2]
    turns = lambda threads: item_counts(device, line.rows)[:8] if threads == 1 else (1,)
    chains = (1, 2, 4, 8) if line.lanes > 1 else (1, 4)
    alone = [(1, threads) for threads in counts]
    spaces = [line.space(alone, vectors, chains, [line.not_longer(vectors, least)], line.lanes, turns)]
    if not brief:
        apart = [(rows, t // rows) for t in counts if t > 1 for rows in (2, 8, 32) if rows <= min(t, line.rows)]
        spaces.append(line.space(apart, (1,), (1,), lanes=line.lanes))
        spaces.append(line.space(line.together(), vectors, (1, 2, 4), [line.not_longer(vectors, least=0)]))
    return [plan for space in spaces for plan in plans(ReductionPlan, aligned_tiles(space, tally))]


_SIDES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Outputs of a tile of inner products along one axis."""

_MOST_IDLE = 1 / 8
"""Outputs of tiles that lie beyond an axis are at most this share of those on it: 6 tiles of 3 may hold 17 rows."""


def inner_product_plans(
    op: TensorOp, rows: str, columns: str, device: Device, rules: AlignmentRules, tally: Tally
) -> list[InnerProductPlan]:
    """Tiles of more than one output, that cover both axes with few idle outputs, whose accumulators fit the registers
    beside a vector of each row and one of a column."""
    last = op.of_role("reduce")[-1]
    lanes = min(vector_lanes(device, accumulator_dtype(op)), power_below(last.extent))
    sides = lambda axis: [side for side in _SIDES if padding_waste(op.axis(axis).extent, side) <= _MOST_IDLE]
    count = lambda tile: item_counts(device, ceil_div(op.axis(rows).extent, tile))[:8]
    digits = (
        Digit("lanes", last.name, LANE, (lanes,)),
        Digit("row_tile", rows, UNROLL, sides(rows)),
        Digit("column_tile", columns, UNROLL, sides(columns)),
        Digit("chains", last.name, UNROLL, (1, 2)),
        Digit("rows", rows, SERIAL, count, of=("row_tile",)),
    )
    registers = device.limits.registers_per_thread
    held = lambda rows, columns, chains: op.components * rows * columns * chains + np.minimum(rows, columns) + 1
    tiles = "row_tile column_tile chains"
    limits = (
        limit(REGISTER_LIMIT, tiles, lambda *tile: held(*tile) <= registers),
        limit(LONGER, "row_tile column_tile", lambda rows, columns: rows * columns > 1),
    )
    space = TileSpace(op, device, rules, digits, limits)
    return list(plans(InnerProductPlan, aligned_tiles(space, tally)))


def row_plans(
    op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally
) -> Iterator[ReductionPlan]:
    """Plans of a row stage: threads or lanes along the row.

    Rows are kept in registers where a thread's share is small. Where a block is one thread, they are kept in the output
    if it has place for them, else in a private array.
    """
    if bool(op.of_role("row")) and op.axes[-1].role == "spatial":
        yield from _rows_apart(op, device, rules, tally)
    line = _Line(op, device, rules, "row", "reduce")
    single, vectors = not device.kind.threads, line.vectors((1, 2, 4))

    def unrolled(lanes: Size, vector: Size, chains: Size, threads: Size) -> Any:
        in_registers = _share(op, threads, vector, lanes) <= _most_kept(device)
        return (chains == 1) | single | (device.kind.exchanges & ~in_registers)

    pairs = [*((1, threads) for threads in thread_counts(device)), *line.together()]
    limits = [line.not_longer(vectors, least_threads(device, rules)), limit(UNROLLED, _STEP, unrolled)]
    turns = lambda threads: item_counts(device, line.rows)[:6] if single else (1,)
    space = line.space(pairs, vectors, (1, 2, 4), limits, line.lanes, turns)
    for plan in plans(ReductionPlan, aligned_tiles(space, tally)):
        for layer in _kept_in(op, plan, device, rules):
            yield replace(plan, kept_in=layer)


def _kept_in(op: TensorOp, plan: ReductionPlan, device: Device, rules: AlignmentRules) -> list[str]:
    """Layers in which a row's values may be kept between the passes over it; "": they are computed again."""
    registers = rules.shapes.rows_in_registers
    if device.kind.threads:
        if not registers or _share(op, plan.threads, plan.vector, plan.lanes) > _most_kept(device):
            return [""]
        return [REGISTERS] if device.kind.exchanges else ["", REGISTERS]
    if fills_output(op):
        return ["", device.backing.name]
    size = ITEMSIZE[accumulator_dtype(op)]
    kept_bytes = size * prod(axis.extent for axis in op.of_role("row", "reduce"))
    return ["", device.layers[1].name] if kept_bytes <= private_limit(device) else [""]


def _rows_apart(
    op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally
) -> Iterator[ReductionPlan]:
    """Rows whose elements lie apart, as an axis of rows comes last: neighbouring threads take neighbouring rows."""
    line = _Line(op, device, rules, "row")
    pairs = [
        (rows, threads // rows)
        for threads in thread_counts(device)
        for rows in POWERS
        if rows <= min(threads, 2 * line.rows) and threads % rows == 0 and threads // rows <= 2 * line.axis.extent
    ]
    for plan in plans(ReductionPlan, aligned_tiles(line.space(pairs, (1,), (1,)), tally)):
        kept = rules.shapes.rows_in_registers and _share(op, plan.threads, 1, 1) <= _most_kept(device)
        yield replace(plan, kept_in=REGISTERS if kept else "")


def _share(op: TensorOp, threads: Size, vector: Size, lanes: Size) -> Size:
    """Elements of a row that one thread has."""
    *outside, last = op.of_role("row", "reduce")
    return ceil_div(last.extent, threads * vector * lanes) * vector * prod(axis.extent for axis in outside)


def _most_kept(device: Device) -> int:
    """Elements of a row that a thread may keep: a quarter of its registers where these are all that it has."""
    return (device.limits.registers_per_thread + 1) // 4 if device.kind.exchanges else 32


def fills_output(op: TensorOp) -> bool:
    """Whether every point of the row has a place of its own in an output as wide as the arithmetic."""
    places = {axis for index in op.target for axis in index.axes()}
    rows = {axis.name for axis in op.of_role("row")}
    return bool(rows) and rows <= places and op.output.dtype == accumulator_dtype(op)
