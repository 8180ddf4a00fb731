"""What of an expression and of its programs is open, found by comparing it at two counts, and the plans of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod

from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.places import updated
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load, transform
from rollergen.lower.open_axes import open_dimension
from rollergen.program.rprogram import GRID, LANE, SERIAL, UNROLL, RProgram, Stage
from rollergen.sizes.plan import Plan, accesses

PLAIN_GUARDS = ("mask", "peel")
"""Guards that hold whatever the extent: a tile that begins earlier than its number says needs an axis that long."""


def open_buffers(here: Graph, there: Graph, count: int, other: int) -> dict[str, int] | None:
    """The inputs and outputs that are open, of the same expression at two counts, by name, with the elements of the
    dimensions outside the first that differs.  None where one is not a multiple of the count, or an array that is
    updated is not open: where in it rows are put follows from its own extents."""
    found = {}
    for a, b in zip((*here.inputs, *here.outputs), (*there.inputs, *there.outputs), strict=True):
        if a == b:
            continue
        differing = [n for n, (one, two) in enumerate(zip(a.shape, b.shape, strict=True)) if one != two]
        rows = differing[-1] + 1 if differing else 0
        some, others = prod(a.shape[:rows]), prod(b.shape[:rows])
        if replace(a, shape=b.shape) != b or some % count or some // count * other != others:
            return None
        found[a.name] = prod(a.shape[: differing[0]])
    return found if all(one.name in found for one in updated(here.outputs)) else None


def follows(here: Graph, there: Graph, count: int, other: int) -> bool:
    """Whether the tensor ops at one count are those at the other with other extents, multiples of the count."""
    pairs = zip(here.tensor_ops, there.tensor_ops, strict=False)
    return len(here.tensor_ops) == len(there.tensor_ops) and all(_alike(*pair, count, other) for pair in pairs)


def _alike(here: TensorOp, there: TensorOp, count: int, other: int) -> bool:
    """Whether tensor ops differ in extents alone, and all these are the count's multiples."""
    mine, others = [*accesses(here)], [*accesses(there)]
    if len(mine) != len(others) or len(here.axes) != len(there.axes):
        return False
    extents = lambda op: tuple(axis.extent for axis in op.axes)
    sizes = [(extents(here), extents(there))]
    sizes += [(a.buffer.shape, b.buffer.shape) for a, b in zip(mine, others, strict=True)]
    if any(len(a) != len(b) or not all(map(_scaled_by(count, other), a, b)) for a, b in sizes):
        return False
    shapes = {a: replace(a.buffer, shape=b.buffer.shape) for a, b in zip(mine, others, strict=True)}
    change = lambda node: replace(node, buffer=shapes[node]) if isinstance(node, Load) else None
    made = replace(
        here, output=replace(here.output, shape=there.output.shape), result=transform(here.result, change),
        axes=tuple(replace(a, extent=b.extent) for a, b in zip(here.axes, there.axes, strict=True)),
        reductions=tuple(
            replace(one, bodies=tuple(transform(body, change) for body in one.bodies)) for one in here.reductions
        ),
    )  # fmt: skip
    return made == there


