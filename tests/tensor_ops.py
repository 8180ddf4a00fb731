"""A definition evaluated in NumPy as a whole, knowing nothing of loops: the oracle of every reader."""

from __future__ import annotations

import math

import numpy as np

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Unary, Value, Var
from rollergen.program.rprogram import RProgram

_UNARY = {
    "neg": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]), "abs": np.abs, "floor": np.floor, "round": np.rint, "not": np.logical_not,
}  # fmt: skip
_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "pow": np.power, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def _wide(array):
    """Floating and bfloat16 arrays as float64, integers as int64."""
    array = np.asarray(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array if array.dtype.kind == "b" else array.astype(np.float64)


def evaluate_op(op: TensorOp, arrays):
    """The whole output in float64 (int64, bool); NaN (-1, False) where the definition stores nothing.

    ``arrays``: by buffer name, of any shape with as many elements.
    """
    rank = len(op.axes)
    points = {axis.name: np.arange(axis.extent).reshape([-1 if d == n else 1 for d in range(rank)])
              for n, axis in enumerate(op.axes)}  # fmt: skip
    shape = tuple(axis.extent for axis in op.axes)
    partials = {}
    for reduction in op.reductions:
        dimensions = tuple(n for n, axis in enumerate(op.axes) if axis.name in reduction.axes)
        bodies = [np.broadcast_to(_value(body, points, arrays, partials), shape) for body in reduction.bodies]
        for component, total in enumerate(_reduced(reduction.combiner, bodies, dimensions)):
            partials[reduction.name, component] = total
    kept = tuple(1 if axis.role == "reduce" else axis.extent for axis in op.axes)
    value = np.asarray(_value(op.result, points, arrays, partials))
    stored = np.ones(kept, bool)
    for bound in op.where:
        stored &= bound.evaluate(points)
    nothing = {"f": np.nan, "i": -1, "b": False}[value.dtype.kind]
    output = np.full(op.output.shape, nothing, value.dtype)
    where = tuple(np.broadcast_to(np.asarray(index.evaluate(points)), kept)[stored] for index in op.target)
    values = np.broadcast_to(value, kept)[stored]
    output[where] = values if where else values.reshape(())
    return output


def evaluate_program(program: RProgram, arrays):
    """Every tensor of the program by name: its stages' definitions, one after the other."""
    tensors = dict(arrays)
    for stage in program.stages:
        tensors[stage.op.output.name] = evaluate_op(stage.op, tensors)
    return tensors


def small_integers(program: RProgram, seed=0):
    """Inputs of small integers: sums of their products are exact in float32, whatever the order."""
    random = np.random.default_rng(seed)
    return {b.name: random.integers(-4, 5, b.shape).astype(numpy_dtype(b.dtype)) for b in program.inputs}


def _value(value: Value, points, arrays, partials, operands=None):
    sub = lambda node: _value(node, points, arrays, partials, operands)
    match value:
        case Const():
            return _wide(value.value)
        case IndexValue():
            return _wide(value.index.evaluate(points))
        case Load():
            return _load(value, points, arrays)
        case Partial():
            return partials[value.name, value.component]
        case Var():
            return operands[value.name]
        case Unary():
            return _UNARY[value.op](sub(value.x))
        case Binary():
            return _BINARY[value.op](sub(value.a), sub(value.b))
        case Select():
            return np.where(sub(value.cond), sub(value.a), sub(value.b))
        case Cast():
            wide = np.float64 if is_float(value.dtype) else bool if value.dtype == "bool" else np.int64
            return sub(value.x).astype(wide)
    raise TypeError(value)


def _load(load: Load, points, arrays):
    array = _wide(arrays[load.buffer.name]).reshape(load.buffer.shape)
    present = np.asarray(True)
    for bound in load.guard:
        present = present & bound.evaluate(points)
    indices = [np.where(present, index.evaluate(points), 0) for index in load.indices]
    return np.where(present, array[tuple(indices)], _wide(load.fill))


def _reduced(combiner, bodies, dimensions):
    folds = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
    if combiner.name in folds:
        return (folds[combiner.name](bodies[0], axis=dimensions, keepdims=True),)
    front = [np.moveaxis(body, dimensions, range(len(dimensions))) for body in bodies]
    front = [body.reshape(-1, *body.shape[len(dimensions) :]) for body in front]
    total = [_wide(constant.value) for constant in combiner.identity]
    for row in zip(*front, strict=True):
        operands = {f"lhs{c}": x for c, x in enumerate(total)} | {f"rhs{c}": x for c, x in enumerate(row)}
        total = [_value(step, {}, {}, {}, operands) for step in combiner.combine]
    return [np.expand_dims(part, dimensions) for part in total]
