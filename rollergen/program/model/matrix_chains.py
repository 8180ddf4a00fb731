"""The price of chains of two contractions by matrix instructions.

Counted are, for one block of keys of one execution width: the instruction's tiles, loads of fragments, exponentials
(which have a unit of their own), what is computed of scores and sums beside them, copies.  Two blocks on a unit hide
each other's waits; what one execution width does between its products nothing of its own hides.  Groups of execution
widths whose products are asynchronous start each block of keys together: see `_in_turns`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rollergen.errors import ProgramError
from rollergen.expr.chains import ROW
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.ruled_out import scores_of_whole_blocks
from rollergen.expr.stages import size_bytes
from rollergen.expr.values import Binary, Partial, Select, Unary, Value, walk
from rollergen.hal.spec import Device, Instruction
from rollergen.program.chains import chain_factors, steps_of
from rollergen.program.layers import block_capacity, managed_bytes
from rollergen.program.matrix import COLUMNS, QUAD_PAIRS, ROW_BYTES, ROWS, matrix_instruction, rows_of_thread, widths_of
from rollergen.program.matrix_chains import chain_loads, multiplied_columns, tile_of_matrix_chain
from rollergen.program.model.chain_work import ChainWork, chain_flops, chain_work
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.launching import launch_us
from rollergen.program.model.limiters.latency import incoming_bytes_per_clock
from rollergen.program.model.limiters.limit import ADDS, IN_SERIES, OVERLAPS, Limit
from rollergen.program.model.occupancy import warps_by_registers
from rollergen.program.model.price import Limiter, Norms, Price, StagePrediction, combine
from rollergen.program.rprogram import Stage

_WIDTH = ROWS * COLUMNS
_FRAGMENT_REGISTERS = 4
"""Of a thread, filled by one load."""
_SHUFFLES = 2
"""To exchange a row's largest score among its four threads."""
_DESCRIPTOR_INSTRUCTIONS = 4
"""That say where an asynchronous product's factors lie (counted in what NVIDIA's compiler makes of them)."""

_EXCHANGED = 3.0
"""Instructions for one weight of quad pairs: it is rounded, packed (half of one), and of eight weights six registers
are exchanged and as many chosen (counted in what NVIDIA's compiler makes of them)."""


class Instructions(NamedTuple):
    """Of one execution width and one block of keys: matrix ``products``, loads of ``fragments``, ``exponentials``,
    what else is computed with float32 (``arithmetic``), copies to the block's layer, and the others.

    ``between``: clocks of those that none of its own products run beside."""

    products: float
    fragments: float
    exponentials: float
    arithmetic: float
    copies: float
    others: float
    between: float

    @property
    def total(self) -> float:
        return self.products + self.fragments + self.exponentials + self.arithmetic + self.others


def registers_of_chain(stage: Stage, device: Device) -> int:
    """Registers that a thread wants: accumulators of scores and sums, fragments, the rows' pairs, addresses."""
    _, tile = tile_of_matrix_chain(stage)
    one, work = _instruction(stage, device), chain_work(stage)
    own = tile.tiles * rows_of_thread(one)
    accumulators = own * (tile.keys + multiplied_columns(one, work.columns)) // COLUMNS
    pairs, addresses = 4 * own, 2 * len(stage.copies[:3])
    reserved = int(costs_of(device).reserved_registers)
    if one.is_asynchronous:  # it reads factors where they lie, and weights take the place of scores
        return accumulators + pairs + addresses + reserved
    steps = work.inner // one.k
    queries = one.a_registers * tile.tiles * (steps if tile.held else 1)
    if one.layout == QUAD_PAIRS:  # weights as accumulators and as a factor, fragments of three products on their way
        passing = tile.keys * max(work.inner, work.columns) * ITEMSIZE[one.dtype] // (4 * stage.threads)
        fragments = queries + (_FRAGMENT_REGISTERS + one.a_registers) * tile.tiles + 3 * one.b_registers
        return accumulators + fragments + pairs + addresses + passing + reserved
    fragments = queries + one.a_registers * tile.tiles + 2 * _FRAGMENT_REGISTERS
    addresses += steps * (1 if tile.held else 2) + work.columns // (2 * one.n)
    return accumulators + fragments + pairs + addresses + reserved


