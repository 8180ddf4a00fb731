"""What the operations of values are on NumPy arrays: in float64, in int64 within the range of the dtype (uint64 in its
own), in bool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollergen.expr.dtypes import is_float, is_integer, numpy_dtype
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.values import Binary, Cast, Const, Select, Unary, Value, Var
from rollergen.hal.late import np

Array = Any


def wide(dtype: str) -> Any:
    """What values of a dtype are evaluated in."""
    if is_float(dtype):
        return np.float64
    return np.bool_ if dtype == "bool" else np.uint64 if dtype == "uint64" else np.int64


def applied(node: Unary | Binary, *operands: Array) -> Array:
    """The operation of `node` on arrays of its operands."""
    primitive = PRIMITIVES[node.op]
    made = primitive.on_arrays()(*operands)
    return wrapped(made, node.dtype) if primitive.wraps else made


def wrapped(x: Array, dtype: str) -> Array:
    """`x` within the range of `dtype`: integers beyond it wrap around, floats stay as they are."""
    if not is_integer(dtype) or dtype == "int64":
        return x
    return np.asarray(x).astype(numpy_dtype(dtype)).astype(wide(dtype))


def converted(x: Array, dtype: str) -> Array:
    """`x` as `dtype`: floats do not round, floats to integers lose their fraction, integers wrap around."""
    if is_float(dtype):
        return np.asarray(x, np.float64)
    if dtype == "bool":
        return np.asarray(x) != 0
    whole = np.trunc(x)
    if dtype == "uint64" and whole.dtype.kind == "f":  # beyond what int64 holds
        return np.where(whole < 0, whole.astype(np.int64).astype(np.uint64), whole.astype(np.uint64))
    return wrapped(whole.astype(wide(dtype)), dtype)


def combined(value: Value, operands: Mapping[str, Array]) -> Array:
    """`value`, what a combiner makes of the operands (by the names of its `Var` nodes)."""
    match value:
        case Var():
            return operands[value.name]
        case Const():
            return np.asarray(value.value, wide(value.dtype))
        case Cast():
            return converted(combined(value.x, operands), value.dtype)
        case Select():
            return np.where(*(combined(part, operands) for part in value.children()))
        case Unary() | Binary():
            return applied(value, *(combined(part, operands) for part in value.children()))
    raise NotImplementedError(type(value).__name__)
