"""Long sums cut into blocks: serial loops are split in two, and the program says where accumulators start anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import ceil_div, is_batch, larger
from rollergen.program.assemble.plan import Size
from rollergen.program.loops import adds, is_chained
from rollergen.program.rprogram import GRID, PARALLEL, SERIAL, Loop, Stage

LATER = 16
"""Sums of blocks that are added up one after the other: few, as adding them costs next to nothing."""

STREAMED, STREAMED_BY_THREADS = 16, 64
"""Terms of a reduction without reuse in one chain.  Equal terms err by .08 units each on average, .16 at most, so that
16 and three to five levels of 16 behind them stay within 4 units in the last place, as pairwise sums do.  A block's sum
costs an addition for each of its chains: a sixteenth of those that a memory-bound loop has time for anyway."""

MULTIPLIED, MULTIPLIED_BY_THREADS = 256, 8192
"""Products of a contraction in one chain.  On CPUs as many as the libraries' (oneMKL and OpenBLAS add up 256 to 384);
after 128, putting a register tile of them where the compiler finds room would take a hundredth of the time.  (One core
of a Zen 5, time with 128 over that with 256: 128 x 3072 to 768 1.05, 128 x 4096 x 4096 1.03, 1024^3 1.00; convolutions,
whose chains end with a tap: 7 x 7 1.05, 3 x 3 of 256 channels 1.02 to 1.07, of 64 .98.)  GPU libraries
add up all of k; beyond 8192 the accumulators of a thread are worth the registers of a second tile."""

WAITING, WAITING_STREAMED = 256, 32
"""Passes whose results are added up in the output: of products, and of terms without reuse."""

WAITING_OF_FEW_ROWS = 2048
"""The same of few rows times a matrix, which is read eight rows at a time up to 16,384 of them.  So OpenBLAS adds up
those of one row (equal to its last bit on Zen 3), and memory is fetched ahead along eight rows at once, not along
sixteen: on such a core 4096 x 4096 took 3.3 ms by 4 or 8 rows, 4.5 by 16, 7 to 10 by 32."""

COMBINED, COMBINED_BY_THREADS = 64, 256
"""Points of a tuple reduction in one chain: combining tuples takes several operations."""


def least_step(op: TensorOp, extent: int, *, few_rows: bool = False) -> int:
    """Elements of a reduced axis between two passes of the output, so many of which at most are added up there.
    ``few_rows``: the op is few rows times a matrix, so that no operand is read twice but these rows."""
    trip_count = WAITING_STREAMED if not reuses(op) else WAITING_OF_FEW_ROWS if few_rows else WAITING
    return ceil_div(extent, trip_count) if any(adds(reduction) for reduction in op.reductions) else 1


def reuses(op: TensorOp) -> bool:
    """Whether some operand is used for several outputs; sums of columns use none again."""
    spatial = {axis.name for axis in op.of_role("spatial")}
    return any(spatial - load.axes() for load in op.body_loads())


def longest_chain(stage: Stage, device: Device, *, reused: bool) -> int:
    """Terms that one accumulator of the stage adds up; ``reused``: operands are, as in contractions."""
    threads = device.kind.threads
    if reused:
        return MULTIPLIED_BY_THREADS if threads else MULTIPLIED
    if any(len(r.bodies) > 1 for r in stage.op.reductions):
        return COMBINED_BY_THREADS if threads else COMBINED
    return STREAMED_BY_THREADS if threads else STREAMED


def in_blocks(stage: Stage, longest: int, *, waiting: bool = False) -> Stage:
    """The stage (or batch of stages) with no accumulator that adds up more than `longest` terms.

    Serial loops are split as far as they can be; a stage whose chains are short stays as it is.
    """
    if not any(adds(reduction) for reduction in stage.op.reductions):
        return stage
    first = sum(loop.kind in (GRID, *PARALLEL) for loop in stage.loops)
    chain: Size = 1
    p = len(stage.loops) - 1
    while p >= max(stage.accumulator.at_loop, first):
        loop = stage.loops[p]
        room = larger(longest // chain, 1)
        if not is_chained(stage, p, loop):
            if _largest(chain) > 1 and stage.op.axis(loop.axis).role == "spatial":
                return stage  # the tile's own loops: their accumulators live on
            p -= 1
        elif _largest(loop.extent / room) <= 1:
            chain, p = chain * loop.extent, p - 1
        elif loop.kind == SERIAL and _largest(room) > 1:
            few = not stage.accumulator.flush and _largest(loop.extent / room) <= WAITING
            if waiting and few and p == stage.accumulator.at_loop:
                return _carrying(_split(stage, p, _block(loop.extent, room)), p + 1)
            stage, chain, longest = _split(stage, p, _block(loop.extent, room)), 1, LATER
        elif _largest(chain) > 1:
            stage, chain, longest = _flushed(stage, p + 1), 1, LATER
        else:
            chain, p = loop.extent, p - 1
    return stage


def _carrying(stage: Stage, depth: int) -> Stage:
    return replace(stage, accumulator=replace(stage.accumulator, at_loop=depth, carry=True, flush=()))


def _largest(size: Size) -> float:
    return float(size.max() if isinstance(size, np.ndarray) else size)


def _block(extent: Size, room: Size) -> Size:
    """Iterations of a block: at most `room`, all blocks alike where some number not below half of it divides the
    extent, else nearly alike."""
    if is_batch(extent, room):
        base = int(np.max(room)) + 1
        pairs, each = np.unique(extent * base + room, return_inverse=True)
        return np.array([_block(*divmod(pair, base)) for pair in pairs.tolist()])[each]
    if extent <= room:
        return extent
    for block in range(room, room // 2, -1):
        if extent % block == 0:
            return block
    return ceil_div(extent, ceil_div(extent, room))


def _split(stage: Stage, p: int, block: Size) -> Stage:
    """Loop `p` as blocks of so many iterations, each with accumulators of its own."""
    loop = stage.loops[p]
    digits = (
        Loop(loop.axis, ceil_div(loop.extent, block), loop.stride * block, SERIAL),
        Loop(loop.axis, block, loop.stride, SERIAL),
    )
    behind = lambda position: position + (position > p)
    accumulator = replace(
        stage.accumulator,
        separate=tuple(map(behind, stage.accumulator.separate)),
        gathered=tuple(map(behind, stage.accumulator.gathered)),
        flush=tuple(map(behind, stage.accumulator.flush)),
    )
    stage = replace(
        stage,
        loops=(*stage.loops[:p], *digits, *stage.loops[p + 1 :]),
        accumulator=accumulator,
        copies=tuple([replace(copy, at_loop=behind(copy.at_loop)) for copy in stage.copies]),
        prefetch=behind(stage.prefetch),
    )
    return _flushed(stage, p + 1)


def _flushed(stage: Stage, depth: int) -> Stage:
    return replace(stage, accumulator=replace(stage.accumulator, flush=(depth, *stage.accumulator.flush)))
