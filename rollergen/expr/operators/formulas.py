"""Elementwise operators that are one formula of the language: a row each.

`FORMULAS` is the table; `operator` makes the function of a row, which rounds narrow values once, at its end.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rollergen.errors import DtypeError, shown
from rollergen.expr import language
from rollergen.expr.dtypes import accumulator_dtype, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import elementwise, number, refuse_inplace, require_tensor
from rollergen.expr.operators.elementwise import larger
from rollergen.expr.scalars import alike

rg: Any = language  # its functions come from a table
_LN2, _LN10 = math.log(2), math.log(10)


class Formula(NamedTuple):
    """One row.

    ``meaning``
        What it is of `input` (and of `other`).
    ``example``
        Operands of the first tensor, and what comes out as NumPy prints it.
    ``function``
        Of the element, or of two, and the settings by name.
    ``settings``
        Arguments that are numbers, with their defaults, as torch has them; ``inplace`` is added where torch has it.
    ``operands``
        How many tensors (or numbers, of two) it takes.
    ``takes``
        "real": floating values, integers as float32; "float": floating values alone; "number": integers stay integers;
        "any": conditions too; "integer": integers alone, or conditions; "truth": the result is bool, operands are
        conditions, or numbers that are not 0; "test": the result is bool.
    """

    name: str
    meaning: str
    example: tuple[str, str]
    function: Callable[..., Any]
    settings: dict[str, Any] = {}  # noqa: RUF012 - a default of a named tuple
    operands: int = 1
    takes: str = "real"


def _square(v: Any) -> Any:
    return rg.cast(v, "int64") if v.dtype == "bool" else v * v


def _sign(v: Any) -> Any:
    return v if v.dtype == "bool" else rg.cast(rg.select(v > 0, 1, rg.select(v < 0, -1, 0)), v.dtype)


def _with_sign_of(v: Any, size: Any) -> Any:
    """`v` itself where it is a zero, of either sign, or NaN."""
    return rg.select(v > 0, size, rg.select(v < 0, -size, v))


def _sinh(v: Any) -> Any:
    """(e^x - 1) (1 + e^-x) / 2 by e^(x/2), which is finite wherever the result is."""
    less = rg.expm1(0.5 * rg.abs(v))
    root = less + 1
    return _with_sign_of(v, 0.5 * less * (less + 2) * (1 + 1 / root / root))


def _cosh(v: Any) -> Any:
    root = rg.exp(0.5 * rg.abs(v))
    return 0.5 * root * root + 0.5 / root / root


def _asinh(v: Any) -> Any:
    size = rg.abs(v)
    small = rg.log1p(size + size * size / (1 + rg.sqrt(size * size + 1)))
    return _with_sign_of(v, rg.select(size < 1e9, small, rg.log(size) + _LN2))


def _atanh(v: Any) -> Any:
    return _with_sign_of(v, 0.5 * rg.log1p(2 * rg.abs(v) / (1 - rg.abs(v))))


def _acosh(v: Any) -> Any:
    """NaN below 1, as the first root is."""
    above = v - 1
    return rg.select(v < 1e9, rg.log1p(above + rg.sqrt(above) * rg.sqrt(v + 1)), rg.log(v) + _LN2)


def _softplus(v: Any, beta: float, threshold: float) -> Any:
    grown = v * beta
    return rg.select(grown > threshold, v, rg.log1p(rg.exp(rg.minimum(grown, threshold))) * (1 / beta))


def _limited(v: Any, low: float, high: float) -> Any:
    """Between two limits, which integers have cut towards 0, as torch has it."""
    low, high = (low, high) if is_float(v.dtype) else (int(low), int(high))
    return rg.minimum(rg.maximum(v, low), high)


def _hardsigmoid(v: Any) -> Any:
    """Times a sixth, as torch has it: CPUs divide vectors in several times the clocks.  1 from 3 on, as 6 times its
    nearest float is."""
    return _limited(v + 3, 0, 6) * (1 / 6)


def _mish(v: Any) -> Any:
    return v * rg.tanh(rg.select(v > 20, v, rg.log1p(rg.exp(rg.minimum(v, 20)))))


def _exponential(v: Any, alpha: float, scale: float = 1.0, inner: float = 1.0) -> Any:
    """`scale` times `v` where it is positive, else ``alpha * scale * (exp(inner * v) - 1)``."""
    return rg.select(v > 0, v * scale, rg.expm1(rg.minimum(v, 0) * inner) * (alpha * scale))


def _fmax(a: Any, b: Any) -> Any:
    a, b = alike("fmax", a, b)  # one may be a number
    return rg.select(a != a, b, rg.select(b != b, a, larger(a, b)))


_SELU = (1.6732632423543772, 1.0507009873554805)
_PLACE = {"inplace": False}

_ROWS = (
    Formula("sinh", "Hyperbolic sine", ("[0.0, 0.0]", "array([0., 0.])"), _sinh),
    Formula("cosh", "Hyperbolic cosine", ("[0.0, 0.0]", "array([1., 1.])"), _cosh),
    Formula("asinh", "Inverse of the hyperbolic sine", ("[0.0, 0.0]", "array([0., 0.])"), _asinh),
    Formula("acosh", "Inverse of the hyperbolic cosine", ("[1.0, 1.0]", "array([0., 0.])"), _acosh),
    Formula("atanh", "Inverse of the hyperbolic tangent", ("[0.0, 0.0]", "array([0., 0.])"),
            _atanh),
    Formula("exp2", "2 to the power of input", ("[3.0, -1.0]", "array([8. , 0.5])"), lambda v: rg.pow(2.0, v)),
    Formula("log2", "Logarithm to base 2", ("[8.0, 1.0]", "array([3., 0.])"), lambda v: rg.log(v) / _LN2),
    Formula("log10", "Logarithm to base 10", ("[1.0, 1.0]", "array([0., 0.])"), lambda v: rg.log(v) / _LN10),
    Formula("reciprocal", "1 / input", ("[4.0, -0.5]", "array([ 0.25, -2.  ])"), lambda v: 1 / v),
    Formula("square", "The square", ("[3.0, -0.5]", "array([9.  , 0.25])"), _square, takes="any"),
    Formula("ceil", "Ceiling: the smallest integer not below input", ("[1.5, -1.5]", "array([ 2., -1.])"),
            lambda v: -rg.floor(-v) if is_float(v.dtype) else v, takes="number"),
    Formula("trunc", "Integer part: input rounded towards 0", ("[1.5, -1.5]", "array([ 1., -1.])"),
            lambda v: rg.select(v < 0, -rg.floor(-v), rg.floor(v)) if is_float(v.dtype) else v, takes="number"),
    Formula("frac", "Fractional part, input - trunc(input)", ("[1.5, -1.5]", "array([ 0.5, -0.5])"),
            lambda v: v - rg.select(v < 0, -rg.floor(-v), rg.floor(v)), takes="float"),
    Formula("sign", "Sign: -1, 0 or 1", ("[2.5, -0.5]", "array([ 1., -1.])"), _sign, takes="any"),
    Formula("isnan", "Whether input is NaN", ("[0.0, float('nan')]", "array([False,  True])"), lambda v: v != v,
            takes="test"),
    Formula("isinf", "Whether input is infinite", ("[0.0, 1.0]", "array([False, False])"),
            lambda v: rg.abs(v) == math.inf, takes="test"),
    Formula("isfinite", "Whether input is neither infinite nor NaN", ("[0.0, 1.0]", "array([ True,  True])"),
            lambda v: rg.abs(v) < math.inf, takes="test"),
    Formula("logical_not", "Whether input is 0", ("[0.0, 2.0]", "array([ True, False])"), lambda v: ~v, takes="truth"),
    Formula("logical_and", "Whether both input and other are nonzero", ("[0.0, 2.0]", "array([False,  True])"),
            lambda a, b: a & b,
            operands=2, takes="truth"),
    Formula("logical_or", "Whether input or other is nonzero", ("[0.0, 2.0]", "array([ True,  True])"),
            lambda a, b: a | b,
            operands=2, takes="truth"),
    Formula("logical_xor", "Whether exactly one of input and other is nonzero",
            ("[0.0, 2.0]", "array([ True, False])"), lambda a, b: a != b,
            operands=2, takes="truth"),
    Formula("bitwise_and", "Bitwise and of input and other", ("[6, 3]", "array([0, 1])"), lambda a, b: a & b,
            operands=2, takes="integer"),
    Formula("bitwise_or", "Bitwise or of input and other", ("[6, 3]", "array([7, 3])"), lambda a, b: a | b,
            operands=2, takes="integer"),
    Formula("bitwise_xor", "Bitwise exclusive or of input and other", ("[6, 3]", "array([7, 2])"), lambda a, b: a ^ b,
            operands=2, takes="integer"),
    Formula("bitwise_not", "Bitwise complement of input", ("[6, -1]", "array([-7,  0])"),
            lambda v: ~v, takes="integer"),
    Formula("bitwise_left_shift", "input * 2 ** other, in the bits of the dtype", ("[6, -1]", "array([12, -2])"),
            lambda a, b: a << b, operands=2, takes="integer"),
    Formula("bitwise_right_shift", "input / 2 ** other, rounded down", ("[6, -1]", "array([ 3, -1])"),
            lambda a, b: a >> b, operands=2, takes="integer"),
    Formula("remainder", "What a division rounded down leaves: of other's sign; integers over 0 leave 0",
            ("[2.5, -0.5]", "array([0.5, 0.5])"), lambda a, b: rg.remainder(a, b, "floor"), operands=2, takes="number"),
    Formula("fmod", "What a division rounded towards 0 leaves: of input's sign; integers over 0 leave 0",
            ("[2.5, -0.5]", "array([ 0.5, -0.5])"), lambda a, b: rg.remainder(a, b, "trunc"), operands=2,
            takes="number"),
    Formula("fmax", "The larger of two, a number rather than NaN", ("[1.0, 2.0]", "array([1., 2.])"),
            _fmax, operands=2, takes="any"),
    Formula("atan2", "Angle (radians) of the point (other, input) to the first axis", ("[0.0, 0.0]", "array([0., 0.])"),
            rg.atan2, operands=2),
    Formula("softplus", "log(1 + exp(beta input)) / beta, input itself where beta input exceeds threshold",
            ("[40.0, 99.0]", "array([40., 99.])"), _softplus, {"beta": 1.0, "threshold": 20.0}, takes="float"),
    Formula("softsign", "input / (1 + |input|)", ("[1.0, -1.0]", "array([ 0.5, -0.5])"), lambda v: v / (1 + rg.abs(v))),
    Formula("tanhshrink", "input - tanh(input)", ("[0.0, 0.0]", "array([0., 0.])"), lambda v: v - rg.tanh(v)),
    Formula("logsigmoid", "log(sigmoid(input))", ("[999.0, -99.0]", "array([  0., -99.])"),
            lambda v: rg.minimum(v, 0) - rg.log1p(rg.exp(-rg.abs(v))), takes="float"),
    Formula("mish", "input tanh(softplus(input))", ("[0.0, 0.0]", "array([0., 0.])"), _mish, _PLACE, takes="float"),
    Formula("relu6", "min(max(input, 0), 6)", ("[-1.0, 9.0]", "array([0., 6.])"), lambda v: _limited(v, 0, 6), _PLACE,
            takes="number"),
    Formula("hardtanh", "min(max(input, min_val), max_val)", ("[-3.0, 9.0]", "array([-1.,  1.])"),
            lambda v, min_val, max_val: _limited(v, min_val, max_val), {"min_val": -1.0, "max_val": 1.0} | _PLACE,
            takes="number"),
    Formula("hardsigmoid", "min(max(input + 3, 0), 6) / 6", ("[-3.0, 0.0]", "array([0. , 0.5])"),
            _hardsigmoid, _PLACE, takes="float"),
    Formula("hardswish", "input min(max(input + 3, 0), 6) / 6", ("[-3.0, 3.0]", "array([-0.,  3.])"),
            lambda v: v * _hardsigmoid(v), _PLACE, takes="float"),
    Formula("elu", "input where it is positive, else alpha (exp(input) - 1)", ("[1.0, 0.0]", "array([1., 0.])"),
            lambda v, alpha: _exponential(v, alpha), {"alpha": 1.0} | _PLACE, takes="float"),
    Formula("celu", "input where it is positive, else alpha (exp(input / alpha) - 1)",
            ("[1.0, 0.0]", "array([1., 0.])"),
            lambda v, alpha: _exponential(v, alpha, 1.0, 1 / alpha), {"alpha": 1.0} | _PLACE, takes="float"),
    Formula("selu", "1.0507 times `elu` of alpha 1.6733 (Klambauer et al., arXiv:1706.02515)",
            ("[0.0, 0.0]", "array([0., 0.])"), lambda v: _exponential(v, *_SELU), _PLACE, takes="float"),
    Formula("threshold", "input where it exceeds threshold, else value", ("[1.0, 9.0]", "array([7., 9.])"),
            lambda v, threshold, value: rg.select(v > threshold, v, value),
            {"threshold": inspect.Parameter.empty, "value": inspect.Parameter.empty} | _PLACE, takes="number"),
    Formula("hardshrink", "input where |input| exceeds lambd, else 0", ("[0.25, -9.0]", "array([ 0., -9.])"),
            lambda v, lambd: rg.select(rg.abs(v) <= lambd, 0, v), {"lambd": 0.5}, takes="float"),
    Formula("softshrink", "input less lambd towards 0, 0 where |input| is no larger",
            ("[0.25, -9.0]", "array([ 0. , -8.5])"),
            lambda v, lambd: rg.select(v > lambd, v - lambd, rg.select(v < -lambd, v + lambd, v * 0)), {"lambd": 0.5},
            takes="float"),
)  # fmt: skip

FORMULAS = {row.name: row for row in _ROWS}


def operator(row: Formula) -> Callable[..., Tensor]:
    """The operator of a row, with torch's names of arguments."""
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    tensors = [inspect.Parameter(name, positional, annotation="Tensor") for name in ("input", "other")[: row.operands]]
    settings = [
        inspect.Parameter(name, positional, default=value, annotation="Number") for name, value in row.settings.items()
    ]
    name_of_result = inspect.Parameter("name", keyword, default=None, annotation="str | None")

    def applied(*operands: Any, name: str | None = None) -> Tensor:
        values = dict(zip(row.settings, operands[row.operands :], strict=True))
        refuse_inplace(row.name, values.pop("inplace", False))
        return _made(row, operands[: row.operands], values, name)

    applied.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*tensors, *settings, name_of_result], return_annotation="Tensor"
    )
    applied.__name__ = applied.__qualname__ = row.name
    of = {
        "float": "floating values", "real": "of integers in float32", "number": "numbers", "integer": "integers",
    }.get(row.takes, "any values")  # fmt: skip
    whole = row.takes == "integer"
    arguments = "".join(", 5, 7" for _ in range(row.name == "threshold"))
    arguments += (", 1" if whole else ", 1.0") * (row.operands - 1)
    shape = '(2,), "int32"' if whole else "(2,)"
    together = ", broadcast as NumPy does" if row.operands > 1 else ""
    applied.__doc__ = f"""{row.meaning}, element by element; {of}, any shape{together}.

    >>> import rollergen as rg
    >>> rg.ops.{row.name}(rg.tensor("x", {shape}){arguments}).evaluate({row.example[0]})
    {row.example[1]}
    """
    return applied


