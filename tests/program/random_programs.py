"""Random rPrograms of a matmul: any mixed-radix split of its axes, any nest that the rules allow, any copies."""

from dataclasses import replace
from math import prod

from hypothesis import assume
from hypothesis import strategies as st

from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Copy, Loop, RProgram, Stage
from tests.program.hand_devices import TURING
from tests.programs import F32, matmul_op

KINDS = {"i": ("grid", "thread", "serial", "unroll"), "j": ("grid", "thread", "serial", "unroll"),
         "k": ("thread", "serial", "unroll")}  # fmt: skip
RANK = {"grid": 0, "thread": 1, "serial": 2, "unroll": 2, "lane": 3}


@st.composite
def digits(draw, axis, extent, lanes):
    """Loops of one axis by falling stride; the leading one reaches the end, a grid loop only leads."""
    inner = [kind for kind in KINDS[axis] if kind != "grid"]
    kinds = [draw(st.sampled_from(KINDS[axis])), *draw(st.lists(st.sampled_from(inner), max_size=3))]
    extents = [draw(st.sampled_from((1, 2, 2, 3, 4))) for _ in kinds]
    kinds, extents = ([*kinds, "lane"], [*extents, lanes]) if lanes > 1 else (kinds, extents)
    loops, stride = [], 1
    for kind, size in zip(reversed(kinds[1:]), reversed(extents[1:]), strict=True):
        loops.append(Loop(axis, size, stride, kind))
        stride *= size
    return [*loops, Loop(axis, -(-extent // stride), stride, kinds[0])]


@st.composite
def nests(draw, extents):
    """All loops in a nest of any allowed order."""
    lane_axis = draw(st.sampled_from((None, "j", "k")))
    loops = []
    for axis, extent in extents.items():
        loops += draw(digits(axis, extent, draw(st.sampled_from((2, 4))) if axis == lane_axis else 1))
    shuffled = draw(st.permutations(loops))
    return tuple(sorted(shuffled, key=lambda loop: RANK[loop.kind]))


def overhangs(extent, loops):
    """A loop that neither a grid nor a serial one runs past the end unless its span divides the extent."""
    return any(loop.kind not in ("grid", "serial") and extent % (loop.extent * loop.stride) for loop in loops)


@st.composite
def accumulators(draw, loops, first):
    lanes = any(loop.kind == "lane" for loop in loops)
    at_loop = draw(st.integers(first, len(loops) - lanes))
    reduce = [p for p, loop in enumerate(loops) if loop.axis == "k"]
    outside = [p for p in reduce if first <= p < at_loop and loops[p].extent > 1]
    candidates = [p for p in reduce if p >= at_loop and loops[p].kind == "unroll"]
    separate = tuple(p for p in candidates if draw(st.booleans()))
    shared = any(loops[p].kind == "thread" and loops[p].extent > 1 for p in reduce)
    ends = [p for p in range(at_loop, len(loops)) if loops[p].axis != "k" and loops[p].kind in ("serial", "unroll")]
    depths = range(at_loop + 1, min([*ends, *(p - 1 for p in separate), len(loops) - 1]) + 1)
    flush = draw(st.lists(st.sampled_from(depths), max_size=2, unique=True)) if depths else []
    combine = "tree" if shared else "none"
    return Accumulator(at_loop, F32, bool(outside), separate, combine, flush=tuple(sorted(flush)))


@st.composite
def copies(draw, stage, load, first):
    """Up to two copies of a load: into the block's layer, into registers, or first one and then the other."""
    made, from_layer, depth = [], "dram", first
    for layer, shared in (("shared", True), ("registers", False)):
        at_loop = draw(st.integers(depth, len(stage.loops)))
        extents = {}
        for axis in sorted(stage.op.loads()[load].axes()):
            (size,) = stage.buffer_shape(Copy(load, layer, from_layer, at_loop, (axis,), axis), block=shared)
            if size > 1:
                extents[axis] = size
        if not extents or not draw(st.booleans()):
            continue
        order = tuple(draw(st.permutations(sorted(extents))))
        along = draw(st.sampled_from(order))
        widths = [v for v in (1, 2, 4) if extents[along] % v == 0] if from_layer == "shared" else [1]
        vector = draw(st.sampled_from(widths))
        swizzles = [s for s in (2, 4) if extents[order[-1]] % (s * vector) == 0]
        swizzle = draw(st.sampled_from([0, *swizzles]))
        padding = vector * draw(st.integers(0, 2))
        buffers = draw(st.integers(1, 2)) if shared else 1
        runs = ()
        if shared and draw(st.booleans()):
            groups = [extents[axis] // (vector if axis == along else 1) for axis in order]
            parts = [draw(st.sampled_from([d for d in range(1, 5) if g % d == 0])) for g in groups]
            runs = tuple(extents[axis] // part for axis, part in zip(order, parts, strict=True))
        made.append(
            Copy(load, from_layer, layer, at_loop, order, along, vector, padding, swizzle, buffers, runs=runs)
        )
        from_layer, depth = layer, at_loop
    return tuple(made)


@st.composite
def matmuls(draw):
    """A valid program for `TURING`."""
    extents = {axis: draw(st.integers(1, 17)) for axis in "ijk"}
    op = matmul_op(*extents.values(), bias=draw(st.booleans()))
    loops = draw(nests(extents))
    first = sum(loop.kind in ("grid", "thread") for loop in loops)
    lanes = next((loop.extent for loop in loops if loop.kind == "lane"), 1)
    guards = []
    for axis, extent in extents.items():
        if overhangs(extent, [loop for loop in loops if loop.axis == axis]):
            guards.append((axis, "mask" if axis == "k" else draw(st.sampled_from(("mask", "peel")))))
    grid = sum(loop.kind == "grid" for loop in loops)
    width = draw(st.integers(0, 3)) if grid >= 2 else 0
    accumulator = draw(accumulators(loops, first))
    assume(prod(loop.extent for loop in loops if loop.kind == "thread") <= TURING.limits.threads_per_block)
    order = BlockOrder(width)
    stage = Stage(
        "matmul", op, loops, Compute("fma", lanes), accumulator, guards=tuple(guards), block_order=order
    )
    stage = replace(stage, copies=draw(copies(stage, 0, first)) + draw(copies(stage, 1, first)))
    inputs = tuple(load.buffer for load in op.loads())
    return RProgram(TURING.name, inputs, (op.output,), (stage,))
