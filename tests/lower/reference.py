"""A stage's definition evaluated point by point with NumPy: the oracle for lowered kernels."""

from __future__ import annotations

import math

import numpy as np

from rollergen.expr.values import Binary, Cast, Const, IndexValue, Load, Partial, Select, Unary, Var

_UNARY = {
    "neg": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "erfc": np.vectorize(math.erfc, otypes=[np.float64]), "expm1": np.expm1, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]), "abs": np.abs, "floor": np.floor, "round": np.rint,
    "not": np.logical_not,
}  # fmt: skip
_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "pow": np.power, "atan2": np.arctan2, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def numpy_dtype(dtype):
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def _wide(dtype):
    return np.float64 if dtype in ("float16", "bfloat16", "float32", "float64") else numpy_dtype(dtype)


def evaluate(value, axes, arrays, partials, names=None):
    """`value` on whole grids: ``axes`` maps each axis to an index array that broadcasts."""
    again = lambda v: evaluate(v, axes, arrays, partials, names)
    with np.errstate(all="ignore"):
        match value:
            case Const():
                return np.asarray(value.value, dtype=_wide(value.dtype))
            case Load():
                return _load(value, axes, arrays)
            case IndexValue():
                return np.asarray(value.index.evaluate(axes))
            case Unary():
                return _UNARY[value.op](again(value.x))
            case Binary():
                return _BINARY[value.op](again(value.a), again(value.b))
            case Select():
                return np.where(again(value.cond), again(value.a), again(value.b))
            case Cast():
                x = np.asarray(again(value.x))
                return x.astype(numpy_dtype(value.dtype)).astype(_wide(value.dtype))
            case Partial():
                return partials[value.name][value.component]
            case Var():
                return names[value.name]
    raise TypeError(value)


def _load(load, axes, arrays):
    array = arrays[load.buffer.name].reshape(load.buffer.shape)
    index = np.broadcast_arrays(*(np.asarray(i.evaluate(axes)) for i in load.indices))
    ok = np.ones(np.broadcast_shapes(index[0].shape, *(np.shape(b.evaluate(axes)) for b in load.guard)), dtype=bool)
    for bound in load.guard:
        ok = ok & bound.evaluate(axes)
    for i, extent in zip(index, load.buffer.shape, strict=True):
        ok = ok & (i >= 0) & (i < extent)
    safe = tuple(np.where(ok, i, 0) for i in index)
    return np.where(ok, array[safe].astype(_wide(load.dtype)), load.fill)


def run_stage(op, arrays):
    """The stage's output array (elements that no point stores are NaN, or 0 for integers)."""
    names = [a.name for a in op.axes]
    grids = np.meshgrid(*(np.arange(a.extent) for a in op.axes), indexing="ij", sparse=True)
    axes = dict(zip(names, grids, strict=True))
    shape = tuple(a.extent for a in op.axes)
    partials = {}
    for reduction in op.reductions:
        where = tuple(names.index(a) for a in reduction.axes)
        bodies = [np.broadcast_to(evaluate(b, axes, arrays, partials), shape) for b in reduction.bodies]
        partials[reduction.name] = _reduce(reduction, bodies, where)
    result = evaluate(op.result, axes, arrays, partials)
    kept = tuple(a.extent if a.role != "reduce" else 1 for a in op.axes)
    result = np.broadcast_to(result, kept)
    ok = np.ones(kept, dtype=bool)
    nowhere = np.zeros([1] * len(names), int)
    spatial = {n: (g if op.axis(n).role != "reduce" else nowhere) for n, g in axes.items()}
    for bound in op.where:
        ok = ok & bound.evaluate(spatial)
    target = [np.broadcast_to(i.evaluate(spatial), kept)[ok] for i in op.target]
    dtype = numpy_dtype(op.output.dtype)
    floating = op.output.dtype in ("float16", "bfloat16", "float32", "float64")
    output = np.full(op.output.shape, np.nan if floating else 0, dtype=dtype)
    values = result[ok].astype(dtype)
    output[tuple(target)] = values if target else values[0]
    return output


def _reduce(reduction, bodies, where):
    named = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    if reduction.combiner.name in named:
        return [named[reduction.combiner.name].reduce(bodies[0], axis=where, keepdims=True)]
    flat = [np.moveaxis(b, where, range(len(where))) for b in bodies]
    rest = flat[0].shape[len(where) :]
    flat = [f.reshape((-1, *rest)) for f in flat]
    total = [np.broadcast_to(np.asarray(c.value), rest) for c in reduction.combiner.identity]
    for step in range(flat[0].shape[0]):
        names = {f"lhs{c}": t for c, t in enumerate(total)} | {f"rhs{c}": f[step] for c, f in enumerate(flat)}
        total = [evaluate(v, {}, {}, {}, names) for v in reduction.combiner.combine]
    return [np.expand_dims(t, where) for t in total]


def run_program(program, inputs):
    """All stages in turn; a dictionary of every buffer."""
    arrays = dict(inputs)
    for stage in program.stages:
        output = stage.op.output
        arrays[output.name] = run_stage(stage.op, arrays)
    return arrays
