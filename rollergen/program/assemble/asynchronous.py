"""Asynchronous copies: several buffers in flight where the device moves them past the registers, else two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import common_divisor, is_batch
from rollergen.program.check.asynchronous import LEAST_BYTES
from rollergen.program.rprogram import Copy
from rollergen.tile.rules import AlignmentRules

RING = (2, 3, 4)
"""Buffers of asynchronous copies that construction tries."""


def has_asynchronous_copies(device: Device, rules: AlignmentRules) -> bool:
    """Whether construction may use asynchronous copies."""
    return device.kind.asynchronous_copies and rules.shapes.asynchronous_copies


def past_registers(copy: Copy, load: Load, device: Device) -> Copy:
    """`copy` made asynchronous; through registers, one ahead, where its elements or its fill do not allow that.

    A tile that is stored across the direction it is read in is copied element by element, neighbouring threads
    along memory.
    """
    vector = copy.vector if copy.along == copy.order[-1] else 1
    vector = common_divisor(vector, device.layer(copy.to_layer).asynchronous_copy_bytes // ITEMSIZE[load.dtype])
    if np.min(vector) * ITEMSIZE[load.dtype] < LEAST_BYTES or load.fill != 0:
        return replace(copy, depth=np.minimum(copy.depth, 2) if is_batch(copy.depth) else min(copy.depth, 2))
    return replace(copy, vector=vector, asynchronous=True)
