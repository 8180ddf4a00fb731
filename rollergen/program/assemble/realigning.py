"""Copies of rows that begin anywhere, by whole vectors that threads put together in registers (`Copy.realigned`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.expr.views import realignable
from rollergen.hal.spec import Instruction
from rollergen.program.assemble.nest import is_batch
from rollergen.program.matrix import WAVEFRONT
from rollergen.program.rprogram import REALIGNED_BYTES, Copy


def gains_by_realigning(op: TensorOp, load: Load, copy: Copy, one: Instruction) -> bool:
    """Whether a block's copy of a 16-bit factor has shorter vectors than those that are put together in registers."""
    itemsize = ITEMSIZE[load.dtype]
    if itemsize != 2 or one.is_asynchronous or one.layout == WAVEFRONT or copy.along != copy.order[-1]:
        return False
    short = np.max(copy.vector) * itemsize < REALIGNED_BYTES <= op.axis(copy.along).extent * itemsize
    return bool(short) and realignable(load, copy.along)


def realigned(copy: Copy, load: Load) -> Copy:
    """The copy by whole vectors, at most one tile ahead: they pass through registers."""
    depth = np.minimum(copy.depth, 2) if is_batch(copy.depth) else min(copy.depth, 2)
    return replace(copy, vector=REALIGNED_BYTES // ITEMSIZE[load.dtype], depth=depth, realigned=True)
