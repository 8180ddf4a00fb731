"""Windows: what the points of a tile (a thread's, or a block's) read of a tensor together, as an interval of each of
its dimensions.

A window's element is read once, however many points (outputs and taps) use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import attrgetter

from rollergen.expr.index import Bounds, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, loads
from rollergen.program.rprogram import GRID, LANE, PARALLEL, UNROLL, Copy, Loop, Stage


def of_block(copy: Copy) -> bool:
    """Whether the window is one that the threads of a block stage together."""
    return copy.window and copy.to_layer != "registers"


def window_shape(stage: Stage, copy: Copy) -> tuple[int, ...]:
    """Elements of the window along each dimension of the tensor: what the loops inside the copy reach (and, of a
    block's window, its threads).  Without padding."""
    spans = spans_inside(stage, copy)
    return tuple([_reach(index, spans) + 1 for index in stage.load(copy).indices])


def spans_inside(stage: Stage, copy: Copy) -> dict[str, int]:
    """Points of each axis that a thread's loops inside the copy cover, and where a block stages, those of its
    threads."""
    spans: dict[str, int] = {}
    for p in inner_loops(stage, copy):
        loop = stage.loops[p]
        spans[loop.axis] = spans.get(loop.axis, 1) * loop.extent
    return spans


def inner_loops(stage: Stage, copy: Copy) -> tuple[int, ...]:
    """Positions of the loops that a window spans."""
    threads, depth = of_block(copy), copy.at_loop
    return tuple([
        p
        for p, loop in enumerate(stage.loops)
        if (threads if loop.kind in PARALLEL else loop.kind != GRID and p >= depth)
    ])


Digits = tuple[tuple[int, int], ...]
"""(position in the nest, weight) of loops: the number that they make is the sum of variables times weights."""


def window_digits(stage: Stage, copy: Copy) -> tuple[Digits, ...]:
    """For each dimension of the tensor, the loops that move within the window, and how far one step of each goes."""
    inner = inner_loops(stage, copy)
    return tuple(
        tuple(
            (p, stage.loops[p].stride * index.coefficient(stage.loops[p].axis))
            for p in inner
            if index.coefficient(stage.loops[p].axis)
        )
        for index in stage.load(copy).indices
    )


def thread_digits(stage: Stage, copy: Copy) -> tuple[Digits, ...]:
    """For each dimension of the tensor, the thread loops whose axis moves it.

    They are the digits of a thread's number among the threads along the dimension; the last loop is the fastest.
    """
    found = []
    for index in stage.load(copy).indices:
        own: list[tuple[int, int]] = []
        weight = 1
        for p, loop in reversed(stage.of_kind(*PARALLEL)):
            if index.coefficient(loop.axis):
                own.append((p, weight))
                weight *= loop.extent
        found.append(tuple(reversed(own)))
    return tuple(found)


def threads_along(stage: Stage, digits: Digits) -> int:
    """Threads along one dimension: see `thread_digits`."""
    return prod(stage.loops[p].extent for p, _ in digits)


def sharing_problem(stage: Stage, copy: Copy) -> str:
    """Why the block's threads cannot share out the window's dimensions; empty if they can."""
    dealt = [p for digits in thread_digits(stage, copy) for p, _ in digits]
    for p, loop in stage.of_kind(*PARALLEL):
        if loop.extent > 1 and dealt.count(p) != 1:
            return f"the {loop.extent} threads along {loop.axis} move {dealt.count(p)} of its tensor's dimensions"
    return ""


def _reach(index: Index, spans: Mapping[str, int]) -> int:
    """Distance between the least and the largest value, all coefficients being positive."""
    return sum([coefficient * (spans.get(str(atom), 1) - 1) for atom, coefficient in index.terms])


def needed(load: Load, dimension: int, ranges: Mapping[str, Bounds]) -> Bounds:
    """The indices (low, high) along one dimension that points within their axes may read, high excluded.

    They are those that the tensor has, the guard lets through, and some point reads.
    """
    index = load.indices[dimension]
    least, most = index.bounds(ranges)
    own = [bound for bound in load.guard if bound.index == index]
    low = max([0, least, *(bound.low for bound in own)])
    high = min([load.buffer.shape[dimension], most + 1, *(bound.high for bound in own)])
    return low, max(low, high)


def window_problem(stage: Stage, copy: Copy) -> str:
    """Why the copy's load cannot be kept as a window at its depth; empty if it can."""
    load, op = stage.load(copy), stage.op
    problem = load_problem(op, load)
    if not problem and of_block(copy):
        problem = sharing_problem(stage, copy)
    if problem:
        return problem
    inside: dict[str, list[Loop]] = {}
    for p in inner_loops(stage, copy):
        inside.setdefault(stage.loops[p].axis, []).append(stage.loops[p])
    for axis in sorted(load.axes()):
        inner = inside.get(axis, [])
        if not _adjacent(inner):
            return f"the points of {axis} inside are not adjacent"
        whole = op.axis(axis)
        if whole.role == "reduce" and prod([loop.extent for loop in inner]) != whole.extent:
            return f"{axis} is not looped over inside, each of its {whole.extent} points once"
    spans = {axis: prod([loop.extent for loop in inner]) for axis, inner in inside.items()}
    for index in load.indices:
        reached = 0
        for coefficient, span in sorted([(c, spans.get(str(atom), 1)) for atom, c in index.terms]):
            if span > 1 and coefficient > reached + 1:
                return f"it has gaps at {index}"
            reached += coefficient * (span - 1)
    return ""


_STRIDE = attrgetter("stride")


def _adjacent(loops: Sequence[Loop]) -> bool:
    """Whether the loops of an axis number neighbouring points."""
    stride = 1
    for loop in sorted(loops, key=_STRIDE) if len(loops) > 1 else loops:
        if loop.stride != stride:
            return False
        stride *= loop.extent
    return True


def shares_lines(stage: Stage, indices: Sequence[Index]) -> bool:
    """Whether the outputs of a tile of vectors read the same lines of a tensor at these indices: along one of its
    dimensions both outputs (not those of the lanes) and taps are unrolled, so that a line read once serves several."""
    lane = next((loop.axis for loop in stage.loops if loop.kind == LANE), None)
    if lane is None or not any(lane in index.axes() for index in indices):
        return False
    roles = {axis.name: axis.role for axis in stage.op.axes}
    unrolled = {loop.axis for loop in stage.loops if loop.kind == UNROLL and loop.axis != lane}
    return any({roles[axis] for axis in index.axes() & unrolled} == {"spatial", "reduce"} for index in indices)


@lru_cache(maxsize=64)
def load_problem(op: TensorOp, load: Load) -> str:
    """Why no tile's elements of the load are intervals of its tensor; empty if they are."""
    if any(not index.is_affine or any(c <= 0 for _, c in index.terms) for index in load.indices):
        return "its indices are not sums of axes with positive coefficients"
    if any(bound.index not in load.indices for bound in load.guard):
        return "its guard bounds something other than one of its indices"
    if load not in op.body_loads() or load in loads(op.result):
        return "it is not read by the reduction alone"
    if len(op.reductions) != 1 or op.of_role("row"):
        return "its stage is no single reduction"
    return ""


def overlaps(indices: Sequence[Index], extents: Mapping[str, int]) -> bool:
    """Whether points read the same elements along several axes at once, as the taps of a window do: a block's copies of
    them come to the same lines again.  An axis that is divided first counts two values."""
    for index in indices:
        reach = 0
        for atom, step in sorted(index.terms, key=lambda term: abs(term[1])):
            if reach >= abs(step):
                return True
            reach += abs(step) * (extents[atom] - 1 if isinstance(atom, str) else 1)
    return False
