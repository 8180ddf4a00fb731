"""Scans: every point of a row has a value of its own, of all points up to it.

alone:    carry = identity;  each step along the row, of the rows side by side: each point
          { carry = combine(carry, body); store }
shared:   each step: each thread scans its own points { local = combine(local, body) }, the threads scan what each has
          found; each point's value is combine(carry, what threads before have found, its own local one); store;
          carry = combine(carry, what all have found)
"""

from __future__ import annotations

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction, Running
from rollergen.expr.values import loads
from rollergen.hal.dataclass import dataclass
from rollergen.lower import exchanges, reductions
from rollergen.lower.arithmetic import combine, evaluate_all
from rollergen.lower.context import Context
from rollergen.lower.expressions import Element, Expr, Inside, Pointer, Read, register_dtype
from rollergen.lower.ir import LOCAL, Write
from rollergen.lower.loops import Phase, descend, scope_of
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, Registers, Scope, when_all
from rollergen.lower.reductions import Accumulators, Threads, loops_over
from rollergen.lower.stores import store_tile
from rollergen.lower.writer import Writer
from rollergen.program.loops import scan_step

Values = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Running:
    """One scan: ``carry``, over the spatial loops of the tile, and ``values`` of one step's points.

    ``local``: what a thread has found in this step; the carry itself where no threads share the row."""

    reduction: Reduction
    carry: Accumulators
    local: Accumulators
    values: tuple[Registers, ...]


def write_scans(context: Context, place: Place) -> None:
    """Every scan of the stage, side by side, and the result at each point."""
    out, nest = context.out, context.nest
    depth = max(scan_step(nest.stage), nest.tile_depth)
    running = [_begun(out, nest, reduction, depth, context.threads) for reduction in nest.op.reductions]
    for one in running:
        reductions.start(out, place, one.carry)
    steps = frozenset(p for p in nest.positions("spatial", "row", after=nest.tile_depth) if p < depth)

    def step(here: Place) -> None:
        _scan_points(context, here, running, depth)
        if context.threads.count > 1:
            for one in running:
                _share(out, scope_of(context, here, None, {}, {}), one, context.threads, depth)
        totals = {one.reduction.name: one.values for one in running}
        store_tile(context, here, totals, depth)

    descend(context, place, nest.tile_depth, Phase(steps, {}, depth, False, nest.lane), step)


def _begun(out: Writer, nest: Nest, reduction: Reduction, depth: int, threads: Threads) -> _Running:
    carry = reductions.accumulators(out, nest, reduction, ())
    local = reductions.accumulators(out, nest, reduction, ()) if threads.count > 1 else carry
    positions = nest.positions("spatial", "row", after=depth)
    shape = tuple(nest.loops[p].extent for p in positions)
    lanes = nest.lane.width if nest.lane else 1
    values = []
    for body in reduction.bodies:
        dtype = register_dtype(body.dtype)
        name = out.register("prefix", dtype, shape, lanes)
        values.append(Registers(name, tuple(((p, 1),) for p in positions), dtype, lanes))
    return _Running(reduction, carry, local, tuple(values))


def _scan_points(context: Context, here: Place, running: list[_Running], depth: int) -> None:
    """The values of one step's points, as far as one thread knows them."""
    out, nest = context.out, context.nest
    bodies = tuple(body for one in running for body in one.reduction.bodies)
    inside = frozenset(nest.positions("spatial", "row", after=depth))
    phase = Phase(inside, nest.numbered(loads(*bodies)), nest.innermost, True, nest.lane)
    if context.threads.count > 1:
        for one in running:
            reductions.start(out, here, one.local)

    def point(at: Place) -> None:
        scope = scope_of(context, at, nest.lane, {}, {})
        found = list(evaluate_all(out, scope, bodies))
        for one in running:
            own, found = tuple(found[: len(one.values)]), found[len(one.values) :]
            exclusive = isinstance(one.reduction, Running) and one.reduction.exclusive
            if not exclusive:
                reductions.update(out, scope, one.local, own)
            for value, register in zip(one.values, one.local.components, strict=True):
                out.assign(at.element(value), at.element(register))
            if exclusive:
                reductions.update(out, scope, one.local, own)

    descend(context, here, depth, phase, point)


