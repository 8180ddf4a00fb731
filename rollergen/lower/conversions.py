"""Fragments of matrix instructions of which a thread has neighbours along the sum: read as they are, or computed of
narrow elements (see `program.conversions`).

    for each row of a fragment:  narrow elements of the staged tile, two pairs of numbers of them, the steps on both
"""

from __future__ import annotations

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE, numpy_dtype
from rollergen.expr.index import Index
from rollergen.expr.values import Cast, Const, Load, Partial
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.context import Context
from rollergen.lower.copies import Staged, fetch_load, read_load, staged_access
from rollergen.lower.expressions import Convert, Element, Expr, Number, Operation, position
from rollergen.lower.fills import as_bits
from rollergen.lower.matrices import Matrices
from rollergen.lower.matrix_ir import CombinePairs, LoadNarrow, LoadNeighbours, WidenNarrow
from rollergen.lower.place import Place, Scope
from rollergen.program.conversions import EIGHT, NEIGHBOURS, Conversion, Step, neighbours_of
from rollergen.program.matrix import ROWS, matrix_axes
from rollergen.program.rprogram import THREAD, UNROLL

_WORD = "uint32"
_BOTH, _ALL = 0x10001, 0x01010101
"""What a number of 16 bits, or of 8, is multiplied by to stand in every place of a word."""


def fill_fragment(
    context: Context, place: Place, matrices: Matrices, which: int, number: int, fragment: Element
) -> None:
    """This thread's part of one fragment of the factor ``which`` (0: m x k, 1: k x n)."""
    out, conversion = context.out, dict(matrices.operands.conversions).get(number)
    load = context.nest.op.loads()[number]
    if conversion is None:
        staged, own = _staged(context, place, load), _own_place(context, place, matrices, which, 0)
        pointer, offset = out.place(staged.pointer, staged_access(out, own, staged).offset.simplify(out.ranges))
        half = _half(context, place, matrices)
        out.collective(LoadNeighbours("ab"[which], fragment, pointer, offset, ROWS * staged.pitch, half))
        return
    if which == 1:
        _convert(context, place, matrices, which, 0, conversion, fragment)
        return
    for far in range(matrices.shape.m // ROWS):
        pairs = Element(out.register("pairs", _WORD, (2,)), (), _WORD)
        _convert(context, place, matrices, which, far, conversion, pairs)
        for pair in (0, 1):
            at = (*fragment.indices, Index.of(far + 2 * pair))
            out.assign(Element(fragment.name, at, _WORD), Element(pairs.name, (Index.of(pair),), _WORD))


def _convert(
    context: Context, place: Place, matrices: Matrices, which: int, far: int, conversion: Conversion, pairs: Element
) -> None:
    """The two pairs of a row of the fragment."""
    out, own = context.out, _own_place(context, place, matrices, which, far)
    staged = _staged(context, place, conversion.load)
    pointer, offset = out.place(staged.pointer, staged_access(out, own, staged).offset.simplify(out.ranges))
    narrow = Element(out.register("narrow", _WORD), (), _WORD)
    out.collective(LoadNarrow(narrow, pointer, offset, conversion.bytes_of(_neighbours(context))))
    out.collective(WidenNarrow(conversion.kind, conversion.dtype, pairs, narrow, _half(context, place, matrices)))
    k = {p: Index() for p in matrices.inside if context.nest.loops[p].axis == matrix_axes(context.nest.stage)[2]}
    for step in conversion.steps:
        column = _column(context, own.bind(k), step, conversion.dtype)
        out.collective(CombinePairs(step.operation, conversion.dtype, pairs, column, step.first))


def _own_place(context: Context, place: Place, matrices: Matrices, which: int, far: int) -> Place:
    """The point of this thread's first neighbour: a loop of threads tells its row, one its neighbours; of two steps,
    the first one's."""
    nest = context.nest
    axes = matrix_axes(nest.stage)
    row, neighbour = (Index.axis(nest.variables[p]) for p, _ in nest.stage.of_kind(THREAD))
    changes = dict.fromkeys(matrices.inside, Index())
    for p in matrices.inside:
        loop = nest.loops[p]
        if loop.axis == axes[2] and loop.stride == 1:
            changes[p] = neighbour * _neighbours(context)
        if loop.axis == axes[which] and loop.stride == 1:
            changes[p] = row
        if which == 0 and loop.axis == axes[0] and loop.kind == UNROLL:
            changes[p] = Index.of(far)
    if _neighbours(context) == EIGHT:
        step = step_loop(context, matrices)
        changes[step] = (place.point[step] // 2 * 2).simplify(context.out.ranges)
    return place.bind(changes)


def _neighbours(context: Context) -> int:
    return neighbours_of(context.nest.stage.compute.factors)


def step_loop(context: Context, matrices: Matrices) -> int:
    """Position of the loop over steps side by side along the sum."""
    k = matrix_axes(context.nest.stage)[2]
    return next(p for p, one in context.nest.stage.of_axis(k) if one.stride == matrices.shape.k and one.kind == UNROLL)


def _half(context: Context, place: Place, matrices: Matrices) -> Expr | None:
    """Which of two steps this is; None where each reads its own neighbours."""
    if _neighbours(context) == NEIGHBOURS:
        return None
    at = (place.point[step_loop(context, matrices)] % 2).simplify(context.out.ranges)
    return position(at, context.out.ranges)


def _column(context: Context, place: Place, step: Step, dtype: str) -> Expr:
    """A register with what is the same for all neighbours in both halves."""
    out, column = context.out, step.column
    if isinstance(column, Const):
        bits = int(np.array(column.value, numpy_dtype(dtype)).view(np.uint16))
        return Number(bits * _BOTH, _WORD)
    if isinstance(column, Load):
        word = Convert(fetch_load(out, place, column, None, lambda access: as_bits(column, access)), _WORD)
        return out.let("column", Operation("mul", (word, Number(_BOTH, _WORD)), _WORD))
    if not isinstance(column, Cast) or ITEMSIZE[column.x.dtype] != 1:
        raise ProgramError(f"stage {context.nest.stage.name}: {column} is no column of a converted factor")
    value = evaluate(out, Scope(place, None, lambda load: read_load(out, place, load, None), _no_sum, {}), column.x)
    byte = Operation("bitand", (Convert(value, _WORD), Number(255, _WORD)), _WORD)
    four = out.let("bytes", Operation("mul", (byte, Number(_ALL, _WORD)), _WORD))
    pairs = Element(out.register("columns", _WORD, (2,)), (), _WORD)
    out.collective(WidenNarrow(column.x.dtype, dtype, pairs, Element(four.name, (), _WORD)))
    return Element(pairs.name, (Index.of(0),), _WORD)


def _no_sum(partial: Partial) -> Expr:
    raise ProgramError(f"the sum {partial.name} in a column of a converted factor")


def _staged(context: Context, place: Place, load: Load) -> Staged:
    source = place.source(load)
    if not isinstance(source, Staged):
        raise ProgramError(f"stage {context.nest.stage.name}: {load.buffer.name} is not staged for its products")
    return source
