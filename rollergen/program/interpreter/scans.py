"""Interpreter: scans, from the values at all points of a row to those of its prefixes."""

from __future__ import annotations

from math import prod

import numpy as np

from rollergen.expr.tensor_op import Running
from rollergen.program.interpreter.points import grid_loops
from rollergen.program.interpreter.reduce import Parts, combine, identities
from rollergen.program.rprogram import PARALLEL, SERIAL, UNROLL, Stage


def scanned(stage: Stage, reduction: Running, whole: Parts) -> Parts:
    """Each point's value with those of all before it along the row.

    Points of a thread are combined one after the other, what threads have found in one step of the row as
    `_across` has it, and steps one after the other again: in the order of the program.
    """
    grid, row = grid_loops(stage), set(reduction.axes)
    own = sorted(
        ((p, loop) for p, loop in enumerate(stage.loops) if loop.axis in row), key=lambda item: -item[1].stride
    )
    serial = [p - grid for p, loop in own if loop.kind == SERIAL]
    shared = [p - grid for p, loop in own if loop.kind in PARALLEL]
    alone = [p - grid for p, loop in own if loop.kind == UNROLL]
    order = (*serial, *shared, *alone)
    shape = whole[0].shape
    sizes = tuple(prod(shape[d] for d in dims) for dims in (serial, shared, alone))
    rest = tuple(d for d in range(len(shape)) if d not in order)
    moved = (*order, *rest)
    ordered = tuple(part.transpose(moved).reshape(*sizes, -1) for part in whole)
    prefixes = _prefixes(reduction, ordered)
    back = np.argsort(moved)
    return tuple(part.reshape([shape[d] for d in moved]).transpose(back) for part in prefixes)


def _prefixes(reduction: Running, ordered: Parts) -> Parts:
    """The prefixes of values by (step, thread, point of the thread, others)."""
    steps, threads, points, others = ordered[0].shape
    found = tuple(np.empty_like(part) for part in ordered)
    carry = identities(reduction.combiner, (1, 1, others))
    begin = identities(reduction.combiner, (threads, 1, others))
    for step in range(steps):
        local, before = begin, []
        for point in range(points):
            before.append(local)
            local = combine(reduction.combiner, local, tuple(part[step, :, point : point + 1] for part in ordered))
        if threads > 1:
            base, every = _across(reduction, local)
            base = combine(reduction.combiner, carry, base)
        last = [*before[1:], local]
        for point, values in enumerate(before if reduction.exclusive else last):
            if threads > 1:
                values = combine(reduction.combiner, base, values)
            for part, value in zip(found, values, strict=True):
                part[step, :, point : point + 1] = value
        if threads > 1:
            carry = combine(reduction.combiner, carry, every)
        else:
            begin = local
    return found


def _across(reduction: Running, local: Parts) -> tuple[Parts, Parts]:
    """(what the threads before each one have found, what all have): each adds what the one 1, 2, 4, ... before has."""
    combiner, found, reach = reduction.combiner, local, 1
    while reach < found[0].shape[0]:
        joined = combine(combiner, tuple(p[:-reach] for p in found), tuple(p[reach:] for p in found))
        found = tuple(np.concatenate([p[:reach], j]) for p, j in zip(found, joined, strict=True))
        reach *= 2
    first = identities(combiner, (1, *found[0].shape[1:]))
    before = tuple(np.concatenate([one, part[:-1]]) for one, part in zip(first, found, strict=True))
    return before, tuple(part[-1:] for part in found)
