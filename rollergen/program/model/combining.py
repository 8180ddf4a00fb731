"""What it costs that the threads of a block put their accumulators together: waiting, instructions, accesses, memory.

Per step and component: an exchange of registers is one instruction of the shared memory's path; a step of a tree is
two loads, a store, a test and a barrier, of the threads that are still needed.  What is put together at once takes
one barrier: each part is stored and loaded once.
"""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.model.access import Access
from rollergen.program.model.costs import Costs
from rollergen.program.model.facts import count_operations
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, least, most, whole_log2
from rollergen.program.rprogram import GROUP, LANE, PARALLEL, SERIAL, THREAD

_COMMUTING = ("sum", "prod", "max", "min")
"""Combiners that need no handing out of the result: every thread has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Combining:
    """For one block: ``clocks`` of waiting; for one thread of it: ``slots`` of arithmetic, and
    accesses; ``bytes`` of the block's layer."""

    clocks: Number = 0
    slots: Number = 0
    accesses: tuple[Access, ...] = ()
    bytes: Number = 0


def combining_of(nest: Nest, device: Device, costs: Costs, times: Number, tile: Number = 1) -> Combining:
    """`times`: how often a thread takes part in combining each reduction; ``tile``: results of a thread."""
    how = nest.stage.accumulator.combine
    if how == "none":
        return Combining()
    shared = device.kind.block_layer
    layer = device.layer(shared) if shared else None
    if how == "at_once":
        return _at_once(nest, costs, layer, tile)
    if how == "tree" or not costs.shuffle_clocks:
        return _by_tree(nest, costs, layer, times)
    within = whole_log2(_across(nest, (THREAD,) if how == "groups" else PARALLEL))
    beyond = whole_log2(_across(nest, (GROUP,))) if how == "groups" else 0
    clocks: Number = 0
    slots: Number = 0
    exchanges: Number = 0
    for reduction in nest.facts.op.reductions:
        last = 0 if reduction.combiner.name in _COMMUTING else 1
        rounds = within + last + (beyond + last if how == "groups" else 0)
        components = len(reduction.bodies)
        clocks = clocks + rounds * costs.shuffle_clocks
        slots = slots + (within + beyond) * _operations(reduction.combiner.combine, costs)
        exchanges = exchanges + rounds * components
    accesses = [_access(layer, "exchange", times * exchanges)] if layer else []
    bytes_: Number = 0
    if how == "groups":
        bytes_ = _bytes(nest, (GROUP,))
        parts = nest.facts.components
        clocks = clocks + costs.combine_clocks * len(nest.facts.op.reductions)
        slots = slots + 2 * len(nest.facts.op.reductions)
        accesses += [_access(layer, "exchange", times * 2 * parts)] if layer else []
    return Combining(times * clocks, times * slots, tuple(accesses), bytes_)


def scan_steps(nest: Nest) -> Number:
    """Steps along the row of a scan, in each of which its threads put together what they found; 1 of all others."""
    if not nest.facts.op.scans:
        return 1
    return nest.product(lambda p, loop: loop.kind == SERIAL and not nest.spatial(loop.axis))


def shared_points(nest: Nest, costs: Costs) -> float:
    """Instructions of one point of a scan that threads share, beyond those of a reduction: what all threads and steps
    before have found comes to its value."""
    if not nest.facts.op.scans or nest.stage.accumulator.combine == "none":
        return 0.0
    return sum(_operations(reduction.combiner.combine, costs) for reduction in nest.facts.op.reductions)


def _by_tree(nest: Nest, costs: Costs, layer: MemoryLayer | None, times: Number) -> Combining:
    steps = whole_log2(_across(nest, PARALLEL))
    reductions = nest.facts.op.reductions
    waited = times * steps * len(reductions) * costs.combine_clocks
    if nest.lockstep == 1 or layer is None:
        return Combining(waited, bytes=_bytes(nest, PARALLEL))  # the device's cost of a step says it all
    # Of w widths, half work in the first step, then half of these; the last steps keep one at work.
    widths = ceil_div(_across(nest, PARALLEL), nest.lockstep)
    share = (most(widths - 1, 0) + least(steps, whole_log2(nest.lockstep))) / widths
    slots: Number = 2 * steps * len(reductions)
    for reduction in reductions:
        slots = slots + share * _operations(reduction.combiner.combine, costs)
    touched = nest.facts.components * (3 * share + 2)
    bytes_ = _bytes(nest, PARALLEL)
    return Combining(waited, times * slots, (_access(layer, "exchange", times * touched),), bytes_)


def _at_once(nest: Nest, costs: Costs, layer: MemoryLayer | None, tile: Number) -> Combining:
    """One step, of all results: a store, a load, and an addition less than there are parts for one thread of them."""
    parts = _across(nest, PARALLEL)
    if layer is None:
        return Combining()
    values = tile * nest.facts.components
    slots: Number = 2
    for reduction in nest.facts.op.reductions:
        slots = slots + tile * (parts - 1) / parts * _operations(reduction.combiner.combine, costs)
    exchanges = (_access(layer, "exchange", 2 * values),)
    return Combining(costs.combine_clocks, slots, exchanges, tile * _bytes(nest, PARALLEL))


def _across(nest: Nest, kinds: tuple[str, ...]) -> Number:
    """Threads that share one reduction, as far as loops of these kinds tell them apart."""
    across: Number = 1
    for p in nest.positions(*kinds):
        if not nest.spatial(nest.loops[p].axis):
            across = across * nest.loops[p].extent
    return across


def _bytes(nest: Nest, kinds: tuple[str, ...]) -> Number:
    """Bytes through which reductions pass: one element for each accumulator that loops of these kinds tell apart."""
    cells: Number = 1
    for p in nest.positions(*PARALLEL):
        if nest.loops[p].kind in kinds or nest.spatial(nest.loops[p].axis):
            cells = cells * nest.loops[p].extent
    for p in nest.positions(LANE):
        if nest.spatial(nest.loops[p].axis):
            cells = cells * nest.loops[p].extent
    return cells * sum(ITEMSIZE[body.dtype] for r in nest.facts.op.reductions for body in r.bodies)


def _operations(combine: tuple, costs: Costs) -> float:  # type: ignore[type-arg]
    return sum(count * costs.operation(name) for name, count in count_operations((), combine))


def _access(layer: MemoryLayer, role: str, count: Number) -> Access:
    """One word of every thread of a warp."""
    return Access(-2, role, layer.name, count, 4, reduces=False)
