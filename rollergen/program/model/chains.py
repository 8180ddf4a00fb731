"""The price of chains of two contractions on devices whose blocks are one thread.

Counted are vectors of rows: multiply-adds of both contractions, the functions between them (exponentials run on the
same units, while neither contraction does), what register tiles load, what leaves the first cache, and the turning of
queries and results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rollergen.expr.chains import ROW
from rollergen.expr.stages import size_bytes
from rollergen.expr.values import Binary, Select, Unary, Value, loads, walk
from rollergen.hal.spec import Device, Instruction, MemoryLayer
from rollergen.program.chain_lines import asked_lines
from rollergen.program.chains import (
    ChainRoles,
    ChainTile,
    chain_factors,
    mean_vectors,
    steps_of,
    tile_of_chain,
    turned_loads,
)
from rollergen.program.model.chain_work import chain_flops, chain_work
from rollergen.program.model.costs import Costs, costs_of
from rollergen.program.model.launching import calling_thread, launch_us
from rollergen.program.model.limiters.limit import ADDS, OVERLAPS, Limit
from rollergen.program.model.price import Limiter, Norms, Price, StagePrediction, combine
from rollergen.program.rprogram import Stage


class _Launch(NamedTuple):
    seconds: float
    limiters: tuple[Limit, ...]
    per_unit: int


def price_chain(stage: Stage, device: Device) -> Price:
    """The price of one program."""
    launch, alone = _launched(stage, device, None)
    column = lambda figure, dtype: np.array([figure], dtype)
    return Price(
        column(launch.seconds, np.float64), column(1, np.int64), column(1, np.int64), column(0.0, np.float64),
        column(0, np.int64), column(alone, np.bool_),
    )  # fmt: skip


def predict_chain(stage: Stage, device: Device, alone: bool | None) -> StagePrediction:
    """Predicted time of one launch and its breakdown."""
    launch, on_caller = _launched(stage, device, alone)
    clock = device.clock_mhz * 1e6
    named = [Limiter(name, clocks / clock, clocks, how) for name, clocks, how in launch.limiters if clocks > 0]
    tile = tile_of_chain(stage)[1]
    moved = tuple((name, amount * stage.blocks) for name, amount in _moved(stage, device).items())
    return StagePrediction(
        stage.name, launch.seconds, tuple(named), stage.blocks, launch.per_unit, 1,
        1 / device.limits.threads_per_unit, 1, registers_of(tile.inner_keys, tile.columns, tile.vectors), 0, 0,
        moved, chain_flops(stage), stage.once, on_caller,
    )  # fmt: skip


def registers_of(keys: int, columns: int, vectors: int) -> int:
    """Vector registers of the larger register tile: accumulators, a column of vectors, one element for all lanes."""
    return max(keys, columns) * vectors + vectors + 1


def _launched(stage: Stage, device: Device, alone: bool | None) -> tuple[_Launch, bool]:
    """The launch in the given way, or in the faster one, and whether that is on the calling thread alone."""
    one = _launch(stage, calling_thread(device))
    if alone is True or device.units == 1:
        return one, alone is True
    every = _launch(stage, device)
    return (one, True) if alone is None and device.wake_us and one.seconds < every.seconds else (every, False)


@lru_cache(maxsize=256)
def _launch(stage: Stage, device: Device) -> _Launch:
    costs = costs_of(device)
    per_unit = steps_of(stage.blocks, device.units)
    limiters = [(name, per_unit * clocks, how) for name, clocks, how in _within_a_block(stage, device, costs)]
    for layer in (*device.caches[1:], device.backing):
        amount = _moved(stage, device)[layer.name]
        limiters.append((f"{layer.name} bandwidth", _clocks(layer, device, per_unit, stage.blocks, amount), OVERLAPS))
    starting = launch_us(device)
    clocks = combine(limiters, Norms(costs.norm_exponent, costs.memory_exponent), 0.0)
    seconds = float(clocks) / (device.clock_mhz * 1e6) + starting * 1e-6
    limiters.append(("launch", starting * device.clock_mhz, ADDS))
    return _Launch(seconds, tuple(limiters), per_unit)


def _clocks(layer: MemoryLayer, device: Device, per_unit: int, blocks: int, amount: float) -> float:
    """Clocks of a layer for the bytes of a unit's blocks, or of all where units share its bandwidth."""
    own = per_unit * amount / layer.bytes_per_clock if layer.bytes_per_clock else 0.0
    if not layer.bandwidth_gb_s:
        return own
    return max(own, blocks * amount / (layer.bandwidth_gb_s * 1e9) * device.clock_mhz * 1e6)


