"""Plan -> Stage for reductions over sliding windows without reuse along other axes (depthwise convolutions, pooling).

One nest: ``grid | threads | taps | tile of a thread``; what the tile reads of a sliding operand is kept as a window.
"""

from __future__ import annotations

from functools import lru_cache

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.nest import (
    ceil_div,
    common_divisor,
    copy_vector,
    overhanging,
    useful,
    useful_digits,
)
from rollergen.program.assemble.plan import Size, WindowPlan
from rollergen.program.rprogram import (
    GRID,
    PARALLEL,
    THREAD,
    UNROLL,
    Accumulator,
    Compute,
    Copy,
    Loop,
    Stage,
    Store,
)
from rollergen.program.windows import load_problem
from rollergen.tile.rules import instruction_for


def slides(op: TensorOp, load: Load) -> bool:
    """Whether some index of the load sums a reduce axis and a spatial one, so that neighbours share elements."""
    reduced = {a.name for a in op.of_role("reduce")}
    return any(index.axes() & reduced and index.axes() - reduced for index in load.indices)


@lru_cache(maxsize=64)
def window_loads(op: TensorOp) -> tuple[int, ...]:
    """The loads of the reduction that slide and whose tiles are intervals of their tensors."""
    every = enumerate(op.body_loads())
    return tuple([n for n, load in every if slides(op, load) and not load_problem(op, load)])


def window_stage(op: TensorOp, plan: WindowPlan, device: Device) -> Stage:
    """The nest of one plan; the first axis of the plan's tiles is the outermost."""
    tiles, threads = dict(plan.tiles), dict(plan.threads)
    cut: list[Loop] = []
    for axis in op.of_role("spatial"):
        tile, across = tiles.get(axis.name, 1), threads.get(axis.name, 1)
        cut += useful_digits(
            axis.name, (GRID, ceil_div(axis.extent, tile * across)), (THREAD, across), (UNROLL, tile)
        )
    of_kind = lambda kind: [loop for loop in cut if loop.kind == kind]
    taps = [Loop(axis.name, axis.extent, 1, UNROLL) for axis in op.of_role("reduce")]
    loops = useful([*of_kind(GRID), *of_kind(THREAD), *taps, *of_kind(UNROLL)])
    first_inner = next((p for p, loop in enumerate(loops) if loop.kind not in (GRID, *PARALLEL)), len(loops))
    dtype = accumulator_dtype(op)
    return Stage(
        name="window",
        op=op,
        loops=tuple(loops),
        compute=Compute(instruction_for(op, device, dtype).name),
        accumulator=Accumulator(first_inner, dtype),
        copies=_windows(op, loops, first_inner, device),
        store=Store(_store_vector(op, loops)),
        guards=tuple((axis, "mask") for axis in overhanging(op, loops)),
    )


def _windows(op: TensorOp, loops: list[Loop], depth: int, device: Device) -> tuple[Copy, ...]:
    inner = {loop.axis for loop in loops[depth:]}
    copies = []
    for number in window_loads(op):
        load = op.loads()[number]
        order = tuple(axis.name for axis in op.axes if axis.name in load.axes() & inner)
        copies.append(
            Copy(number, device.backing.name, device.layers[0].name, depth, order, order[-1], window=True)
        )
    return tuple(copies)


def _store_vector(op: TensorOp, loops: list[Loop]) -> Size:
    """Elements of the innermost axis of a thread's tile that one store may write."""
    last = loops[-1]
    if last.kind != UNROLL or op.axis(last.axis).role != "spatial" or op.where:
        return 1
    store = op.stored()
    beside = [load for load in op.result_loads() if last.axis in load.axes()]
    return common_divisor(*[copy_vector(op, load, last.axis, last.extent) for load in (store, *beside)])
