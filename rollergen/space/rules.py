"""The alignment rules (ROLLER, section 3.2), one object each, and the names of the limits beside them.

A rule masks the points of any `TileSpace`: it asks for digits by their kind and axis, never by the space.  The bank
rule has no digits of its own yet: assembly pads a staged row by `bank_padding`, where the row's length is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rollergen.program.rprogram import PARALLEL
from rollergen.space.engine import Facts, Points, Rule, Tally, TileSpace, pads, tiles
from rollergen.tile.rules import aligned_multiple, block_layer

LONGER = "longer than the axes"
NARROW_OUTPUT = "partial sums do not fit the output"
THREADS = "threads of a block"
REGISTERS = "registers"
UNROLLED = "unrolled code"
BLOCK_MEMORY = "block memory"
BACKING_STORE = "workspace in the backing store"


def _whole_widths(points: Points, facts: Facts) -> Any:
    """Blocks of whole execution widths; a block of one thread has its lanes by construction."""
    device = facts.space.device
    return block_layer(device) is None or facts.threads % device.execution_width == 0


def _whole_transactions(points: Points, facts: Facts) -> Any:
    """Blocks whose rows are whole transactions of every operand; all of them where no block's are, or where the axis is
    shorter than one."""
    space, axis = facts.space, facts.space.row_axis or ""
    unit = aligned_multiple(space.definition, axis, space.device, space.rules)
    aligned = (facts.tile(axis) % unit == 0) | (space.definition.axis(axis).extent < unit)
    return aligned if aligned.any() else True


def _fits_tensor(points: Points, facts: Facts) -> Any:
    """The least padded tiles: the limit is raised until there are `enough` (ROLLER, section 3.2: greedily).  The least
    wasteful ones where a user's own limit admits none: they say by how much it is too small."""
    space, waste = facts.space, facts.waste
    if not len(points) or (space.enough is None and space.rules.epsilon is None):
        return True
    enough = min(len(points), space.enough or len(points))
    for epsilon in space.rules.waste_limits():
        fit = waste <= epsilon
        if np.count_nonzero(fit) >= enough:
            break
    return fit if fit.any() else waste == waste.min()


EXECUTION_UNIT = Rule(
    "execution unit", lambda space, digit: digit.kind in PARALLEL, _whole_widths, "execution_unit"
)
TRANSACTION = Rule(
    "memory transaction", lambda space, digit: digit.axis == space.row_axis, _whole_transactions, "transaction"
)
TENSOR_SHAPE = Rule("tensor shape", lambda space, digit: pads(digit), _fits_tensor, "tensor_shape")
ALIGNMENT = (EXECUTION_UNIT, TRANSACTION, TENSOR_SHAPE)


def aligned_tiles(space: TileSpace, tally: Tally) -> Points:
    """The tiles of a space that its limits and the alignment rules admit."""
    return tiles(space, ALIGNMENT, tally)
