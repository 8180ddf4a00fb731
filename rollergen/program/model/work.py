"""Work of a block: arithmetic, instructions, accesses, registers and staged bytes, from the nest."""

from __future__ import annotations

from typing import NamedTuple

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.positions import operations_in_a_row
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.boxes import barrier_bytes, results_bytes, sharing_blocks
from rollergen.program.matrix import trails
from rollergen.program.model.access import Access
from rollergen.program.model.bounds import is_tested, is_uneven, retested
from rollergen.program.model.conversions import NOTHING_CONVERTED, Converting
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import converting_of, fragment_registers, instruction_of, products, scratch_of
from rollergen.program.model.lanes import lanes_apart, masks_loads
from rollergen.program.model.levels import across_accesses, outer_accesses, outer_registers
from rollergen.program.model.memory import Stream
from rollergen.program.model.moved import Moved, PhaseReads, moved_of
from rollergen.program.model.nan_tests import nan_tests
from rollergen.program.model.nest import Nest, unbuffered
from rollergen.program.model.numeric import Number, ceil_div, choose, least, most, product
from rollergen.program.model.occupancy import register_cap, spilled_registers
from rollergen.program.model.tiles import groups_of_a_thread, tile_bytes, tile_shape
from rollergen.program.model.waiting import (
    NO_WINDOW_SPILLS,
    WindowSpills,
    is_from_window,
    staging_steps,
    waiting_of,
    window_spill_accesses,
    window_spills_of,
)
from rollergen.program.rprogram import LANE, REALIGNED_BYTES, SERIAL, UNROLL, Copy
from rollergen.program.windows import of_block


class Staging(NamedTuple):
    """A place of staged tiles: ``passes``, ``depth`` of the pipeline, ``bytes`` that one copies past the registers."""

    passes: Number
    depth: Number
    bytes: Number


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Counts for one thread of one block, unless said otherwise.

    ``slots``: multiply-add instructions; ``phase_reads``: of each phase; ``steps``: reduction steps; ``registers``
    wanted, ``spilled`` of them; ``in_flight``: registers more that loads started early would fill; ``entries``: passes
    of the accumulator's depth; ``tile_elements``: outputs of one such pass; ``chain``: dependent accumulations;
    ``combine_clocks``: waited for while threads put their accumulators together.
    ``products``: matrix instructions of an execution width, which ``slots`` leaves out.  ``window_spills``: window
    elements that wait for a later use and have no register; ``window_steps``: elements of windows that a thread
    stages one after the other.  ``direct_rounds``: loads of one iteration that nothing stages come in so many rounds,
    each of as much as finds registers.  ``converting``: what converts factors of matrix instructions, which ``slots``
    leaves out.
    """

    slots: Number
    phase_reads: tuple[PhaseReads, ...]
    steps: Number
    chain: Number
    entries: Number
    tile_elements: Number
    accesses: tuple[Access, ...]
    streams: tuple[Stream, ...]
    registers: Number
    in_flight: Number
    spilled: Number
    shared_bytes: Number
    stagings: tuple[Staging, ...]
    combine_clocks: Number
    reduces: bool
    products: Number = 0
    window_spills: WindowSpills = NO_WINDOW_SPILLS
    window_steps: Number = 0
    direct_rounds: Number = 1
    converting: Converting = NOTHING_CONVERTED


def work_of(nest: Nest, device: Device, costs: Costs) -> Work:
    moved = moved_of(nest, device, costs)
    matrix, reduces, steps = instruction_of(nest, device), bool(nest.facts.op.reductions), moved.steps
    registers, in_flight = _registers(nest, device, costs)
    outside = outer_registers(nest, _words(nest, device, ITEMSIZE[nest.stage.accumulator.dtype]))
    blocks = (*outer_accesses(nest, device, registers, outside), *across_accesses(nest, device))
    registers = registers + (outside if nest.lockstep > 1 else 0)
    waiting = waiting_of(nest, costs)
    spills = window_spills_of(nest, device, waiting, registers)
    return Work(
        moved.slots, moved.phase_reads, steps, _chain(nest, steps), moved.entries if reduces else 0,
        moved.tile_elements,
        (*moved.accesses, *blocks, *window_spill_accesses(nest, device, spills)), moved.streams,
        registers + waiting.live, in_flight, spilled_registers(nest, device, costs, registers),
        _shared_bytes(nest, device) + moved.together.bytes,
        _stagings(nest, device), moved.together.clocks, reduces,
        0 if matrix is None else products(nest, device), spills, staging_steps(nest),
        _direct_rounds(nest, device, costs, moved), converting_of(nest, device),
    )  # fmt: skip


def _direct_rounds(nest: Nest, device: Device, costs: Costs, moved: Moved) -> Number:
    """Rounds of one iteration's loads that nothing stages: those in flight need registers beside the accumulators."""
    direct = [phase.iterations for phase in moved.phase_reads if phase.direct]
    if nest.lockstep == 1 or not direct:
        return 1
    read = [a for a in moved.accesses if a.role == "read" and a.layer == device.backing.name and a.load >= 0]
    words = sum(access.count * access.width_bytes / 4 for access in read if access.reduces)
    free = register_cap(nest, device) - costs.reserved_registers - _lasting(nest, device)
    return most(words / most(sum(direct), 1) / most(free, 1), 1)


