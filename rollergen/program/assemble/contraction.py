"""Plan -> Stage: tiles and decisions spelled out as loops and copies, for any device.

One nest serves all contractions: ``grid | threads | k blocks | [staged copies] | panels |
k steps | taps | register tile | lanes``; a GPU has no panels, a CPU no threads and no staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.assemble.asynchronous import past_registers
from rollergen.program.assemble.levels import in_blocks, longest_chain, reuses
from rollergen.program.assemble.nest import (
    ceil_div,
    common_divisor,
    copy_vector,
    is_batch,
    is_divided,
    lane_stride,
    overhanging,
    useful,
    useful_digits,
)
from rollergen.program.assemble.plan import ContractionPlan, Roles, Size
from rollergen.program.loops import block_loops, prefetched_lines
from rollergen.program.rprogram import (
    GRID,
    GROUP,
    LANE,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLL,
    Accumulator,
    BlockOrder,
    Compute,
    Copy,
    Loop,
    Stage,
    Store,
)
from rollergen.tile.rules import AlignmentRules, bank_padding, contiguous_axis, instruction_for


def accumulator_dtype(op: TensorOp) -> str:
    if op.reductions:
        return op.reductions[0].bodies[0].dtype
    return op.output.dtype


def fits_output(op: TensorOp) -> bool:
    """Whether partial results may wait in the output between k blocks: one component, as wide as its accumulators."""
    return op.components == 1 and accumulator_dtype(op) == op.output.dtype


def contraction_stage(
    op: TensorOp,
    roles: Roles,
    plan: ContractionPlan,
    device: Device,
    rules: AlignmentRules = AlignmentRules(),
    name: str = "contraction",
) -> Stage:
    """The contraction's nest for one plan (or a batch of plans of one structure)."""
    loops = _contraction_loops(op, roles, plan)
    tiled = {roles.m, roles.n, *roles.batch}
    panels = [p for p, loop in enumerate(loops) if loop.kind == SERIAL and loop.axis in tiled]
    k_block = _outermost(loops, roles.k, SERIAL) if _has_k_blocks(plan, op, roles) else None
    outside = [loop.kind for loop in loops if loop.kind == GRID or loop.kind in PARALLEL]
    first_inner = len(outside)
    at_loop = panels[-1] + 1 if panels else first_inner
    carry = bool(panels) and k_block is not None
    copies = _contraction_copies(op, roles, plan, device, rules, loops, k_block, first_inner)
    over = overhanging(op, loops)
    guard = "mask" if device.kind.threads else "peel"
    spatial_axes = {a.name for a in op.of_role("spatial")}
    swizzled = outside.count(GRID) > 1
    dtype = accumulator_dtype(op)
    stage = Stage(
        name=name,
        op=op,
        loops=tuple(loops),
        compute=Compute(instruction_for(op, device, dtype).name, plan.lanes),
        accumulator=Accumulator(at_loop, dtype, carry=carry),
        copies=copies,
        store=Store(vector=_store_vector(op, roles, plan)),
        guards=tuple([(axis, guard if axis in spatial_axes else "mask") for axis in over]),
        block_order=BlockOrder(plan.group_rows if swizzled else 0),
    )
    reused = reuses(op)
    waiting = reused and device.kind.threads and not panels and fits_output(op)
    blocks = in_blocks(stage, longest_chain(stage, device, reused=reused), waiting=waiting)
    return _asking_ahead(_asking(blocks, device, rules), roles, device, rules)


def _asking_ahead(stage: Stage, roles: Roles, device: Device, rules: AlignmentRules) -> Stage:
    """The stage of a convolution by its taps with lines of its panels asked for ahead of their use, where these lie
    beyond the first cache of a block of one thread: its sums hide that memory is slow, and hardware's prefetchers begin
    anew at each tap.  In a model the weights are cold.

    (One core of a Zen 5, 3 x 3, us with cold weights and with warm ones, without and with: 256 channels at 14 x 14 1283
    and 1070, 1016 and 1010; 512 at 7 x 7 3600 and 1810, 1300 and 1300; 128 to 256 with stride 2 702 and 567, 524 and
    519.)
    """
    first = next(iter(device.caches), None)
    if first is None or not roles.taps or device.kind.threads or not rules.shapes.prefetch:
        return stage
    steps = [p for p, loop in stage.of_kind(SERIAL) if loop.axis == roles.k and p >= stage.accumulator.at_loop]
    asking = replace(stage, prefetch=steps[-1] if steps else -1)
    asked = prefetched_lines(asking) if steps else ()
    far = any(load.buffer.elements * ITEMSIZE[load.buffer.dtype] > first.capacity_bytes for load, _ in asked)
    return asking if far else stage


