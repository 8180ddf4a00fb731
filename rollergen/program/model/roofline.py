"""The roofline: what no program of a stage can beat, from the nominal figures of the spec."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Load, is_named
from rollergen.expr.winograd import can_be_filtered
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.matrix_chains import block_of_chain
from rollergen.program.model.chain_work import chain_flops
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.memory import writes_back_later
from rollergen.program.rprogram import UNROLL, Accumulator, BlockOrder, Loop, Stage
from rollergen.tile.exact_traffic import traffic
from rollergen.tile.rules import main_instruction


def roofline_seconds(stage: Stage, device: Device) -> float:
    """The larger of: one multiply-add for each reduced point and sum (of a chain: of its contractions, for the keys
    that it runs) at the nominal rate of the stage's instruction; every byte that the tensor op touches, once, at the
    nominal bandwidth of the backing store.

    Data that a cache shared by all units holds when the kernel starts (`warm_cache`), or a temporary that it may hold
    when it ends, bound nothing.
    """
    return max(multiply_add_seconds(stage, device), compulsory_seconds(stage, device))


def multiply_add_rate(stage: Stage, device: Device) -> float:
    """Multiply-adds a second of the whole device by the stage's instruction."""
    instruction = device.instruction(stage.compute.instruction)
    return device.units * instruction.at_once * instruction.per_clock * device.clock_mhz * 1e6


def layer_rate(layer: MemoryLayer, device: Device) -> float:
    """Bytes a second that a layer delivers to the whole device; 0 where the spec has no bandwidth of it."""
    return layer.bandwidth_gb_s * 1e9 or layer.bytes_per_clock * device.clock_mhz * 1e6 * device.units


def multiply_add_seconds(stage: Stage, device: Device) -> float:
    if stage.inner is not None:
        return chain_flops(stage) / 2 / multiply_add_rate(stage, device)
    sums = sum(len(one.bodies) if is_named(one.combiner) else 1 for one in stage.op.reductions)
    points = prod(axis.extent for axis in stage.op.axes) * sums
    return points / multiply_add_rate(stage, device)


_SPARED = 4
"""Times fewer multiply-adds than points: Winograd's tiles of 4 x 4 outputs spare so many of 3 x 3 taps."""


def product_seconds(op: TensorOp, device: Device) -> float:
    """What every program of a sum of products in float32 takes at least: its multiply-adds at the nominal rate; 0 of
    other tensor ops.  No stage is needed for it, so that it is known before any is constructed."""
    bodies = [body for one in op.reductions for body in one.bodies if one.combiner.name == "sum"]
    if len(bodies) != op.components or len(bodies) != 1 or op.scans or op.of_role("row", "inner"):
        return 0.0
    (body,) = bodies
    factors = [one for one in body.children() if isinstance(one, Load) and one.dtype == "float32"]
    if not isinstance(body, Binary) or body.op != "mul" or len(factors) != 2 or op.output.constant:
        return 0.0
    instruction = main_instruction(device, "float32")
    per_second = device.units * instruction.at_once * instruction.per_clock * device.clock_mhz * 1e6
    return prod(axis.extent for axis in op.axes) / per_second / (_SPARED if can_be_filtered(op) else 1)


def compulsory_seconds(stage: Stage, device: Device) -> float:
    """Seconds of moving each touched element once; 0 where it may lie in a cache already."""
    total = compulsory_bytes(stage)
    shared = [layer for layer in device.layers if not layer.managed and layer.scope == "device"]
    if shared and costs_of(device).warm_cache and total <= shared[-1].capacity_bytes:
        return 0.0
    store = device.backing
    nominal = store.bandwidth_nominal_gb_s or store.bandwidth_gb_s
    per_second = nominal * 1e9 or store.bytes_per_clock * device.clock_mhz * 1e6 * device.units
    beyond = shared[-1].capacity_bytes if shared and costs_of(device).warm_cache else 0
    if shared and not beyond and writes_back_later(stage, device):
        beyond = min(shared[-1].capacity_bytes, stage.op.output.elements * ITEMSIZE[stage.op.output.dtype])
    return (total - beyond) / per_second


def compulsory_bytes(stage: Stage) -> int:
    """Bytes of the distinct elements that the tensor op reads and writes."""
    extents = {**stage.op.extents(), **_seen_keys(stage)}
    loops = tuple(Loop(axis.name, extents[axis.name], 1, UNROLL) for axis in stage.op.axes)
    accumulator = Accumulator(0, "float32")
    whole = replace(stage, loops=loops, copies=(), block_order=BlockOrder(), accumulator=accumulator, inner=None)
    seen: dict[str, int] = {}
    sizes = {load.buffer.name: ITEMSIZE[load.dtype] for load in stage.op.loads()}
    sizes[stage.op.output.name] = ITEMSIZE[stage.op.output.dtype]
    for itemsize in set(sizes.values()):
        for one in traffic(whole, itemsize):
            if sizes[one.tensor] == itemsize:
                seen[one.tensor] = max(seen.get(one.tensor, 0), one.transactions * itemsize)
    return sum(seen.values()) + taken_bytes(stage)


def _seen_keys(stage: Stage) -> dict[str, int]:
    """Of a chain whose scores rule keys out: how many of them some row sees at least, by the name of their axis; the
    fewest of all points of the other axes that bounds know, such as parts."""
    if stage.inner is None:
        return {}
    block, ranges = block_of_chain(stage), stage.op.ranges()
    extent = stage.op.axis(block.key).extent
    ends = [{**ranges, block.rows: (row, row)} for row in ranges[block.rows]]
    begin = max((min(index.bounds(row)[1] for row in ends) for index in stage.inner.first), default=0)
    end = min((max(index.bounds(row)[0] for row in ends) + 1 for index in stage.inner.last), default=extent)
    return {block.key: max(min(end, extent) - max(begin, 0), 0)}


def taken_bytes(stage: Stage) -> int:
    """Bytes of the elements that takes read where as many rows differ as can."""
    taken = facts_of(stage.op).loads[len(stage.op.loads()) :]
    extents = stage.op.extents()
    return sum(prod(int(one.distinct(dim, extents)) for dim in range(len(one.indices))) * one.itemsize for one in taken)