def _within_a_block(stage: Stage, device: Device, costs: Costs) -> list[Limit]:
    roles, tile = tile_of_chain(stage)
    work = chain_work(stage)
    fma = next(one for one in device.instructions if one.name == stage.compute.instruction)
    mean = mean_vectors(stage.op, roles, tile)
    vectors = work.keys * mean
    found: list[Limit] = [("multiply-adds", vectors * (work.inner + work.columns) / fma.per_clock, OVERLAPS)]
    groups = work.steps * steps_of(tile.keys, tile.inner_keys), work.steps * steps_of(work.columns, tile.columns)
    steps = groups[0] * work.inner, groups[1] * tile.keys
    sides = tile.inner_keys, tile.columns
    ports = costs.load_ports or 1.0
    asked = sum(len(one.lines) for one in asked_lines(stage.op, roles, tile)) if stage.prefetch >= 0 else 0
    moves = sum(count * (mean + side) for count, side in zip(steps, sides, strict=True)) + steps[0] * asked
    found.append(("load ports", moves / ports, OVERLAPS))
    tiles = zip(steps, sides, strict=True)
    instructions = sum(n * (side * (mean + 1) + mean + costs.loop_instructions) for n, side in tiles)
    instructions += steps[0] * asked
    found.append(("issue", instructions / (costs.issue_per_clock or 1.0), OVERLAPS))
    waits = sum(max(0.0, fma.latency_clocks - side * mean / fma.per_clock) * count
                for count, side in zip(steps, sides, strict=True))  # fmt: skip
    found.append(("latency", waits + sum(groups) * costs.tile_clocks, ADDS))
    found.append(("functions", vectors * _function_clocks(stage, roles, tile, fma, costs), ADDS))
    turned = mean * (work.inner + work.columns) * (np.log2(tile.lanes) + 2)
    held = work.steps * work.columns * mean * 2
    found.append(("turning", float(turned) + held + costs.block_clocks, ADDS))
    return found


def _function_clocks(stage: Stage, roles: ChainRoles, tile: ChainTile, fma: Instruction, costs: Costs) -> float:
    """Clocks that one vector of scores takes: what is computed of it, what is turned for it, and element by element
    where rows are gathered."""
    pair = next((one for one in stage.op.reductions if one.name == ROW), None)
    values = (pair.bodies[0],) if pair is not None else chain_factors(stage.op).weights
    slots = sum(costs.operation(node.op) if isinstance(node, (Unary, Binary)) else 1.0 for node in _operations(values))
    if pair is not None:
        slots += costs.operation("exp_below") + 4  # the larger one, the difference, the sum
    read, turned = {load for load in loads(*values) if roles.rows in load.axes()}, turned_loads(stage.op, roles)
    gathered = len(read - {*turned})
    computed = max(slots / fma.per_clock, 2 / (costs.store_ports or 1.0))  # scores and weights are stored beside it
    moved = len(turned) * (np.log2(tile.lanes) + 2)
    return computed + moved + gathered * tile.lanes * (costs.gather_clocks or 1.0)


def _operations(values: tuple[Value, ...]) -> list[Value]:
    return [node for value in values for node in walk(value) if isinstance(node, (Unary, Binary, Select))]


@lru_cache(maxsize=256)
def _moved(stage: Stage, device: Device) -> dict[str, float]:
    """Bytes that each layer beyond the first cache sends to one block, by its name.

    Keys and what they weigh come from the innermost cache that holds them all between two blocks of rows; queries and
    sums go to the second cache and back where the first one cannot hold them beside a block of keys."""
    roles, tile = tile_of_chain(stage)
    work, caches = chain_work(stage), device.caches
    wide = work.inner + work.columns
    own = 4.0 * tile.rows * wide
    keys = 4.0 * work.keys * wide
    found = dict.fromkeys([layer.name for layer in (*caches[1:], device.backing)], own)
    if len(caches) > 1 and own + 4.0 * tile.keys * (tile.rows + wide) > caches[0].capacity_bytes:
        found[caches[1].name] += work.steps * 4.0 * tile.rows * (wide + work.columns)
    buffers = [*stage.op.buffers_read().values(), stage.op.output]
    warm = bool(costs_of(device).warm_cache and caches) and size_bytes(buffers) <= 0.8 * caches[-1].capacity_bytes
    for number, layer in enumerate([*caches[1:], device.backing]):
        if warm and layer is device.backing:
            found[layer.name] = 0.0
            continue
        held = number > 0 and keys + own <= 0.8 * caches[number].capacity_bytes
        found[layer.name] += keys / steps_of(stage.op.extents()[roles.rows], tile.rows) if held else keys
    return found
