"""What accumulators cost that are not in registers all along: of long sums that are added up in blocks (see
`Accumulator.flush`), and of scans that walk across their rows inside each step along them.

Of each block: an addition for each of its chains.  Of a vector machine, whose register tile may leave the accumulators
outside no room: their way to the first cache and back.  Of threads: their registers.
"""

from __future__ import annotations

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device
from rollergen.program.loops import adds
from rollergen.program.model.access import Access
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose
from rollergen.program.model.occupancy import register_cap
from rollergen.program.rprogram import SERIAL, UNROLL


def _components(nest: Nest) -> int:
    return sum(len(reduction.bodies) for reduction in nest.facts.op.reductions if adds(reduction))


def _tile(nest: Nest) -> Number:
    """Accumulators of one level, vectors where there are lanes: of one component, without chains of their own."""
    depth = nest.stage.accumulator.at_loop
    inside = [p for p in nest.positions(SERIAL, UNROLL) if p >= depth and nest.spatial(nest.loops[p].axis)]
    return nest.extent(tuple(inside))


def _more_blocks(nest: Nest, depth: int) -> Number:
    """Blocks that begin at the depth, those alone in their accumulators not counted: they cost nothing."""
    return nest.trip_count(depth) - nest.trip_count(nest.stage.accumulator.at_loop)


def block_slots(nest: Nest) -> Number:
    """Additions of one thread in one block of threads that put blocks of terms together."""
    if not nest.stage.accumulator.flush:
        return 0
    flush, chains = nest.stage.accumulator.flush, nest.extent(nest.stage.accumulator.separate)
    total: Number = 0
    for depth in flush:
        total = total + _more_blocks(nest, depth) * (chains if depth == flush[-1] else 1)
    return total * _tile(nest) * _components(nest)


def outer_registers(nest: Nest, words: float) -> Number:
    """Registers of the accumulators outside the innermost blocks; ``words``: of one."""
    if not nest.stage.accumulator.flush:
        return 0
    total: Number = 0
    for depth in nest.stage.accumulator.flush:
        total = total + choose(_more_blocks(nest, depth) > 0, 1, 0)
    return total * _tile(nest) * _components(nest) * words


def outer_accesses(nest: Nest, device: Device, registers: Number, outside: Number) -> tuple[Access, ...]:
    """Reads and writes of accumulators ``outside`` the innermost blocks (registers of them) that find no room beside
    all else (``registers``) in a vector machine."""
    accumulator = nest.stage.accumulator
    if not accumulator.flush or nest.lockstep > 1:
        return ()
    count = _more_blocks(nest, accumulator.flush[-1]) * _tile(nest) * _components(nest)
    count = choose(registers + outside > register_cap(nest, device), count, 0)
    return _to_cache_and_back(nest, device, count)


def across_accesses(nest: Nest, device: Device) -> tuple[Access, ...]:
    """Reads and writes of what a scan carries along rows that it walks across: an array, for a loop that is not
    unrolled chooses among them."""
    if not nest.facts.op.scans:
        return ()
    depth = nest.stage.accumulator.at_loop
    across = nest.product(lambda p, loop: p >= depth and loop.kind == SERIAL and nest.spatial(loop.axis))
    steps = nest.product(lambda p, loop: p >= depth and loop.kind == SERIAL and not nest.spatial(loop.axis))
    return _to_cache_and_back(nest, device, choose(across > 1, steps * _tile(nest) * nest.facts.components, 0))


def _to_cache_and_back(nest: Nest, device: Device, count: Number) -> tuple[Access, ...]:
    width, cache = ITEMSIZE[nest.stage.accumulator.dtype] * nest.lanes, device.layers[1].name
    return tuple([Access(-3, role, cache, count, width, reduces=False) for role in ("spill_write", "spill_read")])
