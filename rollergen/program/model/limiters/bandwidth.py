"""Bandwidth: what each cache and the backing store must deliver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.boxes import sharing_blocks
from rollergen.program.loops import next_rows, prefetches_lines
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import share_across_rows
from rollergen.program.model.limiters.limit import ADDS, IN_SERIES, OVERLAPS, TAKES_TURNS, Limit
from rollergen.program.model.memory import FILL, Stream, cache_of, survival, surviving, writes_back_later
from rollergen.program.model.moved import in_one_row
from rollergen.program.model.nest import Nest, Waves, results_wait
from rollergen.program.model.numeric import Number, ceil_div, choose, is_nothing, is_one, least, most
from rollergen.program.model.reuse import ReuseBySize
from rollergen.program.model.services import thread_transactions
from rollergen.program.model.waiting import NO_WINDOW_SPILLS
from rollergen.program.model.work import Work
from rollergen.program.rprogram import GRID

Moved = tuple[str, Number, Number]
"""A layer, with the bytes that leave it for each block and those that it is given."""
NOT_SAID: Mapping[str, str] = {}
"""Of no tensor the layer in which its data lie when the kernel starts."""


def supply(
    nest: Nest, device: Device, costs: Costs, work: Work, waves: Waves, reuse: ReuseBySize,
    starts_in: Mapping[str, str] = NOT_SAID,
) -> tuple[list[Limit], list[Moved], dict[str, list[Number]]]:  # fmt: skip
    """Clocks of each layer that feeds the caches (or the staged tiles), what it moves, and the lines that miss.

    ``starts_in``: by tensor the layer in which its data lie when the kernel starts; of others the spec's `warm_cache`
    tells.  A thread that fills an array of its own computes nothing meanwhile."""
    caches = device.caches
    limiters: list[Limit] = []
    moved: list[Moved] = []
    misses: dict[str, list[Number]] = {}
    filling: Number = 0
    delivered: Number = 0
    for number, layer in enumerate([*caches[1:], device.backing]):
        inner = caches[number] if caches else None
        line = inner.transaction_bytes if inner is not None else layer.transaction_bytes
        cache = None
        if inner is not None:
            cache = cache_of(inner, waves.resident, work.shared_bytes if is_one_with_tiles(device, inner) else 0)
        lines = reuse.of_line(line).fetched(cache, costs)
        if nest.lockstep > 1 and not (cache is not None and cache.shared) and is_nothing(nest.stage.store.boxes):
            sent = _sent_lines(nest, device, work, line)
            lines = [lines[at] if s.load >= 0 else most(lines[at], sent) for at, s in enumerate(work.streams)]
        if layer is not device.backing:
            lines = _brought_together(nest, work, lines)
        last = layer is device.backing
        beyond: Number = 1.0
        if inner is not None and costs.warm_cache and (last or _keeps_for_the_next_call(device, inner, costs)):
            beyond = _cold(_beyond(nest, inner, costs, last), costs.warm_cache)
        if starts_in and inner is not None:
            shares = _shares_beyond(nest, device, costs, work, starts_in, number, beyond)
            lines, beyond = [amount * share for amount, share in zip(lines, shares, strict=True)], 1.0
        misses[layer.name] = [amount * beyond for amount in lines] if last else lines
        used = [(s, amount) for s, amount in zip(work.streams, lines, strict=True) if not s.fills]
        reads, stores = _directions(nest, costs, used, last)
        if not is_one(beyond):
            reads, stores = reads * beyond, (stores * beyond if not nest.stage.store.streaming else stores)
        elif last and inner is not None and not costs.warm_cache and nest.facts.store.buffer.name not in starts_in:
            stores = stores * _written_back(nest, device, inner, costs)
        spilled = _spill_lines(nest, costs, work, waves, inner, line) if number == 0 else 0
        if not is_nothing(spilled):
            reads, stores = reads + spilled, stores + spilled
        read_bytes, write_bytes = reads * line, stores * line
        if inner is not None and work.window_spills is not NO_WINDOW_SPILLS:
            missed = _window_spill_misses(device, nest, work, waves, inner)
            read_bytes = read_bytes + missed * work.window_spills.loads
            write_bytes = write_bytes + missed * work.window_spills.stores
        clocks = lambda read, written, layer=layer: _layer_clocks(
            device, layer, costs, waves, nest.blocks, read, written
        )
        if last and nest.stage.store.streaming and nest.lockstep == 1:
            held = inner.capacity_bytes / nest.blocks if inner is not None else 0
            streamed = most(clocks(0, write_bytes), clocks(most(write_bytes - held, 0), 0))
            limiters.append(("streamed stores", streamed, ADDS))
            limiters.append((f"{layer.name} bandwidth", clocks(read_bytes, 0), _joins(nest, layer, costs)))
        else:
            limiters.append((f"{layer.name} bandwidth", clocks(read_bytes, write_bytes), _joins(nest, layer, costs)))
        if last and number and nest.lockstep > 1:  # the cache before the memory, whose limiter stands before its
            limiters[-2] = _with_fills(device, inner, limiters[-2], nest.blocks * (delivered + read_bytes))
        delivered = read_bytes + write_bytes
        if len(used) < len(lines):
            fetched = [(s, amount) for s, amount in zip(work.streams, lines, strict=True) if s.fills]
            filled, written = (amount * beyond * line for amount in _directions(nest, costs, fetched, last))
            filling = filling + clocks(filled, written) ** costs.norm_exponent
            read_bytes, write_bytes = read_bytes + filled, write_bytes + written
        moved.append((layer.name, read_bytes, write_bytes))
    limiters.append(("filling tiles", filling ** (1 / costs.norm_exponent), ADDS))
    return limiters, moved, misses


def _brought_together(nest: Nest, work: Work, lines: list[Number]) -> list[Number]:
    """Lines that one block asks for, of which the blocks of a cluster ask once for what they share."""
    sharing = {copy.load: sharing_blocks(nest.stage, copy) for copy in nest.stage.copies if copy.boxes}
    return [amount / sharing.get(s.load, 1) for s, amount in zip(work.streams, lines, strict=True)]


def is_one_with_tiles(device: Device, cache: MemoryLayer) -> bool:
    """Whether a unit's cache is what the layer of staged tiles leaves of one memory (NVIDIA's since Volta): then its
    capacity is that of both, and no less than that layer's."""
    name = device.kind.block_layer
    return name is not None and cache.scope == "unit" and cache.capacity_bytes >= device.layer(name).capacity_bytes


