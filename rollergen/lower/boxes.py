"""Loops whose tiles a copy engine brings in boxes (`Copy.boxes`): a ring of buffers, with a barrier for each.

    barriers and the first tiles started
    each iteration:  all threads have read the oldest tile | its buffer refilled | this tile waited for | products

With a producer (`Compute.producer`) another barrier of each buffer tells it that all products have read the tile:

    barriers started
    producer:        each iteration: the buffer waited for | refilled
    other threads:   each iteration: this tile waited for | products | the tile before is free

In a persistent grid (`BlockOrder.launched`) both run through the block's outputs, and the producer is ahead of the
others from one to the next.

The blocks of a cluster (`BlockOrder.cluster`) wait for each other before the first tile and at the end.  A buffer is
free once the products of all of them have read it, for each brings its part of what they share to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from rollergen.errors import ProgramError
from rollergen.expr.index import Index
from rollergen.lower.box_ir import (
    Box,
    FillTile,
    FreeTile,
    Leave,
    MeetCluster,
    StartBarriers,
    WaitStores,
    WaitTile,
    map_name,
)
from rollergen.lower.boxed_stores import results_buffer
from rollergen.lower.context import Context, Ring
from rollergen.lower.expressions import Expr, Inside, Position
from rollergen.lower.grid import define_grid
from rollergen.lower.ir import LOCAL
from rollergen.lower.pipelines import next_exists, stages_of
from rollergen.lower.place import Place, is_uniform, trip_count
from rollergen.program.boxes import BARRIER_BYTES, barrier_bytes, boxes_of
from rollergen.program.rprogram import PARALLEL, Copy

_ALIGNMENT = 16


def write_in_boxes(context: Context, write: Callable[[Context], None]) -> None:
    """A stage whose outputs ``write`` computes, once its barriers are ready and what its producer does is written."""
    out, nest, ring = context.out, context.nest, _start(context)
    if ring.freed is not None:
        with out.when(Inside(context.threads.thread, nest.threads, None)):
            with _each_output(context, ring) as own:
                _produce(context, own)
            if ring.cluster > 1:
                out.boxes(MeetCluster())
            out.boxes(Leave())
    with _each_output(context, ring) as own:
        write(replace(context, ring=own))
    if nest.stage.store.boxes:
        out.boxes(WaitStores())
    if ring.cluster > 1:
        out.boxes(MeetCluster())


def write_boxes(
    context: Context, place: Place, p: int, count: int | Expr, copies: list[Copy], inside: Callable[[Place], None]
) -> None:
    """Serial loop `p` of `count` iterations, each of which finds its tile of every copy in place."""
    out, nest, ring = context.out, context.nest, context.ring
    if ring is None or nest.open is not None:
        raise ProgramError(f"stage {nest.stage.name}: boxes along {nest.loops[p].axis}, whose extent is an argument")
    if ring.freed is None:
        _fill_first(context, place, p, count, ring)
    with out.loop(nest.variables[p], count, (0, nest.loops[p].extent - 1)) as at:
        if ring.freed is None:
            out.barrier()
            with out.when(next_exists(at, ring.ahead, count)):
                _fill(context, place, p, at + ring.ahead, ring)
        out.boxes(WaitTile(ring.filled, *ring.turn(out, at)))
        here = place
        for copy in copies:
            here = here.with_source(nest.load(copy), stages_of(context.buffers[copy], ring.before + at, out.ranges))
        inside(here)
        if ring.freed is not None:
            _free_in_turn(context, at, ring)


def free_last(context: Context, place: Place) -> None:
    """The last tile of an output is free, too, for that of the next one."""
    ring, nest = context.ring, context.nest
    if ring is None or ring.freed is None or not nest.launched or not nest.trails:
        return
    last = Index.of(_count(context, place) - 1)
    context.out.boxes(FreeTile(ring.freed, ring.turn(context.out, last)[0], 0, ring.cluster))


def _start(context: Context) -> Ring:
    """The ring, whose barriers are ready for all threads."""
    out, nest = context.out, context.nest
    copies, producer = list(nest.boxes), nest.stage.compute.producer
    cluster = max(1, nest.stage.block_order.cluster)
    depth, widths = copies[0].depth, nest.threads // nest.device.execution_width
    results = results_buffer(context)
    size = barrier_bytes(nest.stage) // BARRIER_BYTES // (1 + producer)
    filled = out.array("filled", LOCAL, "uint64", size, _ALIGNMENT, True)
    out.boxes(StartBarriers(filled, depth, 1))
    freed = None
    if producer:
        freed = out.array("freed", LOCAL, "uint64", size, _ALIGNMENT, True)
        out.boxes(StartBarriers(freed, depth, widths * cluster))
    if cluster > 1:
        out.boxes(MeetCluster())
    else:
        out.barrier()
    ahead, width = depth - 1 - nest.trails, widths if producer else 0
    return Ring(copies, depth, ahead, filled, freed, width, Index(), cluster, results)


@contextmanager
def _each_output(context: Context, ring: Ring) -> Iterator[Ring]:
    """The ring at each output of the block, one after the other."""
    out, nest = context.out, context.nest
    if not nest.launched:
        yield ring
        return
    left = Index.axis(context.block) * -1 + (nest.blocks - 1 + nest.launched)
    count = (left // nest.launched).simplify(out.ranges)
    low, high = count.bounds(out.ranges)
    variable, number = out.names.fresh("output"), out.names.fresh("number")
    with out.loop(variable, high if low == high else Position(count), (0, high - 1)) as at:
        out.define(number, Position(Index.axis(context.block) + at * nest.launched), (0, nest.blocks - 1))
        define_grid(out, nest, number)
        yield replace(ring, before=at * _count(context, Place.outermost(nest)))


def _loop(ring: Ring) -> int:
    """Position of the loop whose tiles the ring holds."""
    return ring.copies[0].at_loop - 1


def _count(context: Context, place: Place) -> int:
    """Tiles of an output of a persistent grid."""
    nest, p = context.nest, context.nest.boxes[0].at_loop - 1
    count = trip_count(place, p, is_uniform(nest, p), context.out.ranges)
    if not isinstance(count, int):
        raise ProgramError(f"stage {nest.stage.name}: outputs of a persistent grid have different numbers of tiles")
    return count


def _fill_first(context: Context, place: Place, p: int, count: int | Expr, ring: Ring) -> None:
    """The first tiles, as many as the ring is refilled ahead, as far as there are so many."""
    for tile in range(ring.ahead if not isinstance(count, int) else min(ring.ahead, count)):
        exists = None if isinstance(count, int) else next_exists(Index.of(tile), 0, count)
        with nullcontext() if exists is None else context.out.when(exists):
            _fill(context, place, p, Index.of(tile), ring)


def _produce(context: Context, ring: Ring) -> None:
    """What the producer does: it waits until a buffer is free (the first time it is), and refills it."""
    out, nest, p = context.out, context.nest, _loop(ring)
    assert ring.freed is not None
    place = Place.outermost(nest)
    count = trip_count(place, p, is_uniform(nest, p), out.ranges)
    if not isinstance(count, int):
        count = out.let(f"{nest.variables[p]}_count", count)
    with out.loop(nest.variables[p], count, (0, nest.loops[p].extent - 1)) as at:
        number, parity = ring.turn(out, at)
        out.boxes(WaitTile(ring.freed, number, parity * -1 + 1))
        _fill(context, place, p, at, ring)


def _free_in_turn(context: Context, at: Index, ring: Ring) -> None:
    """The tile is free whose products have ended: this one, or where products trail the one before."""
    out, nest = context.out, context.nest
    assert ring.freed is not None
    if not nest.trails:
        out.boxes(FreeTile(ring.freed, ring.turn(out, at)[0], 0, ring.cluster))
        return
    with out.when(Inside(at, 1, None)):
        out.boxes(FreeTile(ring.freed, ring.turn(out, at + (ring.depth - 1))[0], 1, ring.cluster))


def _fill(context: Context, place: Place, p: int, tile: Index, ring: Ring) -> None:
    """Starts all boxes of a tile of every copy."""
    out, here = context.out, place.bind({p: tile})
    boxes = [box for copy in ring.copies for box in _boxes(context, here, copy, ring.before + tile)]
    bytes_ = sum(boxes_of(context.nest.stage, copy, _longest(context, copy)).bytes for copy in ring.copies)
    out.boxes(FillTile(ring.filled, ring.turn(out, tile)[0], bytes_, tuple(boxes), ring.width))


def _longest(context: Context, copy: Copy) -> int:
    return context.nest.device.layer(copy.to_layer).box_extent


def _boxes(context: Context, place: Place, copy: Copy, filling: Index) -> list[Box]:
    """The boxes of one tile, of that number in the ring: of each panel, from its first row on; those of a tile that
    blocks share which this one brings."""
    out, nest = context.out, context.nest
    made = boxes_of(nest.stage, copy, _longest(context, copy))
    inner = (p for p, loop in enumerate(nest.loops) if loop.kind in PARALLEL or p >= copy.at_loop)
    corner = place.bind(dict.fromkeys(inner, Index())).axes
    staged, found = stages_of(context.buffers[copy], filling, out.ranges), []
    name = nest.parameters[nest.load(copy).buffer.name].name
    own = made.count // made.sharing
    first = Index.axis(context.block) % made.sharing * own if made.sharing > 1 else 0
    for number in range(own):
        panel, part = (first + number) // made.parts, (first + number) % made.parts
        if own % made.parts == 0:  # each block has whole panels
            part = number % made.parts
        which, at = made.corner(copy.order, corner, panel * copy.panel, part)
        at = tuple(one.simplify(out.ranges) for one in at)
        row = panel * staged.shape[0] + part * made.rows
        offset = (staged.stage + row * copy.panel).simplify(out.ranges)
        found.append(Box(map_name(name, which), at, *out.place(staged.pointer, offset), made.sharing))
    return found
