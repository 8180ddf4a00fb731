"""Work of a thread and traffic of a block, however many buffers the staged tiles have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.loops import asks_for_tile
from rollergen.program.matrix import COLUMNS, exchanged_loops, exchanges, row_loop
from rollergen.program.model.access import Access, direct_access, fill_accesses, register_accesses, turns_alone
from rollergen.program.model.boxed_stores import stored_box_accesses, stored_box_slots
from rollergen.program.model.combining import Combining, combining_of, scan_steps, shared_points
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.facts import Operand, Phase
from rollergen.program.model.fragments import exchanged_results, fragment_accesses, instruction_of, share_across_rows
from rollergen.program.model.levels import block_slots
from rollergen.program.model.line_parts import saved_operations
from rollergen.program.model.memory import Stream, lies_beside
from rollergen.program.model.nan_tests import IN_ONE_CHAIN, loses_nan, nan_tests
from rollergen.program.model.nest import Nest, results_wait, unbuffered
from rollergen.program.model.numeric import Number, choose, is_nothing, most, product, whole_log2
from rollergen.program.model.own_arrays import is_own, own_streams
from rollergen.program.model.services import thread_service
from rollergen.program.model.tiles import block_copy, groups_of_a_thread, register_copy, tile_shape
from rollergen.program.model.wavefronts import WIDEST_ACCESS_BYTES
from rollergen.program.rprogram import LANE, PARALLEL, SERIAL, UNROLL, Copy, Loop
from rollergen.program.windows import overlaps


@dataclass(frozen=True, slots=True, eq=False)
class PhaseReads:
    """Reads of one phase.

    ``iterations`` of the innermost rolled loop. ``direct``: it reads memory for several uses. ``managed``: it reads a
    layer that tiles are staged in. ``stream``: it reads memory for one use.
    """

    iterations: Number
    direct: bool
    managed: bool
    stream: bool


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """The counts of `Work` that depend on the loops and on what is copied; ``phase_reads``: of each phase;
    ``together``: of threads that put their accumulators together."""

    slots: Number
    phase_reads: tuple[PhaseReads, ...]
    steps: Number
    entries: Number
    tile_elements: Number
    accesses: tuple[Access, ...]
    streams: tuple[Stream, ...]
    together: Combining


@unbuffered
def moved_of(nest: Nest, device: Device, costs: Costs) -> Moved:
    entries, tile = _entries(nest), _tile_elements(nest)
    slots: Number = _combining(nest, costs, entries, tile) + block_slots(nest)
    phase_reads: list[PhaseReads] = []
    accesses: list[Access] = []
    matrix = instruction_of(nest, device)
    for phase in nest.facts.phases:
        loops = phase_loops(nest, phase)
        if matrix is not None and phase.reduces:
            own = list(fragment_accesses(nest, device))
            phase_reads.append(_reads_of_phase(nest, device, phase, rolled(nest, loops), own))
            accesses += own
            continue
        slots = slots + points(nest, loops) * _point_slots(nest, phase, costs)
        if phase.reduces and costs.nan_slots:
            slots = slots + points(nest, loops) * nan_tests(nest).all * costs.nan_slots
        if nest.lockstep == 1 and phase.of_rows:
            slots = slots - (points(nest, loops) - _rows(nest)) * _slots_of(phase.of_rows, costs)
        if phase.reduces or (nest.lockstep == 1 and phase.shared):
            operations, saved = saved_operations(nest) if nest.lockstep == 1 and phase.reduces else ((), 0)
            spared = saved * _slots_of(operations, costs) + (1 - saved) * _shared_slots(nest, phase, costs)
            slots = slots - points(nest, loops) * spared
        own = _phase_reads(nest, device, phase, loops)
        phase_reads.append(_reads_of_phase(nest, device, phase, rolled(nest, loops) if _has_work(phase) else 0, own))
        accesses += own
    for copy in nest.stage.copies:
        if copy.to_layer != device.layers[0].name:
            accesses += fill_accesses(nest, device, copy)
            slots = slots + _turning(nest, copy)
    exchanged = exchanged_results(nest, device)
    if not is_nothing(exchanged) and device.kind.block_layer:
        accesses.append(Access(-2, "exchange", device.kind.block_layer, exchanged, 4, reduces=False))
        slots = slots + _CHOICES * exchanged
    accesses += _stores(nest, device)
    slots = slots + stored_box_slots(nest, device)
    together = combining_of(nest, device, costs, most(entries, 1) * scan_steps(nest), tile)
    accesses += together.accesses
    slots = slots + together.slots + shared_points(nest, costs) * points(nest, nest.in_thread())
    steps = _steps(nest, nest.in_thread()) if nest.facts.op.reductions else 0
    if matrix is not None:
        steps = steps / matrix.k
    return Moved(slots, tuple(phase_reads), steps, entries, tile, tuple(accesses), _streams(nest, device), together)


def _turning(nest: Nest, copy: Copy) -> Number:
    """Shuffles of vectors that turn square blocks of a tile: as many of each as the width has halvings.  (Maps of 793 x
    133 to 133 x 793, in the L2 of a Zen 4: 12.4 us for 450 blocks of 16 x 16, 15.8 predicted; 35.6 with a store for
    each element.)"""
    if copy.window or copy.boxes or is_nothing(turned := turns_alone(nest, copy, tile_shape(nest, copy, block=True))):
        return 0
    groups = nest.trip_count(copy.at_loop) * groups_of_a_thread(nest, copy)
    return choose(turned, groups * np.log2(most(copy.vector, 1)), 0)


_CHOICES = 3
"""Instructions beside an exchange of a result with another thread: which of two to give, and where what comes goes."""


def phase_loops(nest: Nest, phase: Phase) -> tuple[int, ...]:
    """The loops of a thread that a phase runs."""
    every = nest.in_thread()
    if _is_over_all(nest, phase):
        return every
    return tuple([p for p in every if nest.spatial(nest.loops[p].axis)])


def _is_over_all(nest: Nest, phase: Phase) -> bool:
    """Whether a phase visits every point: the result of a plain reduction has the spatial axes only."""
    return phase.reduces or nest.facts.by_row or not nest.facts.op.reductions


def points(nest: Nest, loops: tuple[int, ...]) -> Number:
    """Vectors (scalars without a lane loop) that the loops visit."""
    return product([nest.trips[p] for p in loops if nest.loops[p].kind != LANE])


def rolled(nest: Nest, loops: tuple[int, ...]) -> Number:
    """Iterations of the innermost rolled loop."""
    last = max((p for p in loops if nest.loops[p].kind == SERIAL), default=-1)
    return product([nest.trips[p] for p in loops if p <= last]) if last >= 0 else 0


def _rows(nest: Nest) -> Number:
    """Rows that one block does: what is the same all along a row is moved out of the loop over it."""
    return nest.product(lambda p, loop: loop.kind in (SERIAL, UNROLL) and nest.spatial(loop.axis))


def _phase_slots(phase: Phase, costs: Costs) -> float:
    return _slots_of(phase.operations, costs)


def _slots_of(operations: tuple[tuple[str, int], ...], costs: Costs) -> float:
    return sum(count * costs.operation(name) for name, count in operations)


def _point_slots(nest: Nest, phase: Phase, costs: Costs) -> Number:
    """Arithmetic of one point; of points that go into a pair together, each with its share of the pair's own."""
    gathered = nest.stage.accumulator.gathered
    if not (gathered and phase.reduces):
        return _phase_slots(phase, costs)
    shared = costs.operation("sub") + costs.operation("exp_below") + costs.operation("mul")
    return _slots_of(phase.gathered, costs) + shared / nest.extent(gathered)