def _joins(nest: Nest, layer: MemoryLayer, costs: Costs) -> str:
    """Lines from beyond a core's own caches pass through its few fill buffers in turn, wherever they lie; where many
    are on their way, they pass one layer after the other.  What is asked for a whole pass ahead waits in its own cache,
    behind which the slowest counts (a row times 64 MB on a Zen 4: 2.6 ms, 2.5 predicted; 3.3 in turn)."""
    if costs.memory_exponent:
        return IN_SERIES
    if nest.stage.prefetch >= 0 and prefetches_lines(nest.stage) and next_rows(nest.stage):
        return OVERLAPS
    return TAKES_TURNS if costs.miss_buffers and layer.scope == "device" else OVERLAPS


def _sent_lines(nest: Nest, device: Device, work: Work, line: int) -> Number:
    """Lines that one block stores or adds to: a unit's cache writes through, so that each instruction of an execution
    width sends on those that it touches.  (Pooling of 3 x 3 on an H200: 92, 133, 173 and 350 us with 1, 2, 4 and 8
    neighbours for each thread.)"""
    store = nest.facts.store
    instructions = sum(access.count for access in work.accesses if access.load == -1 and access.role == "write")
    elements = nest.product(lambda p, loop: loop.kind != GRID and nest.spatial(loop.axis))
    touched, across = thread_transactions(nest, store, line), share_across_rows(nest, device)
    if not is_nothing(across):  # rows begin anywhere, so that one line more is touched
        touched = touched + across * (thread_transactions(in_one_row(nest, device), store, line) + 1 - touched)
    return least(instructions * nest.warps * touched, elements)