def _chain(nest: Nest, steps: Number) -> Number:
    separate: Number = 1
    for p in nest.stage.accumulator.separate:
        separate = separate * nest.loops[p].extent
    in_a_row = max(map(operations_in_a_row, nest.facts.op.reductions), default=1) + nan_tests(nest).in_a_row
    return steps / separate * in_a_row


def _registers(nest: Nest, device: Device, costs: Costs) -> tuple[Number, Number]:
    """(registers that a thread wants, more that loads started early would fill).

    Wanted: accumulators, kept row values, tiles on their way, and the fragments of operands (or, where there are
    more, the elements that pass through while a tile is filled)."""
    values = _values(nest, device, costs)
    ahead, filling = _passing(nest, device)
    return values.lasting + ahead + most(values.passing, filling), values.early


class _Values(NamedTuple):
    """Registers of values that no tile holds: all along, while operands pass, and of more loads started early."""

    lasting: Number
    passing: Number
    early: Number


@unbuffered
def _values(nest: Nest, device: Device, costs: Costs) -> _Values:
    fragments: Number = 0
    copied = set()
    for copy in nest.stage.copies:
        if copy.to_layer == device.layers[0].name:
            copied.add(copy.load)
            if not is_from_window(nest, copy):
                fragments = fragments + fragment(nest, device, costs, copy)
    early: Number = 0
    needed: Number = 0
    if instruction_of(nest, device) is not None:
        fragments = fragments + fragment_registers(nest, device)
    else:
        accesses = moved_of(nest, device, costs).accesses
        for access in accesses:
            if access.role == "read" and access.load >= 0 and access.load not in copied and access.reduces:
                beside_window = any(copy.window and not of_block(copy) for copy in nest.stage.copies)
                fragments = fragments + (_written_out(nest, access) if beside_window else _held(nest, access))
                fragments = fragments + _lines_kept(nest, device, access)
        early, needed = _in_flight(nest, accesses, fragments + _kept_registers(nest, device))
    lasting = costs.reserved_registers + _lasting(nest, device)
    return _Values(lasting, fragments + needed + _temporaries(nest, costs), early)


def fragment(nest: Nest, device: Device, costs: Costs, copy: Copy) -> Number:
    """Registers of one operand's fragments, of as many steps as are live at once; arithmetic takes each element of a
    narrow dtype in a register of its own."""
    steps = _steps_of(nest, copy)
    elements: Number = 1 if copy.window else most(costs.fragment_registers / steps, 1)
    for extent in tile_shape(nest, copy, block=False):
        elements = elements * extent
    words = _words(nest, device, nest.facts.loads[copy.load].itemsize)
    return elements * (words if nest.lockstep == 1 else most(words, 1))


def _steps_of(nest: Nest, copy: Copy) -> Number:
    """Steps of the reduction that the fragment is of."""
    own = [p for axis in copy.order if not nest.spatial(axis) for p in nest.inside(axis, copy.at_loop, block=False)]
    return nest.extent(tuple(own))


def gathered_places(nest: Nest, copy: Copy) -> Number:
    """Registers of the places of a copy's gathered groups; an asynchronous one has how much it fills in one more."""
    operand = nest.facts.loads[copy.load]
    if of_block(copy) or not operand.guard:
        return 0
    each = retested(nest, copy) + _PLACE * is_uneven(nest, operand) + copy.asynchronous
    return groups_of_a_thread(nest, copy) * each


_PLACE = 3
"""Registers of an offset and an address."""
MOST_PLACES = 64
"""Registers of places that compilers keep: with more groups they took no more."""


def _temporaries(nest: Nest, costs: Costs) -> float:
    """Registers inside the longest function that is written out as plain arithmetic."""
    if nest.lockstep == 1:
        return 0
    longest = max((costs.operation(name) for phase in nest.facts.phases for name, _ in phase.operations), default=0)
    return longest // _SLOTS_A_TEMPORARY


_SLOTS_A_TEMPORARY = 5
"""Operations of a written-out function for each value that waits in it: 8 of pow's 40 (counted in machine code)."""


