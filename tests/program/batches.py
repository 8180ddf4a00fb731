"""Stages of one loop structure, one by one and as a batch of arrays."""

from dataclasses import replace

import numpy as np

from rollergen.program.rprogram import Loop
from tests.programs import cpu_matmul, gpu_matmul, relu, softmax, transpose

GPU = gpu_matmul(500, 1000, 300).stages[0]
CPU = cpu_matmul(500, 1000, 300, pack=False, kc=64).stages[0]
PACKED = cpu_matmul(500, 1000, 300, kc=64).stages[1]


def batch(stages):
    """The stages as one whose extents and strides are arrays."""
    loops = tuple(
        Loop(
            loop.axis,
            np.array([stage.loops[p].extent for stage in stages]),
            np.array([stage.loops[p].stride for stage in stages]),
            loop.kind,
        )
        for p, loop in enumerate(stages[0].loops)
    )
    return replace(stages[0], loops=loops)


def gpu_stage(threads_m, threads_n, quads_m, quads_n, step, base=GPU, m=500, n=1000, k=300):
    bm, bn = threads_m * quads_m * 2, threads_n * quads_n * 2
    loops = (
        Loop("i", -(-m // bm), bm, "grid"),
        Loop("j", -(-n // bn), bn, "grid"),
        Loop("i", threads_m, 2, "thread"),
        Loop("j", threads_n, 2, "thread"),
        Loop("k", -(-k // step), step, "serial"),
        Loop("k", step, 1, "unroll"),
        Loop("i", quads_m, 2 * threads_m, "unroll"),
        Loop("i", 2, 1, "unroll"),
        Loop("j", quads_n, 2 * threads_n, "unroll"),
        Loop("j", 2, 1, "unroll"),
    )
    return replace(base, loops=loops)


def cpu_stage(rows, vectors, step, panels_m, panels_n, base=CPU, m=500, n=1000, k=300):
    nr = 16 * vectors
    loops = (
        Loop("i", -(-m // (rows * panels_m)), rows * panels_m, "grid"),
        Loop("j", -(-n // (nr * panels_n)), nr * panels_n, "grid"),
        Loop("k", -(-k // step), step, "serial"),
        Loop("j", panels_n, nr, "serial"),
        Loop("i", panels_m, rows, "serial"),
        Loop("k", step, 1, "serial"),
        Loop("i", rows, 1, "unroll"),
        Loop("j", vectors, 16, "unroll"),
        Loop("j", 16, 1, "lane"),
    )
    return replace(base, loops=loops)


def random_stages(count=60, seed=0):
    """(device name, stages of one structure) for matmuls of a GPU and a CPU and for memory-bound stages."""
    rng = np.random.default_rng(seed)
    pick = lambda *values: int(rng.choice(values))
    powers = (4, 8, 16, 32)
    gpu = [
        gpu_stage(pick(*powers), pick(*powers), pick(1, 2, 3), pick(1, 2, 3, 4), pick(*powers)) for _ in range(count)
    ]
    cpu = [
        cpu_stage(pick(*range(1, 15)), pick(1, 2, 3, 4), pick(32, 64, 100), pick(1, 2, 5, 9), pick(1, 2, 3, 8))
        for _ in range(count)
    ]
    own = [replace(one, copies=cpu_matmul(pack=False, own=True).stages[0].copies) for one in cpu]
    return {"gpu": gpu, "cpu": cpu, "own tiles": own, "softmax": _softmaxes(rng), "transpose": _transposes(rng), "relu": _relus(rng)}


def _softmaxes(rng):
    base = softmax(64, 1000).stages[0]
    loops = lambda b: (Loop("i", -(-64 // b), b, "grid"), Loop("i", b, 1, "serial"), *base.loops[1:])
    moved = replace(base, accumulator=replace(base.accumulator, at_loop=2))
    return [replace(moved, loops=loops(int(b))) for b in rng.integers(1, 30, 12)]


def _transposes(rng):
    base = transpose(700, 500).stages[0]
    found = []
    for rows in rng.choice([2, 4, 8, 16], 12):
        inner = (Loop("j", int(rows), 1, "thread"), base.loops[3], Loop("j", 32 // int(rows), int(rows), "unroll"))
        found.append(replace(base, loops=(*base.loops[:2], *inner)))
    return found


def _relus(rng):
    base = relu(100_000).stages[0]
    found = []
    for steps in rng.choice([1, 4, 16, 64, 100], 12):
        width = 16 * int(steps)
        loops = (Loop("i", -(-100_000 // width), width, "grid"), Loop("i", int(steps), 16, "serial"), base.loops[2])
        found.append(replace(base, loops=loops))
    return found
