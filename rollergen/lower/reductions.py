"""Accumulators: started, combined with at every point, finished across chains, lanes and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from rollergen.errors import ProgramError
from rollergen.expr.index import Index, weighted_sum
from rollergen.expr.rows import without_nan_checks
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Combiner
from rollergen.hal.dataclass import dataclass
from rollergen.lower import exchanges
from rollergen.lower.access import fetch, has_edge
from rollergen.lower.arithmetic import combine, inside_lanes, zero_when_masked
from rollergen.lower.at_once import put_together
from rollergen.lower.best_lane import best_lane
from rollergen.lower.elements import Access
from rollergen.lower.expressions import (
    Element,
    Expr,
    Inside,
    Name,
    Number,
    Operation,
    Pick,
    Read,
    register_dtype,
)
from rollergen.lower.ir import LOCAL, Assign, For, Statement, Write
from rollergen.lower.masks import select, widen
from rollergen.lower.nan_tests import NanTests, chains, make_tests, told
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, Registers, Scope, is_uniform, trip_count, when_all
from rollergen.lower.register_tiles import RegisterTile
from rollergen.lower.writer import Writer
from rollergen.program.loops import flush_depths, in_order
from rollergen.program.rprogram import UNROLL


@dataclass(frozen=True, slots=True)
class Accumulators:
    """Registers of one level of a reduction (see `Accumulator.flush`): for each component an array over the loops at
    ``positions``, those that are ``separate`` among them; ``tests``: how its chains find NaN, None where each finds its
    own; ``in_order``: what a term behind all those before it is combined by, None where that is not known."""

    reduction: Reduction
    components: tuple[Registers, ...]
    positions: tuple[int, ...]
    separate: tuple[int, ...]
    tests: NanTests | None = None
    in_order: Combiner | None = None

    @property
    def chained(self) -> Combiner:
        """The combiner of chains."""
        return self.reduction.combiner if self.tests is None else self.tests.combiner


@dataclass(frozen=True, slots=True)
class Threads:
    """How a block's threads share reductions: ``rank`` of ``count`` within those of one output.

    ``thread`` is the linear number; a reduction's partial results lie at ``segment * count + rank``.
    """

    thread: Index
    rank: Index
    segment: Index
    count: int


@contextmanager
def loops_over(
    out: Writer, place: Place, positions: Sequence[int], rolled: bool = False, together: bool = False
) -> Iterator[None]:
    """The loops at `positions`, nested, each with its own variable.

    `rolled`: none is unrolled.  `together`: there are barriers inside, so that all threads go round equally often.
    """
    nest = place.nest
    counts = [trip_count(place, p, together or is_uniform(nest, p), out.ranges) for p in positions]
    with ExitStack() as loops:
        for p, count in zip(positions, counts, strict=True):
            loop = nest.loops[p]
            unroll = loop.kind == UNROLL and not rolled
            loops.enter_context(out.loop(nest.variables[p], count, (0, loop.extent - 1), unroll))
        yield


def thread_shares(nest: Nest, thread: Index) -> Threads:
    """The threads' parts in the stage's reductions."""
    rank: list[tuple[Index, int]] = []
    segment: list[tuple[Index, int]] = []
    count = size = 1
    for p, loop in reversed(nest.parallel):
        if nest.roles[loop.axis] == "spatial":
            segment.append((Index.axis(nest.variables[p]), size))
            size *= loop.extent
        else:
            rank.append((Index.axis(nest.variables[p]), count))
            count *= loop.extent
    return Threads(thread, weighted_sum(rank), weighted_sum(segment), count)


def reduces_lanes(nest: Nest) -> bool:
    """Whether the lane loop's lanes are combined at the end."""
    return nest.lane_axis is not None and nest.roles[nest.lane_axis] != "spatial"


def make_levels(out: Writer, nest: Nest, reduction: Reduction) -> tuple[Accumulators, ...]:
    """The accumulators of every level, the outermost first; only the innermost have chains of their own."""
    if "max" not in out.native:  # a function of the language keeps NaN at no cost
        reduction = without_nan_checks(nest.op, reduction)
    outer = [accumulators(out, nest, reduction, ()) for _ in flush_depths(nest.stage, reduction)]
    inner = accumulators(out, nest, reduction, nest.stage.accumulator.separate)
    return (*outer, replace(inner, in_order=in_order(nest.stage, reduction)))


