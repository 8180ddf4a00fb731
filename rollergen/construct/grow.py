"""Tiles grown by data reuse (ROLLER, section 3.3, Figure 8), as points of the same spaces under the same rules.

Scale-up: a layer's tile grows along the axis that saves most traffic per byte of footprint.  The paper stops at the
first tile whose memory is as fast as its arithmetic; here it grows until the layer is full and every other step is
kept, for the model to say where it is best to stop.  Scale-out: a tile shrinks while units stay idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from rollergen.construct.variants import Variant
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.assemble.contraction import accumulator_dtype, fits_output
from rollergen.program.assemble.levels import least_step
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import Roles
from rollergen.space.counts import power_below
from rollergen.space.engine import Points, TileSpace
from rollergen.tile.rules import AlignmentRules, aligned_multiple, thread_multiple, vector_lanes

Tile = Mapping[str, int]
"""Elements along each axis; axes that are not named have extent 1."""
Sizes = dict[str, int]


class Reuse(NamedTuple):
    """A tile with what growth compares: bytes of each operand's tile in one step, and of all of them, and how many
    steps there are."""

    tile: Tile
    operand_bytes: tuple[int, ...]
    footprint_bytes: int
    steps: int

    @staticmethod
    def of(op: TensorOp, tile: Tile) -> Reuse:
        """Of the view's tile, for a gathered operand."""
        sizes = [prod([tile.get(axis, 1) for axis in load.axes()]) * ITEMSIZE[load.dtype] for load in op.body_loads()]
        steps = prod([ceil_div(axis.extent, tile.get(axis.name, 1)) for axis in op.axes])
        return Reuse(tile, tuple(sizes), sum(sizes), steps)

    def with_extent(self, op: TensorOp, axis: str, extent: int) -> Reuse:
        """Of the tile with another extent of one axis: only what that axis decides is counted again."""
        old, whole = self.tile.get(axis, 1), op.extents()[axis]
        sizes = [
            size // old * extent if axis in load.axes() else size
            for load, size in zip(op.body_loads(), self.operand_bytes, strict=True)
        ]
        steps = self.steps // ceil_div(whole, old) * ceil_div(whole, extent)
        return Reuse({**self.tile, axis: extent}, tuple(sizes), sum(sizes), steps)

    def score(self, larger: Reuse) -> float:
        """Traffic saved per byte of footprint added when the tile grows to the larger one."""
        less, more = self.footprint_bytes, larger.footprint_bytes
        saved = self.steps * less - larger.steps * more
        return saved / (more - less) if more > less else inf if saved > 0 else 0.0


def reuse_score(op: TensorOp, tile: Tile, axis: str, extent: int) -> float:
    """The score of the tile whose `axis` grows to `extent`."""
    now = Reuse.of(op, tile)
    return now.score(now.with_extent(op, axis, extent))


