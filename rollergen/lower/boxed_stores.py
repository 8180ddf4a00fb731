"""Results that leave in boxes by a copy engine (`Store.boxes`), round by round:

    the buffer is free | all threads of an instruction write | shown to the engine | one of them starts the boxes

The buffer of an instruction's threads has its rows, and the panels of a round; a thread writes its own results, or
those that threads of a row have exchanged, to swizzled rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rollergen.errors import ProgramError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Index, weighted_sum
from rollergen.hal.spec import Instruction
from rollergen.lower.box_ir import Box, FreeResults, ShowResults, StoreBoxes, map_name
from rollergen.lower.context import Context
from rollergen.lower.copies import Staged, buffer_access
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Pointer
from rollergen.lower.ir import LOCAL
from rollergen.lower.place import Place
from rollergen.lower.reductions import loops_over
from rollergen.program.boxes import Boxes, results_bytes, stored_boxes
from rollergen.program.matrix import (
    COLUMNS,
    PANEL_ALIGNMENT,
    PANEL_BYTES,
    SWIZZLE,
    exchanged_loops,
    exchanges,
    matrix_axes,
    matrix_instruction,
)
from rollergen.program.rows_apart import rows_apart
from rollergen.program.rprogram import GRID, GROUP, UNROLL, Copy

Target = Callable[[Place], Access]
"""Where a result is written, given its place."""


def store_in_boxes(context: Context, place: Place, write: Callable[[Place, Index, Target], None]) -> None:
    """Results of all tiles of an instruction's threads; ``write``: those from one tile along n on, in one row."""
    out, nest = context.out, context.nest
    stage, one = nest.stage, matrix_instruction(nest.stage, nest.device)
    if one is None:
        raise ProgramError(f"stage {stage.name}: results of {stage.compute.instruction} are no boxes")
    made, rounds = stored_boxes(stage, one)
    staged = _buffer(context, place, made, one)
    m, tiles = matrix_axes(stage)[0], exchanged_loops(stage, one)[0]
    inner = [(p, loop) for p, loop in stage.of_kind(UNROLL) if loop.axis == m]
    outer, rows = ([p for p, x in inner if (x.stride >= one.m) == far] for far in (True, False))
    of_round = made.panels * made.map.box[0] // one.n
    step = COLUMNS if exchanges(stage, one) else 1
    with loops_over(out, place, outer), out.loop(out.names.fresh("round"), rounds, (0, rounds - 1), unroll=True) as at:
        first = (at * of_round).simplify(out.ranges)
        target = lambda here: _target(context, here, staged, first * one.n, one.m)
        out.boxes(FreeResults())
        with loops_over(out, place, rows), out.loop(
            nest.variables[tiles], of_round // step, (0, of_round // step - 1), unroll=True
        ) as tile:
            write(place, first + tile * step, target)
        out.boxes(ShowResults())
        out.boxes(StoreBoxes(tuple(_boxes(context, place, made, staged, tiles, first, one.n))))


def results_buffer(context: Context) -> Pointer | None:
    """The array from which results leave in boxes, where they do: a buffer for the threads of each instruction."""
    nest, one = context.nest, matrix_instruction(context.nest.stage, context.nest.device)
    if not nest.stage.store.boxes or one is None:
        return None
    output = nest.op.output
    elements = results_bytes(nest.stage, one) // ITEMSIZE[output.dtype]
    return context.out.array("results", LOCAL, output.dtype, elements, PANEL_ALIGNMENT, True)


def _buffer(context: Context, place: Place, made: Boxes, one: Instruction) -> Staged:
    """The buffer of the threads of an instruction."""
    nest, rows = context.nest, one.m
    (m, n, _), panel = matrix_axes(nest.stage), made.map.box[0]
    apart = rows_apart(nest.stage, one)
    copy = Copy(-1, nest.device.backing.name, "", 0, (m, n), n, panel=panel, swizzle=SWIZZLE, apart=apart)
    shape, number = (rows, made.panels * panel), Index()
    for p, loop in nest.stage.of_kind(GROUP):
        if loop.axis != m or loop.stride >= rows:
            number = number * loop.extent + place.point[p]
    if context.ring is None or context.ring.results is None:
        raise ProgramError(f"stage {nest.stage.name}: results leave in boxes, but factors do not come so")
    return Staged(copy, context.ring.results, shape, number * (shape[0] * shape[1]))


def _target(context: Context, here: Place, staged: Staged, first: Index, rows: int) -> Access:
    """Where the buffer has the result of the place, ``first``: the first column of the round."""
    out, stage = context.out, context.nest.stage
    m, n, _ = matrix_axes(stage)
    row = weighted_sum([(here.point[p], x.stride) for p, x in stage.of_axis(m) if x.kind != GRID and x.stride < rows])
    column = weighted_sum([(here.point[p], x.stride) for p, x in stage.of_axis(n) if x.kind not in (GRID, GROUP)])
    column = (column - first).simplify(out.ranges)
    return replace(buffer_access(out, staged, (row.simplify(out.ranges), column)), alignment=PANEL_BYTES // SWIZZLE)


def _boxes(
    context: Context, place: Place, made: Boxes, staged: Staged, tiles: int, first: Index, width: int
) -> list[Box]:
    """The boxes of a round, whose first tile along n is ``first``, of tiles so wide."""
    out, nest = context.out, context.nest
    one = matrix_instruction(nest.stage, nest.device)
    m, n, _ = matrix_axes(nest.stage)
    inner = [p for p, x in nest.stage.of_axis(m) if x.kind != GRID and one is not None and x.stride < one.m]
    inner += [p for p, x in nest.stage.of_axis(n) if x.kind not in (GRID, GROUP)]
    name, found = nest.parameters[nest.op.output.name].name, []
    for panel in range(made.panels):
        tile = first + panel * (made.map.box[0] // width)
        corner = place.bind({**dict.fromkeys(inner, Index()), tiles: tile}).axes
        for part in range(made.parts):
            which, at = made.corner((m, n), corner, 0, part)
            at = tuple(one.simplify(out.ranges) for one in at)
            offset = (staged.stage + (panel * made.parts + part) * made.rows * made.map.box[0]).simplify(out.ranges)
            found.append(Box(map_name(name, which), at, *out.place(staged.pointer, offset), 1))
    return found
