"""Compute supersteps: what some tiles do with their copies, all at once, each row with its own data only."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.bsp.interpreter.exchange import Local
from rollergen.bsp.interpreter.supersteps import Points, slabs
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Binary, Cast, Load, Value, named_combiner
from rollergen.program.interpreter import reduce
from rollergen.program.interpreter.points import both
from rollergen.program.interpreter.values import Scope, evaluate
from rollergen.program.rprogram import Stage

Array = Any


class Compute:
    """One chunk of tiles of a stage: accumulators from the first superstep to the last, then results."""

    def __init__(self, stage: Stage, where: str) -> None:
        self.stage, self.op, self.where = stage, stage.op, where
        self.partials: dict[tuple[str, int], Array] = {}

    def add(self, points: Points, locals_: Mapping[Load, Local]) -> None:
        """One superstep's part of every reduction."""
        for reduction in self.op.reductions:
            factors = _factors(reduction)
            if factors is not None:
                self._join(reduction, (self._product(reduction, factors, points, locals_),))
                continue
            for slab in slabs(points):
                self._join(reduction, self._folded(reduction, slab, locals_))

    def results(self, points: Points, locals_: Mapping[Load, Local]) -> Array:
        """The result at every spatial and row point: reduce axes have size 1."""
        return evaluate(self.op.result, self._scope(points, locals_))

    def _join(self, reduction: Reduction, parts: tuple[Array, ...]) -> None:
        keys = [(reduction.name, component) for component in range(len(parts))]
        if keys[0] in self.partials:
            before = tuple(self.partials[key] for key in keys)
            parts = reduce.combine(reduction.combiner, before, parts)
        self.partials.update(zip(keys, parts, strict=True))

    def _scope(self, points: Points, locals_: Mapping[Load, Local]) -> Scope:
        def load(one: Load, wanted: Array) -> Array:
            guard: Array = True
            for bound in one.guard:
                guard = both(guard, bound.evaluate(points.values))
            found = locals_[one].window(points)
            if found is None:
                inside = both(both(wanted, guard), points.executed("spatial", "reduce", "row"))
                positions = [np.asarray(index.evaluate(points.values)) for index in one.indices]
                positions = [p.reshape(-1, *[1] * len(points.shape)) if p.ndim == 0 else p for p in positions]
                found = locals_[one].read(positions, _of(one, inside, points), self.where)
            return found if guard is True else np.where(guard, found, np.asarray(one.fill, found.dtype))

        return Scope(partials=self.partials, load=load, index=lambda index: index.evaluate(points.values))

    def _folded(self, reduction: Reduction, points: Points, locals_: Mapping[Load, Local]) -> tuple[Array, ...]:
        scope = self._scope(points, locals_)
        names = [axis.name for axis in self.op.axes]
        dims = tuple(1 + names.index(name) for name in reduction.axes)
        bodies = tuple(evaluate(body, scope) for body in reduction.bodies)
        bodies = reduce.masked(reduction.combiner, bodies, points.executed("reduce", "row"))
        whole = []
        for body in bodies:
            body = np.asarray(body)
            body = body.reshape((1,) * (len(names) + 1 - body.ndim) + body.shape)
            shape = [points.shape[d - 1] if d in dims else body.shape[d] for d in range(body.ndim)]
            whole.append(np.broadcast_to(body, shape))
        return reduce.fold(reduction.combiner, tuple(whole), dims)

    def _product(
        self, reduction: Reduction, factors: tuple[Value, Value], points: Points, locals_: Mapping[Load, Local]
    ) -> Array:
        """A sum of products of two factors as matrix products, one for each tile and axis that both share."""
        scope = self._scope(points, locals_)
        names = [axis.name for axis in self.op.axes]
        summed = [1 + names.index(name) for name in reduction.axes]
        inside = points.executed("reduce")
        arrays = []
        for factor in factors:
            array = np.asarray(evaluate(factor, scope))
            if inside is not True:
                array = np.where(inside, array, np.zeros((), array.dtype))
            shape = [points.shape[d - 1] if d in summed else array.shape[d] for d in range(1, array.ndim)]
            arrays.append(np.broadcast_to(array, (max(len(array), 1), *shape)))
        return _matrix_product(arrays[0], arrays[1], summed)


def _of(load: Load, inside: Array, points: Points) -> Array:
    """A mask of points as one of the load's own points: where any of those that use an element is wanted."""
    if inside is True:
        return True
    mask: Array = np.asarray(inside)
    axes = load.axes()
    for d, axis in enumerate(points.op.axes, start=1):
        if axis.name not in axes and mask.ndim > d and mask.shape[d] > 1:
            mask = mask.any(axis=d, keepdims=True)
    return mask


def _factors(reduction: Reduction) -> tuple[Value, Value] | None:
    """The two factors of a plain sum of products; None for any other reduction."""
    body = reduction.bodies[0]
    plain = len(reduction.bodies) == 1 and reduction.combiner == named_combiner("sum", body.dtype)
    if not plain or not isinstance(body, Binary) or body.op != "mul" or body.dtype not in ("float32", "float64"):
        return None
    return (body.a, body.b) if _is_load(body.a) and _is_load(body.b) else None


def _is_load(value: Value) -> bool:
    return isinstance(value.x if isinstance(value, Cast) else value, Load)


def _matrix_product(a: Array, b: Array, summed: list[int]) -> Array:
    """sum over dimensions `summed` of a * b; dimension 0 and those that both have are batches."""
    rank = a.ndim
    kept = [d for d in range(1, rank) if d not in summed]
    batch = [0, *(d for d in kept if a.shape[d] > 1 and b.shape[d] > 1)]
    rows = [d for d in kept if d not in batch and b.shape[d] == 1]
    columns = [d for d in kept if d not in batch and d not in rows]
    tiles = max(a.shape[0], b.shape[0])
    a, b = (np.broadcast_to(x, (tiles, *x.shape[1:])) for x in (a, b))
    size = lambda x, dims: prod(x.shape[d] for d in dims)
    left = a.transpose(*batch, *rows, *summed, *columns).reshape(size(a, batch), size(a, rows), -1)
    right = b.transpose(*batch, *summed, *columns, *rows).reshape(size(b, batch), -1, size(b, columns))
    product = np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right))
    order = [*batch, *rows, *columns]
    shape = [max(a.shape[d], b.shape[d]) for d in order]
    transposed = product.reshape(shape)
    back = np.argsort(order)
    out = transposed.transpose(*back)
    full = [1] * rank
    for d, extent in zip(sorted(order), out.shape, strict=True):
        full[d] = extent
    return out.reshape(full)
