"""Tensors by their shapes, and a plain evaluator of stages: every tensor op over its whole grid, in NumPy."""

from __future__ import annotations

import numpy as np

import rollergen as rg
from rollergen.expr.index import linear
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Unary, Var

WIDE = {"bool": np.bool_, "int8": np.int64, "int32": np.int64, "int64": np.int64}
UNARY = {"neg": np.negative, "exp": np.exp, "tanh": np.tanh, "sqrt": np.sqrt, "abs": np.abs, "log": np.log,
         "not": np.logical_not, "rsqrt": lambda x: 1 / np.sqrt(x)}  # fmt: skip
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
          "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
          "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or}  # fmt: skip


def tensors(**shapes):
    return [rg.tensor(name, shape) for name, shape in shapes.items()]


def run(graph, arrays):
    """Outputs of `graph` by name, for `arrays` in the order of its inputs."""
    memory = {b.name: np.asarray(a).reshape(-1) for b, a in zip(graph.inputs, arrays, strict=True)}
    for buffer in (*graph.outputs, *graph.temporaries):
        memory[buffer.name] = np.full(buffer.elements, np.nan)
    for op in graph.tensor_ops:
        _run_op(op, memory)
    return {b.name: memory[b.name].reshape(b.shape) for b in graph.outputs}


def _run_op(op, memory):
    extents = [axis.extent for axis in op.axes]
    mesh = np.meshgrid(*(np.arange(e) for e in extents), indexing="ij", sparse=True) if extents else []
    at = {axis.name: m for axis, m in zip(op.axes, mesh, strict=True)}
    folded = tuple(p for p, axis in enumerate(op.axes) if axis.role != "spatial")
    partials = {}
    for reduction in op.reductions:
        assert reduction.axes == tuple(op.axes[p].name for p in folded)
        bodies = [np.broadcast_to(_value(b, at, memory, partials), extents) for b in reduction.bodies]
        partials[reduction.name] = _fold(reduction.combiner, bodies, folded)
    stored = [p for p, axis in enumerate(op.axes) if axis.role != "reduce"]
    grid = [extents[p] if p in stored else 1 for p in range(len(extents))]
    result = np.broadcast_to(_value(op.result, at, memory, partials), grid)
    target = np.broadcast_to(np.asarray(linear(op.target, op.output.shape).evaluate(at)), grid)
    keep = np.ones(grid, bool)
    for bound in op.where:
        keep = keep & bound.evaluate(at)
    places = target[keep]
    assert len(np.unique(places)) == places.size == op.output.elements
    memory[op.output.name][places] = result[keep]


def _fold(combiner, bodies, folded):
    fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}.get(combiner.name)
    if fold:
        return [fold(bodies[0], axis=folded, keepdims=True)]
    last = [np.moveaxis(b, folded, range(-len(folded), 0)) for b in bodies]
    last = [b.reshape(*b.shape[: b.ndim - len(folded)], -1) for b in last]
    state = [np.full(b.shape[:-1], c.value) for b, c in zip(last, combiner.identity, strict=True)]
    for k in range(last[0].shape[-1]):
        names = {f"lhs{c}": s for c, s in enumerate(state)} | {f"rhs{c}": b[..., k] for c, b in enumerate(last)}
        state = [_value(v, {}, {}, {}, names) for v in combiner.combine]
    return [np.expand_dims(s, folded) for s in state]


def _value(value, at, memory, partials, names=None):
    def of(child):
        return _value(child, at, memory, partials, names)

    match value:
        case Const():
            return np.asarray(value.value)
        case IndexValue():
            return np.asarray(value.index.evaluate(at))
        case Var():
            return names[value.name]
        case Partial():
            return partials[value.name][value.component]
        case Cast():
            x = of(value.x)
            return np.trunc(x).astype(value.dtype).astype(np.int64) if "int" in value.dtype else x.astype(float)
        case Unary():
            return UNARY[value.op](of(value.x))
        case Binary():
            return BINARY[value.op](of(value.a), of(value.b))
        case Select():
            return np.where(of(value.cond), of(value.a), of(value.b))
        case Load():
            return _load(value, at, memory)
    raise NotImplementedError(value)


def _load(load, at, memory):
    assert load.source is None
    data = memory[load.buffer.name]
    assert data.size == load.buffer.elements
    place = np.asarray(linear(load.indices, load.buffer.shape).evaluate(at))
    allowed = np.asarray(True)
    for bound in load.guard:
        allowed = allowed & bound.evaluate(at)
    inside = (place >= 0) & (place < data.size)
    assert np.all(inside | ~allowed), f"{load} reads out of range"
    return np.where(allowed, data[np.clip(place, 0, data.size - 1)], load.fill)