def _lasting(nest: Nest, device: Device) -> Number:
    """Registers of what lives as long as the nest: accumulators, kept row values."""
    depth = nest.stage.accumulator.at_loop
    total: Number = 0
    components = max((phase.components for phase in nest.facts.phases if phase.reduces), default=0)
    if components:
        tile = nest.product(
            lambda p, loop: p >= depth and loop.kind in (SERIAL, UNROLL) and nest.spatial(loop.axis)
        )
        for p in nest.stage.accumulator.separate:
            tile = tile * nest.loops[p].extent
        held = nest.extent(nest.stage.accumulator.gathered) if nest.stage.accumulator.gathered else 0
        words = _words(nest, device, ITEMSIZE[nest.stage.accumulator.dtype])
        if nest.facts.op.scans:  # the values of one step beside what is carried on
            step = nest.product(lambda p, loop: p >= depth and loop.kind == UNROLL)
            tile = nest.product(lambda p, loop: p >= depth and loop.kind == UNROLL and nest.spatial(loop.axis))
            tile, components = tile + step, nest.facts.components
        total = total + (tile * components + held) * words
    return total + _kept_registers(nest, device)


def _kept_registers(nest: Nest, device: Device) -> Number:
    """Registers of row values between two phases, where most are: a value takes the place of one that is read for
    the last time to make it."""
    own = [r for r in nest.facts.kept_rows if r.layer == device.layers[0].name]
    if not own:
        return 0
    held = nest.product(lambda p, loop: loop.kind in (SERIAL, UNROLL) and not nest.spatial(loop.axis))
    last = {name: number for number, phase in enumerate(nest.facts.phases) for name in phase.reused}
    between = range(len(nest.facts.phases) - 1)
    words = {r.name: _words(nest, device, ITEMSIZE[r.value.dtype]) for r in own}
    live = [sum(words[r.name] for r in own if r.phase <= b < last.get(r.name, r.phase)) for b in between]
    return held * max(live)


def _passing(nest: Nest, device: Device) -> tuple[Number, Number]:
    """(registers of tiles fetched while the tile before is used, and of the way there; the most that one fill of a
    tile takes at once)."""
    ahead: Number = 0
    filling: Number = 0
    for copy in nest.stage.copies:
        if copy.to_layer == device.layers[0].name or nest.lockstep == 1:
            continue
        ahead = ahead + _ADDRESSES + _COORDINATES * is_tested(nest, nest.facts.loads[copy.load]) * (not copy.boxes)
        if of_block(copy):
            continue
        if copy.asynchronous:  # compilers spill these places rather than compute them again
            ahead = ahead + least(gathered_places(nest, copy), MOST_PLACES)
        words = groups_of_a_thread(nest, copy) * group_registers(nest, copy)
        ahead = ahead + choose(copy.depth == 2, 0 if copy.asynchronous else words, 0)
        filling = most(filling, choose(copy.depth == 1, words, 0))
    return ahead, filling


