"""The canonical form: stages whose axes are as few as the accesses allow.

Axes are dropped where trivial, split at divisions, merged where adjacent (ROLLER, section 3.2); `rewrite` changes the
axes of a tensor op in all its indices and views.

>>> import rollergen as rg
>>> graph = canonicalize(rg.ops.relu(rg.tensor("x", (64, 128, 128))))
>>> [(axis.name, axis.extent) for axis in graph.tensor_ops[0].axes]
[('i0', 1048576)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from rollergen.expr.guards import relative_to
from rollergen.expr.index import Index
from rollergen.expr.language import Tensor
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.stages import Graph, Seconds, cut, fastest_cut
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import Buffer, IndexValue, Load, Take, Value, Within, read_of, transform, walk, with_read
from rollergen.expr.views import Indices, Shape, merged, merged_index, reduced, simplified, unflattened

IndexChange = Callable[[Index], Index]
AccessChange = Callable[[tuple[int, ...], Indices], tuple[tuple[int, ...], Indices]]


def canonicalize(
    outputs: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    rows: RowLimits = RowLimits(),
    seconds: Seconds | None = None,
    bare: bool = False,
) -> Graph:
    """`outputs` as stages in canonical form; arguments and errors as `stages.cut`.

    None for ``seconds``: they are cut no more than they have to be.  ``bare``: as `planning.Planner`.
    """
    if seconds is None:
        return _canonical(cut(outputs, inputs, rows))
    return fastest_cut(outputs, inputs, rows, _canonical, seconds, bare)


def _canonical(graph: Graph) -> Graph:
    return replace(graph, tensor_ops=tuple(canonical_op(one) for one in graph.tensor_ops))


@lru_cache(maxsize=64)
def canonical_op(op: TensorOp) -> TensorOp:
    """`op` simplified, trivial axes dropped, divided axes split, adjacent axes merged."""
    return fuse(split_axes(drop_trivial(simplify(op))))


def simplify(op: TensorOp) -> TensorOp:
    """`op` with its indices simplified for the ranges of its axes, guards that always hold dropped."""
    ranges = op.ranges()
    return rewrite(
        op,
        op.axes,
        lambda index: reduced(index, ranges),
        lambda shape, indices: simplified(shape, indices, ranges),
    )


def drop_trivial(op: TensorOp) -> TensorOp:
    """`op` without axes of extent 1, but for one where it, or a reduction, would have none.

    `simplify` has replaced these axes by 0 already.
    """
    axes = [axis for axis in op.axes if axis.extent > 1]
    if op.reductions and all(axis.role == "spatial" for axis in axes):
        axes += [axis for axis in op.axes if axis.role != "spatial"][:1]
    axes = axes or [*op.axes, Axis("i", 1)][:1]
    reductions = tuple(replace(reduction, axes=_folded(op, reduction, axes)) for reduction in op.reductions)
    return replace(op, axes=tuple(axes), reductions=reductions)


def _folded(op: TensorOp, reduction: Reduction, axes: Sequence[Axis]) -> tuple[str, ...]:
    """Those of the new ``axes`` that a reduction of `op` is over."""
    roles = ("inner",) if reduction is op.inner else ("reduce", "row")
    return tuple(axis.name for axis in axes if axis.role in roles)


def split_axes(op: TensorOp) -> TensorOp:
    """A reducing `op` with every axis that occurs as ``f // d`` or ``f % d`` split in two, where d divides it.

    Elementwise tensor ops keep their long axes: lanes walk along these, and nothing is reused.  So do chains of
    contractions, whose blocks are of whole rows and keys.

    Before (a grouped convolution): ``X[n, (f // 16) * 8 + c] * W[f, c]``.  After, with f of f * 16 + f_1:
    ``X[n, f, c] * W[f, f_1, c]``, buffers viewed with the dimension in two.
    """
    divided = False
    while op.reductions and op.inner is None:
        along = {axis.name for axis in op.of_role("row")} if op.scans else set()  # a scan's row stays one axis
        found = max((one for one in divisions(op) if one[0] not in along), key=lambda one: one[1], default=None)
        if found is None:
            break
        op, divided = _split(op, *found), True
    return _unflattened(op) if divided else op


def split_axis(op: TensorOp, name: str, divisor: int) -> TensorOp:
    """`op` with one axis split in two, of which the inner one has ``divisor`` points."""
    return _unflattened(_split(op, name, divisor))


def _unflattened(op: TensorOp) -> TensorOp:
    """`op` with the dimensions of buffers as its axes have them."""
    extents = {axis.name: axis.extent for axis in op.axes}
    return rewrite(
        op, op.axes, lambda index: index, lambda shape, ix: unflattened(shape, ix, extents)
    )


def divisions(op: TensorOp) -> Iterator[tuple[str, int]]:
    """(axis, divisor) of the divisions and remainders of a lone axis by a divisor of its extent."""
    extents = {axis.name: axis.extent for axis in op.axes}
    pending = [index for _, indices in accesses(op) for index in indices if not index.is_affine]
    pending += [index for index in lone_indices(op) if not index.is_affine]
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, str):
                continue
            pending.append(atom.index)
            inner = atom.index.terms
            if len(inner) == 1 and inner[0][1] == 1 and not atom.index.const and isinstance(inner[0][0], str):
                name = inner[0][0]
                if extents[name] % atom.divisor == 0 and extents[name] > atom.divisor:
                    yield name, atom.divisor


def _split(op: TensorOp, name: str, divisor: int) -> TensorOp:
    names = {axis.name for axis in op.axes}
    fresh = next(candidate for n in range(1, len(names) + 2) if (candidate := f"{name}_{n}") not in names)
    axes: list[Axis] = []
    for axis in op.axes:
        if axis.name != name:
            axes.append(axis)
            continue
        axes += [replace(axis, extent=axis.extent // divisor), replace(axis, name=fresh, extent=divisor)]
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    mapping = {name: Index.axis(name) * divisor + Index.axis(fresh)}

    def index(old: Index) -> Index:
        return reduced(old.substitute(mapping), ranges)

    return rewrite(op, tuple(axes), index, lambda shape, ix: (shape, tuple(map(index, ix))))


def fuse(op: TensorOp) -> TensorOp:
    """Axes that are adjacent or absent together in every access, merged; the first one's name stays."""
    while True:
        every, lone = accesses(op), lone_indices(op)
        pair = next((pair for pair in _pairs(op) if _are_one(every, lone, *pair)), None)
        if pair is None:
            return op
        op = _merged(op, *pair)


def _pairs(op: TensorOp) -> Iterator[tuple[Axis, Axis]]:
    for inner in op.axes:
        for outer in op.axes:
            if outer is not inner and outer.role == inner.role:
                yield outer, inner


def _are_one(
    every: tuple[tuple[Shape, Indices], ...], lone: tuple[Index, ...], outer: Axis, inner: Axis
) -> bool:
    """Whether every access, and every index outside accesses, allows the two axes to be one."""
    a, b, extent = outer.name, inner.name, inner.extent
    return all(merged(shape, indices, a, b, extent) is not None for shape, indices in every) and all(
        merged_index(index, a, b, extent) is not None for index in lone
    )


def _merged(op: TensorOp, outer: Axis, inner: Axis) -> TensorOp:
    """`op` with two axes as one that are one (see `_are_one`)."""
    a, b, extent = outer.name, inner.name, inner.extent
    axes = merged_axes(op, outer, inner)

    def index(old: Index) -> Index:
        new = merged_index(old, a, b, extent)
        assert new is not None  # tried before
        return new

    def access(shape: Shape, indices: Indices) -> tuple[Shape, Indices]:
        new = merged(shape, indices, a, b, extent)
        assert new is not None  # tried before
        return new

    return rewrite(op, axes, index, access)


def merged_axes(op: TensorOp, outer: Axis, inner: Axis) -> tuple[Axis, ...]:
    """The axes with `inner` gone and `outer` grown by it."""
    grown = replace(outer, extent=outer.extent * inner.extent)
    return tuple(grown if axis is outer else axis for axis in op.axes if axis is not inner)


def rewrite(op: TensorOp, axes: tuple[Axis, ...], index: IndexChange, access: AccessChange) -> TensorOp:
    """`op` over `axes`.

    ``index`` changes a lone index (guards, numbers); ``access`` changes the shape and indices of
    each access together: it may view a buffer with another shape of as many elements.
    """
    ranges = {axis.name: (0, axis.extent - 1) for axis in axes}
    known: dict[Load, Load] = {}  # of rows of takes too

    def bounds(guard: tuple[Within, ...]) -> tuple[Within, ...]:
        changed = (Within(index(bound.index), bound.low, bound.high) for bound in guard)
        return tuple(bound for bound in changed if not bound.always(ranges))

    def load(old: Load) -> Load:
        if old not in known:
            shape, indices = access(old.buffer.shape, old.indices)
            guard = relative_to(bounds(old.guard), indices)
            known[old] = replace(old, buffer=_viewed(old.buffer, shape), indices=indices, guard=guard)
        return known[old]

    def change(node: Value) -> Value | None:
        if isinstance(node, (Load, Take)):
            return with_read(node, load(read_of(node)))
        return replace(node, index=index(node.index)) if isinstance(node, IndexValue) else None

    shape, target = access(op.output.shape, op.target)
    reductions = tuple(
        replace(r, axes=_folded(op, r, axes), bodies=tuple(transform(body, change) for body in r.bodies))
        for r in op.reductions
    )
    return replace(
        op,
        output=_viewed(op.output, shape),
        axes=axes,
        target=target,
        result=transform(op.result, change),
        reductions=reductions,
        where=bounds(op.where),
    )


def _viewed(buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
    return buffer if buffer.shape == shape else replace(buffer, shape=shape)


def accesses(op: TensorOp) -> tuple[tuple[tuple[int, ...], Indices], ...]:
    """(shape, indices) of the target and of every load."""
    return (
        (op.output.shape, op.target),
        *((read.buffer.shape, read.indices) for read in op.reads()),
    )


def lone_indices(op: TensorOp) -> tuple[Index, ...]:
    """Indices outside accesses: of guards, of the target's bounds, and those used as numbers."""
    found = [bound.index for bound in op.where]
    found += [bound.index for read in op.reads() for bound in read.guard]
    bodies = [body for reduction in op.reductions for body in reduction.bodies]
    for value in (*bodies, op.result):
        found += [node.index for node in walk(value) if isinstance(node, IndexValue)]
    return tuple(found)
