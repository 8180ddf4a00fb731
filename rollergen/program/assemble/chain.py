"""A chain's tile -> its stage."""

from __future__ import annotations

from rollergen.expr.ruled_out import ruled_out
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device, Instruction
from rollergen.program.chains import ChainRoles, ChainTile, chain_loops
from rollergen.program.matrix import accumulators_of
from rollergen.program.matrix_chains import MatrixChainTile, matrix_chain_copies, matrix_chain_loops
from rollergen.program.rprogram import Accumulator, Compute, InnerNest, Stage, Store


def chain_stage(op: TensorOp, roles: ChainRoles, tile: ChainTile, instruction: Instruction) -> Stage:
    """The stage of a chain: blocks of keys that its scores rule out are left out."""
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
        inner=InnerNest(depth, inner, first, last),
    )


def matrix_chain_stage(
    op: TensorOp, roles: ChainRoles, tile: MatrixChainTile, instruction: Instruction, device: Device
) -> Stage:
    """The stage of a chain by a matrix instruction."""
    loops, inner, depth = matrix_chain_loops(op, roles, tile, instruction)
    first, last = ruled_out(op)
    return Stage(
        name="chain",
        op=op,
        loops=loops,
        compute=Compute(instruction.name),
        accumulator=Accumulator(depth - 1, "float32"),
        copies=matrix_chain_copies(op, roles, tile, instruction, device),
        store=Store(vector=accumulators_of(instruction).neighbours),
        guards=((roles.rows, "mask"),) if op.extents()[roles.rows] % tile.rows else (),
        inner=InnerNest(depth, inner, first, last),
    )
