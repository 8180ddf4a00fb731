"""The oracle of a program without its expression: its own tensor ops, put back into the language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from rollergen.errors import ArgumentError
from rollergen.expr.index import Index, linear
from rollergen.expr.language import Producer, Tensor
from rollergen.expr.reads import given_tensors
from rollergen.expr.reductions import Reduce, Scan
from rollergen.expr.reference import evaluate_at
from rollergen.expr.splitting import needed
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import Running, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Take,
    Value,
    substitute_axes,
    transform,
)
from rollergen.gate.blocks import blocks_of
from rollergen.gate.comparison import Oracle, Points
from rollergen.gate.oracle import expression_oracle
from rollergen.gate.perturbed import within_rounding
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True, slots=True)
class ProgramOracle:
    """The tensor ops as tensors, by the names of what they write, and the outputs' shapes."""

    tensors: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int, ...]]

    def __call__(self, arrays: Mapping[str, np.ndarray], output: str, points: Points) -> np.ndarray:
        tensor = self.tensors[output]
        needed = {t.buffer.name: arrays[t.buffer.name] for t in given_tensors((tensor,))}
        found = evaluate_at(tensor, needed, self._own(output, points))
        return found.reshape(np.broadcast_shapes(*map(np.shape, points)))

    def within_rounding(
        self, arrays: Mapping[str, np.ndarray], output: str, points: Points, got: np.ndarray, want: np.ndarray
    ) -> np.ndarray:
        """See `perturbed.within_rounding`."""
        return within_rounding(self.tensors[output], arrays, self._own(output, points), got, want)

    def _own(self, output: str, points: Points) -> Points:
        """The points in the shape that the tensor op has."""
        if self.shapes[output] == self.tensors[output].shape:
            return points
        flat = np.ravel_multi_index(np.broadcast_arrays(*points), self.shapes[output]) if points else np.zeros(1, int)
        return np.unravel_index(flat, self.tensors[output].shape)


def program_oracle(program: RProgram) -> Oracle:
    """The oracle of what the program's own tensor ops say.

    Raises ArgumentError where a stage stores at places from which its axes cannot be told (an
    implicit GEMM of a convolution): then the expression is needed.
    """
    program = blocks_of(program)
    return _oracle_of(program.inputs, program.outputs, [stage.op for stage in program.stages])


def graph_oracle(graph: Graph, outputs: Sequence[Tensor]) -> Oracle:
    """The oracle of stages: what they are defined to compute, where that is something else than the expressions
    `outputs` (activations that are quantised), else these."""
    if not graph.definition:
        return expression_oracle(outputs, graph.outputs)
    return _oracle_of(graph.inputs, graph.outputs, graph.definition)


def _oracle_of(inputs: Iterable[Buffer], outputs: Iterable[Buffer], tensor_ops: Iterable[TensorOp]) -> Oracle:
    tensors = {b.name: Tensor(b.name, b.shape, b.dtype, False, None, b) for b in inputs}
    for op in tensor_ops:
        tensors[op.output.name] = _as_tensor(op, tensors)
    return ProgramOracle(tensors, {buffer.name: buffer.shape for buffer in outputs})


def _as_tensor(op: TensorOp, tensors: Mapping[str, Tensor]) -> Tensor:
    """The definition in the language again: a tensor over its axes in the order of memory."""
    offset = linear(op.target, op.output.shape).simplify(op.ranges())
    axes = sorted(op.of_role("spatial", "row"), key=lambda a: (-offset.coefficient(a.name), a.extent))
    if offset != linear(tuple(Index.axis(a.name) for a in axes), tuple(a.extent for a in axes)) or op.where:
        raise ArgumentError(
            f"the stage writing {op.output.name} stores at {offset}, from which its axes cannot be told; "
            "pass expr= to say what a right result is"
        )
    body = _without_partials(op, op.result, count())
    body = transform(body, lambda node: _given(node, tensors))
    shape = tuple(axis.extent for axis in axes)
    producer = Producer(tuple((axis.name, axis.extent) for axis in axes), body)
    name = op.output.name
    return Tensor(name, shape, op.output.dtype, False, producer, Buffer(name, shape, op.output.dtype))


def _without_partials(op: TensorOp, value: Value, serial: Iterator[int]) -> Value:
    """Every `Partial` as the reduction that it stands for, over axes of its own."""

    def change(node: Value) -> Value | None:
        if not isinstance(node, Partial):
            return None
        reduction, component = needed(next(r for r in op.reductions if r.name == node.name), node.component)
        own = {name: f"{name}_{next(serial)}" for name in reduction.axes}
        bodies = (_without_partials(op, body, serial) for body in reduction.bodies)
        fresh = {old: Index.axis(new) for old, new in own.items()}
        axes = tuple((new, op.axis(old).extent) for old, new in own.items())
        values = tuple(substitute_axes(b, fresh) for b in bodies)
        if isinstance(reduction, Running):
            upto = Index.axis(reduction.axes[0])
            return Scan(reduction.combiner, axes, values, component, upto, reduction.exclusive)
        return Reduce(reduction.combiner, axes, values, component)

    return transform(value, change)


def _given(node: Value, tensors: Mapping[str, Tensor]) -> Value | None:
    """What reads a tensor reading it as the oracle knows it."""
    if isinstance(node, Take):
        row = _read(replace(node.row, guard=()), tensors)
        assert isinstance(row, Load)
        taken = replace(node, row=row)
        return _chosen(taken, node.row)
    return _read(node, tensors) if isinstance(node, Load) else None


def _read(load: Load, tensors: Mapping[str, Tensor]) -> Value:
    """The load of a tensor in the shape that the oracle knows it by, its guard as a choice."""
    source = tensors[load.buffer.name]
    indices = load.indices
    if source.shape != load.buffer.shape:
        indices = _unraveled(linear(load.indices, load.buffer.shape), source.shape)
    return _chosen(Load(source.buffer, indices, source=source), load)


def _chosen(plain: Value, load: Load) -> Value:
    """`plain` where the load's guard holds, else its fill."""
    for bound in load.guard:
        at = IndexValue(bound.index, "int64")
        inside = Binary(
            "and",
            Binary("ge", at, Const(bound.low, "int64"), "bool"),
            Binary("lt", at, Const(bound.high, "int64"), "bool"),
            "bool",
        )
        plain = Select(inside, plain, Const(load.fill, load.dtype), load.dtype)
    return plain


def _unraveled(offset: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    indices = []
    for extent in reversed(shape):
        indices.append(offset % extent)
        offset = offset // extent
    return tuple(reversed(indices))
