"""Misses that nothing hides: long column walks past the prefetchers, and translation buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollergen.hal.spec import Device
from rollergen.program.loops import panel_part, prefetched_lines, prefetched_loads, prefetches_lines, shared_panels
from rollergen.program.model.access import turns_alone
from rollergen.program.model.costs import Costs
from rollergen.program.model.limiters.limit import ADDS, Limit
from rollergen.program.model.memory import Stream, stride_sets, tlb_cache
from rollergen.program.model.nest import Nest, Waves
from rollergen.program.model.numeric import Number, choose, least, most
from rollergen.program.model.reuse import ReuseBySize
from rollergen.program.model.tiles import tile_shape
from rollergen.program.model.work import Work
from rollergen.tile.rules import as_slow_as_memory


def exposed_misses(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves, reuse: ReuseBySize, instructions: Number,
    misses: dict[str, list[Number]],
) -> list[Limit]:
    """Clocks that no overlap hides: long column walks past the prefetchers, and translation misses."""
    found: list[Limit] = []
    if not costs.walk_clocks and not device.tlbs:
        return found
    asked = _asked_for(nest)
    per_step = instructions / most(work.steps, 1) + 2 * work.spilled if work.reduces else 2 * work.spilled + 4
    if costs.walk_clocks:
        squares = {copy.load: turns_alone(nest, copy, tile_shape(nest, copy, block=True)) for copy in nest.stage.copies}
        panels = shared_panels(nest.stage) if costs.walk_panel_clocks else ()
        clocks = _column_walks(device, costs, work, reuse, per_step, misses, squares, panels, asked)
        if costs.walk_piece_clocks and not work.reduces:
            clocks = clocks + _pieces_of_rows(device, costs, work, reuse, misses[device.backing.name])
        found.append(("column walks", waves.per_unit * clocks, ADDS))
    for number, tlb in enumerate(device.tlbs):
        clocks = 0
        fetched = reuse.of_line(tlb.page_bytes).fetched(tlb_cache(tlb), costs)
        for stream, pages in zip(work.streams, fetched, strict=True):
            clocks = clocks + (0 if stream.load in asked else pages * tlb.miss_clocks)
        if number and costs.miss_buffers:
            clocks = clocks * costs.miss_buffers / least(costs.miss_buffers, costs.miss_window / per_step)
        found.append((f"tlb {number + 1}", waves.per_unit * clocks, ADDS))
    return found


def _asked_for(nest: Nest) -> set[int]:
    """Numbers of the loads whose lines, and so their pages, are asked for ahead of their use."""
    stage, found = nest.stage, nest.stage.op.loads()
    if stage.prefetch >= 0 and prefetches_lines(stage):
        return {found.index(load) for load, _ in prefetched_lines(stage)}
    return set() if panel_part(stage) is None else {found.index(load) for load in prefetched_loads(stage, found)}


def _column_walks(
    device: Device, costs: Costs, work: Work, reuse: ReuseBySize, per_step: Number, misses: dict[str, list[Number]],
    squares: dict[int, Number], panels: tuple[int, ...], asked: set[int],
) -> Number:  # fmt: skip
    """Exposed clocks of one block: operands walked down a column whose stride reaches few sets of the first cache;
    tensors beyond the caches that a reduction reads, or writes tile by tile, in more rows at once than prefetchers
    follow; and short pieces of so many rows that it reads, each line of which takes its time from the outer cache,
    whatever is computed meanwhile (copies were measured without: their stores take longer).  An array of a thread's
    own is walked from end to end; loads that are ``asked`` for are prefetched.
    The rows of ``squares`` that are turned in registers are asked for together, and those of the next one behind them,
    whatever their stride (784 x 256 on Zen 4: 6.3 clocks a line in all, 25 with its walk).  Loads that together leave
    no gap between their rows (words of a group of weights, each a load) read lines in a row: nothing is walked (2.4 us
    for each of 688 panels of 4096 x 16 nibbles on Zen 4, 35 with walks).  Of ``panels`` that tiles share the first
    tile waits for each line."""
    caches = device.caches
    first = caches[0]
    outer = [x for x in caches if x.scope == "device"]
    waits = device.backing.bytes_per_clock < first.bytes_per_clock  # not a memory that is taken to cost nothing
    slow = bool(outer) and waits and as_slow_as_memory(outer[-1], device)
    near_bytes = max((x.capacity_bytes for x in caches if not (slow and x is outer[-1])), default=0)
    beyond = misses[(outer[0] if outer else device.backing).name]
    per_line = reuse.of_line(first.transaction_bytes)
    total: Number = 0
    for i, stream in enumerate(work.streams):
        if stream.fills or stream.array >= 0 or stream.load in asked:
            continue
        far: Number = stream.operand.bytes * 2 > near_bytes if outer else False
        rate = choose(far, costs.walk_far_clocks, costs.walk_clocks)
        worst: Number = costs.walk_panel_clocks if stream.load in panels else 0
        beside = _read_beside(work.streams, stream)
        for tile in per_line.columns(i):
            segment = most(tile.segment / first.transaction_bytes, 1)
            reached = stride_sets(tile.stride, first.sets, first.transaction_bytes)
            gaps: Number = True
            for bytes_, streams in beside:
                gaps = gaps & ((bytes_ > tile.stride) | (tile.segment * streams < tile.stride))
            exposed = (tile.rows > costs.walk_rows) & (reached <= costs.walk_sets)
            if costs.walk_far_rows and work.reduces:
                exposed = exposed | (far & (tile.rows > costs.walk_far_rows))
            fewer = costs.miss_buffers / least(costs.miss_buffers, costs.miss_window / per_step * segment)
            clocks = choose(exposed & gaps, rate / segment * fewer, 0)
            if outer and outer[0].bytes_per_clock and costs.walk_short_lines and work.reduces and stream.load >= 0:
                short = (tile.rows > costs.walk_far_rows) & (segment <= costs.walk_short_lines)
                clocks = most(clocks, choose(short & gaps, first.transaction_bytes / outer[0].bytes_per_clock, 0))
            clocks = choose(squares.get(stream.load, False), 0, clocks)
            worst = most(worst, clocks.max(axis=0) if np.ndim(clocks) == 2 else clocks)
        total = total + beyond[i] * worst
    return total


def _pieces_of_rows(device: Device, costs: Costs, work: Work, reuse: ReuseBySize, lines: list[Number]) -> Number:
    """Exposed clocks of one block that sums nothing, of the ``lines`` that each stream reads from memory.

    Where a stream reads a piece of each of more rows than prefetchers follow, one row after the other, they begin anew
    with each piece, and with each page.  (Stores past the caches wait for nothing, wherever they go: rows of 64
    elements, 50 MB, take 2.7 ms on a Zen 4 as they are written, 1.0 as they are read.)"""
    page = min((tlb.page_bytes for tlb in device.tlbs), default=0)
    per_line = reuse.of_line(device.backing.transaction_bytes)
    total: Number = 0
    for i, stream in enumerate(work.streams):
        if stream.fills or stream.array >= 0 or stream.load < 0:
            continue
        for tile in per_line.columns(i, blocks=True):
            first = costs.walk_far_clocks * device.backing.transaction_bytes / tile.segment
            clocks = most(least(first, costs.walk_far_clocks), costs.walk_piece_clocks * least(1, page / tile.segment))
            clocks = choose(tile.rows > costs.walk_far_rows, clocks, 0)
            total = total + lines[i] * (clocks.max(axis=0) if np.ndim(clocks) == 2 else clocks)
    return total


def _read_beside(streams: Sequence[Stream], one: Stream) -> list[tuple[int, int]]:
    """(bytes, streams) of each dimension in which the operand has a fixed position: those of the whole dimension, and
    how many streams read the buffer at the same places but for that position."""
    operand, found = one.operand, []
    for dim, index in enumerate(operand.indices):
        if index.terms:
            continue
        elsewhere = operand.indices[:dim], operand.indices[dim + 1 :]
        positions = {
            other.indices[dim]
            for other in (stream.operand for stream in streams)
            if other.buffer.name == operand.buffer.name
            and (other.indices[:dim], other.indices[dim + 1 :]) == elsewhere
            and not other.indices[dim].terms
        }
        found.append((operand.strides[dim] * operand.buffer.shape[dim], len(positions)))
    return found