def accumulators(out: Writer, nest: Nest, reduction: Reduction, separate: tuple[int, ...]) -> Accumulators:
    """Registers for every iteration of the spatial loops inside, and of the chains that are ``separate``; those of a
    matrix instruction's tile are neighbours."""
    spatial = nest.positions("spatial", after=nest.tile_depth)
    positions = (*separate, *spatial) if nest.instruction is not None else (*spatial, *separate)
    lanes = nest.lane.width if nest.lane else 1
    shape = tuple([nest.loops[p].extent for p in positions])
    components = []
    digits = tuple([((p, 1),) for p in positions])
    for number, body in enumerate(reduction.bodies):
        wish = "acc" if len(reduction.bodies) == 1 else f"acc{number}"
        dtype = register_dtype(body.dtype)
        name = out.register(wish, dtype, shape, lanes)
        components.append(Registers(name, digits, dtype, lanes))
    tests = make_tests(out, nest, reduction, positions, separate, components[0])
    return Accumulators(reduction, tuple(components), positions, separate, tests)


def identities(acc: Accumulators, lanes: int) -> tuple[Number, ...]:
    return tuple(
        Number(c.value, r.dtype, lanes) for c, r in zip(acc.reduction.combiner.identity, acc.components, strict=True)
    )


def start(out: Writer, place: Place, acc: Accumulators) -> None:
    """Every accumulator at the identity, also those that only serve to meet other threads."""
    nest, together = place.nest, place.nest.stage.accumulator.combine != "none"
    pairs = zip(acc.components, identities(acc, acc.components[0].lanes), strict=True)
    body: tuple[Statement, ...] = tuple([Assign(place.element(registers), identity) for registers, identity in pairs])
    for p in reversed(acc.positions):
        count = trip_count(place, p, together or is_uniform(nest, p), out.ranges)
        body = (For(nest.variables[p], 0, count, body, nest.loops[p].kind == UNROLL),)
    out.add(body)
    if acc.tests is not None:
        met = acc.tests.met
        with loops_over(out, place, [p for p in acc.positions if p not in acc.separate]):
            out.assign(place.element(met), Number(0, met.dtype, met.lanes))


def flush(out: Writer, scope: Scope, inner: Accumulators, outer: Accumulators) -> None:
    """Combines a block of terms, its chains put together, into the accumulators of the level outside."""
    with loops_over(out, scope.place, outer.positions):
        _combine_into(out, scope, outer, _across_chains(out, scope, inner))


def _combine_into(out: Writer, scope: Scope, acc: Accumulators, values: tuple[Expr, ...]) -> None:
    old = tuple(scope.place.element(registers) for registers in acc.components)
    for element, value in zip(old, combine(out, scope, acc.in_order or acc.chained, old, values), strict=True):
        out.assign(element, _as(element, value))


def _add_waiting(out: Writer, scope: Scope, acc: Accumulators, output: Access) -> None:
    """What waits in the output (`output`: for the point of the nest) combined with the accumulators."""
    place, lane, registers = scope.place, scope.lane, acc.components[0]
    tile = None
    if has_edge(out, output, lane) and lane is not None:
        tile = RegisterTile.allocate(out, place.nest, acc.positions, registers.dtype)
        with loops_over(out, place, acc.positions, rolled=True):
            tile.write(out, place, fetch(out, output, lane, "partial"))
    with loops_over(out, place, acc.positions):
        waiting = tile.read(place) if tile is not None else fetch(out, output, lane, "partial")
        _put_behind(out, scope, acc, registers, waiting)


def _put_behind(out: Writer, scope: Scope, acc: Accumulators, registers: Registers, waiting: Expr) -> None:
    """What waits combined with what the registers hold, in the registers."""
    element = scope.place.element(registers)
    (value,) = combine(out, scope, acc.reduction.combiner, (waiting,), (element,))
    out.assign(element, value)


def is_split(nest: Nest, acc: Accumulators, threads: Threads) -> bool:
    """Whether one output has several accumulators."""
    return bool(acc.separate) or reduces_lanes(nest) or threads.count > 1


def update(out: Writer, scope: Scope, acc: Accumulators, bodies: tuple[Expr, ...]) -> None:
    """Combines the point's bodies into its accumulators; a masked point contributes the identity."""
    condition = unmasked(out, scope, acc.reduction)
    if condition is not None:
        pairs = zip(bodies, identities(acc, 1), strict=True)
        bodies = tuple(select(condition, body, identity) for body, identity in pairs)
    if acc.tests is not None:
        held = scope.place.element(acc.tests.held)
        out.assign(held, _as(held, bodies[0]))
        bodies = (held,)
    _combine_into(out, scope, acc, bodies)