def _asking(stage: Stage, device: Device, rules: AlignmentRules) -> Stage:
    """The stage with the results of each register tile asked for while its last block of terms is added up, where they
    lie beyond the first cache of a block of one thread: its stores come at once, and would wait for their lines one
    after the other.  Sums that wait in the output are read back from near.

    (One core of a Zen 4, 128 rows times 768 x N constants, time with for without: to 768 1.00, to 2304 .97, to 3072
    .97, with gelu .99.  Of sums that wait: 3072 to 768 .996, a 1 x 1 convolution 1.05.)
    """
    op = stage.op
    first = next(iter(device.caches), None)
    if first is None or device.kind.threads or not stage.accumulator.flush or not rules.shapes.prefetch:
        return stage
    size = prod(axis.extent for axis in op.of_role("spatial")) * ITEMSIZE[op.output.dtype]
    outside = [loop for loop in stage.loops[: stage.accumulator.at_loop] if loop.kind == SERIAL]
    passes = prod(loop.extent for loop in outside if op.axis(loop.axis).role == "reduce")
    blocks = prod(stage.loops[p].extent for p in block_loops(stage))
    asks = (size > first.capacity_bytes) * (passes == 1) * (blocks > 1)  # of each program of a batch
    return replace(stage, store=replace(stage.store, prefetch_distance=asks))


def _has_k_blocks(plan: ContractionPlan, op: TensorOp, roles: Roles) -> bool:
    shorter = plan.kc < op.axis(roles.k).extent
    return bool(shorter.any() if is_batch(shorter) else shorter)


def _outermost(loops: Sequence[Loop], axis: str, kind: str) -> int:
    return next(p for p, loop in enumerate(loops) if loop.axis == axis and loop.kind == kind)


_KINDS = (GRID, SERIAL, GROUP, THREAD, UNROLL, LANE)


