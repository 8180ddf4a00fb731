"""The tiles of contractions by matrix instructions: multiples of the instruction's shape."""

from __future__ import annotations

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.matrix import axes_of
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import Roles
from rollergen.program.matrix import LEAST_WIDE, MOST_WIDE, matrix_operands
from rollergen.program.rprogram import GROUP, THREAD, UNROLL
from rollergen.space.contraction import REACH
from rollergen.space.engine import Digit, TileSpace, limit
from rollergen.space.rules import LONGER, REGISTERS, THREADS
from rollergen.tile.rules import AlignmentRules

_TILES, _COLUMNS = (1, 2, 4, 8), (1, 2, 3, 4, 5, 6, 7, 8)
"""Tiles along m and n.  Of n others than powers of two, too: blocks may come out even on the units (512 x 4096 x 4096
of float16 on an A100: 104 blocks of 128 x 160 on 108 units, 74 us predicted for 110).  Not where products run beside
the program, whose tiles were measured beside those of powers of two only."""
_LONG_COLUMNS = (*_COLUMNS, *range(9, 15), 16)
"""The same with longer ones: warps of 64 x 80 load less than those of 128 x 40, and 106 blocks of 256 x 208 leave fewer
of 108 units idle than 100 of 256 x 224 (256 x 4096 x 11008 of float16 on an A100: 98 us predicted for 100)."""
_THREES = (1, 2, 3, 4, 6, 8)
"""Tiles along m where the rows are threes of the instruction's: those of 192 rows in one block read columns once."""
_WIDTHS = (1, 2, 4, 8)
_WIDE: dict[str, tuple[int, ...]] = {
    "fm": (1, 2), "fn": tuple(range(LEAST_WIDE, MOST_WIDE + 1, LEAST_WIDE)), "gm": (1, 2, 4), "gn": (1, 2),
}  # fmt: skip
"""The same of an asynchronous instruction, whose execution widths are groups of them."""
_WIDE_THREES = (1, 2, 3, 4)
_OTHER_REGISTERS = 32
"""Of a thread, for addresses and what is on its way."""


def matrix_tiles(
    op: TensorOp, roles: Roles, instruction: Instruction, device: Device, rules: AlignmentRules
) -> TileSpace:
    """Tiles of an execution width (`fm` x `fn` instructions) and execution widths of a block (`gm` x `gn`)."""
    m, n = roles.m or "", roles.n or ""
    m_extent, n_extent = op.axis(m).extent, op.axis(n).extent
    sizes = _sizes(ceil_div(m_extent, instruction.m), instruction, device)
    operands = matrix_operands(op, axes_of(roles), instruction)
    assert operands is not None  # asked before a space is
    if operands.conversions and not instruction.is_asynchronous:  # few tiles along one side, as few blocks as units
        sizes = dict.fromkeys(sizes, _COLUMNS)
    digits = (
        Digit("lanes", "", THREAD, (instruction.lanes,)),
        Digit("m", m, UNROLL, (instruction.m,)),
        Digit("n", n, UNROLL, (instruction.n,)),
        Digit("fm", m, UNROLL, sizes["fm"]),
        Digit("fn", n, UNROLL, sizes["fn"]),
        Digit("gm", m, GROUP, sizes["gm"]),
        Digit("gn", n, GROUP, sizes["gn"]),
    )

    # Sums that take all of the registers apart leave none to move others to: clang 19 then spills 17 to 138 of a thread
    # (float16 and float64 for gfx90a), and none where one tile's are left.
    apart = device.limits.accumulation_registers

    def registers(fm, fn):
        a, b = len(operands.a) * instruction.a_registers, len(operands.b) * instruction.b_registers
        sums = fm * fn * instruction.accumulator_registers * op.components
        return (sums < apart) * -sums + sums + fm * a + fn * b

    def short(fm, fn, gm, gn):
        short_m = (fm * gm * instruction.m < 2 * m_extent) | (fm * gm == 1)
        return short_m & ((fn * gn * instruction.n < 2 * n_extent) | (fn * gn == 1))

    most, room = device.limits.threads_per_block, device.limits.registers_per_thread - _OTHER_REGISTERS
    limits = (
        limit(THREADS, "gm gn", lambda gm, gn: gm * gn * instruction.lanes <= most),
        limit(REGISTERS, "fm fn", lambda fm, fn: registers(fm, fn) <= room),
        limit(LONGER, "fm fn gm gn", short),
    )
    return TileSpace(op, device, rules, digits, limits, reach=REACH)


def _sizes(rows: int, instruction: Instruction, device: Device) -> dict[str, tuple[int, ...]]:
    """What is tried of each size, for so many rows of the instruction's."""
    threes = rows % 3 == 0
    if instruction.is_asynchronous:
        return {**_WIDE, "gm": _WIDE_THREES} if threes else _WIDE
    columns = _TILES if any(one.is_asynchronous for one in device.instructions) else _LONG_COLUMNS
    return {"fm": _THREES if threes else _TILES, "fn": columns, "gm": _WIDTHS, "gn": _WIDTHS}
