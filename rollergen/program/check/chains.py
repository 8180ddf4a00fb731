"""Invariants of chains of two contractions: of their tensor ops, and of their loops."""

from __future__ import annotations

from rollergen.expr.chains import ROW, SCORE, SUM
from rollergen.expr.rows import online_combiner
from rollergen.expr.ruled_out import ruled_out
from rollergen.expr.values import named_combiner
from rollergen.hal.spec import Device
from rollergen.program.chain_lines import asked_lines
from rollergen.program.chains import ChainRoles, ChainTile, tile_of_chain
from rollergen.program.check.nest import refuse
from rollergen.program.matrix import accumulators_of, matrix_instruction
from rollergen.program.matrix_chains import (
    MatrixChainTile,
    fits_instruction,
    is_matrix_chain,
    keys_problem,
    matrix_chain_copies,
    matrix_chain_loops,
    tile_of_matrix_chain,
)
from rollergen.program.rprogram import Accumulator, BlockOrder, Stage, Store


def check_chain(stage: Stage, device: Device | None) -> None:
    """The stage's loops are a chain's, its reductions those of `expr.chains`, and it decides nothing else."""
    op, inner = stage.op, stage.inner
    assert inner is not None
    names = tuple(one.name for one in op.reductions)
    if names not in ((SCORE, SUM), (SCORE, ROW, SUM)) or op.inner is None:
        raise refuse(stage, f"has an inner nest and reductions {names}; expected {SCORE}, perhaps {ROW}, and {SUM}")
    sums = [one for one in op.reductions if one.name != ROW]
    if any(one.combiner != named_combiner("sum", "float32") for one in sums) or any(
        one.combiner != online_combiner("float32") for one in op.reductions if one.name == ROW
    ):
        raise refuse(stage, "has combiners of its own in a chain; expected sums, and the online pair, of float32")
    matrix = is_matrix_chain(stage)
    roles, tile = tile_of_matrix_chain(stage) if matrix else tile_of_chain(stage)
    accumulator = Accumulator(inner.at_loop - 1, "float32")
    if stage.accumulator != accumulator:
        raise refuse(stage, f"accumulator is {stage.accumulator}; expected {accumulator}, outside the blocks of keys")
    if (stage.copies and not matrix) or stage.kept_rows or stage.superstep or stage.once:
        raise refuse(stage, "has copies, kept rows, supersteps or runs once; a chain has none of them")
    rows = inner.at_loop - 2 if isinstance(tile, ChainTile) and asked_lines(op, roles, tile) else -1
    if stage.prefetch not in (-1, rows):
        raise refuse(stage, f"prefetch is {stage.prefetch}; expected -1, or where rows have lanes the loop over blocks")
    store = Store(vector=stage.store.vector) if matrix else Store()
    if stage.store != store or stage.block_order != BlockOrder(descending=stage.block_order.descending):
        raise refuse(stage, f"has {stage.store} and {stage.block_order}; expected a chain's, which decide nothing")
    if stage.guards != ((roles.rows, "mask"),) * (op.extents()[roles.rows] % tile.rows > 0):
        raise refuse(stage, f"guards are {stage.guards}; expected a mask of {roles.rows} where its blocks overhang")
    first, last = ruled_out(op)
    if not ({*inner.first} <= {*first} and {*inner.last} <= {*last}):
        raise refuse(stage, "leaves out keys that its scores do not rule out; expected bounds of `chains.ruled_out`")
    if device is None:
        return
    if isinstance(tile, MatrixChainTile):
        _check_matrix(stage, roles, tile, device)
    else:
        _check_device(stage, tile.lanes, device)


def _check_matrix(stage: Stage, roles: ChainRoles, tile: MatrixChainTile, device: Device) -> None:
    """Loops and copies are those of the instruction's tiles, whose shape they are whole multiples of."""
    one = matrix_instruction(stage, device)
    if one is None or not fits_instruction(stage.op, roles, one):
        raise refuse(
            stage,
            f"computes with {stage.compute.instruction}; expected a matrix instruction of {device.name} for its "
            "factors",
        )
    problem = keys_problem(tile, one)
    if problem:
        raise refuse(stage, f"has {problem}")
    assert stage.inner is not None
    if matrix_chain_loops(stage.op, roles, tile, one) != (stage.loops, stage.inner.loops, stage.inner.at_loop):
        raise refuse(
            stage,
            f"the loops are not those of a chain of {roles.rows} and {roles.key} by {one.name}; expected those of "
            "`matrix_chains.matrix_chain_loops`, for some sizes",
        )
    if stage.copies != matrix_chain_copies(stage.op, roles, tile, one, device):
        raise refuse(stage, "copies are not those of its tile; expected those of `matrix_chains.matrix_chain_copies`")
    if stage.store.vector != accumulators_of(one).neighbours or stage.compute.lanes != 1 or stage.compute.factors:
        raise refuse(stage, f"has {stage.store} and {stage.compute}; expected those of the instruction's accumulators")


def _check_device(stage: Stage, lanes: int, device: Device) -> None:
    known = [one for one in device.instructions if one.name == stage.compute.instruction]
    if not known or known[0].lanes != lanes or stage.compute.lanes != lanes:
        raise refuse(
            stage,
            f"computes with {stage.compute.instruction} of {stage.compute.lanes} lanes; expected an instruction of "
            f"{device.name} with the {lanes} lanes of its rows",
        )
    if device.kind.threads:
        raise refuse(stage, f"is a chain of one thread a block; {device.name} has blocks of many")