def _tile_digits(
    axis: str, extent: int, r: Size, v: int, t: Size, g: Size, p: Size, lanes: int
) -> dict[str, list[Loop]]:
    """Digits of a spatial axis by their kinds: grid, panel, far register tile, group, thread, near vector, lane."""
    tile = r * t * p * lanes
    found: dict[str, list[Loop]] = {kind: [] for kind in _KINDS}
    for loop in useful_digits(
        axis,
        (GRID, ceil_div(extent, tile)),
        (SERIAL, p),
        (UNROLL, r // v),
        (GROUP, g),
        (THREAD, t // g),
        (UNROLL, v),
        (LANE, lanes),
    ):
        found[loop.kind].append(loop)
    return found


def _contraction_loops(op: TensorOp, roles: Roles, plan: ContractionPlan) -> list[Loop]:
    m = _axis_loops(op, roles.m, plan.rm, plan.vm, plan.tm, plan.gm, plan.pm, 1)
    n = _axis_loops(op, roles.n, plan.rn, plan.vn, plan.tn, plan.gn, plan.pn, plan.lanes)
    within = sharing_panels(op, roles) if plan.order == "jbi" else ()
    batch = [Loop(axis, op.axis(axis).extent, 1, GRID) for axis in roles.batch if axis not in within]
    lines = [Loop(axis, op.axis(axis).extent, 1, SERIAL) for axis in within]
    blocked = _has_k_blocks(plan, op, roles)
    k = useful_digits(
        roles.k,
        (SERIAL, ceil_div(op.axis(roles.k).extent, plan.kc) if blocked else 1),
        (SERIAL, 1 if plan.unroll is plan.kc else plan.kc // plan.unroll),
        (UNROLL, plan.unroll // plan.vk),
        (UNROLL, plan.vk),
    )
    taps = [
        Loop(axis, op.axis(axis).extent, 1, UNROLL if position == len(roles.taps) - 1 else SERIAL)
        for position, axis in enumerate(roles.taps)
    ]
    outside = int(blocked)
    panels = (m[SERIAL], n[SERIAL]) if plan.order == "ij" else (n[SERIAL], [*useful(lines), *m[SERIAL]])
    return [
        *useful(batch),
        *m[GRID],
        *n[GRID],
        *m[GROUP],
        *n[GROUP],
        *m[THREAD],
        *n[THREAD],
        *k[:outside],
        *panels[0],
        *panels[1],
        *k[outside:],
        *useful(taps),
        *m[UNROLL],
        *n[UNROLL],
        *n[LANE],
    ]


def sharing_panels(op: TensorOp, roles: Roles) -> tuple[str, ...]:
    """The batch axes along which nothing changes that varies along n."""
    loads = [load.axes() for load in op.body_loads() if roles.n in load.axes()]
    return tuple(axis for axis in roles.batch if not any(axis in axes for axes in loads))


def _axis_loops(
    op: TensorOp, axis: str | None, r: Size, v: int, t: Size, g: Size, p: Size, lanes: int
) -> dict[str, list[Loop]]:
    if axis is None:
        return {kind: [] for kind in _KINDS}
    return _tile_digits(axis, op.axis(axis).extent, r, v, t, g, p, lanes)


def _contraction_copies(
    op: TensorOp,
    roles: Roles,
    plan: ContractionPlan,
    device: Device,
    rules: AlignmentRules,
    loops: list[Loop],
    k_block: int | None,
    first_inner: int,
) -> tuple[Copy, ...]:
    stage_depth = first_inner if k_block is None else k_block + 1
    layer = device.kind.block_layer
    if layer is None:
        return _own_copies(op, roles, plan, device, loops, stage_depth)
    tile = [p for p, loop in enumerate(loops) if loop.kind in (UNROLL, LANE) and loop.axis in (roles.m, roles.n)]
    inner = tile[0] if tile else len(loops)
    near = {loop.axis for loop in loops[inner:]}
    inside = _extents_inside(loops, stage_depth)
    copies = []
    for number, load in enumerate(op.body_loads()):
        order = _buffer_order(op, roles, load, inside) if number in plan.staged else ()
        staged = bool(order)
        as_it_lies = staged and keeps_order(op, roles, load, plan.vk)
        if as_it_lies:
            order = (*(axis for axis in order if axis != roles.k), roles.k)
        if staged:
            along = roles.k if as_it_lies else fill_axis(op, op.body_loads()[number], order, device)
            granule = inside.get(along, 1)  # the multiple of the axis at which its staged tiles start
            wide = rules.shapes.wide_accesses
            vector = copy_vector(op, load, along, granule, guarded=True) if wide else 1
            row = inside.get(order[-1], 1)
            pad_vector = 4 if load.dtype == "float32" else 1
            padding = 0
            if as_it_lies and rules.bank:
                padding = plan.vk
            elif along != order[-1]:
                padding = bank_padding(device, row, load.dtype, pad_vector, rules)
            copy = Copy(number, device.backing.name, layer, stage_depth, order, along, vector, padding, 0, plan.depth)
            copies.append(past_registers(copy, load, device) if plan.asynchronous and k_block is not None else copy)
        if not staged:
            continue
        axis, width = (roles.m, plan.vm) if roles.m in load.axes() else (roles.n, plan.vn)
        if axis is None:
            continue
        varies = axis in near and axis in load.axes()
        if as_it_lies:
            at = max(p for p, loop in enumerate(loops[:inner]) if loop.axis == roles.k)  # other sums may lie inside
            beside = dict.fromkeys(loop.axis for loop in loops[at + 1 : inner] if loop.axis in load.axes())
            order = (*((axis,) if varies else ()), *beside, roles.k)
            copies.append(Copy(number, layer, "registers", at, order, roles.k, plan.vk))
        elif varies:
            copies.append(Copy(number, layer, "registers", inner, (axis,), axis, width))
    return tuple(copies)


def _own_copies(
    op: TensorOp, roles: Roles, plan: ContractionPlan, device: Device, loops: list[Loop], depth: int
) -> tuple[Copy, ...]:
    """Where a block is one thread: tiles in an array of its own, which stays in its caches from one k block, and from
    one block, to the next, filled in vectors of the lanes along n."""
    assert roles.n is not None or not plan.staged
    inside, copies = _extents_inside(loops, depth), []
    layer = [layer.name for layer in device.layers[1:3] if layer.scope == "unit"][-1] if plan.staged else ""
    for number, load in enumerate(op.body_loads()):
        if number in plan.staged:
            order = _buffer_order(op, roles, load, inside)
            copies.append(Copy(number, device.backing.name, layer, depth, order, order[-1], plan.lanes))
    return tuple(copies)


def keeps_order(op: TensorOp, roles: Roles, load: Load, vk: int) -> bool:
    """Whether the load is staged as it lies along k: fragments are `vk` elements of 4 bytes, read at once from the
    tile, however many of them memory allows to be moved at once."""
    if vk == 1 or ITEMSIZE[load.dtype] != 4:
        return False
    return lane_stride(load, roles.k) == 1 or copy_vector(op, load, roles.k, vk, guarded=True) == vk


@lru_cache(maxsize=64)
def fill_axis(op: TensorOp, load: Load, order: tuple[str, ...], device: Device) -> str:
    """The axis along which neighbouring threads fetch.

    It is one along which vectors can be moved, else the one where a warp's elements lie in the fewest transactions (of
    a gathered image: along the pixels, not along the taps).
    """
    contiguous = contiguous_axis(load)
    along = contiguous if contiguous in order else order[-1]
    if along == order[-1] or copy_vector(op, load, along, 4, guarded=True) > 1:
        return along
    touched = {axis: _transactions(op, load, axis, device) for axis in (order[-1], along)}
    return min(touched, key=lambda axis: touched[axis])


def _transactions(op: TensorOp, load: Load, axis: str, device: Device) -> int:
    """Transactions of the backing store that neighbours along the axis touch, at the start of a tile inside."""
    neighbours = min(device.execution_width, op.axis(axis).extent)
    return _touched(load, axis, neighbours, device.backing.transaction_bytes)


@lru_cache(maxsize=128)
def _touched(load: Load, axis: str, neighbours: int, transaction_bytes: int) -> int:
    offset = load.offset()
    places = dict.fromkeys(offset.axes(), 0) | {axis: np.arange(neighbours)}
    addresses = np.asarray(offset.evaluate(places)) * ITEMSIZE[load.dtype]
    return len(np.unique(addresses // transaction_bytes))


def _extents_inside(loops: Sequence[Loop], depth: int) -> dict[str, Size]:
    """Elements along each axis of a tile that a block stages at the depth; axes that do not vary are left out."""
    extents: dict[str, Size] = {}
    for p, loop in enumerate(loops):
        if loop.kind != GRID and (p >= depth or loop.kind in PARALLEL):
            extents[loop.axis] = extents.get(loop.axis, 1) * loop.extent
    return {axis: extent for axis, extent in extents.items() if is_batch(extent) or extent > 1}


def _buffer_order(op: TensorOp, roles: Roles, load: Load, inside: dict[str, Size]) -> tuple[str, ...]:
    """Reduce axes outside, the tiled spatial axis inside: fragments are then vectors."""
    axes = load.axes()
    used = [a.name for a in op.axes if a.name in inside and a.name in axes]
    spatial = [a for a in used if a in (roles.m, roles.n)]
    return tuple([a for a in used if a not in spatial] + spatial)


def _store_vector(op: TensorOp, roles: Roles, plan: ContractionPlan) -> Size:
    """Neighbouring results stored at once; one where their places take divisions: a compiler that computes those
    before the loop has no registers left for them beside the largest tiles (40 bytes of local memory for sm_70)."""
    if roles.n is None or plan.lanes > 1 or op.where:
        return 1
    store = op.stored()
    if is_divided(store, roles.n):
        return 1
    row = np.where(plan.vn > 1, plan.vn * plan.tn, 1) if is_batch(plan.vn, plan.tn) else plan.vn * plan.tn
    width = copy_vector(op, store, roles.n, row if is_batch(row) or plan.vn > 1 else 1)
    beside = [load for load in op.result_loads() if roles.n in load.axes()]
    widths = [copy_vector(op, load, roles.n, plan.vn) for load in beside]
    return common_divisor(plan.vn, width, *widths)
