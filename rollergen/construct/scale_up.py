"""Scale-up: rTiles grown layer by layer along the axis that saves most traffic per byte of footprint
(ROLLER, section 3.3, Figure 8; its early return on a visited tile mended to a skip)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rollergen.expr.definition import Definition
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.assemble import accumulator_dtype
from rollergen.program.plan import Roles
from rollergen.tile.rtile import RTile
from rollergen.tile.rules import ITEMSIZE, AlignmentRules, aligned_multiple, block_layer, main_instruction, vector_lanes

Tile = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Growth:
    """The tiles of one scale-up, innermost layer first, and every step taken on the way."""

    layers: tuple[tuple[str, RTile], ...]
    steps: tuple[tuple[str, str, int, float], ...]
    """(layer, axis, new extent, reuse score in bytes saved per byte of footprint)."""


def footprint_bytes(definition: Definition, tile: Tile) -> int:
    """Bytes of the operand tiles of one step (the view's tile, for a gathered operand)."""
    return sum(
        prod(tile.get(axis, 1) for axis in load.axes()) * ITEMSIZE[load.dtype] for load in definition.body_loads()
    )


def traffic_bytes(definition: Definition, tile: Tile) -> int:
    """Bytes that all operands move into the layer over the whole computation with this tile."""
    steps = prod(-(-axis.extent // tile.get(axis.name, 1)) for axis in definition.axes)
    return steps * footprint_bytes(definition, tile)


def reuse_score(definition: Definition, tile: Tile, axis: str, extent: int) -> float:
    """Traffic saved per byte of footprint added when `axis` grows to `extent` (ROLLER, section 3.3)."""
    grown = {**tile, axis: extent}
    added = footprint_bytes(definition, grown) - footprint_bytes(definition, tile)
    saved = traffic_bytes(definition, tile) - traffic_bytes(definition, grown)
    return saved / added if added > 0 else float("inf") if saved > 0 else 0.0


def scale_up(definition: Definition, roles: Roles, device: Device, rules: AlignmentRules) -> Growth:
    """Tiles for registers and for the next layers, each grown until its layer feeds the arithmetic at
    full rate or is full.  A layer whose scores do not change with the tile keeps the tile below."""
    dtype = accumulator_dtype(definition)
    lanes = vector_lanes(device, dtype)
    axes = [axis for axis in (roles.m, roles.n) if axis is not None]
    start = {roles.n or "": lanes, roles.k: 1, **{tap: definition.axis(tap).extent for tap in roles.taps}}
    if roles.m:
        start[roles.m] = 1
    register_step = {roles.m or "": 1, roles.n or "": lanes}
    room = lambda tile: _accumulators(tile, axes) // lanes <= _register_room(device, lanes)
    steps: list[tuple[str, str, int, float]] = []
    registers = _grow(definition, start, axes, register_step, device, device.layers[1], room, steps, "registers")
    layers = [("registers", RTile.of(registers))]
    tile = registers
    for layer in device.layers[1:-1]:
        if block_layer(device) is not None and layer.name != block_layer(device):
            continue
        unit = {axis: registers.get(axis, 1) for axis in axes}
        step = aligned_multiple(definition, roles.k, device, rules)
        unit[roles.k] = min(step, definition.axis(roles.k).extent)
        tile = {**tile, roles.k: max(tile[roles.k], unit[roles.k])}
        capacity = layer.capacity_bytes - layer.reserved_bytes
        fits = lambda t, capacity=capacity: footprint_bytes(definition, t) <= capacity // 2
        outer = device.layers[device.layers.index(layer) + 1]
        tile = _grow(definition, tile, [*axes, roles.k], unit, device, outer, fits, steps, layer.name)
        layers.append((layer.name, RTile.of(tile)))
    return Growth(tuple(layers), tuple(steps))


def _accumulators(tile: Tile, axes: Sequence[str]) -> int:
    return prod(tile[axis] for axis in axes)


def _register_room(device: Device, lanes: int) -> int:
    """Accumulators a thread can keep: vectors that leave one row of operands, or (scalar registers)
    half of the file, since fragments and addresses take the rest."""
    registers = device.limits.registers_per_thread
    return registers - 6 if lanes > 1 else min(64, registers // 2)


def _grow(
    definition: Definition,
    tile: dict[str, int],
    axes: Sequence[str],
    unit: Mapping[str, int],
    device: Device,
    source: MemoryLayer,
    fits: Callable[[Tile], bool],
    steps: list[tuple[str, str, int, float]],
    layer: str,
) -> dict[str, int]:
    """`tile` grown by multiples of `unit` until `source` feeds it or it no longer fits."""
    while not saturated(definition, tile, device, source):
        scored = []
        for axis in axes:
            extent = _next_extent(tile[axis], unit[axis], definition.axis(axis).extent)
            if extent and fits({**tile, axis: extent}):
                scored.append((reuse_score(definition, tile, axis, extent), axis, extent))
        scored = [item for item in scored if item[0] > 0]
        if not scored:
            break
        score, axis, extent = max(scored, key=lambda item: (item[0], item[1]))
        tile = {**tile, axis: extent}
        steps.append((layer, axis, extent, score))
    return tile


def _next_extent(current: int, unit: int, extent: int) -> int:
    """The next larger multiple of `unit` below twice the axis; doubling once it is large."""
    grown = current + unit if current < 4 * unit else 2 * current
    return grown if grown < 2 * extent else 0


def saturated(definition: Definition, tile: Tile, device: Device, source: MemoryLayer) -> bool:
    """Whether reading the operands of one step from `source` takes no longer than computing it
    (MemPerf against MaxComputePerf, ROLLER, section 3.3)."""
    instruction = main_instruction(device, accumulator_dtype(definition))
    work = prod(tile.get(axis.name, 1) for axis in definition.axes)
    compute = work / (instruction.lanes * instruction.per_clock)
    per_clock = source.bytes_per_clock or source.bandwidth_gb_s * 1e3 / device.clock_mhz / device.units
    return footprint_bytes(definition, tile) / per_clock <= compute