def _directions(
    nest: Nest, costs: Costs, streams: Sequence[tuple[Stream, Number]], last: bool
) -> tuple[Number, Number]:
    """(lines read, lines that stores move) of one block: a store reads its line first where the cache allocates on
    write; where partial results wait in it, or where it adds to what is there, that is read anyway."""
    reads: Number = 0
    stores: Number = 0
    allocating = 1 + costs.write_allocate
    for stream, amount in streams:
        if stream.load >= 0:
            reads = reads + amount
        elif stream.load == FILL:
            stores = stores + amount * allocating
        elif nest.stage.store.streaming:
            stores = stores + (amount if last else 0)
        else:
            known = nest.stage.store.adds | results_wait(nest)
            reads = reads + choose(known, amount, 0)
            stores = stores + choose(known, amount, amount * allocating)
    return reads, stores


def _with_fills(device: Device, cache: MemoryLayer | None, limit: Limit, both: Number) -> Limit:
    """The limiter of the cache that all units share, whose rate is that of ``both`` the bytes that it moves for units
    and those that come from memory: a line that is not there is written into it before it is delivered.

    (bf16 8192^3 on an H200, blocks row by row, then a persistent grid in groups of 16 rows: 1484 and 1397 us, 1510 and
    1450 predicted; 1470 and 1444 without.)"""
    name, clocks, how = limit
    if cache is None or cache.scope != "device" or not cache.bandwidth_gb_s:
        return limit
    return name, most(clocks, both / (cache.bandwidth_gb_s * 1e9 / (device.clock_mhz * 1e6))), how


def _beyond(nest: Nest, cache: MemoryLayer, costs: Costs, last: bool) -> Number:
    """Share of a warm problem that a cache has not kept since the last call."""
    stored = () if nest.stage.store.streaming else (nest.facts.store,)
    seen = {operand.buffer.name: operand.bytes for operand in (*nest.facts.loads, *stored)}
    return _not_kept(sum(seen.values()) / cache.capacity_bytes, costs, last)


def _not_kept(fill: Number, costs: Costs, last: bool) -> Number:
    """Share of what fills a cache so far that is gone when a later kernel asks for it: what it cannot hold, or, where a
    spec says how lines survive, what did not; of the ``last`` cache a spec may say it apart, as others use it as well.
    """
    if last and costs.warm_above:
        return 1 - surviving(fill, costs.warm_below, costs.warm_above)
    if costs.keep_above > costs.keep_below:
        return 1 - survival(fill, costs)
    return most(0.0, 1 - 1 / fill)


def _shares_beyond(
    nest: Nest, device: Device, costs: Costs, work: Work, starts_in: Mapping[str, str], number: int, beyond: Number
) -> list[Number]:
    """Of each stream the share of its lines that cache ``number`` and those nearer have not got when the kernel starts;
    ``beyond``: of the tensors of which nothing is said.

    What was left in a nearer cache passed through this one: here lies what does not fit there.  A store past the caches
    finds nothing in them."""
    cache, past = device.caches[number], nest.stage.store.streaming
    nearer = {layer.name for layer in device.caches[: number + 1]}
    operands = nest.facts.loads if past else (*nest.facts.loads, nest.facts.store)
    held = {one.buffer.name: one.bytes for one in operands if starts_in.get(one.buffer.name) in nearer}
    missing = _not_kept(sum(held.values()) / cache.capacity_bytes, costs, cache is device.caches[-1]) if held else 1.0
    shares: list[Number] = []
    for stream in work.streams:
        name = (nest.facts.loads[stream.load] if stream.load >= 0 else nest.facts.store).buffer.name
        if stream.load == FILL:
            shares.append(beyond)
        elif stream.load < 0 and past:
            shares.append(1.0)
        elif name in starts_in:
            shares.append(missing if name in held else 1.0)
        else:
            shares.append(beyond)
    return shares


