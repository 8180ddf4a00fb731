"""A serial program's blocks, cut into slices that can be sampled.

A CPU's block is a core's share of a whole tensor: hundreds of millions of iterations, of which the interpreter would
have to execute all.  In a stage without copies, reductions or rows every iteration of the outermost serial loop stands
for itself; runs of them, called blocks, are the same iterations in the same order.
"""

from __future__ import annotations

from dataclasses import replace

from rollergen.program.rprogram import GRID, SERIAL, Loop, RProgram, Stage

SLICE = 1 << 12
"""Iterations of the outermost serial loop in one slice, at most."""


def sliced(program: RProgram, most: int = SLICE) -> RProgram:
    """`program` with the outermost serial loops of its maps cut into slices of at most `most` iterations, each a
    block."""
    return replace(program, stages=tuple(_sliced(stage, most) for stage in program.stages))


def _sliced(stage: Stage, most: int) -> Stage:
    at = next((p for p, loop in enumerate(stage.loops) if loop.kind != GRID), None)
    if at is None or stage.copies or stage.kept_rows or stage.op.reductions:
        return stage
    loop, before = stage.loops[at], stage.loops[:at]
    share = next((one for one in before if one.axis == loop.axis), None)
    follows = share is None or share.stride == loop.extent * loop.stride
    if loop.kind != SERIAL or loop.extent <= most or not follows:
        return stage
    step = loop.stride * most
    slices = Loop(loop.axis, -(-stage.op.axis(loop.axis).extent // step), step, GRID)
    kept = tuple(one for one in before if one is not share)
    loops = (*kept, slices, replace(loop, extent=most), *stage.loops[at + 1 :])
    depth = stage.accumulator.at_loop + len(loops) - len(stage.loops)
    return replace(stage, loops=loops, accumulator=replace(stage.accumulator, at_loop=depth))
