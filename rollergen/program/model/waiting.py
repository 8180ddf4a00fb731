"""Elements of a block's window that wait for a later use: how many registers they take, and what has no room.

What finds no register is spilled to the thread's own memory (CUDA: local memory), written once and read at each later
use; the caches hold it as far as they reach.
"""

from __future__ import annotations

from typing import NamedTuple

from rollergen.hal.spec import Device
from rollergen.program.model.access import Access
from rollergen.program.model.block_windows import fill_steps, reuse_of
from rollergen.program.model.costs import Costs
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div, is_nothing, most
from rollergen.program.model.occupancy import register_cap
from rollergen.program.model.services import path_layer
from rollergen.program.model.tiles import block_copy, register_copy
from rollergen.program.rprogram import Copy
from rollergen.program.windows import of_block


class Waiting(NamedTuple):
    """Registers of one thread: ``live`` at once; in one block ``kept`` are put there, for ``uses`` later uses, of which
    ``in_turn`` are of elements copied ahead."""

    live: Number
    kept: Number
    uses: Number
    in_turn: Number


class WindowSpills(NamedTuple):
    """``registers`` without room of one thread; ``stores`` and ``loads`` of it in one block, a word each.  The thread
    waits for ``waits`` of these loads, one after the other: an accumulation behind the reads of all its elements has
    nothing else to do, and no register to load the next one into."""

    registers: Number
    stores: Number
    loads: Number
    waits: Number


NO_WINDOW_SPILLS = WindowSpills(0, 0, 0, 0)


def is_from_window(nest: Nest, copy: Copy) -> bool:
    """Whether a register copy is filled from a window that the block staged."""
    source = block_copy(nest, copy.load)
    return source is not None and of_block(source)


def waiting_of(nest: Nest, costs: Costs) -> Waiting:
    """Registers that hold elements of windows for later: those copied ahead of the accumulators that use them (but for
    what the first accumulator uses at once); else those that later unrolled steps read again, if the compiler keeps the
    order of the steps."""
    live: Number = 0
    kept: Number = 0
    uses: Number = 0
    in_turn: Number = 0
    for source in nest.stage.copies:
        if not of_block(source) or nest.lockstep == 1:
            continue
        words = max(1, nest.facts.loads[source.load].itemsize // 4)
        copy = register_copy(nest, source.load)
        if copy is not None:
            ahead = _copied_ahead(nest, copy) * words
            every = ahead * nest.trip_count(copy.at_loop)
            live, kept, uses, in_turn = live + ahead, kept + every, uses + every, in_turn + every
        elif costs.reuse_registers:
            reuse, passes = reuse_of(nest, source, nest.in_thread())
            live, kept = live + reuse.live * words, kept + reuse.kept * passes * words
            uses = uses + reuse.again * passes * words
    return Waiting(live, kept, uses, in_turn)


def _copied_ahead(nest: Nest, copy: Copy) -> Number:
    inside = [p for axis in copy.order for p in nest.inside(axis, copy.at_loop, block=False)]
    first = [p for p in inside if p >= nest.stage.accumulator.at_loop]
    return nest.extent(tuple(inside)) - nest.extent(tuple(first))


def window_spills_of(nest: Nest, device: Device, waiting: Waiting, registers: Number) -> WindowSpills:
    """``registers``: what a thread wants for all else."""
    if nest.lockstep == 1 or is_nothing(waiting.live):
        return NO_WINDOW_SPILLS
    room = most(register_cap(nest, device) - registers, 0)
    excess = most(waiting.live - room, 0)
    share = excess / most(waiting.live, 1)
    return WindowSpills(excess, share * waiting.kept, share * waiting.uses, share * waiting.in_turn)


def window_spill_accesses(nest: Nest, device: Device, spills: WindowSpills) -> tuple[Access, ...]:
    """Accesses to spilled elements of windows: one word of each thread, neighbours in memory."""
    layer = path_layer(device)
    if layer is None or spills is NO_WINDOW_SPILLS:
        return ()
    row = layer.banks * layer.bank_bytes if layer.banks else layer.transaction_bytes
    service = ceil_div(4 * nest.lockstep, row)
    return tuple(
        Access(-3, role, device.backing.name, count, 4, service, reduces=False)
        for role, count in (("spill_write", spills.stores), ("spill_read", spills.loads))
        if not is_nothing(count)
    )


def staging_steps(nest: Nest) -> Number:
    """Elements of windows that a thread of a block stages one after the other."""
    total: Number = 0
    for copy in nest.stage.copies:
        if of_block(copy):
            total = total + nest.trip_count(copy.at_loop) * fill_steps(nest, copy)
    return total