def _shared_slots(nest: Nest, phase: Phase, costs: Costs) -> Number:
    """What each point saves of the operations that it has in common with others: a compiler does these once where the
    loops over a register tile are unrolled, and before the loops of an elementwise stage that do not change them.
    Whole numbers of places that are the same in all lanes are no vectors, and take no time beside these."""
    saved: Number = 0
    lanes = {loop.axis for loop in nest.loops if loop.kind == LANE}
    for axes, places, operations in phase.shared:
        each: Number = 0
        if not places or lanes <= axes:
            each = 1 / nest.product(partial(_is_alike, nest, axes))
        saved = saved + _slots_of(operations, costs) * (1 - each)
    return saved


def _is_alike(nest: Nest, axes: frozenset[str], position: int, loop: Loop) -> bool:
    """Whether the points of an unrolled loop over results, or of one that nothing of these axes is computed in, have
    all of these axes in common."""
    if loop.axis in axes or not nest.spatial(loop.axis):
        return False
    own = (p for p in nest.in_thread() if nest.loops[p].axis in axes and nest.loops[p].kind != LANE)
    outside = max(own, default=-1)
    return loop.kind == UNROLL or (loop.kind == SERIAL and position > outside and not nest.facts.op.reductions)


def _has_work(phase: Phase) -> bool:
    return bool(phase.operations or phase.loads or phase.reused)