def registers_of_thread(stage: Stage, device: Device) -> int:
    """Registers that a thread may have while its block runs alone."""
    limits = device.limits
    warps = steps_of(stage.threads // _WIDTH, device.schedulers) * device.schedulers
    step = max(1, limits.register_allocation)
    return min(limits.registers_per_thread, limits.registers_per_unit // (warps * _WIDTH) // step * step)


def price_matrix_chain(stage: Stage, device: Device) -> Price:
    """The price of one program."""
    found = _launch(stage, device)
    column = lambda figure, dtype: np.array([figure], dtype)
    return Price(
        column(found.seconds, np.float64), column(found.resident, np.int64), column(stage.threads, np.int64),
        column(found.spilled, np.float64), column(found.shared_bytes, np.int64), column(False, np.bool_),
    )  # fmt: skip


def predict_matrix_chain(stage: Stage, device: Device) -> StagePrediction:
    """Predicted time of one launch and its breakdown."""
    found = _launch(stage, device)
    clock = device.clock_mhz * 1e6
    named = [Limiter(name, clocks / clock, clocks, how) for name, clocks, how in found.limiters if clocks > 0]
    return StagePrediction(
        stage.name, found.seconds, tuple(named), stage.blocks, steps_of(stage.blocks, device.units * found.resident),
        found.resident, found.resident * stage.threads / device.limits.threads_per_unit, stage.threads,
        found.registers, found.spilled, found.shared_bytes, found.moved, chain_flops(stage), stage.once, False,
    )  # fmt: skip


class _Launch(NamedTuple):
    seconds: float
    limiters: tuple[Limit, ...]
    resident: int
    registers: int
    spilled: int
    shared_bytes: int
    moved: tuple[tuple[str, float], ...]


@lru_cache(maxsize=256)
def _launch(stage: Stage, device: Device) -> _Launch:
    costs, work = costs_of(device), chain_work(stage)
    registers = registers_of_chain(stage, device)
    spilled = max(0, registers - registers_of_thread(stage, device))
    resident, shared = _resident(stage, device, registers)
    blocks, tail = _blocks_of_a_unit(stage, device, work, resident)
    of_step = _within_a_step(stage, device, costs, spilled, resident)
    limiters: list[Limit] = [(name, blocks * work.steps * clocks, how) for name, clocks, how in of_step]
    moved, steps = _moved(stage, device, work, resident), blocks / resident * work.steps
    coming = 0.0
    for layer in (*device.caches[1:], device.backing):
        amount = moved[layer.name] * stage.blocks
        shared_rate = (layer.bandwidth_gb_s or 0.0) * 1e9 / (device.clock_mhz * 1e6)
        rate = shared_rate or (layer.bytes_per_clock or 1.0) * device.units
        limiters.append((f"{layer.name} bandwidth", amount / rate, IN_SERIES))
        coming = max(coming, amount / rate)
    per_step = float(combine(of_step, _norms(costs), 0.0))
    waits = blocks / resident * costs.exposed_staging_clocks
    through_registers = not stage.copies[1].asynchronous  # what an H200 measured of others was fitted without this
    meanwhile = max(resident * per_step, coming / steps if steps and through_registers else 0.0)
    waits += steps * _waits_of_a_step(stage, device, costs, resident, meanwhile)
    limiters.append(("latency", waits + tail * per_step, ADDS))
    clocks = float(combine(limiters, _norms(costs), 0.0))
    starting = launch_us(device)
    fits = shared <= block_capacity(device.kind.block_layer or "", device) and resident >= 1
    seconds = clocks / (device.clock_mhz * 1e6) + starting * 1e-6 if fits else np.inf
    limiters.append(("launch", starting * device.clock_mhz, ADDS))
    whole = tuple((name, amount * stage.blocks) for name, amount in moved.items())
    return _Launch(seconds, tuple(limiters), resident, registers, spilled, shared, whole)


def _waits_of_a_step(stage: Stage, device: Device, costs: Costs, resident: int, meanwhile: float) -> float:
    """Clocks in which a block waits for others of its threads, where no other block works meanwhile, and for copies.

    A block of keys, or with one buffer either half of it, is on its way for a copy's latency and for as long as those
    of all ``resident`` blocks take at the unit's share of the rate at which they come in.  The clocks that the unit's
    blocks compute ``meanwhile``, or in which memory sends them others, hide it (Little's law, as in
    `latency_clocks`)."""
    one, tile, work = _instruction(stage, device), tile_of_matrix_chain(stage)[1], chain_work(stage)
    barriers = 1 if tile.depth > 1 else 2
    waited = costs.exposed_prefetched_clocks if one.is_asynchronous else costs.exposed_managed_clocks
    alone = barriers * waited if resident == 1 else 0.0
    bytes_ = resident * tile.keys * (work.inner + work.columns) * ITEMSIZE[one.dtype] / barriers
    rate = incoming_bytes_per_clock(device)
    on_its_way = costs.exposed_staging_clocks + (bytes_ / rate if rate else 0.0)
    return alone + barriers * max(0.0, on_its_way - meanwhile / barriers)


def _norms(costs: Costs) -> Norms:
    """A matrix instruction keeps its unit busy for many clocks; every block of keys is on its way before its use."""
    return Norms(costs.matrix_exponent or costs.norm_exponent, costs.ahead_exponent or costs.memory_exponent)


def _instruction(stage: Stage, device: Device) -> Instruction:
    one = matrix_instruction(stage, device)
    if one is None:
        raise ProgramError(f"stage {stage.name}: {stage.compute.instruction} is no matrix instruction of {device.name}")
    return one


def _resident(stage: Stage, device: Device, registers: int) -> tuple[int, int]:
    """(blocks on a unit at once, bytes of the block's layer)."""
    layer = device.layer(device.kind.block_layer or "")
    shared = managed_bytes(stage, device)[layer.name]
    limits = device.limits
    most = min(registers, limits.registers_per_thread)
    by_registers = int(warps_by_registers(device, most, _WIDTH)) // (stage.threads // _WIDTH)
    by_threads = min(limits.blocks_per_unit, limits.threads_per_unit // stage.threads)
    there_are = steps_of(stage.blocks, device.units)
    return max(1, min(by_registers, by_threads, int(layer.blocks_within(shared)), there_are)), shared


def _blocks_of_a_unit(stage: Stage, device: Device, work: ChainWork, resident: int) -> tuple[float, float]:
    """(blocks that the busiest unit runs, steps that it waits for the last one): blocks are dealt as units get free."""
    inner = stage.inner
    assert inner is not None
    _, tile = tile_of_matrix_chain(stage)
    if not inner.first and not inner.last:
        return float(steps_of(stage.blocks, device.units)), 0.0
    longest = steps_of(stage.op.extents()[tile_of_matrix_chain(stage)[0].key], tile.keys)
    return max(1.0, stage.blocks / device.units), max(0.0, longest - work.steps)


def instructions_of_chain(stage: Stage, device: Device, costs: Costs, spilled: int) -> Instructions:
    """Of one execution width and one block of keys."""
    _, tile = tile_of_matrix_chain(stage)
    one, work = _instruction(stage, device), chain_work(stage)
    tiles, inner = tile.tiles, work.inner // one.k
    own = tiles * rows_of_thread(one)
    scores, sums = own * tile.keys // COLUMNS, own * work.columns // COLUMNS
    copies = tile.keys * (work.inner + work.columns) * ITEMSIZE[one.dtype] / ROW_BYTES / stage.threads
    of_score, largest, weights = _functions(stage, device, costs)
    pair = any(reduction.name == ROW for reduction in stage.op.reductions)
    shrinking = (sums + own * (_SHUFFLES * 2 + 5)) if pair else 0
    exponentials = (scores + own) if pair else 0
    arithmetic = scores * (of_score + largest + weights) + shrinking
    packing = scores / 2
    moving = copies * costs.asynchronous_instructions + spilled * costs.spill_accesses
    if one.layout == QUAD_PAIRS:
        packing = scores * _EXCHANGED
        moving = copies * costs.staging_instructions + spilled * costs.spill_accesses
    between = scores * (of_score + largest) + shrinking + moving + costs.loop_instructions
    if one.is_asynchronous:
        products = tiles * (inner + tile.keys // one.k)
        fragments, addresses = 0.0, products * _DESCRIPTOR_INSTRUCTIONS + costs.loop_instructions
        busy = exponentials * _WIDTH * device.schedulers * _clocks_of_exponential(device, costs)
        between += max(busy, exponentials + scores * weights + packing)
    elif one.layout == QUAD_PAIRS:
        products = tiles * one.issued * tile.keys // one.n * (inner + work.columns // one.n)
        of_values = 2 * tile.keys // one.k * work.columns // one.n
        fragments = 2 * (tile.keys // one.n * inner + (0 if tile.held else tiles * inner)) + of_values
        addresses = 4 * inner + 4 * work.columns // one.n + of_values + costs.loop_instructions
    else:
        products = tiles * (inner * tile.keys // one.n + tile.keys // one.k * work.columns // one.n)
        fragments = (tile.keys // (2 * one.n) * inner + tile.keys // one.k * work.columns // (2 * one.n)
                     + (0 if tile.held else tiles * inner))  # fmt: skip
        addresses = inner + work.columns // (2 * one.n) + costs.loop_instructions
    return Instructions(products, fragments, exponentials, arithmetic, copies, packing + addresses + moving, between)


def _functions(stage: Stage, device: Device, costs: Costs) -> tuple[float, float, float]:
    """Multiply-add slots of one score: (what is computed of it, the largest one, its weight less the exponential)."""
    pair = next((one for one in stage.op.reductions if one.name == ROW), None)
    if pair is None:
        (weight,) = chain_factors(stage.op).weights
        return 0.0, 0.0, sum(_slots(node, costs) for node in walk(weight))
    score = scores_of_whole_blocks(stage.op)
    plain = isinstance(score, Binary) and score.op == "mul" and isinstance(score.a, Partial)  # a factor of the weight's
    return 0.0 if plain else sum(_slots(node, costs) for node in walk(score)), 1.0, 2.0


def _slots(node: Value, costs: Costs) -> float:
    if isinstance(node, (Unary, Binary)):
        return costs.operation(node.op)
    return 1.0 if isinstance(node, Select) else 0.0


def _clocks_of_exponential(device: Device, costs: Costs) -> float:
    """Clocks of a unit for one, beside the slot that multiplies."""
    fma = next(x for x in device.instructions if x.dtype == x.accumulator_dtype == "float32" and not x.is_matrix)
    return max(costs.operation("exp_below") - 1.0, 0.0) / fma.per_clock


def _product_clocks(stage: Stage, device: Device) -> tuple[float, float]:
    """Clocks of a unit's matrix units for the scores of one group of rows and a block of keys, and for its sums."""
    _, tile = tile_of_matrix_chain(stage)
    one, work = _instruction(stage, device), chain_work(stage)
    each = tile.tiles / one.per_clock
    columns = multiplied_columns(one, work.columns)
    return each * work.inner // one.k * tile.keys / one.n, each * tile.keys // one.k * columns / one.n


def _in_turns(groups: int, scores: float, sums: float, between: float) -> float:
    """Clocks of one block of keys whose groups find their scores one after the other, then weigh: none weighs before
    what it does ``between``, nor before the one that came first."""
    return between + max(scores + groups * sums, groups * scores + sums)


def _operand_bytes(stage: Stage, device: Device) -> float:
    """Bytes that asynchronous products of one group read of the block's layer: both factors, or the one that is not in
    registers."""
    _, tile = tile_of_matrix_chain(stage)
    one, work = _instruction(stage, device), chain_work(stage)
    elements = work.inner * (one.m + tile.keys) + tile.keys * multiplied_columns(one, work.columns)
    return tile.tiles * elements * ITEMSIZE[one.dtype]


def _within_a_step(stage: Stage, device: Device, costs: Costs, spilled: int, resident: int) -> list[Limit]:
    """Clocks of a unit for one block of keys of one block of rows."""
    _, tile = tile_of_matrix_chain(stage)
    one, found = _instruction(stage, device), instructions_of_chain(stage, device, costs, spilled)
    fma = next(x for x in device.instructions if x.dtype == x.accumulator_dtype == "float32" and not x.is_matrix)
    widths = tile.groups * widths_of(one)
    scores, sums = _product_clocks(stage, device)
    rate = costs.issue_per_clock or device.schedulers
    moved = found.copies * ROW_BYTES * _WIDTH * widths
    if one.is_asynchronous:
        alone = _in_turns(tile.groups, scores, sums, found.between)
        moved += tile.groups * _operand_bytes(stage, device)
    else:
        alone = (scores + sums) * device.schedulers + found.between
        moved += found.fragments * _FRAGMENT_REGISTERS * 4 * _WIDTH * widths
    layer = device.layer(device.kind.block_layer or "")
    exponentials = widths * _WIDTH * found.exponentials
    return [
        ("multiply-adds", tile.groups * (scores + sums), OVERLAPS),
        ("issue", max(widths * found.total / rate, alone / resident), OVERLAPS),
        ("exponentials", exponentials * _clocks_of_exponential(device, costs), OVERLAPS),
        ("arithmetic", widths * _WIDTH * found.arithmetic / fma.per_clock, OVERLAPS),
        ("shared path", moved / (layer.bytes_per_clock or 1.0), OVERLAPS),
    ]


def _moved(stage: Stage, device: Device, work: ChainWork, resident: int) -> dict[str, float]:
    """Bytes that each layer beyond the first cache sends to one block, by its name, results that it is given among
    them.  Neighbouring blocks read the same keys: the backing store sends them once where the caches hold those of all
    blocks that run at once, or no others read them."""
    roles, tile = tile_of_matrix_chain(stage)
    loads = chain_loads(stage.op, _instruction(stage, device).dtype)
    assert loads is not None
    every, extents = stage.op.loads(), stage.op.extents()
    size = ITEMSIZE[every[loads.keys].dtype]
    keys = work.keys * (work.inner + work.columns) * size
    block = min(tile.rows, extents[roles.rows])
    own: float = block * (work.inner * size + extents[roles.column] * ITEMSIZE[stage.op.output.dtype])
    others = [load for number, load in enumerate(every) if number not in (loads.queries, loads.keys, loads.weighed)]
    own += sum(
        ITEMSIZE[load.dtype] * (block if roles.rows in load.axes() else 1)
        * (work.keys if roles.key in load.axes() else 1) for load in others
    )  # fmt: skip
    caches = device.caches[1:]
    found = {layer.name: keys + own for layer in (*caches, device.backing)}
    rows = steps_of(extents[roles.rows], tile.rows)
    heads = steps_of(device.units * resident, rows)
    held = heads * extents[roles.key] * (work.inner + work.columns) * size
    fitting = stage.block_order.descending  # as many as the caches hold keys of
    at = every[loads.keys].offset()
    own_keys = rows == 1 and at.is_affine and all(at.coefficient(axis) for axis in roles.batch)
    if own_keys or fitting > 1 or (caches and held <= caches[-1].capacity_bytes):
        buffers = [*stage.op.buffers_read().values(), stage.op.output]
        found[device.backing.name] = size_bytes(buffers) / stage.blocks
    return found
