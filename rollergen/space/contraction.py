"""The tiles of contractions: by blocks of threads that share a managed layer, and by blocks of one thread."""

from __future__ import annotations

from math import prod

from rollergen.expr.packing import is_in_panels
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype, fits_output
from rollergen.program.assemble.levels import WAITING_OF_FEW_ROWS, least_step, reuses
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import Roles, Size
from rollergen.program.rprogram import LANE, SERIAL, THREAD, UNROLL
from rollergen.space.counts import least_threads, power_below, private_limit, thread_counts
from rollergen.space.engine import Digit, Rule, TileSpace, joint, limit
from rollergen.space.rules import (
    BLOCK_MEMORY,
    LONGER,
    NARROW,
    NARROW_OUTPUT,
    ONE_PANEL,
    PIECES,
    REGISTERS,
    THREADS,
    UNROLLED,
)
from rollergen.tile.rules import AlignmentRules, vector_lanes

_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PANELS = (1, 2, 4, 8, 16, 32, 64)
_MOST_UNROLLED = 512
"""Multiply-adds, each with loads and tests of its own, that one thread has written out: more no longer fit the
instruction cache (and take compilers minutes)."""
REACH = 0.75
"""Of tiles whose sizes are powers of two: with less, the best tiles of narrow tensors are out of reach (.25: 1.3 % of
the predicted time of 51 contractions on v100)."""


def first_step(op: TensorOp, roles: Roles, device: Device) -> int:
    """The step of k with which tiles are priced."""
    extent = op.axis(roles.k).extent
    if not device.kind.lockstep and not fits_output(op):
        return extent
    return min(8 if device.kind.lockstep else 128, extent)


