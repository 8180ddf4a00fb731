"""Registers of what compilers read ahead of its use: it costs no resident block, and explains counted registers."""

from __future__ import annotations

from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import instruction_of
from rollergen.program.model.nest import Nest, unbuffered
from rollergen.program.model.numeric import Number, choose, least
from rollergen.program.model.tiles import groups_of_a_thread
from rollergen.program.model.work import EARLY, MOST_PLACES, fragment, gathered_places, group_registers
from rollergen.program.rprogram import SERIAL, UNROLL
from rollergen.program.windows import of_block


@unbuffered
def read_ahead(nest: Nest, device: Device, costs: Costs) -> Number:
    """Registers of the fragments of further unrolled steps, as many again: what a compiler reads ahead where a block
    has a unit's registers for itself, or each thread as many as it may (products of 128 x 256 by 256 threads, and of
    16 x 8 outputs a thread in blocks of 64: 15 to 47 more than wanted, counted in machine code for sm_70 to sm_90).
    Without a reduction the iterations of a serial loop wait for nothing (a block of 1,024 threads alone on a unit took
    56 to 64 of its 64 registers for 12 to 155 iterations that copy four elements; counted for sm_90)."""
    total: Number = 0
    if not nest.facts.op.reductions:
        return choose(nest.extent(nest.positions(SERIAL)) > 1, EARLY, 0)
    total = total + _places_ahead(nest, device) + _tiles_ahead(nest, device, costs)
    for copy in nest.stage.copies:
        if copy.to_layer == device.layers[0].name and not copy.window:
            last = max((p for p in range(copy.at_loop) if nest.loops[p].kind == SERIAL), default=-1)
            steps = nest.extent(tuple(p for p in range(last + 1, copy.at_loop) if nest.loops[p].kind == UNROLL))
            held = fragment(nest, device, costs, copy)
            total = total + choose(steps >= 2 * costs.fragment_registers, held, 0)
    return total


def _places_ahead(nest: Nest, device: Device) -> Number:
    """Registers of the places of gathered groups, which are computed once before the steps where nothing stands
    against it: what each bound is tested of and, where neighbouring groups do not lie evenly, their offset and address
    (convolutions of narrow images in both layouts took 12 to 78 more than wanted, counted for sm_70 to sm_90)."""
    total: Number = 0
    for copy in nest.stage.copies:
        if copy.to_layer != device.layers[0].name and not copy.asynchronous:
            total = total + gathered_places(nest, copy)
    return least(total, MOST_PLACES)


def _tiles_ahead(nest: Nest, device: Device, costs: Costs) -> Number:
    """Registers of further tiles and their fragments: compilers write several steps of a loop out where one is short,
    and start all their loads (products of 96 x 80 in tiles of 4 x 32 and steps of 16 took 97 and 138 more registers
    than wanted in 4 and 8 steps; counted for sm_70).  Copies past the registers and matrix instructions stay put."""
    last = max((p for p in nest.in_thread() if nest.loops[p].kind == SERIAL), default=-1)
    copies = [copy for copy in nest.stage.copies if copy.to_layer != device.layers[0].name and not of_block(copy)]
    if last < 0 or instruction_of(nest, device) is not None or any(copy.asynchronous for copy in copies):
        return 0
    inner = tuple(p for p in nest.positions(UNROLL) if p > last)
    tiles: Number = 0
    for copy in copies:
        if copy.at_loop == last + 1:
            tiles = tiles + groups_of_a_thread(nest, copy) * group_registers(nest, copy)
    spatial = nest.extent(tuple(p for p in inner if nest.spatial(nest.loops[p].axis)))
    fragments = nest.extent(inner) // spatial * (spatial + 1)
    ahead = choose(tiles > 0, (least(nest.loops[last].extent, _STEPS_AHEAD) - 1) * tiles + fragments, 0)
    return choose(nest.extent(inner) <= _SHORT_STEP, ahead, 0)


_STEPS_AHEAD = 4
"""Steps of a short loop that compilers write out at least."""
_SHORT_STEP = 128
"""Multiply-adds of a step that is short."""
