"""The definition, executed: float64 (integers: int64) in NumPy.  The oracle of every check.

Works on the language's own values, before anything is canonicalised.  Axes are integer arrays
that broadcast against each other, so that a whole output, a block of it and scattered points are
one computation.  Floating casts do not round: everything is float64.  Integers wrap around at the ends of their dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rollergen.errors import ArgumentError, DtypeError, ShapeError
from rollergen.expr.arithmetic import applied, combined, converted, wide, wrapped
from rollergen.expr.dtypes import FLOATS, is_float
from rollergen.expr.empties import without_empties
from rollergen.expr.index import linear
from rollergen.expr.nibbles import as_stored
from rollergen.expr.reads import given_tensors
from rollergen.expr.reductions import Reduce, Scan, free_axes
from rollergen.expr.show import show
from rollergen.expr.takes import Bounded, located
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Select, Take, Unary, Value, multiplied

if TYPE_CHECKING:
    from rollergen.expr.language import Tensor

CHUNK_ELEMENTS = 1 << 22  # of one intermediate array: 32 MB

Array = Any
Axes = Mapping[str, Array]


_FOLD: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
_RUNNING: dict[str, Any] = {
    "sum": np.add.accumulate, "prod": np.multiply.accumulate,
    "max": np.maximum.accumulate, "min": np.minimum.accumulate,
}  # fmt: skip


def evaluate(tensor: Tensor, *arrays: Any, **named: Any) -> Array:
    """All of `tensor`; see `Tensor.evaluate`."""
    mesh = np.ogrid[tuple(slice(0, extent) for extent in tensor.shape)]
    return evaluate_at(tensor, bound_arrays(tensor, arrays, named), mesh)


def evaluate_at(tensor: Tensor, arrays: Sequence[Any] | Mapping[str, Any], points: Sequence[Any]) -> Array:
    """The elements of `tensor` at `points`: one integer array for each dimension, broadcast together.

    ``np.ix_(rows, columns)`` takes a block, equal-length vectors take scattered points; the result
    has the broadcast shape.  Whole reductions are evaluated for these points only, in chunks, so
    that blocks of full-size operators cost what the blocks cost.  `arrays` are in the order of
    `reads.given_tensors`, or by name.

    Raises ArgumentError, ShapeError and DtypeError as `Tensor.evaluate`.

    >>> import rollergen as rg
    >>> C = rg.ops.t(rg.tensor("A", (2, 3)))
    >>> evaluate_at(C, [[[1, 2, 3], [4, 5, 6]]], ([0, 2], [1, 0]))
    array([4., 3.])
    """
    by_name = isinstance(arrays, Mapping)
    known = bound_arrays(tensor, () if by_name else tuple(arrays), dict(arrays) if by_name else {})
    indices = tuple(np.asarray(point) for point in points)
    if len(indices) != tensor.ndim:
        raise ArgumentError(f"evaluate_at: {len(indices)} index arrays; {tensor.label} has shape {tensor.shape}")
    for axis, (index, extent) in enumerate(zip(indices, tensor.shape, strict=True)):
        if index.dtype.kind not in "iu" or (index.size and not 0 <= index.min() <= index.max() < extent):
            raise ArgumentError(
                f"evaluate_at: index array {axis} has dtype {index.dtype} and values from {index.min()} to "
                f"{index.max()}; expected integers from 0 to {extent - 1}"
            )
    with np.errstate(all="ignore"):
        return Evaluation(known).tensor(without_empties((tensor,))[0], indices)


def bound_arrays(tensor: Tensor, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays by tensor name, checked against `tensor`'s inputs; widened only where they are read."""
    inputs = given_tensors((tensor,))
    names = [t.buffer.name for t in inputs]
    if len(arrays) + len(named) != len(inputs) or not set(named) <= set(names[len(arrays) :]):
        got = f"{len(arrays)} arrays" + (f" and {', '.join(named)} by name" if named else "")
        raise ArgumentError(f"got {got}; expected {len(inputs)}: {', '.join(f'{t.label} {t.shape}' for t in inputs)}")
    given = dict(zip(names, arrays, strict=False)) | dict(named)
    found = {t.buffer.name: _as_array(given[t.buffer.name], t) for t in inputs}
    for t in inputs:
        if isinstance(t.buffer, Bounded):
            t.buffer.check(found[t.buffer.name])
    return found


