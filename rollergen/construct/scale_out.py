"""Scale-out: a grown tile replicated over the execution units, shrunk where there are too few of them
(ROLLER, section 3.3), and turned into a plan."""

from __future__ import annotations

from dataclasses import replace

from rollergen.construct.scale_up import reuse_score
from rollergen.expr.definition import Definition
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.levels import least_step
from rollergen.program.assemble.nest import ceil_div
from rollergen.program.assemble.plan import ContractionPlan, Roles
from rollergen.tile.rtile import RTile
from rollergen.tile.rules import AlignmentRules, thread_multiple, vector_lanes


def scale_out(definition: Definition, roles: Roles, device: Device, registers: RTile, tile: RTile) -> RTile:
    """`tile` with its spatial extents halved, along the axis of least reuse first, while units stay idle."""
    axes = [axis for axis in (roles.m, roles.n) if axis is not None]
    while _blocks(definition, roles, tile) < device.units:
        halves = {axis: max(registers[axis], ceil_div(tile[axis], 2)) for axis in axes}
        smaller = [axis for axis in axes if halves[axis] < tile[axis]]
        if not smaller:
            break
        least = min(smaller, key=lambda axis: (reuse_score(definition, tile.as_dict(), axis, 2 * tile[axis]), axis))
        tile = tile.with_extent(least, halves[least])
    return tile


def _blocks(definition: Definition, roles: Roles, tile: RTile) -> int:
    count = 1
    for axis in definition.of_role("spatial"):
        count *= ceil_div(axis.extent, tile[axis.name])
    return count


def panel_plan(
    definition: Definition, roles: Roles, device: Device, registers: RTile, outer: RTile, staged: tuple[int, ...] = ()
) -> ContractionPlan:
    """One thread a block: what exceeds the register tile becomes panels."""
    lanes = vector_lanes(device, accumulator_dtype(definition))
    rm = registers[roles.m] if roles.m else 1
    rn = max(1, registers[roles.n or ""] // lanes)
    extent = definition.axis(roles.k).extent
    carries = accumulator_dtype(definition) == definition.output.dtype
    return ContractionPlan(
        rm=rm,
        rn=rn,
        lanes=lanes,
        pm=ceil_div(outer[roles.m], rm) if roles.m else 1,
        pn=ceil_div(outer[roles.n or ""], rn * lanes),
        kc=max(outer[roles.k], least_step(definition, extent)) if carries else extent,
        staged=staged,
    )


def thread_plan(
    roles: Roles, device: Device, rules: AlignmentRules, registers: RTile, outer: RTile, staged: tuple[int, ...]
) -> ContractionPlan:
    """Threads share the outer tile out; sizes round to powers of two, threads to whole warps."""
    rm = _power(registers[roles.m]) if roles.m else 1
    rn = _power(registers[roles.n or ""])
    tm = _power(max(1, outer[roles.m] // rm)) if roles.m else 1
    tn = _power(max(1, outer[roles.n or ""] // rn))
    while tm * tn > device.limits.threads_per_block:
        tm, tn = (tm // 2, tn) if tm >= tn else (tm, tn // 2)
    while (tm * tn) % thread_multiple(device, rules):
        tn *= 2
    step = min(_power(outer[roles.k]), 32)
    plan = ContractionPlan(rm=rm, rn=rn, tm=tm, tn=tn, kc=step, unroll=step, staged=staged, depth=2 if staged else 1)
    return replace(plan, vm=min(4, rm), vn=min(4, rn))


def _power(extent: int) -> int:
    """The largest power of two not above `extent`."""
    return 1 << (max(1, extent).bit_length() - 1)
