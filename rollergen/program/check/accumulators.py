"""Invariants of the accumulators: where they stand, what they carry, and how threads combine theirs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod

from rollergen.expr.rows import is_gathered
from rollergen.expr.tensor_op import Axis
from rollergen.hal.spec import Device
from rollergen.program.check.nest import power_of_two, refuse
from rollergen.program.loops import adds
from rollergen.program.matrix import matrix_instruction
from rollergen.program.rprogram import GROUP, PARALLEL, SERIAL, THREAD, UNROLL, Stage

_COMBINE = ("none", "shuffle", "groups", "tree", "at_once")


def check_accumulator(stage: Stage, axes: Mapping[str, Axis], first_inner: int, device: Device | None) -> None:
    """The stage's accumulators mean something for its loops (and device); refused otherwise."""
    accumulator = stage.accumulator
    if not first_inner <= accumulator.at_loop <= len(stage.loops):
        raise refuse(
            stage, f"accumulator.at_loop is {accumulator.at_loop}; expected {first_inner} to {len(stage.loops)}"
        )
    reduced = {a.name for a in axes.values() if a.role != "spatial"} if stage.op.reductions else set()
    _check_dtype(stage)
    _check_carry(stage, axes, reduced, first_inner)
    _check_combine(stage, reduced, device)
    for p in accumulator.separate:
        own = 0 <= p < len(stage.loops)
        if not own or stage.loops[p].kind != UNROLL or stage.loops[p].axis not in reduced or p < accumulator.at_loop:
            raise refuse(
                stage,
                f"accumulator.separate names loop {p}; expected positions from {accumulator.at_loop} of unroll loops "
                f"of reduced axes",
            )
    if len(set(accumulator.separate)) != len(accumulator.separate):
        raise refuse(stage, f"accumulator.separate is {accumulator.separate}; expected each position once")
    _check_gathered(stage, reduced)
    _check_flush(stage, axes, first_inner)


def _check_flush(stage: Stage, axes: Mapping[str, Axis], first_inner: int) -> None:
    """Blocks of terms begin at rising depths inside the accumulators', with no loop of the tile between."""
    accumulator, flush = stage.accumulator, stage.accumulator.flush
    if not flush:
        return
    start = max(accumulator.at_loop, first_inner)
    bounds = (start, *flush, len(stage.loops))
    if any(inner <= outer for outer, inner in pairwise(bounds)):
        raise refuse(stage, f"accumulator.flush is {flush}; expected rising depths, {start + 1} to {bounds[-1] - 1}")
    between = stage.loops[start : flush[-1]]
    spatial = [loop.axis for loop in between if axes[loop.axis].role == "spatial" and loop.kind in (SERIAL, UNROLL)]
    if spatial:
        raise refuse(
            stage, f"accumulator.flush is {flush}; expected no loop of the spatial axis {spatial[0]} outside a block"
        )
    early = [p for p in (*accumulator.separate, *accumulator.gathered) if p < flush[-1]]
    if early:
        raise refuse(
            stage,
            f"accumulator.flush is {flush}; expected loop {early[0]}, which is separate or gathered, inside the "
            f"innermost blocks",
        )
    if not any(adds(reduction) for reduction in stage.op.reductions):
        raise refuse(stage, f"accumulator.flush is {flush}; expected none, as no reduction adds rounded values")
    if stage.superstep is not None:
        raise refuse(stage, f"accumulator.flush is {flush}; expected none in supersteps")


def _check_gathered(stage: Stage, reduced: set[str]) -> None:
    gathered = stage.accumulator.gathered
    if not gathered:
        return
    last = tuple(range(len(stage.loops) - len(gathered), len(stage.loops)))
    own = all(stage.loops[p].kind == UNROLL and stage.loops[p].axis in reduced for p in last)
    own = own and last[0] >= stage.accumulator.at_loop and not set(last) & set(stage.accumulator.separate)
    if gathered != last or not own:
        raise refuse(
            stage,
            f"accumulator.gathered is {gathered}; expected the innermost loops, unroll loops of reduced axes inside "
            f"the accumulator's depth {stage.accumulator.at_loop} that are not separate",
        )
    if not is_gathered(stage.op):
        raise refuse(
            stage,
            f"accumulator.gathered is {gathered}; expected none, as only an online pair whose sum makes the result "
            f"NaN takes several points at once",
        )