def _as_array(array: Any, tensor: Tensor) -> Array:
    data = as_stored(np.asarray(array), tensor.buffer.packs)
    if data.shape != tensor.shape:
        packed = f", the bytes that rg.pack makes of {tensor.buffer.packs}" if tensor.buffer.packs else ""
        raise ShapeError(f"the array for {tensor.label} has shape {data.shape}; expected {tensor.shape}{packed}")
    floating = data.dtype.kind == "f" or data.dtype.name in FLOATS
    if (data.dtype.kind not in "fiub" and not floating) or (floating and not is_float(tensor.dtype)):
        raise DtypeError(f"the array for {tensor.label} has dtype {data.dtype}; expected {tensor.dtype}")
    return data


class Evaluation:
    """One evaluation: the given arrays, and computed tensors that were needed whole."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays

    def tensor(self, tensor: Tensor, indices: tuple[Array, ...]) -> Array:
        """Elements at `indices`, in blocks of points that keep intermediates small."""
        shape = np.broadcast_shapes(*(i.shape for i in indices))
        if tensor.producer is None:
            return np.broadcast_to(self.read(tensor.buffer.name, indices, tensor.dtype), shape)
        out = np.empty(shape, wide(tensor.dtype))
        names = [name for name, _ in tensor.producer.axes]
        for block in _blocks(shape):
            part = tuple(_take(index, block, len(shape)) for index in indices)
            out[block] = self.value(tensor.producer.body, dict(zip(names, part, strict=True)), len(shape))
        return out

    def value(self, value: Value, axes: Axes, rank: int) -> Array:
        """`value` where the axes have the given numbers (arrays of `rank` dimensions)."""
        match value:
            case Const():
                return np.asarray(value.value, wide(value.dtype))
            case IndexValue():
                return np.asarray(value.index.evaluate(axes))
            case Load():
                return self.load(value, axes)
            case Take():
                return self.take(value, axes, rank)
            case Unary():
                return applied(value, self.value(value.x, axes, rank))
            case Binary():
                return applied(value, self.value(value.a, axes, rank), self.value(value.b, axes, rank))
            case Select():
                condition = self.value(value.cond, axes, rank)
                return np.where(condition, self.value(value.a, axes, rank), self.value(value.b, axes, rank))
            case Cast():
                return converted(self.value(value.x, axes, rank), value.dtype)
            case Scan():
                return self.scan(value, axes, rank)
            case Reduce():
                return self.reduce(value, axes, rank)
        raise NotImplementedError(type(value).__name__)

    def load(self, load: Load, axes: Axes) -> Array:
        """Elements read; what lies outside is not chosen (the language has checked it), so anything does."""
        indices = tuple(
            np.clip(index.evaluate(axes), 0, extent - 1)
            for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        )
        source = load.source
        if load.buffer.name in self.arrays:
            return self.read(load.buffer.name, indices, load.dtype)
        if math.prod(np.broadcast_shapes(*(i.shape for i in indices))) * 2 < load.buffer.elements:
            return self.tensor(source, indices)
        mesh = np.ogrid[tuple(slice(0, extent) for extent in source.shape)]
        self.arrays[source.buffer.name] = self.tensor(source, tuple(mesh))
        return self.arrays[source.buffer.name][indices]

    def take(self, take: Take, axes: Axes, rank: int) -> Array:
        """Elements at places that are computed first; of a computed tensor, which is then needed whole."""
        row = take.row
        at: Array = linear(row.indices, row.buffer.shape).evaluate(axes)
        for one, extent, stride in zip(take.ids, take.extents, take.strides, strict=True):
            at = at + stride * located(self.value(one, axes, rank), extent, take.mode, f"take: {show(one)}")
        if row.buffer.name not in self.arrays:
            mesh = np.ogrid[tuple(slice(0, extent) for extent in row.source.shape)]
            self.arrays[row.buffer.name] = self.tensor(row.source, tuple(mesh))
        whole = np.unravel_index(np.clip(at, 0, row.buffer.elements - 1).astype(np.int64), row.buffer.shape)
        return self.read(row.buffer.name, whole, row.dtype)

    def read(self, name: str, indices: tuple[Array, ...], dtype: str) -> Array:
        """Elements of a known array as float64, int64 or bool."""
        return _read(self.arrays[name], indices).astype(wide(dtype), copy=False)

    def reduce(self, node: Reduce, axes: Axes, rank: int) -> Array:
        """The reduction at all points: its axes become trailing dimensions, computed in slabs."""
        added = len(node.axes)
        outer = {name: _extended(array, added) for name, array in axes.items()}
        state: tuple[Array, ...] | None = None
        for slab in _slabs([extent for _, extent in node.axes], max(1, CHUNK_ELEMENTS // self.points(node, axes))):
            inner = dict(outer)
            for position, ((name, _), (start, stop)) in enumerate(zip(node.axes, slab, strict=True)):
                shape = [1] * (rank + added)
                shape[rank + position] = stop - start
                inner[name] = np.arange(start, stop).reshape(shape)
            part = self.slab(node, inner, rank, added, math.prod(stop - start for start, stop in slab))
            state = part if state is None else self.combine(node, state, part)
        assert state is not None
        return state[node.component]

    def scan(self, node: Scan, axes: Axes, rank: int) -> Array:
        """The prefixes at all points: the node's axis becomes a trailing dimension, computed in slabs."""
        (name, _), = node.axes
        last: Array = np.asarray(node.upto.evaluate(axes)) - node.exclusive
        dtype = node.bodies[node.component].dtype
        found = np.asarray(node.combiner.identity[node.component].value, wide(dtype))
        outer = {own: _extended(array, 1) for own, array in axes.items()}
        state: tuple[Array, ...] | None = None
        step = max(1, CHUNK_ELEMENTS // max(points_of(body, axes) for body in node.bodies))
        for start in range(0, int(last.max(initial=-1)) + 1, step):
            stop = min(start + step, int(last.max()) + 1)
            inner = outer | {name: np.arange(start, stop).reshape((1,) * rank + (stop - start,))}
            bodies = [_extended_to(self.value(body, inner, rank + 1), rank + 1) for body in node.bodies]
            shape = np.broadcast_shapes(*(body.shape for body in bodies), (1,) * rank + (stop - start,))
            prefixes = self.prefixes(node, tuple(np.broadcast_to(body, shape) for body in bodies))
            if state is not None:
                prefixes = self.combine(node, state, prefixes)
            state = tuple(part[..., -1:] for part in prefixes)
            at = np.broadcast_to(last, np.broadcast_shapes(last.shape, shape[:-1]))
            own = np.broadcast_to(prefixes[node.component], (*at.shape, stop - start))
            picked = np.take_along_axis(own, np.clip(at - start, 0, stop - start - 1)[..., None], axis=-1)[..., 0]
            found = np.where((start <= at) & (at < stop), picked, found)
        return wrapped(found, dtype)

    def prefixes(self, node: Scan, parts: tuple[Array, ...]) -> tuple[Array, ...]:
        """The parts of every element of the last axis combined with all before it: log2 steps, order kept."""
        fold = _RUNNING.get(node.combiner.name)
        if fold is not None and len(parts) == 1:
            return (fold(parts[0], axis=-1),)
        reach = 1
        while reach < parts[0].shape[-1]:
            joined = self.combine(node, tuple(p[..., :-reach] for p in parts), tuple(p[..., reach:] for p in parts))
            parts = tuple(np.concatenate([p[..., :reach], j], axis=-1) for p, j in zip(parts, joined, strict=True))
            reach *= 2
        return parts

    def points(self, node: Reduce, axes: Axes) -> int:
        """Points for which the widest array is formed at one step of the reduction's axes."""
        parts = list(multiplied(node.bodies[0])) if _is_contraction(node) else [node]
        return max(points_of(part, axes) for part in parts)

    def slab(self, node: Reduce, axes: Axes, rank: int, added: int, count: int) -> tuple[Array, ...]:
        if _is_contraction(node):
            return (wrapped(self.contraction(node.bodies[0], axes, rank, added, count), node.dtype),)
        sizes = tuple(axes[name].shape[rank + d] for d, (name, _) in enumerate(node.axes))
        bodies = []
        for body in node.bodies:
            value = _extended_to(self.value(body, axes, rank + added), rank + added)
            bodies.append(np.broadcast_to(value, (*value.shape[:rank], *sizes)))
        fold = _FOLD.get(node.combiner.name)
        if fold is not None and len(bodies) == 1:
            return (wrapped(fold(bodies[0], axis=tuple(range(rank, rank + added))), node.dtype),)
        return self.tree(node, tuple(body.reshape(*body.shape[:rank], count) for body in bodies))

    def tree(self, node: Reduce, parts: tuple[Array, ...]) -> tuple[Array, ...]:
        """A user's combiner over the last axis, neighbours first: log2 steps, order kept."""
        shape = np.broadcast_shapes(*(part.shape for part in parts))
        parts = tuple(np.broadcast_to(part, shape) for part in parts)
        while parts[0].shape[-1] > 1:
            even = parts[0].shape[-1] // 2 * 2
            joined = self.combine(node, tuple(p[..., 0:even:2] for p in parts), tuple(p[..., 1:even:2] for p in parts))
            parts = tuple(np.concatenate([j, p[..., even:]], axis=-1) for j, p in zip(joined, parts, strict=True))
        return tuple(part[..., 0] for part in parts)

    def combine(self, node: Reduce, lhs: tuple[Array, ...], rhs: tuple[Array, ...]) -> tuple[Array, ...]:
        operands = {f"lhs{c}": value for c, value in enumerate(lhs)} | {f"rhs{c}": value for c, value in enumerate(rhs)}
        return tuple(combined(value, operands) for value in node.combiner.combine)

    def contraction(self, body: Value, axes: Axes, rank: int, added: int, count: int) -> Array:
        """A sum of products of factors: each factor on its own axes only, then one `einsum`."""
        factors = [_extended_to(self.value(f, axes, rank + added), rank + added) for f in multiplied(body)]
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[: rank + added]
        live = [[d for d in range(rank + added) if factor.shape[d] > 1] for factor in factors]
        summed = {d for dims in live for d in dims if d >= rank}
        kept = sorted({d for dims in live for d in dims if d < rank})
        names = ",".join("".join(letters[d] for d in dims) for dims in live)
        squeezed = [f.reshape([f.shape[d] for d in dims]) for f, dims in zip(factors, live, strict=True)]
        total = np.einsum(f"{names}->{''.join(letters[d] for d in kept)}", *squeezed, optimize=len(factors) > 1)
        sizes = dict(zip(kept, np.shape(total), strict=True))
        repeats = count // math.prod(next(f.shape[d] for f in factors if f.shape[d] > 1) for d in summed)
        begun = total * repeats + 0  # a sum begins with 0: of -0 alone it is 0
        return np.asarray(begun).reshape([sizes.get(d, 1) for d in range(rank)])


def _read(array: Array, indices: tuple[Array, ...]) -> Array:
    """``array[indices]``, a copy.  Rows and columns (each index varies along a dimension of its own) are taken one axis
    after the other, those first of which the fewest are left: 592 rows, or columns, of 1024 x 1024 numbers in .15 and
    .66 ms, element by element in 1.7 and 2.9."""
    varying = [[d for d, extent in enumerate(np.shape(index)) if extent > 1] for index in indices]
    own = [dims[0] for dims in varying if dims]
    some = [axis for axis, index in enumerate(indices) if not _is_all(index, array.shape[axis])]
    if not some or len(own) < sum(map(len, varying)) or len(set(own)) < len(own):
        return array[indices]
    shape = np.broadcast_shapes(*(np.shape(index) for index in indices))
    for axis in sorted(some, key=lambda axis: np.size(indices[axis]) / array.shape[axis]):
        array = array.take(np.ravel(indices[axis]), axis)
    return array.transpose(sorted(range(len(indices)), key=varying.__getitem__)).reshape(shape)


def _is_all(index: Array, extent: int) -> bool:
    return np.size(index) == extent and np.array_equal(np.ravel(index), np.arange(extent))


def _is_contraction(node: Reduce) -> bool:
    return node.combiner.name == "sum" and len(node.bodies) == 1


def points_of(value: Value, axes: Axes) -> int:
    """Elements of the array that `value` is where the axes have the given numbers."""
    return math.prod(np.broadcast_shapes(*(np.shape(axes[name]) for name in free_axes(value) & axes.keys())))


def _extended(array: Array, added: int) -> Array:
    return np.asarray(array).reshape(np.shape(array) + (1,) * added)


def _extended_to(array: Array, rank: int) -> Array:
    """A factor that lost leading dimensions (a literal) with all of them again."""
    return np.asarray(array).reshape((1,) * (rank - np.ndim(array)) + np.shape(array))


def _take(index: Array, block: tuple[slice, ...], rank: int) -> Array:
    """The part of `index`, broadcast to `rank` dimensions, that lies in `block`; broadcast dimensions stay 1."""
    full = index.reshape((1,) * (rank - index.ndim) + index.shape)
    return full[tuple(slice(None) if size == 1 else part for size, part in zip(full.shape, block, strict=True))]


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Slices that cover `shape` in blocks of at most a quarter of a chunk, outer dimensions first."""
    for ranges in _slabs(shape, CHUNK_ELEMENTS // 4) if 0 not in shape else ():
        yield tuple(slice(start, stop) for start, stop in ranges)


def _slabs(extents: Sequence[int], limit: int) -> Iterator[list[tuple[int, int]]]:
    """Boxes (start, stop per dimension) of at most `limit` points (but one) that cover `extents` in order."""
    if not extents:
        yield []
        return
    inner = math.prod(extents[1:])
    step = max(1, min(extents[0], limit // max(1, inner)))
    for start in range(0, extents[0], step):
        stop = min(start + step, extents[0])
        if inner <= limit:
            yield [(start, stop), *((0, extent) for extent in extents[1:])]
        else:
            yield from ([(start, stop), *rest] for rest in _slabs(extents[1:], limit))