def _made(row: Formula, operands: tuple[Any, ...], settings: dict[str, Any], name: str | None) -> Tensor:
    require_tensor(operands[0], row.name) if row.operands == 1 else None
    numbers = {key: number(value, row.name, key) for key, value in settings.items()}
    if row.takes in ("float", "integer"):
        for operand in operands:
            if isinstance(operand, Tensor) and is_float(operand.dtype) != (row.takes == "float"):
                expected = "a floating dtype" if row.takes == "float" else "an integer one"
                raise DtypeError(f"{row.name}: {shown(operand)} has dtype {operand.dtype}; expected {expected}")

    def element(*parts: Any) -> Any:
        dtype = next(part.dtype for part in parts if isinstance(part, rg.Expr))
        if row.takes == "truth":
            return row.function(*(part if dtype == "bool" else _is_not_zero(part) for part in parts))
        if row.takes == "test":
            return row.function(parts[0] if is_float(dtype) else rg.cast(parts[0], "float32"))
        if not is_float(dtype):
            return row.function(*parts) if row.takes == "any" else rg.cast(row.function(*parts, **numbers), dtype)
        wide = accumulator_dtype(dtype)
        wider = (rg.cast(part, wide) if isinstance(part, rg.Expr) else part for part in parts)
        return rg.cast(row.function(*wider, **numbers), dtype)

    return elementwise(
        row.name, element, *operands, name=name, floating=row.takes == "real", numeric=row.takes == "number"
    )


def _is_not_zero(part: Any) -> Any:
    return part != 0 if isinstance(part, rg.Expr) else bool(part)