def _check_dtype(stage: Stage) -> None:
    reductions = stage.op.reductions
    expected = {body.dtype for r in reductions for body in r.bodies} if reductions else {stage.op.output.dtype}
    if stage.accumulator.dtype not in expected:
        raise refuse(stage, f"accumulator.dtype is {stage.accumulator.dtype}; expected {' or '.join(sorted(expected))}")


def _check_carry(stage: Stage, axes: Mapping[str, Axis], reduced: set[str], first_inner: int) -> None:
    accumulator = stage.accumulator
    outer = range(first_inner, accumulator.at_loop)
    outside = [p for p in outer if stage.loops[p].axis in reduced and stage.loops[p].extent > 1]
    for p in outside:
        if axes[stage.loops[p].axis].role == "row":
            raise refuse(stage, f"loops[{p}] of a row axis runs outside accumulator.at_loop {accumulator.at_loop}")
        if stage.loops[p].kind not in (SERIAL, UNROLL):
            raise refuse(stage, f"loops[{p}], a {stage.loops[p].kind} loop, runs outside the accumulators")
    if accumulator.carry != bool(outside):
        raise refuse(
            stage,
            f"accumulator.carry is {accumulator.carry}; expected {bool(outside)}, as {len(outside)} loops of reduced "
            f"axes run outside depth {accumulator.at_loop}",
        )
    if accumulator.carry and accumulator.dtype != stage.op.output.dtype:
        raise refuse(
            stage,
            f"accumulator.dtype is {accumulator.dtype} with carry; expected {stage.op.output.dtype}, the "
            f"output's, in which partial results wait",
        )
    if accumulator.carry and stage.op.components != 1:
        raise refuse(stage, "accumulator.carry with several components; expected one, as one output holds it")


def _check_combine(stage: Stage, reduced: set[str], device: Device | None) -> None:
    combine = stage.accumulator.combine
    threads = prod(x.extent for x in stage.loops if x.kind in PARALLEL and x.axis in reduced)
    if combine not in _COMBINE:
        raise refuse(stage, f"accumulator.combine is {combine!r}; expected one of {', '.join(_COMBINE)}")
    if (combine == "none") != (threads == 1):
        expected = "none" if threads == 1 else "shuffle, groups, tree or at_once"
        raise refuse(
            stage, f"accumulator.combine is {combine!r}; expected {expected}, as {threads} threads share each reduction"
        )
    if combine == "at_once" and device is not None and matrix_instruction(stage, device) is None:
        raise refuse(stage, f"accumulator.combine is 'at_once' of {stage.compute.instruction}; expected a matrix's")
    if combine == "groups":
        _check_groups(stage, reduced)
    if combine in ("shuffle", "groups") and device is not None:
        _check_shuffle(stage, reduced, device)


def _check_shuffle(stage: Stage, reduced: set[str], device: Device) -> None:
    """The threads that exchange registers lie within one execution width, powers of 2 apart, all of it there."""
    combine, width = stage.accumulator.combine, device.execution_width
    exchanging = (THREAD,) if combine == "groups" else PARALLEL
    apart = 1
    for loop in reversed(stage.loops):
        if loop.kind not in PARALLEL:
            continue
        span = apart * loop.extent
        if loop.axis in reduced and loop.kind in exchanging and (not power_of_two(loop.extent) or width % span):
            raise refuse(
                stage,
                f"accumulator.combine is {combine!r} over {loop.extent} threads, {apart} apart; expected a power of 2 "
                f"of them within {width}, the execution width of {device.name}",
            )
        if loop.axis in reduced and loop.kind not in exchanging and apart % width:
            raise refuse(
                stage,
                f"accumulator.combine is {combine!r} over groups of {apart} threads; expected a multiple of {width}, "
                f"the execution width of {device.name}",
            )
        apart = span
    if apart > width and apart % width:
        raise refuse(
            stage, f"accumulator.combine is {combine!r} in blocks of {apart} threads; expected a multiple of {width}"
        )


def _check_groups(stage: Stage, reduced: set[str]) -> None:
    """One reduced group loop, of a power of 2 and no longer than the one reduced thread loop."""
    own = {kind: [x.extent for x in stage.loops if x.kind == kind and x.axis in reduced] for kind in PARALLEL}
    groups, threads = own[GROUP], own[THREAD]
    if len(groups) != 1 or len(threads) != 1 or not power_of_two(groups[0]) or groups[0] > threads[0]:
        raise refuse(
            stage,
            f"accumulator.combine is 'groups' over group loops of {groups} and thread loops of {threads}; expected one "
            f"of each, of powers of 2, the groups at most as many as the threads",
        )
