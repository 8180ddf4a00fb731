"""Latency: what a block waits for its own loads, barriers and dependent accumulations."""

from __future__ import annotations

from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs
from rollergen.program.model.moved import PhaseReads
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose, most
from rollergen.program.model.work import Work
from rollergen.program.rows_apart import sum_apart


def latency_clocks(
    nest: Nest, device: Device, costs: Costs, work: Work, instructions: Number
) -> Number:
    """Clocks of one block during which it waits for its own loads, barriers and dependent accumulations; those of
    `late_tiles` are beside them.

    What no copy brings is exchanged once for the whole block, as is what the block stores.  Copies made ahead of
    their use wait only for what the steps between do not hide (`late_tiles`).  Where a producer starts the copies,
    threads do not wait for each other at a barrier of the block.  A spilled element that a thread waits for takes as
    long as a staged one (threads of an MI50 that were alone on their unit: 580 clocks each)."""
    direct = 1 + any(phase.direct or phase.stream for phase in work.phase_reads)
    staged: Number = direct * costs.exchange_clocks
    for passes, depth, _ in work.stagings:
        waited = costs.exposed_prefetched_clocks
        if nest.stage.compute.producer:
            waited = max(waited - costs.combine_clocks, 0.0)
        staged = staged + passes * (choose(depth > 1, waited, costs.exposed_staging_clocks) + costs.exchange_clocks)
    reads: Number = work.window_spills.waits * costs.exposed_staging_clocks
    for phase in work.phase_reads:
        reads = reads + most(phase.iterations, 1) * _exposed_clocks(phase, costs, work.direct_rounds)
    chain = chain_clocks(device, nest, costs, work, instructions)
    if sum_apart(nest.stage):  # products of a tile end before their factors' registers change
        return staged + reads + chain + work.combine_clocks
    return staged + most(reads, chain) + work.combine_clocks


def late_tiles(device: Device, costs: Costs, work: Work, busy: Number, resident: Number) -> Number:
    """Clocks of one block during which it waits for tiles that were asked for ahead of their use, and are late.

    The steps between hide what they take (Little's law): ``busy`` are the clocks that its unit is at work while this
    block does all its steps, and those of as many others as are ``resident``; no step is shorter than its tiles take
    to come in.  On its way is a tile for a load's latency and, copied past the registers, for as long as the tiles of
    all of these take at the unit's share of the rate at which they come in (products by wgmma on an H100: .75 of the
    time with one tile more on its way)."""
    late: Number = 0
    rate = incoming_bytes_per_clock(device)
    for passes, depth, bytes_ in work.stagings:
        coming = resident * bytes_ / rate if rate else 0
        on_its_way = costs.exposed_staging_clocks + coming
        hidden = (depth - 1) * most(busy / most(passes, 1), coming)
        late = late + choose(depth > 1, passes * most(on_its_way - hidden, 0), 0)
    return late


def first_tile_clocks(device: Device, costs: Costs, work: Work) -> Number:
    """Clocks until the first tile of a ring is there that is filled past the registers; 0 where there is none."""
    rate = incoming_bytes_per_clock(device)
    bytes_ = sum([one.bytes for one in work.stagings])
    return choose(bytes_ > 0, costs.exposed_staging_clocks + bytes_ / rate, 0) if rate else 0


def incoming_bytes_per_clock(device: Device) -> float:
    """One unit's share of what the first layer beyond its own delivers; 0 where the spec does not tell."""
    layer = next((one for one in device.layers if one.scope == "device" and not one.managed), device.backing)
    shared = layer.bandwidth_gb_s * 1e3 / (device.clock_mhz * device.units)
    return min((rate for rate in (layer.bytes_per_clock, shared) if rate), default=0.0)


def _exposed_clocks(phase: PhaseReads, costs: Costs, rounds: Number) -> Number:
    """Latency of its reads that one iteration of a phase cannot hide."""
    exposed: Number = costs.exposed_managed_clocks if phase.managed else 0.0
    if phase.direct:
        exposed = costs.exposed_direct_clocks * rounds
    if phase.stream:
        exposed = most(exposed, costs.exposed_stream_clocks)
    return exposed


def chain_clocks(device: Device, nest: Nest, costs: Costs, work: Work, instructions: Number) -> Number:
    """Clocks of dependent accumulations; a short chain overlaps the next one within the reorder window."""
    if not nest.facts.op.reductions:
        return 0
    latency = device.instruction(nest.stage.compute.instruction).latency_clocks
    chain = work.chain * latency
    if not costs.reorder_window:
        return chain
    one_tile = instructions / most(work.entries, 1)
    return chain * most(1 - costs.reorder_window / (2 * one_tile), 0)
