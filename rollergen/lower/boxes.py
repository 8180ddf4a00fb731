"""Loops whose tiles a copy engine brings in boxes (`Copy.boxes`): a ring of buffers, with a barrier for each.

    barriers and the first tiles started
    each iteration:  all threads have read the oldest tile | its buffer refilled | this tile waited for | products

With a producer (`Compute.producer`) another barrier of each buffer tells it that all products have read the tile:

    barriers started
    producer:        each iteration: the buffer waited for | refilled
    other threads:   each iteration: this tile waited for | products | the tile before is free
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.lower.box_ir import Box, FillTile, FreeTile, Leave, StartBarriers, WaitTile
from rollergen.lower.context import Context
from rollergen.lower.expressions import Expr, Inside, Pointer
from rollergen.lower.ir import LOCAL
from rollergen.lower.pipelines import next_exists, stages_of
from rollergen.lower.place import Place
from rollergen.lower.writer import Writer
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
    ring = _start(context, copies)
    loop = out.loop(nest.variables[p], count, (0, nest.loops[p].extent - 1))
    if ring.freed is None:
        _fill_first(context, place, p, count, ring)
    else:
        _produce(context, place, p, loop, ring)
    with loop as at:
        if ring.freed is None:
            out.barrier()
            with out.when(next_exists(at, ring.ahead, count)):
                _fill(context, place, p, at + ring.ahead, ring)
        out.boxes(WaitTile(ring.filled, *ring.turn(out, at)))
        here = place
        for copy in copies:
            here = here.with_source(nest.load(copy), stages_of(context.buffers[copy], at, out.ranges))
        inside(here)
        if ring.freed is not None:
            _free(context, at, ring)


@dataclass(frozen=True, slots=True)
class _Ring:
    """Buffers of all ``copies``, ``depth`` of each, refilled so many iterations ``ahead``: their barriers for tiles
    that came and, with a producer, for buffers that are free; ``width``: the execution width that starts copies."""

    copies: list[Copy]
    depth: int
    ahead: int
    filled: Pointer
    freed: Pointer | None
    width: int

    def turn(self, out: Writer, tile: Index) -> tuple[Index, Index]:
        """The buffer of a tile, and the parity of how often it was filled before."""
        return (tile % self.depth).simplify(out.ranges), (tile // self.depth % 2).simplify(out.ranges)


def _start(context: Context, copies: list[Copy]) -> _Ring:
    """The ring, whose barriers are ready for all threads."""
    out, nest = context.out, context.nest
    depth, producer = copies[0].depth, nest.stage.compute.producer
    widths = nest.threads // nest.device.execution_width
    size = barrier_bytes(nest.stage) // BARRIER_BYTES // (1 + producer)
    filled = out.array("filled", LOCAL, "uint64", size, _ALIGNMENT, True)
    out.boxes(StartBarriers(filled, depth, 1))
    freed = None
    if producer:
        freed = out.array("freed", LOCAL, "uint64", size, _ALIGNMENT, True)
        out.boxes(StartBarriers(freed, depth, widths))
    out.barrier()
    return _Ring(copies, depth, depth - 1 - nest.trails, filled, freed, widths if producer else 0)


def _fill_first(context: Context, place: Place, p: int, count: int | Expr, ring: _Ring) -> None:
    """The first tiles, as many as the ring is refilled ahead, as far as there are so many."""
    for tile in range(ring.ahead if not isinstance(count, int) else min(ring.ahead, count)):
        exists = None if isinstance(count, int) else next_exists(Index.of(tile), 0, count)
        with nullcontext() if exists is None else context.out.when(exists):
            _fill(context, place, p, Index.of(tile), ring)


def _produce(context: Context, place: Place, p: int, loop: AbstractContextManager[Index], ring: _Ring) -> None:
    """What the producer does: it waits until a buffer is free (the first time it is), and refills it."""
    out, nest = context.out, context.nest
    assert ring.freed is not None
    with out.when(Inside(context.threads.thread, nest.threads, None)):
        with loop as at:
            number, parity = ring.turn(out, at)
            out.boxes(WaitTile(ring.freed, number, parity * -1 + 1))
            _fill(context, place, p, at, ring)
        out.boxes(Leave())


def _free(context: Context, at: Index, ring: _Ring) -> None:
    """The tile is free whose products have ended: this one, or where products trail the one before."""
    out, nest = context.out, context.nest
    assert ring.freed is not None
    if not nest.trails:
        out.boxes(FreeTile(ring.freed, (at % ring.depth).simplify(out.ranges)))
        return
    with out.when(Inside(at, 1, None)):
        out.boxes(FreeTile(ring.freed, ((at + (ring.depth - 1)) % ring.depth).simplify(out.ranges)))


def _fill(context: Context, place: Place, p: int, tile: Index, ring: _Ring) -> None:
    """Starts all boxes of a tile of every copy."""
    out, here = context.out, place.bind({p: tile})
    boxes = [box for copy in ring.copies for box in _boxes(context, here, copy, tile)]
    bytes_ = sum(boxes_of(context.nest.stage, copy, _longest(context, copy)).bytes for copy in ring.copies)
    out.boxes(FillTile(ring.filled, ring.turn(out, tile)[0], bytes_, tuple(boxes), ring.width))


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