def thread_tiles(
    op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules, lanes: int, staged: tuple[int, ...]
) -> TileSpace:  # fmt: skip
    """Register tiles of fragments of `vm` and `vn` elements, threads and, for threads that run alone, panels."""
    m, n = roles.m or "", roles.n or ""
    single, most = not device.kind.lockstep, device.limits.threads_per_block
    panels = _PANELS if single else (1,)
    registers = max(1, _most_accumulators(device) // op.components)
    digits = (
        Digit("lanes", n, LANE, (lanes,)),
        *joint(("rm", m, UNROLL), ("vm", "", ""), _fragments(op, m, device, rules, registers)),
        *joint(("rn", n, UNROLL), ("vn", "", ""), _fragments(op, n, device, rules, registers // lanes, lanes)),
        Digit("pm", m, SERIAL, panels if m else (1,)),
        Digit("pn", n, SERIAL, panels),
        Digit("tm", m, THREAD, ((1, most) if single else _THREADS) if m else (1,)),
        Digit("tn", n, THREAD, (1,) if single else _THREADS),
    )
    limits = [
        limit(THREADS, "tm tn", lambda tm, tn: tm * tn <= most),
        limit(REGISTERS, "rm vm rn vn", lambda rm, vm, rn, vn: (rm * rn * lanes <= registers) | (rm * rn == vm * vn)),
    ]
    if staged and _has_long_axes(op, roles, rules):
        # Some fragment of four fits, and reads what is staged in fewer accesses.
        limits.append(limit(NARROW, "vm vn", lambda vm, vn: (vm > 1) & ((vn > 1) | (lanes > 1))))
    if not single and not staged:
        taps = first_step(op, roles, device) * (op.axis(roles.taps[-1]).extent if roles.taps else 1)
        allowed = lambda rm, vm, rn, vn: (rm * rn * taps <= _MOST_UNROLLED) | (rm * rn == vm * vn)
        limits.append(limit(UNROLLED, "rm vm rn vn", allowed))
    limits.append(_not_longer(op, roles, device, rules))
    return TileSpace(op, device, rules, digits, tuple(limits), n, REACH)


def _most_accumulators(device: Device) -> int:
    """Of one thread: not all of its registers; of one that runs alone, whose units have no others, twice as many."""
    registers = device.limits.registers_per_thread
    return 2 * registers if not device.kind.lockstep else max(1, registers - 1)


def _fragments(
    op: TensorOp, axis: str, device: Device, rules: AlignmentRules, most: int, lanes: int = 1
) -> list[tuple[int, int]]:
    """(elements along one axis that a thread computes, elements of each fragment that it fetches at once)."""
    shapes = rules.shapes
    if not axis or not shapes.register_tiles:
        return [(1, 1)]
    extent = op.axis(axis).extent
    uneven = _BETWEEN if device.kind.lockstep and extent % _EVEN and extent > _EVEN else ()
    sizes = sorted({*(1 << n for n in range(max(1, most).bit_length())), *uneven})
    if lanes > 1 or not shapes.wide_accesses:
        return [(size, 1) for size in sizes]
    few = not device.kind.lockstep or extent < _SHORT
    widths = (1, 2, 4) if few else (1, 4)
    return [(size, width) for width in widths for size in sizes if size == width or (width == 4 and size % 4 == 0)]


_BETWEEN, _EVEN = (12, 20), 64
"""Elements between powers of two, tried along an axis that is no multiple of so many: blocks of 48 or 80 may overhang
it less, or come out even on the units (1025 x 1025 in float32: 14 % less on a100, 12 % on h200)."""
_SHORT = 32
"""Elements of an axis along which pairs are worth trying."""
_LONG = 32


def _has_long_axes(op: TensorOp, roles: Roles, rules: AlignmentRules) -> bool:
    wide = rules.shapes.register_tiles and rules.shapes.wide_accesses
    return wide and roles.m is not None and min(op.axis(x or "").extent for x in (roles.m, roles.n)) >= _LONG


def _not_longer(op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules) -> Rule:
    """No block covers an axis twice, unless it could not be smaller; the smallest block that the execution unit rule
    allows stays, however short the axes are: no space is empty."""
    m_extent = op.axis(roles.m).extent if roles.m else 1
    n_extent = op.axis(roles.n or "").extent
    least = least_threads(device, rules)

    def allowed(lanes, rm, vm, rn, vn, pm, pn, tm, tn):
        block_m, block_n = rm * tm * pm, rn * tn * pn
        smallest = (rm == vm) & (rn == vn) & (tm * tn == least) & (pm * pn == 1)
        short_m = (block_m < 2 * m_extent) | (block_m == vm)
        return smallest | (short_m & ((block_n * lanes < 2 * n_extent) | (block_n == vn)))

    return limit(LONGER, "lanes rm vm rn vn pm pn tm tn", allowed)


MOST_ROWS = 14
_ROWS = tuple(range(1, MOST_ROWS + 1))
_STEPS = (32, 64, 128, 256, 384, 512, 1024)
_FEW_STEPS = (8, 16)
"""Of a vector, or of as few rows as a register tile has, times a matrix that is read once as it lies: few of its rows
at a time, each to its end.  (1, 2, 4 and 8 rows times 4096 x 4096 on one core of a Zen 4: 2.9, 3.0, 3.5 and 4.5 ms by
8 rows of the matrix; the last three 6.7, 7.2 and 8.6 with tiles of 64 x 1024 of it copied.)"""
MOST_ASKED = _FEW_STEPS[0]
"""Rows of a pass that asks for the next ones: sixteen, which fall into twice the lines of each set, took 1.2 times as
long (a row times 4096 x 4096, sums of 4096 columns of 4096).  More are read in parts (`construct.asked_parts`)."""
_LEAST_PASSES, _PIECE_BYTES = 16, 8192
"""The least number of passes, of which the first is not asked for (sums of 32 x 200704 take 1.15 times as long, of 64 x
100000 .84 to 1.16, of 128 x 100000 .95), and the least bytes of each row that a pass of a sum of columns reads (a page,
two and four of them take the same within 5 %)."""
MOST_WRITTEN_OUT = 360
"""Steps of the reduction, over all vectors of a tile, that are written out one after the other."""
_SERIAL_PANELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def serial_tiles(
    op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules, vectors: int, width: int,
    unrolled: bool, own_bytes: int, asking: bool = False, ahead: bool = False,
) -> TileSpace:  # fmt: skip
    """Rows of a register tile of so many `vectors`, `width` elements in all, steps of k and panels.

    ``unrolled``: the whole reduction is written out.  ``own_bytes``: of an element along k of one panel in the arrays
    that a block copies operands into.  ``asking``: each pass reads few rows and asks for the next ones, of which
    ``own_bytes`` then are.  A unit walks rows to their ends, or to those of its part of the columns (1024 x 50257 in
    parts of 4096 took 1.15 times as long as whole rows that are not asked for); sums of columns walk shorter pieces,
    too (256 x 16384: .30 ms, .41 in tiles of 64 x 128).  ``ahead``: tiles of rows ask for the next panel together.
    """
    m_extent = op.axis(roles.m).extent if roles.m else 1
    k_extent = op.axis(roles.k).extent
    panels = lambda count: sorted({p for p in _SERIAL_PANELS if p < count} | {count, ceil_div(count, device.units)})
    steps = sorted({*(() if unrolled else _shorter_steps(op, roles)), k_extent})
    digits = (
        Digit("rm", roles.m or "", UNROLL, _ROWS),
        Digit("kc", roles.k, SERIAL, steps),
        Digit("pm", roles.m or "", SERIAL, lambda rows: panels(ceil_div(m_extent, rows)), of=("rm",)),
        Digit("pn", roles.n or "", SERIAL, panels(ceil_div(op.axis(roles.n or "").extent, width))),
    )
    registers, room = device.limits.registers_per_thread, private_limit(device)
    limits = [
        limit(LONGER, "rm", lambda rows: rows <= m_extent),
        limit(REGISTERS, "rm", lambda rows: ((rows + 1) * op.components * vectors <= registers) | (rows == 1)),
        limit(NARROW_OUTPUT, "kc", lambda step: fits_output(op) | (step == k_extent)),
        limit(BLOCK_MEMORY, "kc pn", lambda step, count: step * count * own_bytes <= room),
    ]
    if reuses(op):  # a sum of columns starts its accumulators anew after a step
        limits.append(limit(ONE_PANEL, "kc pm pn", lambda kc, *panels: (kc == k_extent) | (prod(panels) > 1)))
    if ahead:
        limits.append(limit(ONE_PANEL, "pm pn", lambda tiles, panels: (tiles > 1) & (panels > 1)))
    if asking:
        few = min(steps[0], MOST_ASKED)
        whole = ceil_div(ceil_div(op.axis(roles.n or "").extent, width), device.units)
        least = whole if reuses(op) else min(whole, _PIECE_BYTES // own_bytes)
        many = k_extent >= _LEAST_PASSES * few
        walked = lambda kc, pm, pn: (kc == few) & many & (pm == 1) & (pn >= max(least, 2))
        limits.append(limit(PIECES, "kc pm pn", walked))
    if unrolled:
        allowed = lambda rows: (rows > 1) & (written_out(op, rows * vectors) <= MOST_WRITTEN_OUT)
        limits.insert(2, limit(UNROLLED, "rm", allowed))
    return TileSpace(op, device, rules, digits, tuple(limits), reach=REACH)


def written_out(op: TensorOp, vectors: Size) -> Size:
    """Steps of a tile of so many vectors, where all taps are unrolled."""
    return vectors * prod(axis.extent for axis in op.of_role("reduce"))


def _shorter_steps(op: TensorOp, roles: Roles) -> list[int]:
    """Steps below the whole axis after which partial results wait in the output: so long that few of them are added up
    there, one after the other.  None for constants that are read once, in panels that go on to the end of the axis:
    memory brings these faster whole (28 MB of weights: 3.8 ms in steps, 1.7 whole).
    """
    read = [load for load in op.body_loads() if roles.n in load.axes()]
    panels = [load for load in read if is_in_panels(load, roles.n or "")]
    if roles.m is None and len(panels) == len(read) and all(load.buffer.constant for load in panels):
        return []
    extent = op.axis(roles.k).extent
    longest = _FEW_STEPS[0] * WAITING_OF_FEW_ROWS  # of several rows; beyond it sums in the output err more than blocks'
    few = roles.m is None or (op.axis(roles.m).extent <= MOST_ROWS and extent <= longest and not panels)
    steps = list((*_FEW_STEPS, *_STEPS) if few else _STEPS)
    least = least_step(op, extent, few_rows=few)
    while steps[-1] < least:
        steps.append(2 * steps[-1])
    return [step for step in steps if least <= step < extent]


def combining_tiles(op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules) -> TileSpace:
    """Blocks of neighbouring outputs, of which each thread sums the few parts alone."""
    n, extent, least = roles.n or "", op.axis(roles.n or "").extent, least_threads(device, rules)
    lanes = min(vector_lanes(device, accumulator_dtype(op)), power_below(extent))
    digits = (Digit("lanes", n, LANE, (lanes,)), Digit("tn", n, THREAD, thread_counts(device)))
    short = limit(LONGER, "tn", lambda threads: (threads * lanes <= 2 * extent) | (threads == least))
    return TileSpace(op, device, rules, digits, (short,))