def _scaled_by(count: int, other: int) -> Callable[[int, int], bool]:
    return lambda a, b: a == b or (a % count == 0 and a // count * other == b)


_SPLIT_TO = 4
"""Times the count at which a reduction was split that its plan serves: temporaries are as long as the largest."""


def plan_of(program: RProgram, buffers: Mapping[str, int], count: int, most: int) -> Plan | None:
    """The plan of a program constructed at `count`; None where more is open than a plan can say.

    ``buffers``: inputs and outputs that are open, as `open_buffers` has them; ``most``: the largest count.
    """
    traced = _traced([stage.op for stage in program.stages], buffers, count)
    if traced is None:
        return None
    axes, every, inner = traced
    for stage, own in zip(program.stages, axes, strict=True):
        if not (all(_openable(stage, axis) for axis in own) and _begins_are_blocks(stage, every)):
            return None
    most = min(most, max(_SPLIT_TO * count, 64)) if inner and not any(stage.inner for stage in program.stages) else most
    return Plan(program, count, tuple(axes), every, inner, most)


def _openable(stage: Stage, axis: str) -> bool:
    """Whether tiles of the axis may be guarded whatever its extent, and nothing but its loops depends on that."""
    if stage.guard(axis) not in ("none", *PLAIN_GUARDS) or stage.superstep is not None:
        return False
    if stage.op.axis(axis).role != "spatial":
        return True
    inner = [loop for loop in stage.loops if loop.axis == axis and loop.kind not in (GRID, SERIAL)]
    if stage.store.on_lines and any(loop.kind == LANE for loop in inner):
        return False
    if inner and any(copy.window and axis in stage.load(copy).axes() for copy in stage.copies):
        return False
    return not (stage.store.vector > 1 and inner and stage.loops[-1] == inner[-1] and inner[-1].kind == UNROLL)


def _begins_are_blocks(stage: Stage, buffers: Mapping[str, int]) -> bool:
    """Whether what lies outside open dimensions is the first there, or, of a chain, of each block one."""
    outside = set[Index]()
    for load in accesses(stage.op):
        p = open_dimension(load.buffer.shape, buffers.get(load.buffer.name, 1))
        outside.update(load.indices[:p])
    axes = {axis for index in outside for axis in index.axes()}
    grid = all(loop.kind == GRID for loop in stage.loops if loop.axis in axes)
    return outside <= {Index()} or (grid and stage.inner is not None)


Traced = tuple[list[tuple[str, ...]], dict[str, int], dict[str, int]]


def _traced(ops: Iterable[TensorOp], buffers: Mapping[str, int], count: int) -> Traced | None:
    """The open axes of each tensor op, all tensors that are open as `buffers` are, and temporaries of which another
    dimension is; None where the count is anywhere else."""
    every, axes, inner = dict(buffers), list[tuple[str, ...]](), dict[str, int]()
    for op in ops:
        found = {
            _row_axis(load.indices[open_dimension(load.buffer.shape, every[load.buffer.name])])
            for load in accesses(op)
            if load.buffer.name in every
        }
        for load in op.loads():
            if load.buffer.name not in inner:
                continue
            place = inner[load.buffer.name]
            if place >= len(load.indices):  # merged with what lies outside
                return None
            found.add(_row_axis(load.indices[place]))
        if not found:
            axes.append(())
            continue
        if any(axis is None or not _stands_free(op, axis, every, count) for axis in found):
            return None
        own = sorted((axis for axis in found if axis is not None), key=lambda axis: op.axis(axis).role != "spatial")
        rows = [axis for axis in own if op.axis(axis).role == "spatial"]
        if len(rows) > 1:
            return None
        axes.append(tuple(own))
        if not rows or op.output.name in every:
            continue
        if _row_axis(op.target[0]) == rows[0]:
            every[op.output.name] = 1
            continue
        within = [n for n, index in enumerate(op.target) if index == Index.axis(rows[0])]
        extent = op.axis(rows[0]).extent
        if op.output.kind != "temporary" or len(within) != 1 or op.output.shape[within[0]] != extent:
            return None
        inner[op.output.name] = within[0]
    return axes, every, inner


def _row_axis(index: Index) -> str | None:
    """The axis of which the index is the plain number, or the quotient: that which numbers rows."""
    if len(index.terms) != 1 or index.const:
        return None
    atom, coefficient = index.terms[0]
    if coefficient != 1:
        return None
    if isinstance(atom, FloorDiv):
        return _row_axis(atom.index)
    return atom if isinstance(atom, str) else None


def _stands_free(op: TensorOp, axis: str, every: Mapping[str, int], count: int) -> bool:
    """The axis is as long as its tensors' rows, and no bound is of rows; it is one of results, or a chain's keys."""
    one = op.axis(axis)
    keys = one.role == "reduce" and op.inner is not None
    if not (one.role == "spatial" or keys) or one.extent % count:
        return False
    if any(axis in bound.index.axes() for bound in op.where):
        return False
    for load in accesses(op):
        if keys and any(axis in bound.index.axes() for bound in load.guard):
            return False
        if load.buffer.name not in every:
            continue
        p = open_dimension(load.buffer.shape, every[load.buffer.name])
        if any(axis in index.axes() for index in load.indices[:p]):
            return False
        index = load.indices[p]
        if _row_axis(index) != axis:
            continue
        rows = one.extent if index.is_affine else one.extent // index.terms[0][0].divisor  # type: ignore[union-attr]
        if load.buffer.shape[p] != rows or any(bound.index == index for bound in load.guard):
            return False
    return True
