"""Rows of asynchronous products that are apart, so that a copy engine brings those of any length (see `boxes`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rollergen.hal.spec import Instruction
from rollergen.program.matrix import matrix_axes, row_loop
from rollergen.program.rprogram import Loop, Stage


def rows_apart(stage: Stage, instruction: Instruction) -> int:
    """How far apart the rows of a column's `ROWS` threads are, where those of an asynchronous instruction are not
    neighbours; else 0.

    They are `SWIZZLE` apart, and those between are other execution widths' and a thread's own.  Of a tensor whose rows
    have any length, so many rows always begin as far behind each other as boxes must (`boxes.apart_problem`)."""
    stride = stage.loops[row_loop(stage)].stride if instruction.is_asynchronous else 1
    return int(np.max(stride)) if np.max(stride) > 1 else 0


def with_rows_apart(loops: Sequence[Loop]) -> list[Loop]:
    """Loops of m of an asynchronous instruction, by falling stride, with rows apart."""
    *outer, widths, own, threads = loops
    strides = own.extent, 1, widths.extent * own.extent
    inner = [replace(loop, stride=stride) for loop, stride in zip((widths, own, threads), strides, strict=True)]
    return [*outer, *inner]


def sum_apart(stage: Stage) -> bool:
    """Whether the k x n factors of an asynchronous instruction are kept with rows along k apart (`Copy.apart`).

    Each step then multiplies the rows that are kept in its places: of `SWIZZLE` ** 2, step s of so many those of
    remainders 2 s and 2 s + 1.  The m x k factors have to come in that order, so threads bring them in registers: of a
    row, thread q of `COLUMNS` has the neighbours 16 q to 16 q + 15, two pieces of `ROW_BYTES`, for all steps."""
    return any(copy.apart and copy.order[0] == matrix_axes(stage)[2] for copy in stage.copies)