def _phase_reads(nest: Nest, device: Device, phase: Phase, loops: tuple[int, ...]) -> list[Access]:
    found = []
    for load in phase.loads:
        source, fragment = block_copy(nest, load), register_copy(nest, load)
        if fragment is not None:
            found.append(register_accesses(nest, device, fragment, source, phase.reduces))
        elif not _is_uniform(nest, device, load, source):
            found.append(_read(nest, device, phase, load, loops, source))
    layers = {r.name: r for r in nest.facts.kept_rows}
    for name in (*phase.kept, *phase.reused):
        kept = layers[name]
        if kept.layer != device.layers[0].name:
            role = "read" if name in phase.reused else "write"
            width = ITEMSIZE[kept.value.dtype] * nest.lanes
            found.append(Access(-2, role, kept.layer, points(nest, loops), width, reduces=phase.reduces))
    return found


def _read(nest: Nest, device: Device, phase: Phase, load: int, loops: tuple[int, ...], source: Copy | None) -> Access:
    """A load at its point of use: of the result where results are stored, in vectors where the program says so."""
    operand, store = nest.facts.loads[load], nest.stage.store
    if phase.reduces or source is not None:
        return direct_access(nest, device, operand, load, loops, source, reduces=phase.reduces)
    vector = choose(store.vector_loads, store.vector, 1) if load in nest.facts.beside else 1
    found = direct_access(
        _exchanged(nest, device), device, operand, load, loops, None, vector=vector, reduces=False
    )  # fmt: skip
    return _across_rows(nest, device, found, operand)


def _stores(nest: Nest, device: Device) -> list[Access]:
    """The store of the results and, where partial results wait in the output, their reading back."""
    loops = _store_loops(nest)
    vector = nest.stage.store.vector
    waiting = results_wait(nest)
    roles = ("write",) if is_nothing(waiting) else ("write", "read_back")
    target = nest.facts.store
    own = _exchanged(nest, device)
    found = [
        direct_access(own, device, target, -1, loops, None, role=role, vector=vector, reduces=False) for role in roles
    ]
    if not is_nothing(nest.stage.store.boxes):
        return stored_box_accesses(nest, device, found[0])
    found = [_across_rows(nest, device, one, target) for one in found]
    if len(found) > 1:
        found[1] = replace(found[1], count=found[1].count * waiting)
    if not is_nothing(nest.stage.store.prefetch_distance):
        ahead = replace(found[0], role="ahead_read", width_bytes=target.itemsize, split=1, broken=0, tested=0)
        if asks_for_tile(nest.stage):  # of programs side by side some do
            ahead = replace(ahead, count=ahead.count * nest.stage.store.prefetch_distance)
        found.append(ahead)
    return found


def _exchanged(nest: Nest, device: Device) -> Nest:
    """The nest as stores see it: where threads of a row have exchanged results, they lie a whole vector apart."""
    one = instruction_of(nest, device)
    if one is None or is_nothing(exchanges(nest.stage, one)):
        return nest
    thread = exchanged_loops(nest.stage, one)[1]
    loops = list(nest.loops)
    apart: Any = loops[thread].stride * choose(exchanges(nest.stage, one), COLUMNS, 1)
    loops[thread] = replace(loops[thread], stride=apart)
    return replace(nest, loops=tuple(loops))


def _across_rows(nest: Nest, device: Device, access: Access, operand: Operand) -> Access:
    """The access where threads of a column have exchanged results.  Rows of the tensor begin anywhere, so that one line
    more is touched."""
    if is_nothing(nest.stage.store.across_rows):
        return access
    share = share_across_rows(nest, device)
    service = thread_service(in_one_row(nest, device), device, operand, access.width_bytes) + 1
    return replace(access, service=access.service + share * (service - access.service))


def in_one_row(nest: Nest, device: Device) -> Nest:
    """The nest with threads where they store once those of a column have exchanged results (`Store.across_rows`): an
    execution width has neighbours of one row, whatever their order.  `nest` where no program of a batch does."""
    one, store = instruction_of(nest, device), nest.stage.store
    if one is None or is_nothing(store.across_rows):
        return nest
    row, thread, loops = row_loop(nest.stage), exchanged_loops(nest.stage, one)[1], list(nest.loops)
    loops[thread] = replace(loops[thread], stride=store.vector)
    loops[row] = replace(loops[row], axis=loops[thread].axis, stride=COLUMNS * store.vector)
    return replace(nest, loops=tuple(loops))


def _store_loops(nest: Nest) -> tuple[int, ...]:
    if nest.facts.by_row or not nest.facts.op.reductions:
        return nest.in_thread()
    depth = nest.stage.accumulator.at_loop
    return tuple([p for p in nest.in_thread() if p < depth or nest.spatial(nest.loops[p].axis)])


def _steps(nest: Nest, every: tuple[int, ...]) -> Number:
    """Steps of the reductions: the points, with the unrolled spatial loops counted once."""
    kinds = [(p, nest.loops[p]) for p in every]
    return product([
        nest.trips[p]
        for p, loop in kinds
        if loop.kind == SERIAL or (loop.kind == UNROLL and not nest.spatial(loop.axis))
    ])


