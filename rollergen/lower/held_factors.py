"""Factors of asynchronous products that threads bring in registers, where rows of the other factors along the sum are
apart (`rows_apart.sum_apart`).

    each tile:  pieces of its rows read | products of the tile before waited for | fragments of all steps put in order
"""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.lower import reductions
from rollergen.lower.context import Context
from rollergen.lower.conversions import step_loop
from rollergen.lower.copies import Staged, corner_offset, mixed
from rollergen.lower.expressions import Element, position
from rollergen.lower.matrices import Matrices
from rollergen.lower.matrix_ir import LoadPieces, OrderPieces, WaitFactors
from rollergen.lower.place import Place
from rollergen.program.matrix import COLUMNS, ROWS, SWIZZLE
from rollergen.program.rows_apart import sum_apart


def held_factors(context: Context, matrices: Matrices) -> dict[int, str]:
    """By number of the m x k factors that products read in registers the arrays of these, [row of tiles][step][4];
    none where products read them where they lie."""
    nest = context.nest
    if not sum_apart(nest.stage):
        return {}
    shape = (*(nest.loops[p].extent for p in matrices.rows), nest.loops[step_loop(context, matrices)].extent, 4)
    names = {a: nest.op.loads()[a].buffer.name.lower() for a in matrices.operands.a}
    return {a: context.out.register(name, "uint32", shape) for a, name in names.items()}


def hold_factors(context: Context, place: Place, matrices: Matrices, held: Mapping[int, str]) -> None:
    """The fragments of a tile for all its steps.  What they come from is read while the products of the tile before
    may still run, which have to end before their registers change."""
    if not held:
        return
    out, nest = context.out, context.nest
    shape = (*(nest.loops[p].extent for p in matrices.rows), 2, 2, 4)
    pieces = {a: out.register("pieces", "uint32", shape) for a in held}
    lane = context.threads.thread % (ROWS * COLUMNS)
    row, number = lane // COLUMNS, lane % COLUMNS
    with reductions.loops_over(out, place, matrices.rows):
        for a in held:
            staged = place.source(nest.op.loads()[a])
            if not isinstance(staged, Staged):
                raise ProgramError(f"stage {nest.stage.name}: load {a} is not staged for {matrices.shape}")
            unit, panel = staged.copy.unit, staged.copy.panel
            corner = place.bind(dict.fromkeys((*matrices.inside, step_loop(context, matrices)), Index()))
            offset = corner_offset(out, corner, staged) + row * panel
            pointer, offset = out.place(staged.pointer, offset.simplify(out.ranges))
            first = position(mixed(out, number * 2, row, SWIZZLE) * unit, out.ranges)
            own = Element(pieces[a], tuple(place.point[p] for p in matrices.rows), "uint32")
            out.collective(LoadPieces(own, pointer, offset, first, ROWS * panel))
    if nest.trails:
        out.collective(WaitFactors())
    with reductions.loops_over(out, place, matrices.rows):
        for a, name in held.items():
            at = tuple(place.point[p] for p in matrices.rows)
            out.collective(OrderPieces(Element(name, at, "uint32"), Element(pieces[a], at, "uint32")))


def held_fragment(context: Context, place: Place, matrices: Matrices, name: str) -> Element:
    """The fragment of a row of tiles for one step."""
    return Element(name, tuple(place.point[p] for p in (*matrices.rows, step_loop(context, matrices))), "uint32")
