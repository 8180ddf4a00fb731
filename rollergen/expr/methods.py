"""What whole tensors do by themselves: Python's operators, NumPy's functions, and methods, as torch's have them.

Each is the operator of `rg.ops` with the tensor as its first argument.  Operators are written in the language that
tensors belong to, so they come later and put themselves into `OPERATORS`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from rollergen.errors import ExpressionError, name_advice, shown

METHODS = (
    "abs", "absolute", "acos", "acosh", "add", "all", "amax", "amin", "any", "argmax", "argmin", "asin", "asinh",
    "atan", "atan2", "atanh", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bmm", "ceil", "chunk", "clamp", "clip", "cos", "cosh", "cummax",
    "cummin", "cumprod", "cumsum", "div", "divide", "eq", "erf", "erfc", "exp", "exp2", "expand", "expm1",
    "flatten", "flip", "floor", "fmax", "fmod", "frac", "gather", "ge", "greater", "greater_equal", "gt", "hardshrink",
    "index_select", "isfinite", "isinf", "isnan", "le", "less", "less_equal", "log", "log10", "log1p", "log2",
    "log_softmax", "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "lt",
    "matmul", "max", "maximum", "mean", "min", "minimum", "mm", "mul", "multiply", "ne", "neg", "negative",
    "not_equal", "permute", "pow", "prelu", "prod", "reciprocal", "relu", "remainder", "repeat", "reshape", "roll",
    "round", "rsqrt", "select_scatter", "sigmoid", "sign", "sin", "sinh", "slice_scatter", "softmax", "split", "sqrt",
    "square", "squeeze", "std", "sub", "subtract", "sum", "t", "take_along_dim", "tan", "tanh", "tile", "transpose",
    "tril", "triu", "true_divide", "trunc", "unfold", "unsqueeze", "var",
)  # fmt: skip
"""Operators that are methods of torch's tensors too."""

OTHERWISE = {"unfold": "unfold_copy"}
"""Methods that `rg.ops` calls otherwise."""

NUMPYS = {
    "power": "pow", "rint": "round", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "fabs": "abs",
}  # fmt: skip
"""NumPy's functions (ufuncs) that `rg.ops` calls otherwise."""


OPERATORS: dict[str, Callable[[], Callable[..., Any]]] = {}
"""What gives each operator of `rg.ops`, by each of its names, once `rg.ops` is loaded, which loading `rollergen.tensor`
does."""


def _unary(name: str) -> Callable[[Any], Any]:
    return lambda self: OPERATORS[name]()(self)


def _binary(name: str, **settings: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: OPERATORS[name]()(self, other, **settings)


def _swapped(name: str, **settings: Any) -> Callable[[Any, Any], Any]:
    return lambda self, other: OPERATORS[name]()(other, self, **settings)


class Methods:
    """Base of `Tensor`.

    >>> import rollergen as rg
    >>> A, B = rg.tensor("A", (2, 3)), rg.tensor("B", (3,))
    >>> (A @ B + 1).shape, (-A).sum(dim=0).shape, (A < 0.5).dtype, A.T.shape
    ((2,), (3,), 'bool', (3, 2))
    >>> import numpy as np
    >>> np.exp(np.float32(2) * A).shape
    (2, 3)
    """

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _swapped("add")
    __sub__, __rsub__ = _binary("sub"), _swapped("sub")
    __mul__, __rmul__ = _binary("mul"), _swapped("mul")
    __truediv__, __rtruediv__ = _binary("div"), _swapped("div")
    __floordiv__, __rfloordiv__ = _binary("div", rounding_mode="floor"), _swapped("div", rounding_mode="floor")
    __pow__, __rpow__ = _binary("pow"), _swapped("pow")
    __matmul__, __rmatmul__ = _binary("matmul"), _swapped("matmul")
    __neg__, __abs__ = _unary("neg"), _unary("abs")
    __lt__, __le__, __gt__, __ge__ = (_binary(name) for name in ("less", "less_equal", "greater", "greater_equal"))

    __mod__, __rmod__ = _binary("remainder"), _swapped("remainder")
    __and__, __rand__ = _binary("bitwise_and"), _swapped("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _swapped("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _swapped("bitwise_xor")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift"), _swapped("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift"), _swapped("bitwise_right_shift")
    __invert__ = _unary("bitwise_not")

    def __pos__(self) -> Any:
        return self

    @property
    def T(self) -> Any:
        """The tensor with its axes in reverse order."""
        return OPERATORS["permute"]()(self, tuple(reversed(range(self.ndim))))  # type: ignore[attr-defined]

    @property
    def mT(self) -> Any:
        """The tensor with its last two axes exchanged."""
        return OPERATORS["transpose"]()(self, -2, -1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by protocols: no advice is read
            raise AttributeError(f"a tensor has no attribute {name!r}")
        if name not in METHODS:
            raise AttributeError(f"a tensor has no attribute {name!r}; {name_advice(name, METHODS)}")
        return functools.partial(OPERATORS[OTHERWISE.get(name, name)](), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *METHODS})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """NumPy's function of tensors and numbers; of arrays the error that says what stands for them."""
        if ufunc.__name__ in _OF_PYTHON and method == "__call__" and not named:
            return _OF_PYTHON[ufunc.__name__](*inputs)
        name = NUMPYS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or named or name not in OPERATORS:
            what = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            given = "".join(f", {key}={shown(value)}" for key, value in named.items())
            raise ExpressionError(f"{what} of {', '.join(map(shown, inputs))}{given}; {name_advice(name, OPERATORS)}")
        return OPERATORS[name]()(*inputs)

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        """NumPy's `shape` and `ndim`, which ask for no elements; of others the error that says what stands for them."""
        name = function.__name__
        if name in ("shape", "ndim"):
            return getattr(self, name)
        advice = name_advice(name, OPERATORS)
        raise ExpressionError(f"numpy.{name} takes arrays, and a tensor is none; in rg.ops: {advice}")

    def __array__(self, *dtype: Any, **named: Any) -> Any:
        raise ExpressionError("a tensor has no elements; its evaluate, or the kernel that is built of it, gives arrays")


_OF_PYTHON: dict[str, Callable[..., Any]] = {"floor_divide": operator.floordiv, "positive": operator.pos}
"""NumPy's functions that are operators of Python alone."""