def _combining(nest: Nest, costs: Costs, entries: Number, tile: Number) -> Number:
    """Instructions that put the accumulators of separate chains and of lanes together at the end.  Halves of lanes
    whose maximum keeps a NaN are tested in one chain.  (7168 rows of 28, a Zen 4: maxima 27 us with 8 lanes, 37 with
    16; sums 13 and 16.)"""
    parts: Number = 0
    for p in nest.stage.accumulator.separate:
        parts = parts + nest.loops[p].extent - 1
    lane = next((loop for loop in nest.loops if loop.kind == LANE), None)
    if lane is not None and not nest.spatial(lane.axis) and nest.facts.op.reductions:
        halves = whole_log2(lane.extent)  # which are put together; another port takes them apart
        parts = parts + halves * (1 + IN_ONE_CHAIN * costs.nan_slots * loses_nan(nest))
    return entries * (1 if nest.facts.by_row else tile) * parts * nest.facts.components


def _entries(nest: Nest) -> Number:
    depth = nest.stage.accumulator.at_loop
    return nest.passed(tuple([p for p in nest.positions(SERIAL, UNROLL) if p < depth]))


def _tile_elements(nest: Nest) -> Number:
    depth = nest.stage.accumulator.at_loop
    own = [p for p in nest.in_thread() if p >= depth and nest.spatial(nest.loops[p].axis)]
    return nest.passed(tuple(own))


def _is_uniform(nest: Nest, device: Device, load: int, source: Copy | None) -> bool:
    """Whether all threads of a block read the load at one address, on a device where that is another path."""
    moving = {nest.loops[p].axis for p in nest.positions(*PARALLEL)}
    uniform = source is None and nest.lockstep > 1 and not moving & nest.facts.loads[load].axes
    return uniform and bool(costs_of(device).uniform_loads)


def _reads_of_phase(nest: Nest, device: Device, phase: Phase, iterations: Number, own: Sequence[Access]) -> PhaseReads:
    """What one phase reads, whose accesses are ``own``: what is read once after a reduction (beta * C) costs its
    latency once, not at every step of the reduction."""
    memory = device.backing.name
    direct = [_reused(nest, phase, a) for a in own if a.role == "read" and a.layer == memory]
    managed = any(a.role == "read" and a.layer != memory for a in own)
    return PhaseReads(iterations, any(direct), managed, not all(direct))


def _reused(nest: Nest, phase: Phase, access: Access) -> bool:
    """Whether more than one point that the phase visits reads the same element."""
    used = nest.facts.loads[access.load].axes if access.load >= 0 else frozenset(nest.facts.roles)
    every = _is_over_all(nest, phase)
    return any(
        axis not in used and np.all(extent > 1) and (every or nest.spatial(axis))
        for axis, extent in nest.facts.extents.items()
    )


def _streams(nest: Nest, device: Device) -> tuple[Stream, ...]:
    """The operands as the caches see them: a staged one is touched by its copy alone, whose tile caches see as well
    where they hold it."""
    streams: list[Stream] = []
    tiled = nest.facts.op.reductions and not nest.facts.by_row
    outside = nest.stage.accumulator.at_loop if tiled else len(nest.loops)
    reduced = {load for phase in nest.facts.phases if phase.reduces for load in phase.loads}
    for load, operand in enumerate(nest.facts.loads):
        if nest.lockstep == 1 and lies_beside(nest.facts.loads[:load], operand, device):
            continue
        depth = len(nest.loops) if load in reduced else outside
        copy = block_copy(nest, load) or register_copy(nest, load)
        depth = copy.at_loop if copy is not None else depth
        stream = Stream(operand, load, depth, max(1, nest.facts.passes(load)), past=_past_caches(nest, copy))
        streams += own_streams(nest, copy, stream) if copy is not None and is_own(nest, copy) else [stream]
    return (*streams, Stream(nest.facts.store, -1, outside))


def _past_caches(nest: Nest, copy: Copy | None) -> Number:
    """Bytes that a block copies past its unit's cache: asynchronously, in boxes or as wide as an access may be
    (cp.async.cg), and elements that it does not come to again at once."""
    if copy is None or not copy.asynchronous:
        return 0
    operand = nest.facts.loads[copy.load]
    if overlaps(operand.indices, nest.facts.extents):
        return 0
    copied = nest.trip_count(copy.at_loop) * product(tile_shape(nest, copy, block=True)) * operand.itemsize
    if copy.boxes:
        return copied
    return choose(copy.vector * operand.itemsize == WIDEST_ACCESS_BYTES, copied, 0)
