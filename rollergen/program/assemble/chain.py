"""A chain's tile -> its stage."""

from __future__ import annotations

from rollergen.expr.chains import ruled_out
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Instruction
from rollergen.program.chains import ChainRoles, ChainTile, chain_loops
from rollergen.program.rprogram import Accumulator, Compute, InnerNest, Stage


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
