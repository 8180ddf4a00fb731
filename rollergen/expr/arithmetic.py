"""What the operations of values are on NumPy arrays: in float64, in int64 within the range of the dtype, in bool."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.values import Binary, Cast, Const, Select, Unary, Value, Var

Array = Any


def _error_function(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh, "erf": _error_function, "abs": np.abs, "floor": np.floor,
    "round": np.rint, "not": np.logical_not,
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "max": np.maximum,
    "min": np.minimum, "pow": np.power, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
_GROWING = ("add", "sub", "mul", "pow", "neg", "abs")
"""Operations whose result may lie outside the range of the operands' dtype."""


def wide(dtype: str) -> Any:
    """What values of a dtype are evaluated in."""
    return np.float64 if is_float(dtype) else (np.bool_ if dtype == "bool" else np.int64)


def applied(node: Unary | Binary, *operands: Array) -> Array:
    """The operation of `node` on arrays of its operands."""
    made = _UNARY[node.op](*operands) if isinstance(node, Unary) else _BINARY[node.op](*operands)
    return wrapped(made, node.dtype) if node.op in _GROWING else made


def wrapped(x: Array, dtype: str) -> Array:
    """`x` within the range of `dtype`: integers beyond it wrap around, floats stay as they are."""
    return np.asarray(x).astype(numpy_dtype(dtype)).astype(np.int64) if dtype in ("int8", "int32") else x


def converted(x: Array, dtype: str) -> Array:
    """`x` as `dtype`: floats do not round, floats to integers lose their fraction, integers wrap around."""
    if is_float(dtype):
        return np.asarray(x, np.float64)
    if dtype == "bool":
        return np.asarray(x) != 0
    return wrapped(np.trunc(x).astype(np.int64), dtype)


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