def grow_registers(op: TensorOp, roles: Roles, device: Device) -> list[Tile]:
    """The register tile from one vector of lanes upwards, until the registers are full."""
    lanes = vector_lanes(device, accumulator_dtype(op))
    axes = _tiled(roles)
    unit = {roles.m or "": 1, roles.n or "": lanes}
    start = {**{axis: unit[axis] for axis in axes}, **{tap: op.axis(tap).extent for tap in roles.taps}}
    registers = device.limits.registers_per_thread
    # Fragments and addresses take the rest: a row of operands, or half of a file of scalars.
    most = registers - 6 if lanes > 1 else min(64, registers // 2)
    held = lambda tile: prod(tile[axis] for axis in axes) // lanes * op.components
    return _grow(op, start, axes, unit, lambda reuse: held(reuse.tile) <= most)


def grow_layer(
    op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules, registers: Tile, layer: MemoryLayer
) -> list[Tile]:
    """The tile of one block in `layer` from one register tile upwards, until half of the layer is full
    (the other half holds what is loaded next, and the output)."""
    axes = _tiled(roles)
    step = min(aligned_multiple(op, roles.k, device, rules), op.axis(roles.k).extent)
    unit = {**{axis: registers[axis] for axis in axes}, roles.k: step}
    capacity = (layer.capacity_bytes - layer.reserved_bytes) // 2
    fits = lambda reuse: reuse.footprint_bytes <= capacity
    return _grow(op, {**registers, roles.k: step}, [*axes, roles.k], unit, fits)


def staging_layers(device: Device) -> list[MemoryLayer]:
    """Layers whose tiles a program chooses: the block's managed layer, or the unit's own caches."""
    own = [layer for layer in device.layers[1:-1] if layer.scope == "unit"]
    name = device.kind.block_layer
    return [layer for layer in own if name is None or layer.name == name]


def scale_out(op: TensorOp, roles: Roles, device: Device, registers: Tile, tile: Tile) -> Tile:
    """`tile` with its spatial extents halved, along the axis of least reuse first, while units stay idle."""
    blocks = lambda tile: prod(ceil_div(a.extent, tile.get(a.name, 1)) for a in op.of_role("spatial"))
    while blocks(tile) < device.units:
        halves = {axis: max(registers[axis], ceil_div(tile[axis], 2)) for axis in _tiled(roles)}
        smaller = [axis for axis in halves if halves[axis] < tile[axis]]
        if not smaller:
            break
        least = min(smaller, key=lambda axis: (reuse_score(op, tile, axis, 2 * tile[axis]), axis))
        tile = {**tile, least: halves[least]}
    return tile


@lru_cache(maxsize=8)
def grown_tiles(variant: Variant, device: Device, rules: AlignmentRules) -> tuple[tuple[Tile, Tile], ...]:
    """Pairs (register tile, block tile) from growth: each register tile on the way up, with each block tile above
    it."""
    of = variant.op, variant.roles, device
    return tuple([
        (small, scale_out(*of, small, large))
        for small in grow_registers(*of)[::2]
        for layer in staging_layers(device)
        for large in grow_layer(*of, rules, small, layer)[::2]
    ])


def grown_threads(space: TileSpace, variant: Variant, lanes: int) -> Points:
    """Points of a space of threads that have the grown tiles.

    Threads share a tile out in powers of two and whole execution widths; threads that run alone take it in panels.
    Splits of a reduction take the tiles of the whole.
    """
    shared = _powers if space.device.kind.lockstep else _panels
    rows = []
    shapes = space.rules.shapes
    for small, outer in grown_tiles(variant, space.device, space.rules):
        small = small if shapes.register_tiles else dict.fromkeys(small, 1)
        row = shared(variant, space.device, space.rules, lanes, small, outer)
        wide = (4, 2, 1) if shapes.wide_accesses else (1,)
        vm, vn = (next(width for width in wide if row[name] % width == 0) for name in ("rm", "rn"))
        rows.append({**row, "lanes": lanes, "vm": vm, "vn": vn if lanes == 1 else 1})
    return points_of(space, rows)


def grown_panels(variant: Variant, device: Device, rules: AlignmentRules, lanes: int) -> list[Sizes]:
    """Sizes of blocks of one thread: rows and vectors of the register tile, panels, and steps of the reduction."""
    return [_panels(variant, device, rules, lanes, *pair) for pair in grown_tiles(variant, device, rules)]


def points_of(space: TileSpace, rows: Sequence[Sizes]) -> Points:
    """Distinct points with these sizes."""
    names = [digit.name for digit in space.digits]
    points = sorted({tuple([row[name] for name in names]) for row in rows})
    return Points(space.digits, np.array(points, dtype=np.int64).reshape(-1, len(names)).T)


def _tiled(roles: Roles) -> list[str]:
    return [axis for axis in (roles.m, roles.n) if axis is not None]


def _powers(variant: Variant, device: Device, rules: AlignmentRules, lanes: int, small: Tile, outer: Tile) -> Sizes:
    roles, n = variant.roles, variant.roles.n or ""
    rm = power_below(small[roles.m]) if roles.m else 1
    rn = power_below(max(1, small[n] // lanes))
    tm = power_below(outer[roles.m] // rm) if roles.m else 1
    tn = power_below(outer[n] // (rn * lanes))
    while tm * tn > device.limits.threads_per_block:
        tm, tn = (tm // 2, tn) if tm >= tn else (tm, tn // 2)
    while tm * tn % thread_multiple(device, rules):
        tn *= 2
    return {"rm": rm, "rn": rn, "tm": tm, "tn": tn, "pm": 1, "pn": 1}


@lru_cache(maxsize=8)
def _shortest_step(op: TensorOp, axis: str) -> int:
    """Elements of the reduced axis between two passes, at least."""
    extent = op.axis(axis).extent
    return least_step(op, extent) if fits_output(op) else extent


def _panels(variant: Variant, device: Device, rules: AlignmentRules, lanes: int, small: Tile, outer: Tile) -> Sizes:
    op, roles = variant.op, variant.roles
    n, extent = roles.n or "", op.axis(roles.k).extent
    columns = op.axis(n).extent  # may be fewer than a vector that tiles grow by, and have narrower ones
    rm, rn = small[roles.m] if roles.m else 1, max(1, min(small[n] // lanes, ceil_div(columns, lanes)))
    pm, pn = ceil_div(outer[roles.m], rm) if roles.m else 1, ceil_div(min(outer[n], columns), rn * lanes)
    step = max(outer[roles.k], _shortest_step(op, roles.k))
    return {"rm": rm, "rn": rn, "tm": 1, "tn": 1, "pm": pm, "pn": pn, "kc": min(step, extent)}


def _grow(
    op: TensorOp, tile: Tile, axes: Sequence[str], unit: Tile, fits: Callable[[Reuse], bool]
) -> list[Tile]:
    """Every tile on the way from `tile`, by multiples of `unit`, along the axis of the best reuse score."""
    found = [Reuse.of(op, tile)]
    while True:
        last = found[-1]
        larger = {axis: _next_extent(last.tile[axis], unit[axis], op.extents()[axis]) for axis in axes}
        grown = [(axis, extent, last.with_extent(op, axis, extent)) for axis, extent in larger.items() if extent]
        scored = [(last.score(reuse), axis, extent, reuse) for axis, extent, reuse in grown if fits(reuse)]
        if not scored:
            return [reuse.tile for reuse in found]
        found.append(max(scored, key=lambda one: one[:3])[3])


def _next_extent(current: int, unit: int, extent: int) -> int:
    """The next larger multiple of `unit` below twice the axis; doubling once it is large."""
    grown = current + unit if current < 4 * unit else 2 * current
    return grown if grown < 2 * extent else 0
