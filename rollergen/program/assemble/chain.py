"""A chain's tile -> its stage."""

from __future__ import annotations

from math import prod

from rollergen.expr.ruled_out import ruled_out
from rollergen.expr.stages import size_bytes
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, Instruction
from rollergen.program.chain_lines import asked_lines
from rollergen.program.chains import ChainRoles, ChainTile, chain_loops
from rollergen.program.matrix import accumulators_of
from rollergen.program.matrix_chains import MatrixChainTile, matrix_chain_copies, matrix_chain_loops
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, InnerNest, Stage, Store


def chain_stage(
    op: TensorOp, roles: ChainRoles, tile: ChainTile, instruction: Instruction, prefetch: bool = True
) -> Stage:
    """The stage of a chain: blocks of keys that its scores rule out are left out.  ``prefetch``: lines are asked for
    before they are needed, where operands lie in lines."""
    loops, inner, depth = chain_loops(op, roles, tile)
    first, last = ruled_out(op)
    overhangs = op.extents()[roles.rows] % tile.rows > 0
    return Stage(
        name="chain",
        op=op,
        loops=loops,
        compute=Compute(instruction.name, tile.lanes),
        accumulator=Accumulator(depth - 1, "float32"),
        guards=((roles.rows, "mask"),) if overhangs else (),
        prefetch=depth - 2 if prefetch and asked_lines(op, roles, tile) else -1,
        inner=InnerNest(depth, inner, first, last),
    )


def matrix_chain_stage(
    op: TensorOp, roles: ChainRoles, tile: MatrixChainTile, instruction: Instruction, device: Device
) -> Stage:
    """The stage of a chain by a matrix instruction."""
    loops, inner, depth = matrix_chain_loops(op, roles, tile, instruction)
    first, last = ruled_out(op)
    order = BlockOrder(descending=_beside(op, roles, device) if last and not first else 0)
    return Stage(
        name="chain",
        op=op,
        loops=loops,
        block_order=order,
        compute=Compute(instruction.name),
        accumulator=Accumulator(depth - 1, "float32"),
        copies=matrix_chain_copies(op, roles, tile, instruction, device),
        store=Store(vector=accumulators_of(instruction).neighbours),
        guards=((roles.rows, "mask"),) if op.extents()[roles.rows] % tile.rows else (),
        inner=InnerNest(depth, inner, first, last),
    )


def _beside(op: TensorOp, roles: ChainRoles, device: Device) -> int:
    """Heads whose blocks of the same rows run side by side: as many as half of the outermost cache holds keys and
    values of.  Later rows see more keys: they come first, those of all these heads."""
    heads = prod(op.extents()[axis] for axis in roles.batch)
    keys = {load.buffer.name: load.buffer for load in op.loads() if roles.key in load.axes()}
    room = max((layer.capacity_bytes for layer in device.caches), default=0) / 2
    most = max(1, int(room * heads / max(1, size_bytes(keys.values()))))
    return next(count for count in range(min(heads, most), 0, -1) if heads % count == 0)
