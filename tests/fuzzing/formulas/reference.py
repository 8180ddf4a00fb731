"""A program evaluated in NumPy: whole tensors, every axis an integer array, reads by fancy indexing.

Nothing of rollergen takes part.  The rules of its language that matter are stated here: a reduction computes its body in
the accumulator's dtype (float32 for the narrower floats, `DEFAULT` for narrow integers; operands are widened, not results), and gives
back the body's dtype (of integers: the accumulator's).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from tests.fuzzing.formulas.bounds import Bounded, applied, converted, exact, settled, whole
from tests.fuzzing.formulas.folds import FOLDS
from tests.fuzzing.formulas.nodes import Const, Load, Node, Op, Position, Reduce, Test
from tests.fuzzing.formulas.programs import DEFAULT, Program, Tensor

Array = Any
Axes = Mapping[str, Array]
ACCUMULATOR = dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32") | DEFAULT


def evaluated(program: Program, arrays: Mapping[str, Array]) -> dict[str, Bounded]:
    """Every output, by name; of the shape of its tensor."""
    known: dict[str, Bounded] = {}
    made: dict[str, Bounded] = {}
    with np.errstate(all="ignore"):
        for tensor in program.tensors:
            if tensor.body is None:
                known[tensor.name] = exact(arrays[tensor.name], tensor.dtype)
                continue
            made[tensor.name] = result = _Scope(known, program).tensor(tensor)
            known[tensor.name] = settled(result)
    return {name: made[name] for name in program.outputs}


class _Scope:
    """One tensor's evaluation; a node that occurs twice is evaluated once for each number of axes around it."""

    def __init__(self, known: Mapping[str, Bounded], program: Program) -> None:
        self.known, self.program = known, program
        self.memo: dict[tuple[int, int], Bounded] = {}

    def tensor(self, tensor: Tensor) -> Bounded:
        assert tensor.body is not None
        mesh = np.ogrid[tuple(slice(0, extent) for extent in tensor.shape)]
        value = self.value(tensor.body, dict(zip(tensor.axes, mesh, strict=True)), len(tensor.shape))
        return Bounded(np.broadcast_to(value.value, tensor.shape), np.broadcast_to(value.error, tensor.shape), value.dtype)

    def value(self, node: Node, axes: Axes, rank: int) -> Bounded:
        key = (id(node), rank)
        if key not in self.memo:
            self.memo[key] = self._value(node, axes, rank)
        return self.memo[key]

    def _value(self, node: Node, axes: Axes, rank: int) -> Bounded:
        match node:
            case Const():
                number = np.asarray(node.value, np.longdouble if "float" in node.dtype else whole(node.dtype))
                return exact(number if node.dtype != "bool" else node.value, node.dtype)
            case Position():
                return exact(index(node.index, axes), "int32")
            case Test():
                return exact(index(node.text, axes), "bool")
            case Load():
                return self.load(node, axes)
            case Op():
                return applied(node.name, node.dtype, tuple(self.value(one, axes, rank) for one in node.operands))
            case Reduce():
                return self.reduce(node, axes, rank)
        raise TypeError(type(node).__name__)

    def load(self, node: Load, axes: Axes) -> Bounded:
        """What a guard does not choose may lie outside: any element does."""
        source = self.known[node.tensor]
        shape = self.program[node.tensor].shape
        at = tuple(np.clip(index(one, axes), 0, n - 1) for one, n in zip(node.indices, shape, strict=True))
        error = np.broadcast_to(source.error, source.value.shape)
        return Bounded(source.value[at], error[at], source.dtype)

    def reduce(self, node: Reduce, axes: Axes, rank: int) -> Bounded:
        extents = tuple(extent for _, extent in node.axes)
        inner = {name: np.reshape(array, np.shape(array) + (1,) * len(extents)) for name, array in axes.items()}
        for position, (name, extent) in enumerate(node.axes):
            inner[name] = np.arange(extent).reshape([extent if d == rank + position else 1 for d in range(rank + len(extents))])
        bodies = tuple(self.body(body, node, inner, rank + len(extents)) for body in node.bodies)
        if 0 in extents:
            return converted(settled(_of_nothing(node, bodies, rank)), node.dtype)
        flat = tuple(_flat(body, rank, extents) for body in bodies)
        return converted(settled(FOLDS[node.fold].folded(flat)[node.component]), node.dtype)

    def body(self, body: Node, node: Reduce, axes: Axes, rank: int) -> Bounded:
        wide = node.accumulator or ACCUMULATOR.get(body.dtype, body.dtype)
        return settled(self.wide(body, body.dtype, wide, axes, rank))

    def wide(self, node: Node, narrow: str, wide: str, axes: Axes, rank: int) -> Bounded:
        """The node computed in `wide` wherever it, or what a condition in it compares, was computed in `narrow`."""
        inside = isinstance(node, Op) and node.name != "cast" and node.dtype in (narrow, "bool")
        if narrow == wide or not inside:
            value = self.value(node, axes, rank)
            return applied("cast", wide, (value,)) if node.dtype == narrow != wide else value
        operands = tuple(self.wide(one, narrow, wide, axes, rank) for one in node.operands)
        return applied(node.name, wide if node.dtype == narrow else "bool", operands)


def index(text: str, axes: Axes) -> Array:
    """An index or a test of indices where the axes have the given numbers."""
    return np.asarray(eval(text, {"__builtins__": {}}, dict(axes)))


def _of_nothing(node: Reduce, bodies: tuple[Bounded, ...], rank: int) -> Bounded:
    """The identity, wherever the axes around are."""
    identity = eval(FOLDS[node.fold].identity(node.bodies[0].dtype), {"__builtins__": {"float": float}})
    part = identity[node.component] if isinstance(identity, tuple) else identity
    return exact(np.full((1,) * rank, part), bodies[node.component].dtype)


def _flat(body: Bounded, rank: int, extents: tuple[int, ...]) -> Bounded:
    """The reduced axes, of their full extents, as one last axis."""

    def flat(array: Array) -> Array:
        shape = (1,) * (rank + len(extents) - np.ndim(array)) + np.shape(array)
        whole = np.broadcast_to(np.reshape(array, shape), (*shape[:rank], *extents))
        return whole.reshape((*shape[:rank], prod(extents)))

    value, error = np.broadcast_arrays(body.value, body.error)
    return Bounded(flat(value), flat(error), body.dtype)
