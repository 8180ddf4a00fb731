"""Loops whose tiles a copy engine brings in boxes (`Copy.boxes`): a ring of buffers, with a barrier for each.

    barriers and the first tiles started
    each iteration:  threads are through with the oldest tile | its buffer refilled | this tile waited for | products
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.lower.box_ir import Box, FillTile, StartBarriers, WaitTile
from rollergen.lower.context import Context
from rollergen.lower.expressions import Expr, Pointer
from rollergen.lower.ir import LOCAL
from rollergen.lower.pipelines import next_exists, stages_of
from rollergen.lower.place import Place
from rollergen.program.boxes import BARRIER_BYTES, barrier_bytes, boxes_of
from rollergen.program.rprogram import PARALLEL, Copy

_ALIGNMENT = 16


def write_boxes(
    context: Context, place: Place, p: int, count: int | Expr, copies: list[Copy], inside: Callable[[Place], None]
) -> None:
    """Serial loop `p` of `count` iterations, each of which finds its tile of every copy in place."""
    out, nest = context.out, context.nest
    if nest.open is not None:
        raise ProgramError(f"stage {nest.stage.name}: boxes along {nest.open.axis}, whose extent is an argument")
    depth = copies[0].depth
    ahead = depth - 1 - nest.trails
    barriers = out.array("filled", LOCAL, "uint64", barrier_bytes(nest.stage) // BARRIER_BYTES, _ALIGNMENT, True)
    out.boxes(StartBarriers(barriers, depth))
    out.barrier()
    for tile in range(ahead if not isinstance(count, int) else min(ahead, count)):
        exists = None if isinstance(count, int) else next_exists(Index.of(tile), 0, count)
        with nullcontext() if exists is None else out.when(exists):
            _fill(context, place.bind({p: Index.of(tile)}), copies, barriers, Index.of(tile))
    with out.loop(nest.variables[p], count, (0, nest.loops[p].extent - 1)) as at:
        out.barrier()
        with out.when(next_exists(at, ahead, count)):
            _fill(context, place.bind({p: at + ahead}), copies, barriers, at + ahead)
        out.boxes(WaitTile(barriers, (at % depth).simplify(out.ranges), (at // depth % 2).simplify(out.ranges)))
        here = place
        for copy in copies:
            here = here.with_source(nest.load(copy), stages_of(context.buffers[copy], at, out.ranges))
        inside(here)


def _fill(context: Context, place: Place, copies: list[Copy], barriers: Pointer, tile: Index) -> None:
    """Starts all boxes of a tile of every copy."""
    out = context.out
    boxes = [box for copy in copies for box in _boxes(context, place, copy, tile)]
    bytes_ = sum(boxes_of(context.nest.stage, copy, _longest(context, copy)).bytes for copy in copies)
    number = (tile % copies[0].depth).simplify(out.ranges)
    out.boxes(FillTile(barriers, number, bytes_, tuple(boxes)))


def _longest(context: Context, copy: Copy) -> int:
    return context.nest.device.layer(copy.to_layer).box_extent


def _boxes(context: Context, place: Place, copy: Copy, tile: Index) -> list[Box]:
    """The boxes of one tile: of each panel, from its first row on."""
    out, nest = context.out, context.nest
    made = boxes_of(nest.stage, copy, _longest(context, copy))
    inner = (p for p, loop in enumerate(nest.loops) if loop.kind in PARALLEL or p >= copy.at_loop)
    corner = place.bind(dict.fromkeys(inner, Index())).axes
    staged, found = stages_of(context.buffers[copy], tile, out.ranges), []
    name = nest.parameters[nest.load(copy).buffer.name].name
    for panel in range(made.panels):
        for part in range(made.parts):
            steps = {copy.order[-1]: panel * copy.panel, copy.order[0]: part * made.rows}
            at = tuple((corner[axis] + steps.get(axis, 0)).simplify(out.ranges) for axis in made.axes)
            row = panel * staged.shape[0] + part * made.rows
            found.append(Box(name, at, *out.place(staged.pointer, staged.stage + row * copy.panel)))
    return found
