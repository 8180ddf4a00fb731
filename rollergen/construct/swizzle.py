"""Swizzled grids: the order of blocks in which those of one wave share as much as they can of what they read.

As CUTLASS's threadblock swizzle and Triton's `GROUP_M`: blocks run through groups of rows, column by column.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import Roles
from rollergen.tile.rules import AlignmentRules

WIDTHS = (2, 4, 8, 16, 32, 64)
"""Rows of a group that construction tries."""


def group_rows(
    op: TensorOp, rows: int, columns: int, block: tuple[int, int], at_once: int, device: Device,
    rules: AlignmentRules,
) -> int:  # fmt: skip
    """Rows of a group (see `BlockOrder`) for a grid of `rows` x `columns` blocks of the given (rows, columns) elements,
    `at_once` of which run together.

    0 is the linear order: where no group makes a wave's footprint smaller, where the cache that all units share holds
    all operands in any order, and where the user forbids it.

    The footprint of a wave of r x c blocks is r row panels and c column panels, both as long as the reduction.
    """
    if not rules.shapes.block_order or rows < 2 or columns < 2 or _is_held(op, device):
        return 0
    at_once = min(at_once, rows * columns)
    panels = lambda width: _panels(min(ceil_div(at_once, width), columns), at_once, block)
    _, width = min([(panels(w), w) for w in (1, *WIDTHS) if w <= rows])
    return width if width > 1 else 0


def grid_swizzle(
    op: TensorOp, roles: Roles, block: tuple[int, int], at_once: int, device: Device, rules: AlignmentRules
) -> int:
    """`group_rows` of the grid that blocks of (m, n) elements make of a contraction; 0 where it has no rows, or
    threads run alone."""
    if roles.m is None or not device.kind.lockstep:
        return 0
    rows, columns = (
        ceil_div(op.axis(axis or "").extent, size) for axis, size in zip((roles.m, roles.n), block, strict=True)
    )
    return group_rows(op, rows, columns, block, at_once, device, rules)


def _panels(columns: int, at_once: int, block: tuple[int, int]) -> int:
    """Rows and columns of elements that a wave of so many columns of blocks touches."""
    return ceil_div(at_once, columns) * block[0] + columns * block[1]


def _is_held(op: TensorOp, device: Device) -> bool:
    """Whether the outermost cache holds all that the reduction reads."""
    shared = [layer for layer in device.layers if not layer.managed and layer.scope == "device"]
    return bool(shared) and _bytes_read(op) <= shared[-1].capacity_bytes


@lru_cache(maxsize=64)
def _bytes_read(op: TensorOp) -> int:
    """Of all tensors that the reduction reads: all tiles of a tensor op ask for it."""
    return sum({load.buffer.name: load.buffer.elements * ITEMSIZE[load.dtype] for load in op.body_loads()}.values())
