"""Scalar expressions: what stands inside `rg.compute`, with Python's operators.

An `Expr` wraps one value node together with the extents of the axes that occur free in it.  The
nodes themselves compare by structure; an `Expr` compares like a number, into a condition.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from rollergen.errors import DtypeError, ExpressionError, shown
from rollergen.expr.dims import Extent
from rollergen.expr.dtypes import (
    check_scalar,
    common_dtype,
    is_float,
    is_integer,
    scalar_dtype,
)
from rollergen.expr.primitives import FUNCTIONS, PRIMITIVES
from rollergen.expr.show import show
from rollergen.expr.values import Binary, Const, IndexValue, Unary, Value
from rollergen.hal.dtypes import DTYPES

_TRUTH = (
    "the truth of ({}) is not known while an expression is built; write (a <= i) & (i < b) instead of a <= i < b, "
    "& | ~ instead of and, or, not, and rg.select(condition, a, b) instead of if"
)


class Expr:
    """One scalar of a tensor expression; supports ``+ - * / **``, comparisons, ``& | ^ ~`` on conditions and integers,
    ``// % << >>`` on integers.

    ``value`` is the frozen node, ``axes`` gives the extent of each axis that occurs free in it.
    """

    __slots__ = ("axes", "value")
    __iter__ = None

    def __init__(self, value: Value, axes: Mapping[str, int]) -> None:
        self.value = value
        self.axes = axes

    @property
    def dtype(self) -> str:
        return self.value.dtype

    def as_number(self) -> Expr:
        """What stands for it in arithmetic and comparisons."""
        return self

    def __bool__(self) -> NoReturn:
        raise ExpressionError(_TRUTH.format(show(self.value)))

    def __float__(self) -> NoReturn:
        raise ExpressionError(
            f"{show(self.value)} is no number while an expression is built; expected rg.exp, rg.sqrt, ... instead of "
            "the functions of math, and rg.cast instead of float"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """NumPy's function of expressions and numbers (``np.float32(2) * A[i]`` too), or the error that says which
        functions there are."""
        return _numpy_function(ufunc.__name__, method, inputs, named)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"<{self.dtype} expression {show(self.value)}>"

    def _sympy_(self) -> Any:
        """A condition on indices as SymPy's (for ``sympy.And`` and the like)."""
        from rollergen.expr.sympy_forms import condition_to_sympy

        return condition_to_sympy(self.value)

    def __add__(self, other: Any) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return binary("div", other, self)

    def __pow__(self, other: Any) -> Expr:
        return power(self, other)

    def __rpow__(self, other: Any) -> Expr:
        return power(other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        return binary("remainder", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return binary("remainder", other, self)

    def __lshift__(self, other: Any) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: Any) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return binary("shr", other, self)

    def __neg__(self) -> Expr:
        _require_number(self, "negation")
        return Expr(Unary("neg", self.value, self.dtype), self.axes)

    def __abs__(self) -> Expr:
        _require_number(self, "abs")
        return Expr(Unary("abs", self.value, self.dtype), self.axes)

    def __lt__(self, other: Any) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return binary("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)

    def __and__(self, other: Any) -> Expr:
        return _bitwise("and", "bitand", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _bitwise("and", "bitand", other, self)

    def __or__(self, other: Any) -> Expr:
        return _bitwise("or", "bitor", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _bitwise("or", "bitor", other, self)

    def __xor__(self, other: Any) -> Expr:
        return _bitwise("ne", "xor", self, other)

    def __rxor__(self, other: Any) -> Expr:
        return _bitwise("ne", "xor", other, self)

    def __invert__(self) -> Expr:
        if is_integer(self.dtype):
            return binary("xor", self, -1 if DTYPES[self.dtype].signed else DTYPES[self.dtype].limits[1])
        _require_bool(self, "~")
        return Expr(Unary("not", self.value, "bool"), self.axes)


def merge_axes(*operands: Mapping[str, int]) -> Mapping[str, int]:
    """All axes of the operands; ExpressionError if two of one name differ in extent."""
    merged = operands[0]
    for axes in operands[1:]:
        if axes is merged or not axes:
            continue
        for name, extent in axes.items():
            if merged.get(name, extent) != extent:
                raise ExpressionError(f"two axes are named {name!r}, with extents {merged[name]} and {extent}")
        merged = {**merged, **axes}
    return merged


def is_scalar(value: Any) -> bool:
    """Whether `value` is a Python or NumPy number or bool."""
    return isinstance(value, (bool, int, float)) or (getattr(value, "ndim", None) == 0 and hasattr(value, "item"))


def python_scalar(value: Any) -> float | int | bool:
    return value if isinstance(value, (bool, int, float)) else value.item()


def is_sympy(value: Any) -> bool:
    """Whether `value` comes from SymPy, without importing it."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(value, sympy.Basic)


def as_operand(value: Any, where: str) -> Expr | float | int | bool:
    """`value` as an `Expr` or a weak Python scalar; ExpressionError for anything else."""
    if isinstance(value, Expr):
        return value.as_number()
    if isinstance(value, Extent):
        return int(value)
    if is_scalar(value):
        scalar = python_scalar(value)
        if not isinstance(scalar, (bool, int, float)):
            kind = getattr(value, "dtype", type(scalar).__name__)
            raise ExpressionError(f"{where} of {shown(value)} ({kind}); expected a real number of at most 64 bits")
        return scalar
    if is_sympy(value):
        from rollergen.expr.sympy_forms import operand_of

        operand = operand_of(value)
        return Expr(operand, {}) if isinstance(operand, Value) else operand
    if hasattr(value, "producer"):
        raise ExpressionError(
            f"{where} of the whole tensor {value.name or 'without a name'}; index it inside rg.compute, e.g. "
            f"{value.name or 't'}"
            f"[{', '.join('ijklmnpq'[: len(value.shape)])}], or use rg.ops for whole tensors"
        )
    raise ExpressionError(
        f"{where} of {shown(value)} ({type(value).__name__}); expected a scalar expression or a number"
    )


def as_expr(value: Any, where: str) -> Expr:
    """`value` as an `Expr`, a number becoming a literal of its own dtype."""
    operand = as_operand(value, where)
    return operand if isinstance(operand, Expr) else literal(operand, scalar_dtype(operand), where)


def literal(scalar: float | int | bool, dtype: str, where: str) -> Expr:
    return Expr(Const(check_scalar(scalar, dtype, where), dtype), {})


def alike(where: str, *values: Any) -> tuple[Expr, ...]:
    """All `values` as expressions of one dtype: weak scalars take that of the others; indices beside an integer that is
    no int32 are int64."""
    operands = [as_operand(value, where) for value in values]
    if any(_is_wide(operand) for operand in operands):
        operands = [_widened(operand) for operand in operands]
    strong = [o for o in operands if isinstance(o, Expr)]
    if strong:
        dtype = strong[0].dtype
        for other in strong[1:]:
            common_dtype(dtype, other.dtype, where)
    else:
        every = [scalar_dtype(o) for o in operands]  # type: ignore[arg-type]
        dtype = next((kind for kind in ("float32", "int64") if kind in every), every[0])
    return tuple(o if isinstance(o, Expr) else literal(o, dtype, where) for o in operands)


def _is_wide(operand: Expr | float | int | bool) -> bool:
    if isinstance(operand, Expr):
        return isinstance(operand.value, IndexValue) and operand.dtype == "int64"
    return type(operand) is int and scalar_dtype(operand) == "int64"


def _widened(operand: Expr | float | int | bool) -> Expr | float | int | bool:
    if isinstance(operand, Expr) and isinstance(operand.value, IndexValue):
        return Expr(IndexValue(operand.value.index, "int64"), operand.axes)
    return operand


def binary(op: str, a: Any, b: Any) -> Expr:
    """One of `primitives.BINARY` on two operands, dtypes checked."""
    primitive = PRIMITIVES[op]
    where = primitive.symbol or (op if primitive.takes == "integer" else f"{op}imum")
    x, y = alike(where, a, b)
    if primitive.takes == "bool":
        _require_bool(x, where)
    elif primitive.takes != "any":
        _require_number(x, where)
    if primitive.takes == "integer" and not is_integer(x.dtype):
        raise DtypeError(f"{where} of {x.dtype} values; expected integers")
    if primitive.takes == "float" and not is_float(x.dtype):
        raise DtypeError(f"{where} of {x.dtype} values; expected a floating dtype: cast the operands first")
    dtype = "bool" if primitive.truth else x.dtype
    if op == "div" and isinstance(y.value, Const) and y.value.value == 1:
        return x  # exact for every x: a mean of one element
    return Expr(Binary(op, x.value, y.value, dtype), merge_axes(x.axes, y.axes))


def _bitwise(logic: str, bits: str, a: Any, b: Any) -> Expr:
    """The logic of conditions, the bits of integers."""
    integers = any(isinstance(one, Expr) and is_integer(one.as_number().dtype) for one in (a, b))
    return binary(bits if integers else logic, a, b)


def power(a: Any, b: Any) -> Expr:
    """``a ** b`` of two floating values, or two integers; squares and cubes are products, and with 1/2 it is a root, as
    torch and NumPy have it.

    Powers of integers wrap around. A negative exponent read from a tensor gives 0 for every base but 1 and -1, as
    in torch.
    """
    if isinstance(a, Expr) and is_scalar(b) and b in (2, 3):
        square = a * a
        return square if b == 2 else square * a
    if isinstance(a, Expr) and is_float(a.dtype) and is_scalar(b) and b == 0.5:
        return Expr(Unary("sqrt", a.value, a.dtype), a.axes)
    made = binary("pow", a, b)
    if is_integer(made.dtype) and is_scalar(b) and b < 0:
        raise ExpressionError(f"** of {made.dtype} values by {b}; expected an exponent of at least 0, or floats")
    return made


def _require_number(x: Expr, where: str) -> None:
    if x.dtype == "bool":
        raise DtypeError(f"{where} of a condition; expected numbers (rg.cast or rg.select make one)")


def _require_bool(x: Expr, where: str) -> None:
    if x.dtype != "bool":
        raise DtypeError(f"{where} of {x.dtype} values; expected conditions, e.g. (i >= 1) & (i < n)")


NUMPY_FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""By the names of NumPy's functions (ufuncs): the functions and operators of elements, which `functions` adds."""


def _numpy_function(name: str, method: str, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """NumPy's function `name` of elements and numbers.  Raises ExpressionError for one that elements do not have."""
    if method != "__call__" or named or name not in NUMPY_FUNCTIONS:
        what = name if method == "__call__" else f"{name}.{method}"
        given = ", ".join([*map(shown, inputs), *(f"{key}={shown(value)}" for key, value in named.items())])
        ours = ", ".join(f"rg.{one}" for one in (*FUNCTIONS, "abs", "atan2", "maximum", "minimum", "select"))
        raise ExpressionError(f"numpy.{what} of {given}; expected {ours}, or an operator of rg.ops on whole tensors")
    return NUMPY_FUNCTIONS[name](*(one if isinstance(one, Expr) else _number(one, name) for one in inputs))


def _number(value: Any, function: str) -> Any:
    """A number as Python's, which leaves the answer to the expression beside it."""
    number = as_operand(value, f"numpy.{function}")
    return getattr(number, "item", lambda: number)()  # numpy.float64 is a float, too
