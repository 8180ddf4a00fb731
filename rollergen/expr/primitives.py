"""The primitives: what can be done with one element, one row each.

A new function is a row here, its name in ``rollergen/__init__.pyi`` (which editors read) and, where the languages' own
function of that name will not do, its text in `lower.maths`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rollergen.hal.dtypes import DOTS, DTYPES, WORD_OF

Array = Any


class Primitive(NamedTuple):
    """One row.

    ``numpy``
        NumPy's function by name, or one of ours, on arrays.
    ``takes``
        Dtypes of the operands, which are all alike: "number" (not bool), "float", "integer", "bool" or "any".
    ``meaning``, ``example``
        Of a function that users call, `rg.NAME` and `rg.ops.NAME`: what it is of a value; operands, and what comes
        out as NumPy prints it.  Others are spelt as Python's operators (``symbol``) or have functions of their own.
    ``ulps``
        Error in units in the last place: what OpenCL C allows its function (specification, section 7.4, full profile;
        rsqrt and exp rounded up to also admit our own polynomials), 1 where a result is rounded, 0 where it is exact.
    ``cost``
        Which of a device's ``costs`` holds its multiply-add slots, behind ``op_``; "": it takes one.
    ``chain``
        Operations in a row, about: 1 is an instruction; from `LONG` on it is a polynomial.
    ``truth``
        Whether a comparison or logic: the result is bool.
    ``keeps_zero``, ``keeps_nan``
        Whether it is 0 where its (every) operand is 0; NaN where any operand is NaN.
    ``keeps_sign``
        Whether it defines the sign of a zero that comes out (not of sums, nor of the larger of two zeros: IEEE 754,
        sections 5.3.1 and 6.3).
    ``wraps``
        Whether a result may lie outside the range of an integer dtype, around whose ends it goes.
    ``jumps``
        Whether it makes floating values whole.
    ``saturates``, ``divides``
        Whether it overflows, or has a limit, where its operand is large; whether it divides by an operand.
    """

    name: str
    operands: int
    numpy: str | Callable[..., Array]
    takes: str = "number"
    symbol: str = ""
    meaning: str = ""
    example: tuple[str, str] = ("", "")
    ulps: int = 0
    cost: str = ""
    chain: int = 1
    truth: bool = False
    keeps_zero: bool = False
    keeps_nan: bool = False
    keeps_sign: bool = False
    wraps: bool = False
    jumps: bool = False
    saturates: bool = False
    divides: bool = False

    def on_arrays(self) -> Callable[..., Array]:
        """What computes it on NumPy arrays."""
        import numpy as np

        return getattr(np, self.numpy) if isinstance(self.numpy, str) else self.numpy  # type: ignore[no-any-return]


LONG = 20
"""Operations of a function that is written out as a polynomial, about."""


def _erf(x: Array) -> Array:
    import numpy as np

    return np.asarray(np.frompyfunc(math.erf, 1, 1)(np.asarray(x, np.float64)), np.float64)


def _erfc(x: Array) -> Array:
    import numpy as np

    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(np.asarray(x, np.float64)), np.float64)


def _rsqrt(x: Array) -> Array:
    import numpy as np

    return 1 / np.sqrt(x)


def _function(
    name: str, numpy: str | Callable[..., Array], meaning: str, example: tuple[str, str], **facts: Any
) -> Primitive:
    """A floating function of one operand."""
    return Primitive(name, 1, numpy, "float", "", meaning, example, keeps_nan=True, **facts)


def _comparison(name: str, numpy: str, symbol: str, takes: str = "number") -> Primitive:
    return Primitive(name, 2, numpy, takes, symbol, truth=True, keeps_sign=True)


def _logic(name: str, operands: int, numpy: str, symbol: str) -> Primitive:
    return Primitive(name, operands, numpy, "bool", symbol, truth=True, keeps_sign=True)


def _whole(name: str, numpy: str | Callable[..., Array], symbol: str = "", cost: str = "") -> Primitive:
    """An operation on two integers; quotients and remainders of 0 are 0."""
    return Primitive(name, 2, numpy, "integer", symbol, cost=cost, keeps_zero=True, wraps=True)


def _trunc_divide(a: Array, b: Array) -> Array:
    import numpy as np

    down = np.floor_divide(a, b)
    return np.where((np.fmod(a, b) != 0) & ((a < 0) != (b < 0)), down + down.dtype.type(1), down)


def _power(a: Array, b: Array) -> Array:
    """Of integers as torch has it: to a negative power all but 1 and -1 are 0.

    Of floats IEEE 754's, for which NumPy has ``float_power``: its ``power`` by one exponent for all elements takes the
    root for 1/2, which of -0 and -inf is another number.
    """
    import numpy as np

    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind not in "iu":
        return np.float_power(a, b).astype(np.result_type(a, b))
    inverse = np.where(a == 1, a, np.where(a == -1, 1 - 2 * (b & 1), 0).astype(a.dtype))
    return np.where(b < 0, inverse, np.power(a, np.where(b < 0, 0, b)))


def _dot(left: str, right: str) -> Callable[[Array, Array], Array]:
    """The sum of the products of the numbers in each word."""

    def dot(a: Array, b: Array) -> Array:
        import numpy as np

        of = lambda words, dtype: np.asarray(words, "<i4")[..., None].view(dtype).astype(np.int32)
        return np.sum(of(a, left) * of(b, right), axis=-1, dtype=np.int32)

    return dot


def _dot_of_floats(dtype: str) -> Callable[[Array, Array], Array]:
    """`_dot` of floats, rounded nowhere: products of such short significands are exact in float64."""

    def dot(a: Array, b: Array) -> Array:
        import numpy as np

        from rollergen.expr.dtypes import numpy_dtype

        of = lambda words: np.asarray(words).astype("<i4")[..., None].view(numpy_dtype(dtype)).astype(np.float64)
        return np.sum(of(a) * of(b), axis=-1)

    return dot


def _word_of(dtype: str) -> Callable[[Array, Array], Array]:
    """The bits of the first in the lower half of a word, those of the second in the upper."""

    def word(a: Array, b: Array) -> Array:
        import numpy as np

        from rollergen.expr.dtypes import numpy_dtype

        of = lambda x: np.asarray(x).astype(numpy_dtype(dtype)).view(np.uint16).astype(np.uint32)
        return (of(a) | of(b) << 16).view(np.int32)

    return word


_ROWS = (
    _function("exp", "exp", "Exponential", ("[0.0, 0.0]", "array([1., 1.])"),
              ulps=4, cost="exp", chain=LONG, saturates=True),
    _function("log", "log", "Natural logarithm", ("[1.0, 0.0]", "array([  0., -inf])"), ulps=4, cost="log", chain=LONG),
    _function("sqrt", "sqrt", "Square root", ("[4.0, 2.25]", "array([2. , 1.5])"),
              ulps=3, cost="sqrt", chain=4, keeps_zero=True),
    _function("rsqrt", _rsqrt, "Reciprocal square root", ("[4.0, 0.25]", "array([0.5, 2. ])"),
              ulps=4, cost="rsqrt", chain=5, divides=True),
    _function("tanh", "tanh", "Hyperbolic tangent", ("[0.0, 99.0]", "array([0., 1.])"),
              ulps=6, cost="tanh", chain=LONG, keeps_zero=True, saturates=True),
    _function("erf", _erf, "Error function", ("[0.0, 9.0]", "array([0., 1.])"),
              ulps=16, cost="erf", chain=LONG, keeps_zero=True, saturates=True),
    _function("erfc", _erfc, "Complementary error function, 1 - erf,", ("[0.0, 99.0]", "array([1., 0.])"),
              ulps=16, cost="erf", chain=LONG, saturates=True),
    _function("expm1", "expm1", "exp(x) - 1", ("[0.0, 0.0]", "array([0., 0.])"),
              ulps=3, cost="exp", chain=LONG, keeps_zero=True, saturates=True),
    _function("log1p", "log1p", "log(1 + x)", ("[0.0, -1.0]", "array([  0., -inf])"),
              ulps=3, cost="log", chain=LONG, keeps_zero=True),
    _function("sin", "sin", "Sine", ("[0.0, 0.0]", "array([0., 0.])"),
              ulps=4, cost="tanh", chain=LONG, keeps_zero=True),
    _function("cos", "cos", "Cosine", ("[0.0, 0.0]", "array([1., 1.])"), ulps=4, cost="tanh", chain=LONG),
    _function("tan", "tan", "Tangent", ("[0.0, 0.0]", "array([0., 0.])"),
              ulps=5, cost="tanh", chain=LONG, keeps_zero=True),
    _function("asin", "arcsin", "Arc sine", ("[0.0, 2.0]", "array([ 0., nan])"),
              ulps=4, cost="tanh", chain=LONG, keeps_zero=True),
    _function("acos", "arccos", "Arc cosine", ("[1.0, 2.0]", "array([ 0., nan])"),
              ulps=4, cost="tanh", chain=LONG),
    _function("atan", "arctan", "Arc tangent", ("[0.0, 0.0]", "array([0., 0.])"),
              ulps=5, cost="tanh", chain=LONG, keeps_zero=True, saturates=True),
    _function("floor", "floor", "Floor", ("[1.5, -1.5]", "array([ 1., -2.])"),
              cost="floor", keeps_zero=True, keeps_sign=True, jumps=True),
    _function("round", "rint", "Nearest integer, ties to even,", ("[0.5, 2.6]", "array([0., 3.])"),
              keeps_zero=True, keeps_sign=True, jumps=True),
    Primitive("neg", 1, "negative", symbol="-", keeps_zero=True, keeps_nan=True, keeps_sign=True, wraps=True),
    Primitive("abs", 1, "abs", keeps_zero=True, keeps_nan=True, keeps_sign=True, wraps=True),
    _logic("not", 1, "logical_not", "~"),
    Primitive("add", 2, "add", symbol="+", ulps=1, keeps_zero=True, keeps_nan=True, wraps=True),
    Primitive("sub", 2, "subtract", symbol="-", ulps=1, keeps_zero=True, keeps_nan=True, wraps=True),
    Primitive("mul", 2, "multiply", symbol="*", ulps=1, keeps_zero=True, keeps_nan=True, keeps_sign=True, wraps=True),
    Primitive("div", 2, "true_divide", "float", "/", ulps=3, cost="div", keeps_nan=True, keeps_sign=True, divides=True),
    _whole("floor_divide", "floor_divide", "//", cost="div"),
    _whole("remainder", "remainder", "%", cost="div"),
    _whole("trunc_divide", _trunc_divide, cost="div"),
    _whole("trunc_remainder", "fmod", cost="div"),
    _whole("shl", "left_shift", "<<"),
    _whole("shr", "right_shift", ">>"),
    _whole("bitand", "bitwise_and", "&"),
    _whole("bitor", "bitwise_or", "|"),
    _whole("xor", "bitwise_xor", "^"),
    *(_whole(name, _dot(*pair)) for pair, name in DOTS.items() if DTYPES[pair[0]].kind == "integer"),
    *(Primitive(name, 2, _dot_of_floats(pair[0]), "integer", ulps=1, keeps_zero=True)
      for pair, name in DOTS.items() if DTYPES[pair[0]].kind == "float"),
    *(Primitive(name, 2, _word_of(dtype), "float", keeps_zero=True, keeps_sign=True)
      for dtype, name in WORD_OF.items()),
    Primitive("pow", 2, _power, symbol="**", ulps=16, cost="pow", chain=LONG, wraps=True, divides=True),
    Primitive("fmod", 2, "fmod", "float", cost="pow", chain=LONG, keeps_nan=True, keeps_sign=True, divides=True),
    Primitive("atan2", 2, "arctan2", "float", ulps=6, cost="pow", chain=LONG, keeps_nan=True, divides=True),
    Primitive("max", 2, "maximum", keeps_zero=True, keeps_nan=True),
    Primitive("min", 2, "minimum", keeps_zero=True, keeps_nan=True),
    _comparison("lt", "less", "<"),
    _comparison("le", "less_equal", "<="),
    _comparison("gt", "greater", ">"),
    _comparison("ge", "greater_equal", ">="),
    _comparison("eq", "equal", "==", takes="any"),
    _comparison("ne", "not_equal", "!=", takes="any"),
    _logic("and", 2, "logical_and", "&"),
    _logic("or", 2, "logical_or", "|"),
)  # fmt: skip

PRIMITIVES = {row.name: row for row in _ROWS}
UNARY = tuple(row.name for row in _ROWS if row.operands == 1)
BINARY = tuple(row.name for row in _ROWS if row.operands == 2)
FUNCTIONS = tuple(row.name for row in _ROWS if row.meaning)
"""Those that users call by name."""
