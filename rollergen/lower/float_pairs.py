"""Products with a logarithm in pairs of float32, a value and what it is off by: for devices that compute in no float64.

Sums of two are Knuth's, products of two Dekker's (Numerische Mathematik 18, 1971), whose halves are cut by their bits,
so that a compiler may contract any of it.
"""

from __future__ import annotations

from rollergen.lower.expressions import Convert, Expr, Operation
from rollergen.lower.function_bodies import Body

Pair = tuple[Expr, Expr]

_HALF_OF_BITS = 0xFFFFF000
"""Keeps 12 of 24 bits: products of two such halves are exact."""
_SQRT_HALF_BITS = 0x3F3504F3
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690581e-4
"""The first has 9 bits, so that its products with exponents are exact."""
_TWO_THIRDS = (0.666666686534881591796875, -1.98682149e-8)
_AREA_TANGENT = tuple(2 / n for n in (5, 7, 9, 11))
"""(2 artanh(s) - 2 s) / s^3 - 2/3, over s^2, for s^2 <= 0.0295: the next term is below 2^-25 of the first."""
_SMALLEST_NORMAL, _LARGEST = 2.0**-126, 3.4028234663852886e38
_FAR = 2.0**34
"""No power to a larger exponent lies between 0 and infinity: logarithms other than 0 are 2^-24 at least."""


def log_times(b: Body, t: Expr, y: Expr) -> Pair:
    """y log t for a float32 t >= 0, to 2^-38 of itself or better; infinite for a t of 0 or infinity."""
    tiny = b.let("tiny", b.where("lt", t, _SMALLEST_NORMAL, b.mul(t, 2.0**24), t))
    word = b.let("word", Convert(tiny, "int32", bits=True))
    bits = b.number(23, "int32")
    shifted = b.sub(word, b.number(_SQRT_HALF_BITS, "int32"))
    power = b.let("power", Operation("shr", (shifted, bits), "int32", b.lanes))
    scaled = Operation("shl", (power, bits), "int32", b.lanes)
    f = b.let("f", b.sub(Convert(b.sub(word, scaled), "float32", bits=True), 1.0))
    moved = b.let("moved", b.where("lt", t, _SMALLEST_NORMAL, 24.0, 0.0))
    n = b.let("n", b.sub(Convert(power, "float32"), moved))
    high, low = _log_of_one_and(b, f)
    high, more = _sum(b, b.let("whole", b.mul(n, _LN2_HIGH)), high, "with_n")
    low = b.let("low", b.add(b.add(low, more), b.mul(n, _LN2_LOW)))
    near = b.let("near", b.where("lt", y, -_FAR, -_FAR, y))
    near = b.let("within", b.where("gt", near, _FAR, _FAR, near))
    high, rest = _product(b, near, high, "times")
    rest = b.let("rest", b.add(rest, b.mul(near, low)))
    total = b.let("total", b.add(high, rest))
    off = b.let("off", b.sub(rest, b.sub(total, high)))
    end = b.let("end", b.where("eq", t, 0.0, float("-inf"), total))
    end = b.let("ends", b.where("gt", t, _LARGEST, float("inf"), end))
    outside = b.let("outside", b.mul(y, end))
    regular = b.let("regular", b.where("le", t, _LARGEST, total, outside))
    return b.let("product", b.where("eq", t, 0.0, outside, regular)), off


def _log_of_one_and(b: Body, f: Expr) -> Pair:
    """log(1 + f), sqrt(1/2) <= 1 + f <= sqrt(2): twice the area tangent of s = f / (2 + f)."""
    below, lost = _sum(b, b.number(2.0), f, "below")
    s = b.let("s", Operation("div", (f, below), "float32", b.lanes))
    made, error = _product(b, s, below, "made")
    left = b.let("left", b.sub(b.sub(b.sub(f, made), error), b.mul(s, lost)))
    s_off = b.let("s_off", Operation("div", (left, below), "float32", b.lanes))
    u, u_off = _product(b, s, s, "square")
    u_off = b.let("square_off", b.add(u_off, b.mul(b.mul(s, 2.0), s_off)))
    tail = b.let("tail", b.mul(b.polynomial(u, _AREA_TANGENT), b.mul(u, u)))
    first, first_off = _product(b, u, b.number(_TWO_THIRDS[0]), "third")
    first_off = b.let("third_off", b.add(first_off, b.add(b.mul(u_off, _TWO_THIRDS[0]), b.mul(u, _TWO_THIRDS[1]))))
    series, series_off = _sum(b, first, tail, "series")
    series_off = b.let("series_off", b.add(series_off, first_off))
    cube, cube_off = _product(b, s, series, "cube")
    cube_off = b.let("cube_off", b.add(cube_off, b.add(b.mul(s, series_off), b.mul(s_off, series))))
    twice = b.let("twice", b.mul(s, 2.0))
    high, low = _sum(b, twice, cube, "log")
    return high, b.let("log_off", b.add(low, b.add(b.mul(s_off, 2.0), cube_off)))


def _sum(b: Body, x: Expr, y: Expr, name: str) -> Pair:
    total = b.let(name, b.add(x, y))
    part = b.let(f"{name}_y", b.sub(total, x))
    of_x = b.sub(x, b.sub(total, part))
    return total, b.let(f"{name}_e", b.add(of_x, b.sub(y, part)))


def _product(b: Body, x: Expr, y: Expr, name: str) -> Pair:
    made = b.let(name, b.mul(x, y))
    (x1, x2), (y1, y2) = _halves(b, x, f"{name}_x"), _halves(b, y, f"{name}_y")
    error = b.let(f"{name}_a", b.sub(b.mul(x1, y1), made))
    error = b.let(f"{name}_b", b.add(error, b.mul(x1, y2)))
    error = b.let(f"{name}_c", b.add(error, b.mul(x2, y1)))
    return made, b.let(f"{name}_e", b.add(error, b.mul(x2, y2)))


def _halves(b: Body, x: Expr, name: str) -> Pair:
    word = Operation("bitand", (Convert(x, "uint32", bits=True), b.number(_HALF_OF_BITS, "uint32")), "uint32", b.lanes)
    high = b.let(f"{name}1", Convert(word, "float32", bits=True))
    return high, b.let(f"{name}2", b.sub(x, high))