def _as(element: Element, value: Expr) -> Expr:
    """`value` with the lanes and dtype of the register."""
    return widen(value, Number(0, element.dtype, element.lanes))[0] if value.lanes != element.lanes else value


def unmasked(out: Writer, scope: Scope, reduction: Reduction) -> Expr | None:
    """The condition under which the point counts; None where it always does or where the loads' zeros see to it."""
    place = scope.place
    condition: Expr | None = None
    for axis in reduction.axes:
        if not place.unsure(axis) or _zeros_suffice(reduction, axis):
            continue
        test = place.inside(place.axis_test(axis), out.ranges)
        if test is None:
            continue
        one: Expr = test
        if scope.lane is not None and scope.lane.variable in test.index.axes():
            one = inside_lanes(out, scope, Index.axis(axis), place.nest.extents[axis])
        elif place.nest.stage.kept_rows:
            one = _known_or(out, test)
        condition = one if condition is None else _both(condition, one)
    return condition


def _known_or(out: Writer, test: Inside) -> Expr:
    """The test, behind one of the unrolled loop alone that already holds in all but the last iterations: a compiler
    leaves the test out there, else it keeps each chosen value beside the row's own (23 registers more of a row of
    3,000, counted for sm_70)."""
    steps = [(factor, atom) for atom, factor in test.index.terms if isinstance(atom, str) and atom in out.unrolled]
    factor, variable = max(steps, default=(0, ""))
    if factor <= 0 or test.low is not None or test.high is None:
        return test
    _, rest = (test.index - Index.axis(variable) * factor).bounds(out.ranges)
    whole = (test.high - 1 - rest) // factor + 1
    return Operation("or", (Inside(Index.axis(variable), None, whole), test), "bool") if whole > 0 else test


def _both(a: Expr, b: Expr) -> Expr:
    if a.lanes == b.lanes:
        return Operation("and", (a, b), a.dtype, a.lanes)
    scalar, mask = (a, b) if a.lanes == 1 else (b, a)
    return Operation("select", (scalar, mask, Number(0, mask.dtype, mask.lanes)), mask.dtype, mask.lanes)


def _zeros_suffice(reduction: Reduction, axis: str) -> bool:
    return reduction.combiner.name == "sum" and all(zero_when_masked(body, axis) for body in reduction.bodies)


# Finishing -------------------------------------------------------------------------------------


def finish(
    out: Writer, scope: Scope, acc: Accumulators, threads: Threads, output: Access | None, first: Expr | None
) -> tuple[Registers, ...]:
    """The reduction's results over the spatial loops, combined across chains, lanes and threads.

    ``output`` and ``first``: where partial results of earlier passes wait, and the condition under which there are
    none yet.
    """
    nest = scope.place.nest
    if not is_split(nest, acc, threads):
        if output is not None and first is not None:
            with out.when(Operation("not", (first,), "bool")):
                _add_waiting(out, scope, acc, output)
        return acc.components
    spatial = nest.positions("spatial", after=nest.tile_depth)
    lanes = 1 if reduces_lanes(nest) else acc.components[0].lanes
    shape = tuple(nest.loops[p].extent for p in spatial)
    if not spatial and output is None:
        return tuple(Registers(total.name, (), total.dtype, lanes) for total in _folded(out, scope, acc, threads))
    names = tuple(out.register(f"{acc.reduction.name}_total", c.dtype, shape, lanes) for c in acc.components)
    totals = tuple(
        Registers(name, tuple(((p, 1),) for p in spatial), c.dtype, lanes)
        for name, c in zip(names, acc.components, strict=True)
    )
    if nest.stage.accumulator.combine == "at_once":
        own = lambda: _across_chains(out, scope, acc)
        thread = (threads.rank, threads.segment, threads.count)
        put_together(out, scope, acc.reduction.combiner, totals, spatial, own, thread, loops_over)
        return totals
    with loops_over(out, scope.place, spatial, together=threads.count > 1):
        for registers, value in zip(totals, _folded(out, scope, acc, threads), strict=True):
            out.assign(scope.place.element(registers), value)
        if output is not None and first is not None:
            with out.when(Operation("not", (first,), "bool")):
                waiting = fetch(out, output, None if totals[0].lanes == 1 else scope.lane, "partial")
                _put_behind(out, scope, acc, totals[0], waiting)
    return totals


