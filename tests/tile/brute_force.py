"""Traffic by listing every address of every tile: slow, and nothing to go wrong."""

from itertools import product

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import linear


def brute_force(stage, transaction_bytes, blocks=None):
    """(tensor, role, load, tiles, transactions) of each load and the store."""
    op = stage.op
    accesses = [(x.buffer, "load", n, depth_of(stage, n), x.indices, x.guard) for n, x in enumerate(op.loads())]
    accesses.append((op.output, "store", -1, 0, op.target, op.where))
    found = []
    for buffer, role, number, depth, indices, guard in accesses:
        tiles = transactions = 0
        for outer in outer_iterations(stage, depth, blocks):
            tiles += 1
            transactions += len(touched(stage, depth, outer, buffer, indices, guard, transaction_bytes))
        found.append((buffer.name, role, number, tiles, transactions))
    return found


def depth_of(stage, load):
    own = [c for c in stage.copies if c.load == load]
    first = [c for c in own if c.from_layer not in {d.to_layer for d in own}]
    return first[0].at_loop if first else 0


def is_inner(loop, position, depth):
    return loop.kind in ("group", "thread") or (position >= depth and loop.kind != "grid")


def outer_iterations(stage, depth, blocks):
    grid = [loop for loop in stage.loops if loop.kind == "grid"]
    for number, digits in enumerate(product(*(range(loop.extent) for loop in grid))):
        if blocks is not None and number not in blocks:
            continue
        start = dict.fromkeys((a.name for a in stage.op.axes), 0)
        for loop, digit in zip(grid, digits, strict=True):
            start[loop.axis] += loop.stride * digit
        outer = [x for p, x in enumerate(stage.loops) if x.kind != "grid" and not is_inner(x, p, depth)]
        yield from descend(stage, outer, start)


def descend(stage, loops, at):
    if not loops:
        yield at
        return
    loop = loops[0]
    for digit in range(loop.extent):
        here = {**at, loop.axis: at[loop.axis] + digit * loop.stride}
        if loop.kind == "serial" and here[loop.axis] >= stage.op.axis(loop.axis).extent:
            break
        yield from descend(stage, loops[1:], here)


def touched(stage, depth, start, buffer, indices, guard, transaction_bytes):
    """The transactions of one tile: every combination of the inner loops' digits, listed."""
    at = {a.name: np.array([start[a.name]]) for a in stage.op.axes}
    for position, loop in enumerate(stage.loops):
        if is_inner(loop, position, depth):
            at = {name: np.repeat(values, loop.extent) for name, values in at.items()}
            before = at[loop.axis]
            at[loop.axis] = before + np.tile(np.arange(loop.extent), len(before) // loop.extent) * loop.stride
    inside = np.logical_and.reduce([at[a.name] < a.extent for a in stage.op.axes])
    at = {name: values[inside] for name, values in at.items()}
    for bound in guard:
        passes = np.broadcast_to(bound.evaluate(at), len(next(iter(at.values()))))
        at = {name: values[passes] for name, values in at.items()}
    addresses = np.broadcast_to(linear(indices, buffer.shape).evaluate(at), len(next(iter(at.values()))))
    return set((addresses * ITEMSIZE[buffer.dtype] // transaction_bytes).tolist())
