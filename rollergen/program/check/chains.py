"""Invariants of chains of two contractions: of their tensor ops, and of their loops."""

from __future__ import annotations

from rollergen.expr.chains import ROW, SCORE, SUM, ruled_out
from rollergen.expr.rows import online_combiner
from rollergen.expr.values import named_combiner
from rollergen.hal.spec import Device
from rollergen.program.chains import tile_of_chain
from rollergen.program.check.nest import refuse
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
    roles, tile = tile_of_chain(stage)
    accumulator = Accumulator(inner.at_loop - 1, "float32")
    if stage.accumulator != accumulator:
        raise refuse(stage, f"accumulator is {stage.accumulator}; expected {accumulator}, outside the blocks of keys")
    if stage.copies or stage.kept_rows or stage.superstep or stage.prefetch != -1 or stage.once:
        raise refuse(stage, "has copies, kept rows, supersteps, a prefetch or runs once; a chain has none of them")
    if stage.store != Store() or stage.block_order != BlockOrder():
        raise refuse(stage, f"has {stage.store} and {stage.block_order}; expected a chain's, which decide nothing")
    if stage.guards != ((roles.rows, "mask"),) * (op.extents()[roles.rows] % tile.rows > 0):
        raise refuse(stage, f"guards are {stage.guards}; expected a mask of {roles.rows} where its blocks overhang")
    first, last = ruled_out(op)
    if not ({*inner.first} <= {*first} and {*inner.last} <= {*last}):
        raise refuse(stage, "leaves out keys that its scores do not rule out; expected bounds of `chains.ruled_out`")
    if device is not None:
        _check_device(stage, tile.lanes, device)


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
