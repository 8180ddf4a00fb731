"""Scale-up: rTiles grown layer by layer along the axis that saves most traffic per byte of footprint
(ROLLER, section 3.3, Figure 8).

The paper stops at the first tile whose memory is as fast as its arithmetic.  Here a layer's tile grows
until the layer is full and every step is kept: the model, whose limiters add up in a norm, then says
where on the way it is best to stop (`growth.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rollergen.expr.definition import Definition
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.plan import Roles
from rollergen.tile.rtile import RTile
from rollergen.tile.rules import ITEMSIZE, AlignmentRules, aligned_multiple, vector_lanes

Tile = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of growth: the layer's tile after ``axis`` grew, and the reuse score of that (bytes of
    traffic saved per byte of footprint)."""

    layer: str
    axis: str
    score: float
    tile: RTile


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


def grow_registers(definition: Definition, roles: Roles, device: Device) -> list[Step]:
    """The register tile from one vector of lanes upwards, until the registers are full."""
    lanes = vector_lanes(device, accumulator_dtype(definition))
    axes = [axis for axis in (roles.m, roles.n) if axis is not None]
    start = {roles.n or "": lanes, roles.k: 1, **{tap: definition.axis(tap).extent for tap in roles.taps}}
    if roles.m:
        start[roles.m] = 1
    unit = {roles.m or "": 1, roles.n or "": lanes}
    room = lambda tile: _accumulators(tile, axes) // lanes <= _register_room(device, lanes)
    return _grow(definition, start, axes, unit, room, device.layers[0].name)


def grow_layer(
    definition: Definition, roles: Roles, device: Device, rules: AlignmentRules, registers: RTile, layer: MemoryLayer
) -> list[Step]:
    """The tile of one block in `layer` from one register tile upwards, until half of the layer is full
    (the other half holds what is loaded next, and the output)."""
    axes = [axis for axis in (roles.m, roles.n) if axis is not None]
    unit = {axis: registers[axis] for axis in axes}
    k_extent = definition.axis(roles.k).extent
    unit[roles.k] = min(aligned_multiple(definition, roles.k, device, rules), k_extent)
    start = {**registers.as_dict(), roles.k: unit[roles.k]}
    capacity = (layer.capacity_bytes - layer.reserved_bytes) // 2
    fits = lambda tile: footprint_bytes(definition, tile) <= capacity
    return _grow(definition, start, [*axes, roles.k], unit, fits, layer.name)


def staging_layers(device: Device) -> list[MemoryLayer]:
    """Layers whose tiles a program chooses: the block's managed layer, or the unit's own caches."""
    own = [layer for layer in device.layers[1:-1] if layer.scope == "unit"]
    name = device.kind.block_layer
    return [layer for layer in own if name is None or layer.name == name]


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
    fits: Callable[[Tile], bool],
    layer: str,
) -> list[Step]:
    """Every tile on the way from `tile`, by multiples of `unit`, along the axis of the best reuse score."""
    steps = [Step(layer, "", 0.0, RTile.of(tile))]
    while True:
        scored = []
        for axis in axes:
            extent = _next_extent(tile[axis], unit[axis], definition.axis(axis).extent)
            if extent and fits({**tile, axis: extent}):
                scored.append((reuse_score(definition, tile, axis, extent), axis, extent))
        if not scored:
            return steps
        score, axis, extent = max(scored, key=lambda item: (item[0], item[1]))
        tile = {**tile, axis: extent}
        steps.append(Step(layer, axis, score, RTile.of(tile)))


def _next_extent(current: int, unit: int, extent: int) -> int:
    """The next larger multiple of `unit` below twice the axis; doubling once it is large."""
    grown = current + unit if current < 4 * unit else 2 * current
    return grown if grown < 2 * extent else 0
