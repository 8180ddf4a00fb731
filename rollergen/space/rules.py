"""The alignment rules (ROLLER, section 3.2), one object each, and the names of the limits beside them.

A rule masks the points of any `TileSpace`: it asks for digits by their kind and axis, never by the space.  The bank
rule has no digits of its own yet: assembly pads a staged row by `bank_padding`, where the row's length is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rollergen.program.rprogram import PARALLEL
from rollergen.space.engine import Facts, Points, Rule, Tally, TileSpace, filtered, pads, tiles
from rollergen.tile.rules import aligned_multiple

LONGER = "longer than the axes"
NARROW = "single elements along a long axis"
NARROW_OUTPUT = "partial sums do not fit the output"
ONE_PANEL = "steps of one panel, which change nothing"
PIECES = "more than eight rows asked for at once, or pieces of them"
THREADS = "threads of a block"
REGISTERS = "registers"
CACHE_SET = "lines in one set of the first cache"
UNROLLED = "unrolled code"
BLOCK_MEMORY = "block memory"
BACKING_STORE = "workspace in the backing store"


def _whole_widths(points: Points, facts: Facts) -> Any:
    """Blocks of whole execution widths; a block of one thread has its lanes by construction."""
    device = facts.space.device
    return not device.kind.threads or facts.threads % device.execution_width == 0


def _whole_transactions(points: Points, facts: Facts) -> Any:
    """Blocks whose rows are whole transactions of every operand; all of them where no block's are, or where the axis is
    shorter than one."""
    space, axis = facts.space, facts.space.row_axis or ""
    unit = aligned_multiple(space.op, axis, space.device, space.rules)
    aligned = (facts.tile(axis) % unit == 0) | (space.op.axis(axis).extent < unit)
    return aligned if aligned.any() else True


def _fits_tensor(points: Points, facts: Facts) -> Any:
    """Tiles whose padded work lies within reach of the least: what padding costs is for the price to say.  A user's
    own limit is on the padded share of each axis; where it admits none, the least wasteful tiles say by how much it is
    too small."""
    space = facts.space
    if not len(points):
        return True
    allowed = np.ones(len(points), dtype=bool)
    if space.rules.epsilon is not None:
        waste = facts.waste
        allowed = waste <= max(space.rules.epsilon, float(waste.min()))
    if space.reach is None:
        return allowed
    work = facts.padded_work
    near = allowed & (work <= float(work.min()) + space.reach)
    return near if near.any() else allowed


EXECUTION_UNIT = Rule(
    "execution unit", lambda space, digit: digit.kind in PARALLEL, _whole_widths, "execution_unit"
)
TRANSACTION = Rule(
    "memory transaction", lambda space, digit: digit.axis == space.row_axis, _whole_transactions, "transaction"
)
TENSOR_SHAPE = Rule("tensor shape", lambda space, digit: pads(digit), _fits_tensor, "tensor_shape")
ALIGNMENT = (EXECUTION_UNIT, TRANSACTION, TENSOR_SHAPE)
BANK = "memory bank (in assembly)"
SWITCHES = {rule.switch: rule.name for rule in ALIGNMENT} | {"bank": BANK}
"""Fields of `AlignmentRules` that turn a rule off, and the rules' names."""


def aligned_tiles(space: TileSpace, tally: Tally, grown: Points | None = None) -> Points:
    """The tiles of a space that its limits and the alignment rules admit, and of those that were ``grown``."""
    found = tiles(space, ALIGNMENT, tally)
    if grown is None:
        return found
    known = len(found)
    united = found.united(filtered(space, space.limits, grown, tally))
    tally.considered += len(united) - known
    return filtered(space, ALIGNMENT, united, tally)


def aligned_points(space: TileSpace, points: Points, tally: Tally) -> Points:
    """Those of the points that the limits and the alignment rules of the space admit."""
    found = filtered(space, (*space.limits, *ALIGNMENT), points, tally)
    tally.considered += len(found)
    return found