def _written_back(nest: Nest, device: Device, cache: MemoryLayer, costs: Costs) -> Number:
    """Share of what a launch stores that reaches the memory while it runs: all of it but for a temporary's lines that
    survive in the last cache beside what the launch reads.

    Those are written back while later launches run, which read them from the cache: there the memory is charged with
    these bytes once, as if they were read from it.  (One array scaled into another on an A100, launch after launch:
    24.5 MB in 9.2 us, 33.4 in 14.6, 45.4 in 30.3.  Without what launching takes that is 3.7, 2.8 and 1.6 TB/s.)"""
    return _beyond(nest, cache, costs, last=True) if writes_back_later(nest.stage, device) else 1.0


def _keeps_for_the_next_call(device: Device, cache: MemoryLayer, costs: Costs) -> bool:
    """Whether a unit's own cache holds at the next call what it holds now: the next one runs on the same unit where
    that is the only one, and the spec says how lines survive.  (Sums of two arrays of 268 KB, from an L2 of 1 MB, on a
    Zen 4: 8.4 us, 8.9 predicted; 13.1 with every line from the L3.)"""
    return device.units == 1 and cache.scope == "unit" and costs.keep_above > costs.keep_below


def _cold(beyond: Number, warm: float) -> Number:
    """Share that is read from memory, where so much of what could be in the cache is there."""
    return beyond if warm >= 1 else 1 - warm * (1 - beyond)


def _spill_lines(
    nest: Nest, costs: Costs, work: Work, waves: Waves, inner: MemoryLayer | None, line: int
) -> Number:
    """Lines that spilled registers miss in the innermost cache, for each direction, of one block."""
    if inner is None or not costs.spill_accesses or is_nothing(work.spilled):
        return 0
    bytes_held = work.spilled * nest.warps * nest.lockstep * 4
    missing = most(bytes_held * waves.resident - inner.capacity_bytes, 0)
    share = missing / most(bytes_held * waves.resident, 1)
    return share * work.steps * bytes_held / line * costs.spill_accesses / 2


def _window_spill_misses(device: Device, nest: Nest, work: Work, waves: Waves, inner: MemoryLayer) -> Number:
    """Bytes of one block that each access to spilled elements moves beyond a cache that cannot hold all of them."""
    own = nest.threads * 4
    together = waves.resident * (device.units if inner.scope == "device" else 1)
    footprint = work.window_spills.registers * own * together
    return own * most(footprint - inner.capacity_bytes, 0) / most(footprint, 1)


def _layer_clocks(
    device: Device, layer: MemoryLayer, costs: Costs, waves: Waves, blocks: Number, read_bytes: Number,
    write_bytes: Number,
) -> Number:  # fmt: skip
    """Clocks for the given bytes of each block: at one unit's rate, and at the whole chip's.

    A rate of writing is that of plain stores: where these read their lines first, twice as many bytes move."""
    clocks: Number = 0.0
    slower = 1.0
    if layer.bytes_per_clock:
        writing = layer.write_bytes_per_clock * (1 + costs.write_allocate) or layer.bytes_per_clock
        clocks = waves.per_unit * (read_bytes / layer.bytes_per_clock + write_bytes / writing)
        slower = layer.bytes_per_clock / writing if costs.write_allocate else 1.0
    if layer.bandwidth_gb_s:
        per_clock = layer.bandwidth_gb_s * 1e9 / (device.clock_mhz * 1e6)
        share = blocks if layer.scope == "device" else ceil_div(blocks, device.units)
        clocks = most(clocks, share * (read_bytes + (slower * write_bytes if slower != 1 else write_bytes)) / per_clock)
    return clocks