def _share(out: Writer, scope: Scope, one: _Running, threads: Threads, depth: int) -> None:
    """What the threads have found in this step put together: each point's value, and the carry of the next step."""
    here, reduction = scope.place, one.reduction
    found = tuple(out.let("found", here.element(register)) for register in one.local.components)
    before, every = _across_threads(out, scope, reduction, found, threads)
    carry = tuple(here.element(register) for register in one.carry.components)
    base = tuple(out.let("base", value) for value in combine(out, scope, reduction.combiner, carry, before))
    positions = here.nest.positions("row", after=depth)
    with loops_over(out, here, positions):
        values = tuple(here.element(register) for register in one.values)
        for value, new in zip(values, combine(out, scope, reduction.combiner, base, values), strict=True):
            out.assign(value, new)
    for register, new in zip(carry, combine(out, scope, reduction.combiner, carry, every), strict=True):
        out.assign(register, new)


def _across_threads(
    out: Writer, scope: Scope, reduction: Reduction, found: Values, threads: Threads
) -> tuple[Values, Values]:
    """(what the threads before this one have found, what all have found), as the program says, and in local memory
    where the language has no exchange of registers."""
    nest = scope.place.nest
    how = nest.stage.accumulator.combine
    if how == "tree" or not nest.exchanges:
        return _by_steps(out, scope, reduction, found, threads)
    if how == "shuffle":
        return exchanges.prefix_of_width(out, scope, reduction, found, threads.rank, threads.thread)
    return exchanges.prefix_of_groups(out, scope, reduction, found, threads.thread, threads.segment)


def _by_steps(
    out: Writer, scope: Scope, reduction: Reduction, found: Values, threads: Threads
) -> tuple[Values, Values]:
    """W. D. Hillis and G. L. Steele, Data parallel algorithms (1986): each takes what one 1, 2, 4 ... before has."""
    block, count = scope.place.nest.threads, threads.count
    arrays = [
        out.array(f"{reduction.name}_threads", LOCAL, v.dtype, block, 16, whole_kernel=True) for v in found
    ]
    cell = lambda rank: (threads.segment * count + rank).simplify(out.ranges)
    read = lambda rank: tuple(out.let("other", Read(array, cell(rank), array.dtype)) for array in arrays)
    own = tuple(Element(out.register("scanned", v.dtype), (), v.dtype) for v in found)
    for element, value in zip(own, found, strict=True):
        out.assign(element, value)
    reach = 1
    while reach < count:
        _write(out, arrays, cell(threads.rank), own)
        out.barrier()
        with when_all(out, [Inside(threads.rank, reach, None)]):
            new = combine(out, scope, reduction.combiner, read(threads.rank - reach), own)
            for element, value in zip(own, new, strict=True):
                out.assign(element, value)
        out.barrier()
        reach *= 2
    _write(out, arrays, cell(threads.rank), own)
    out.barrier()
    every = read(threads.rank * 0 + (count - 1))
    before = tuple(Element(out.register("before", v.dtype), (), v.dtype) for v in found)
    for element, value in zip(before, exchanges.identities(reduction, found), strict=True):
        out.assign(element, value)
    with when_all(out, [Inside(threads.rank, 1, None)]):
        for element, value in zip(before, read(threads.rank - 1), strict=True):
            out.assign(element, value)
    out.barrier()
    return before, every


def _write(out: Writer, arrays: list[Pointer], place: Index, values: tuple[Element, ...]) -> None:
    for array, value in zip(arrays, values, strict=True):
        out.write(Write(array, place, value))
