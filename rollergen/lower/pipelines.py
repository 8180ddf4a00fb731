"""Copies made ahead of their use: two buffers and registers between, or a ring of buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.lower.context import Context
from rollergen.lower.copies import Staged
from rollergen.lower.expressions import Element, Expr, Inside, Operation, Position, moved_dtype
from rollergen.lower.fills import Groups, copied_value, each_group, fill_shared, move, thread_part
from rollergen.lower.ir import Route
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place
from rollergen.lower.realigned import WORDS, fetch_around, store_around
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import Copy
from rollergen.program.windows import overlaps


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Registers that hold a thread's part of the next tile: vectors, or the words around them (`lower.realigned`)."""

    staged: Staged
    load: Load
    register: str
    lanes: int
    steps: int
    dtype: str

    def element(self, step: Index) -> Element:
        return Element(self.register, (step,) if self.steps > 1 else (), self.dtype, self.lanes)


def write_pipeline(
    context: Context, place: Place, p: int, count: int | Expr, copies: list[Copy], inside: Callable[[Place], None]
) -> None:
    """Serial loop `p` of `count` iterations, each of which finds its tile of every copy in place."""
    out, nest = context.out, context.nest
    double = [copy for copy in copies if copy.depth == 2 and not copy.asynchronous]
    ring = [copy for copy in copies if copy not in double]
    behind = 1 + nest.trails  # buffers of a ring that are in use
    pending = min((copy.depth for copy in ring if copy.asynchronous), default=None)
    _start_ring(context, place, ring, p, count, behind)
    fetched = _fetch_first(context, place.bind({p: Index()}), double)
    with out.loop(nest.variables[p], count, (0, nest.loops[p].extent - 1)) as at:
        if ring:
            out.barrier(None if pending is None else pending - behind - 1, nest.products)
            _advance_ring(context, place, ring, p, at, count, behind)
        following = place.bind({p: at + 1})
        if double:
            with out.when(next_exists(at, 1, count)):
                for one in fetched:
                    prefetch(context, following, one)
        here = place
        for copy in copies:
            here = here.with_source(nest.load(copy), stages_of(context.buffers[copy], at, out.ranges))
        inside(here)
        if double:
            with out.when(next_exists(at, 1, count)):
                for one in fetched:
                    deposit(context, following, one, stages_of(one.staged, at + 1, out.ranges))
            out.barrier(products=nest.products)
    if ring:
        out.barrier(products=nest.products)


def make_prefetch(out: Writer, nest: Nest, staged: Staged, load: Load) -> Prefetch:
    vector, (_, _, steps) = staged.copy.vector, thread_part(staged, nest)
    dtype, own = moved_dtype(load.dtype), (steps,) if steps > 1 else ()
    if staged.copy.realigned:
        name = out.register(f"{load.buffer.name}_next", "uint32", (*own, WORDS))
        return Prefetch(staged, load, name, 1, steps, "uint32")
    name = out.register(f"{load.buffer.name}_next", dtype, own, vector)
    return Prefetch(staged, load, name, vector, steps, dtype)


def prefetch(context: Context, place: Place, fetched: Prefetch) -> None:
    """A thread's part of the tile at this point into its registers."""
    out = context.out
    if fetched.staged.copy.realigned:
        thread = context.threads.thread
        return fetch_around(out, place, fetched.staged, fetched.load, thread, context.step, fetched.element)

    def fetch(groups: Groups, at: Index) -> None:
        out.assign(fetched.element(at), copied_value(out, groups.place, fetched.load, groups.lane))

    each_group(out, place, fetched.staged, context.step, context.threads.thread, fetch)


def deposit(context: Context, place: Place, fetched: Prefetch, staged: Staged) -> None:
    """The registers into the buffer of `staged`."""
    if staged.copy.realigned:
        thread = context.threads.thread
        return store_around(context.out, place, staged, fetched.load, thread, context.step, fetched.element)

    def put(groups: Groups, at: Index) -> None:
        move(context.out, groups, fetched.element(at))

    each_group(context.out, place, staged, context.step, context.threads.thread, put)


def stages_of(staged: Staged, at: Index, ranges: Mapping[str, Bounds]) -> Staged:
    """`staged` with the buffer for iteration `at` in use."""
    stage = (at % staged.copy.depth).simplify(ranges) * staged.tile
    return Staged(staged.copy, staged.pointer, staged.shape, stage)


def next_exists(at: Index, ahead: int, count: int | Expr) -> Expr:
    """Whether iteration ``at + ahead`` is still one of the loop."""
    if isinstance(count, int):
        return Inside(at + ahead, None, count)
    return Operation("lt", (Position(at + ahead, count.dtype), count), "bool")


def _fetch_first(context: Context, first: Place, copies: list[Copy]) -> list[Prefetch]:
    """The first tile of every double-buffered copy in place, and registers for the next ones."""
    out, nest = context.out, context.nest
    fetched = []
    for copy in copies:
        one = make_prefetch(out, nest, context.buffers[copy], nest.load(copy))
        prefetch(context, first, one)
        deposit(context, first, one, context.buffers[copy])
        fetched.append(one)
    if copies:
        out.barrier(products=nest.products)
    return fetched


def _start_ring(
    context: Context, place: Place, copies: list[Copy], p: int, count: int | Expr, behind: int
) -> None:
    """All but the last buffers of every ring, as far as there are tiles."""
    for tile in range(max((copy.depth - behind for copy in copies), default=0)):
        for copy in copies:
            if tile >= copy.depth - behind:
                continue
            if not isinstance(count, int):
                with context.out.when(next_exists(Index.of(tile), 0, count)):
                    _fill_stage(context, place, copy, p, Index.of(tile))
            elif tile < count:
                _fill_stage(context, place, copy, p, Index.of(tile))
        _end_group(context, copies)


def _advance_ring(
    context: Context, place: Place, copies: list[Copy], p: int, at: Index, count: int | Expr, behind: int
) -> None:
    """The tile that follows those already under way, into the buffer that was used last (of two: the one before)."""
    for copy in copies:
        with context.out.when(next_exists(at, copy.depth - behind, count)):
            _fill_stage(context, place, copy, p, at + (copy.depth - behind))
    _end_group(context, copies)


def _end_group(context: Context, copies: list[Copy]) -> None:
    """One group a tile, empty where there is none left: waits count groups."""
    if any(copy.asynchronous for copy in copies):
        context.out.end_group()


def _fill_stage(context: Context, place: Place, copy: Copy, p: int, tile: Index) -> None:
    staged = stages_of(context.buffers[copy], tile, context.out.ranges)
    load = context.nest.load(copy)
    there = place.bind({p: tile})
    route = Route.REGISTERS
    if copy.asynchronous:
        route = Route.THROUGH_CACHE if overlaps(load.indices, context.nest.stage.op.extents()) else Route.PAST_CACHE
    fill_shared(context.out, there, staged, load, context.threads.thread, context.step, route)