def group_registers(nest: Nest, copy: Copy) -> Number:
    """Registers of one group on its way: of one that is realigned both pieces; of narrow elements that are stored
    across the direction they are read in each has its own, for compilers take the vector apart where it arrives."""
    itemsize = nest.facts.loads[copy.load].itemsize
    if copy.realigned:
        return 2 * REALIGNED_BYTES // 4
    if copy.along == copy.order[-1]:
        return ceil_div(copy.vector * itemsize, 4)
    return copy.vector * max(1, itemsize // 4)


_ADDRESSES = 4
"""Registers of a staged operand: where it lies (64 bits), where it goes, where it is read."""
_COORDINATES = 4
"""Registers of an operand whose bounds are tested: where a thread's elements lie on the guarded axes."""


def _in_flight(nest: Nest, accesses: tuple[Access, ...], held: Number) -> tuple[Number, Number]:
    """Registers of loads that a compiler starts early where the unrolled loops let it, beyond those `held` anyway:
    (those that it can do without; of those whose bounds are tested, one step's, which stay live with the tests)."""
    if nest.lockstep == 1:
        return 0, 0
    last = max((p for p in nest.in_thread() if nest.loops[p].kind == SERIAL), default=-1)
    total: Number = 0
    tested: Number = 0
    for access in accesses:
        if access.role == "read" and access.load >= 0:
            operand = nest.facts.loads[access.load]
            inner = [p for p in nest.positions(UNROLL) if p > last and nest.loops[p].axis in operand.axes]
            words = max(1, operand.itemsize // 4)
            total = total + nest.extent(tuple(inner)) * words
            one_step = nest.extent(tuple(p for p in inner if nest.spatial(nest.loops[p].axis)))
            tested = tested + one_step * words * least(access.tested, 1)
    needed = least(most(least(total, EARLY) - held, 0), tested)
    written_out = last < 0 or nest.loops[last].extent <= _FEW_TRIPS
    early = most(least(total, choose(written_out, _EARLY_UNROLLED, EARLY)) - held, 0)
    return early - needed, needed


EARLY = 48
"""Registers of loaded values that compilers keep under way: with more of them free, they still took no more."""
_EARLY_UNROLLED = 72
"""The same where no loop is left and all loads are there to be moved: windows of 3 x 3 took all 128 registers that
their resident blocks left, of which 56 hold something else (counted in machine code for sm_70)."""


_FEW_TRIPS = 2
"""Of a loop that compilers write out (a window of 11 x 11 by rows of 8 took 96 registers, 62 more than it wants)."""


def _words(nest: Nest, device: Device, itemsize: int) -> float:
    """Registers of one value: 32-bit words of a scalar thread, vector registers of a lane loop."""
    if nest.lanes == 1:
        return max(1, itemsize // 4) if nest.lockstep == 1 else itemsize / 4
    wide = device.instruction(nest.stage.compute.instruction)
    return ceil_div(nest.lanes * itemsize, wide.lanes * ITEMSIZE[wide.accumulator_dtype])


def _held(nest: Nest, access: Access) -> Number:
    """Vectors of an operand that stay live because an unrolled loop around them uses them again.

    Broadcast scalars fold into the instruction that uses them; those whose bounds are tested do not: compilers move the
    tests of a step before its multiply-adds, and all that is read behind them waits in registers."""
    used = nest.facts.loads[access.load].axes
    lane = next((loop for loop in nest.loops if loop.kind == LANE), None)
    if lane is not None and lane.axis not in used:
        return least(access.tested, 1) * _written_out(nest, access)
    inside: Number = 1
    held: Number = 0
    for p in reversed(nest.in_thread()):
        loop = nest.loops[p]
        if loop.kind == SERIAL:
            break
        if loop.kind == UNROLL and loop.axis in used:
            inside = inside * loop.extent
        elif loop.kind == UNROLL:
            held = choose(loop.extent > 1, inside, held)
    return held


_PUT_TOGETHER = 3
"""Two vectors of adjacent elements, and which of them make a vector of every other one."""


def _lines_kept(nest: Nest, device: Device, access: Access) -> Number:
    """Vectors of shared lines that stay live from one tap to a later one, where they are put together from two (every
    other element; these and their order take registers too): others are as soon read again."""
    operand = nest.facts.loads[access.load]
    lane = next((p for p, loop in enumerate(nest.loops) if loop.kind == LANE), None)
    if lane is None or not masks_loads(nest, device, operand, lane) or lanes_apart(nest, operand, lane) < 2:
        return 0
    lines: Number = 1
    vectors: Number = 1
    for loop in nest.loops:
        if loop.kind != UNROLL or loop.axis not in operand.axes or not nest.spatial(loop.axis):
            continue
        if loop.axis == nest.loops[lane].axis:
            vectors = vectors * loop.extent
        else:
            lines = lines * loop.extent
    return (lines - 1) * vectors + _PUT_TOGETHER


def _written_out(nest: Nest, access: Access) -> Number:
    """Elements of an operand that unrolled loops read: compilers fetch them all while a window is on its way."""
    used = nest.facts.loads[access.load].axes
    return nest.extent(tuple(p for p in nest.positions(UNROLL) if nest.loops[p].axis in used))


def _shared_bytes(nest: Nest, device: Device) -> Number:
    total: Number = 0
    for copy in nest.stage.copies:
        if copy.to_layer != device.layers[0].name:
            total = total + tile_bytes(nest, copy)
    results = 0 if (one := instruction_of(nest, device)) is None else results_bytes(nest.stage, one)
    return total + scratch_of(nest, device) + barrier_bytes(nest.stage) + results


def _stagings(nest: Nest, device: Device) -> tuple[Staging, ...]:
    """Of each place where tiles are staged; where products run in the next iteration too, one buffer of the ring is
    theirs."""
    places: dict[int, Staging] = {}
    in_use = int(trails(nest.stage, device))
    for copy in nest.stage.copies:
        if copy.to_layer != device.layers[0].name:
            before = places.get(copy.at_loop, Staging(nest.trip_count(copy.at_loop), 1, 0))
            each = nest.facts.loads[copy.load].itemsize / (sharing_blocks(nest.stage, copy) if copy.boxes else 1)
            tile: Number = product(tile_shape(nest, copy, block=True)) * each
            tile = before.bytes + tile * copy.asynchronous
            places[copy.at_loop] = Staging(before.passes, most(copy.depth - in_use, before.depth), tile)
    return tuple(places.values())