def _folded(out: Writer, scope: Scope, acc: Accumulators, threads: Threads) -> tuple[Name, ...]:
    """The accumulators of one output combined."""
    values = _across_chains(out, scope, acc)
    if reduces_lanes(scope.place.nest):
        values = _across_lanes(out, scope, acc, values)
    if threads.count > 1:
        values = _across_threads(out, scope, acc, values, threads)
    return tuple(v if isinstance(v, Name) else out.let(f"{acc.reduction.name}_total", v) for v in values)


def _across_chains(out: Writer, scope: Scope, acc: Accumulators) -> tuple[Expr, ...]:
    values: tuple[Expr, ...] = ()
    for at in chains(scope.place, acc.separate):
        elements = tuple(at.element(registers) for registers in acc.components)
        values = _fold(out, scope, acc.chained, values, elements, "chains") if values else elements
    return values if acc.tests is None else (out.let("chains", told(scope.place, acc.tests, values[0])),)


def _fold(
    out: Writer, scope: Scope, combiner: Combiner, a: tuple[Expr, ...], b: tuple[Expr, ...], wish: str
) -> tuple[Expr, ...]:
    new = combine(out, scope, combiner, a, b)
    return tuple(value if isinstance(value, Name) else out.let(wish, value) for value in new)


def _across_lanes(out: Writer, scope: Scope, acc: Accumulators, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Halves, again and again: a shuffle each (neighbours would take two, and more where many sums are combined)."""
    whole = tuple(out.atom("lanes", value) for value in values)
    width = whole[0].lanes
    if width & (width - 1):
        raise ProgramError(f"{scope.place.nest.stage.name}: {width} lanes to combine; expected a power of two")
    if acc.in_order is not None:
        return best_lane(out, acc.reduction.combiner, *whole)
    while whole[0].lanes > 1:
        last = whole[0].lanes == 2
        left = tuple(Pick(v, 0 if last else "lo") for v in whole)
        right = tuple(Pick(v, 1 if last else "hi") for v in whole)
        whole = _fold(out, scope, acc.reduction.combiner, left, right, "lanes")
    return whole


def _across_threads(
    out: Writer, scope: Scope, acc: Accumulators, values: tuple[Expr, ...], threads: Threads
) -> tuple[Expr, ...]:
    """As the program says, and in local memory where the language has no exchange of registers."""
    nest = scope.place.nest
    how = nest.stage.accumulator.combine
    if how == "tree" or not nest.exchanges:
        return _by_tree(out, scope, acc, values, threads)
    values = exchanges.across_width(out, scope, acc.reduction, values, threads.thread)
    if how == "groups":
        values = exchanges.across_groups(out, scope, acc.reduction, values, threads.thread, threads.segment)
    return values


def _by_tree(
    out: Writer, scope: Scope, acc: Accumulators, values: tuple[Expr, ...], threads: Threads
) -> tuple[Expr, ...]:
    """A tree in local memory: halves are folded until one is left, which all threads read."""
    count, block = threads.count, scope.place.nest.threads
    arrays = [
        out.array(f"{acc.reduction.name}_threads", LOCAL, c.dtype, block * c.lanes, 16 * c.lanes, whole_kernel=True)
        for c in acc.components
    ]
    lanes = acc.components[0].lanes if not reduces_lanes(scope.place.nest) else 1
    cell = lambda rank: ((threads.segment * count + rank) * lanes).simplify(out.ranges)
    read = lambda array, rank: Read(array, cell(rank), array.dtype, lanes)
    for array, value in zip(arrays, values, strict=True):
        out.write(Write(array, cell(threads.rank), value))
    out.barrier()
    reach = 1 << (count - 1).bit_length()
    while reach > 1:
        reach //= 2
        with when_all(out, [Inside(threads.rank, None, min(reach, count - reach))]):
            mine = tuple(read(array, threads.rank) for array in arrays)
            other = tuple(read(array, threads.rank + reach) for array in arrays)
            new = combine(out, scope, acc.reduction.combiner, mine, tuple(out.let("other", o) for o in other))
            for array, value in zip(arrays, new, strict=True):
                out.write(Write(array, cell(threads.rank), value))
        out.barrier()
    results = tuple(out.let("total", read(array, Index())) for array in arrays)
    out.barrier()
    return results
