"""Elementary functions for float32, written with plain arithmetic.

OpenCL's builtins are calls into a library that may be compiled for another target; inside a
vector loop such a call spills every register.  So exp, log, pow, tanh and erf are written out here, for any
number of lanes: clamp, reduce, polynomial (Horner form, contracted to multiply-adds), scale.  Where
instructions reduce and scale (AVX-512), powers of what is at most 0 leave it to them.  Most polynomials
interpolate at Chebyshev nodes of the interval given.  NaN gives NaN, infinities their limits.  sqrt is the
language's own (one instruction), and so are most functions of float64, which are not expected in hot loops
(pow and fmod for four lanes at a time: `_of_lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rollergen.lower import float_pairs, narrow_floats
from rollergen.lower.expressions import BITS, Call, Convert, Expr, Number, Operation, Shuffle
from rollergen.lower.function_bodies import Body, use
from rollergen.lower.ir import Function
from rollergen.lower.writer import Writer
from rollergen.tile.rules import WIDEST_VECTOR

_LN2_HIGH, _LN2_LOW, LOG2E = 0.693359375, -2.12194440e-4, 1.44269504088896341
_ROUNDING = 1.5 * 2**23 + 254
_FIELD, _WIDE_FIELD = 1.5 * 2**23 + 127, 1.5 * 2**52 + 1023
# (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2
_EXP = (0.5, 0.166665769, 0.0416665545, 0.00836319488, 0.00139262034)
# (2^f - 1) / f on |f| <= 1/2
_EXPM1_2 = (0.69314718246, 0.240226492286, 0.0555035732687, 0.00961823761463, 0.00133907352574, 0.000154035122250)
# the same with one term fewer, whose errors vanish beside those of a rounded exponent
_EXPM1_2_SHORT = (0.693146977599, 0.240222420846, 0.0555073374357, 0.00967151268814, 0.00132647272469)
# both on 0 <= f <= 1: of the rounded ones tried those whose 2^f errs least
_EXPM1_2_ABOVE = (0.693147063, 0.240229294, 0.0554852746, 0.00967544131, 0.00124678528, 0.00021612912)
_EXPM1_2_ABOVE_SHORT = (0.693151295, 0.240164474, 0.0557999127, 0.00901703164, 0.00186712923)
# erf(x) = x P(x) / (x P(x) + Q(x)) on 0 <= x <= 3.93: benches/minimax.py
_ERF_LAST = 3.93
_ERF_P = (1.98515546, -0.403946966, 0.302173346, 0.0908700973, 0.0357043296, 0.0024927035, 0.0131545905, -0.00325843319,
          0.00169581373)  # fmt: skip
_ERF_Q = (1.75929821, -2.34313965, 1.25807929, -0.34019354, 0.0463004857, -0.00253571733)


# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (0.333333313, -0.25000307, 0.200010449, -0.166412815, 0.142144963, -0.129981831, 0.126223207, -0.0790274665)
_SQRT_HALF_BITS = 0x3F3504F3
_SQRT_HALF_BITS_64 = 0x3FE6A09E667F3BCD
_LN2 = 0.6931471805599453
_AREA_TANGENT = tuple(2 / n for n in (1, 3, 5, 7, 9, 11, 13))
"""2 artanh(s) / s over s^2 <= 0.0295: the next term is below 10^-11."""
_TAYLOR = (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320)
"""exp(r) on |r| <= ln(2) / 2: the next term is below 10^-9."""
_LANES, _FOUR_LANES = 4, ("pow", "fmod")
_ANGLES, _LARGE_ANGLE = ("sin", "cos", "tan"), 30000.0
_SIGNS = {32: ("uint32", 0x80000000), 64: ("int64", -(2**63))}
"""By width of a float: the whole numbers of that width, and the one that is its sign's bit."""
_LARGEST, _SMALLEST_NORMAL = 3.4028234663852886e38, 2.0**-126


def call(out: Writer, name: str, *operands: Expr) -> Expr:
    """The call ``name(x)`` or ``name(x, y)``: our function for float32 where there is one, else the language's."""
    x = operands[0]
    if x.dtype == "float32" and name in out.native:
        return Call(out.native[name], operands, x.dtype, x.lanes)
    if x.dtype == "float64" and name in _FOUR_LANES:
        return _of_lanes(_LANES, out.functions, name, *operands)
    make = _OURS.get(name) if x.dtype == "float32" else _WIDE.get(name)
    if name == "pow" and not out.float64:
        make = partial(_pow, size_of=_size_in_pairs)
    if name in _ANGLES and x.dtype == "float32" and not out.lanes_apart:
        return _of_angles(out.functions, name, x)
    if make is None:
        return _of_lanes(WIDEST_VECTOR, out.functions, name, *operands)
    return use(out.functions, make, name, *operands)


def exp_below(out: Writer, x: Expr) -> Expr:
    """exp(x) of differences to the largest of a row, which are 0 at least once and never above.

    2^(x log2 e) errs by |x| units of 2^-24 of itself: what is far below the largest term of the row is less exact,
    but by no more than 2^-25 of that term (|x| exp(x) <= 1 / e).
    """
    name = out.native.get("exp2_approx")
    if x.dtype != "float32":
        return call(out, "exp", x)
    if name is None:
        return use(out.functions, _exp_below_scaled if x.lanes == out.scaled_lanes else _exp_below, "exp_below", x)
    return Call(name, (Operation("mul", (x, Number(LOG2E, x.dtype, x.lanes)), x.dtype, x.lanes),), x.dtype, x.lanes)


def exp2_below(out: Writer, x: Expr) -> Expr:
    """2^x of float32, of differences to the largest of a row, which are 0 at least once and never above; errs by less
    than three units of 2^-24 of itself."""
    name = out.native.get("exp2_approx")
    if name is None:
        return use(out.functions, _exp2_below_scaled if x.lanes == out.scaled_lanes else _exp2_below, "exp2_below", x)
    return Call(name, (x,), x.dtype, x.lanes)


def _of_lanes(most: int, functions: dict[str, Function], name: str, *operands: Expr) -> Expr:
    """The language's own, of so many lanes at most: OpenCL C has them for vectors of up to 16.

    PoCL's pow (3.0) for the eight of AVX-512 takes the exponent of denormal numbers wrongly (1e-310 to the power of 1
    is infinity), and its compiler does not end with such an fmod; those for fewer lanes are right.
    """
    x = operands[0]
    if x.lanes <= most:
        return Call(name, operands, x.dtype, x.lanes)
    return use(functions, partial(_in_halves, partial(_of_lanes, most), name), name, *operands)


def _exp(b: Body, x: Expr) -> Expr:
    """exp(x) = 2^n exp(r), x = n ln 2 + r; the power in two halves, so that results below the
    smallest normal number and above 2^127 come out right.

    Adding 1.5 * 2^23 + 254 rounds the quotient to an integer that lies, as n + 254, in the sum's low bits:
    half of it is the exponent field of 2^(n / 2).  NaN passes through the clamps and the polynomial,
    whatever its n becomes.
    """
    c = b.let("c", b.where("lt", x, -104.0, -104.0, x))
    c = b.let("d", b.where("gt", c, 89.0, 89.0, c))
    t = b.let("t", b.add(b.mul(c, LOG2E), _ROUNDING))
    m = b.let("m", b.sub(t, _ROUNDING))
    r = b.let("r", b.sub(c, b.mul(m, _LN2_HIGH)))
    r = b.let("s", b.sub(r, b.mul(m, _LN2_LOW)))
    p = b.polynomial(r, (1.0, 1.0, *_EXP))
    n = b.let("n", Convert(t, "int32", bits=True))
    half = b.let("h", Operation("shr", (n, b.number(1, "int32")), "int32", b.lanes))
    return b.mul(b.mul(p, _with_exponent(b, half)), _with_exponent(b, b.sub(n, half)))


def _log(b: Body, x: Expr) -> Expr:
    """log(x) = n ln 2 + log(1 + f), x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); errs by one unit
    in the last place.  Numbers below the smallest normal one are scaled up first."""
    tiny = Operation("lt", (x, b.number(_SMALLEST_NORMAL)), "mask32" if b.lanes > 1 else "bool", b.lanes)
    choose = lambda yes, no: Operation("select", (tiny, yes, no), "float32", b.lanes)
    word = b.let("w", Convert(b.let("y", choose(b.mul(x, 2.0**23), x)), "int32", bits=True))
    shifted = b.sub(word, b.number(_SQRT_HALF_BITS, "int32"))
    power = b.let("k", Operation("shr", (shifted, b.number(23, "int32")), "int32", b.lanes))
    scaled = Operation("shl", (power, b.number(23, "int32")), "int32", b.lanes)
    f = b.let("f", b.sub(Convert(b.sub(word, scaled), "float32", bits=True), 1.0))
    n = b.let("n", b.sub(Convert(power, "float32"), choose(b.number(23.0), b.number(0.0))))
    tail = b.add(b.mul(b.polynomial(f, _LOG), f), -0.5)
    low = b.let("l", b.add(b.mul(b.mul(f, f), tail), b.mul(n, _LN2_LOW)))
    result = b.let("r", b.add(b.mul(n, _LN2_HIGH), b.add(f, low)))
    result = b.let("u", b.where("le", x, _LARGEST, result, x))
    edge = b.let("v", b.where("eq", x, 0.0, float("-inf"), float("nan")))
    return b.where("gt", x, 0.0, result, edge)


def _with_exponent(b: Body, field: Expr) -> Expr:
    """The power of two with this exponent field."""
    word = Operation("shl", (field, b.number(23, "int32")), "int32", b.lanes)
    return Convert(word, "float32", bits=True)


def _magnitude(b: Body, x: Expr, name: str = "t") -> Expr:
    return b.let(name, b.where("lt", x, 0.0, Operation("neg", (x,), x.dtype, b.lanes), x))


def _with_sign_of(b: Body, x: Expr, value: Expr) -> Convert:
    """``value``, which is not negative or has x's sign, with x's sign: that of zeros as well."""
    word, sign = _SIGNS[BITS[x.dtype]]
    bits = lambda number: Convert(number, word, bits=True)
    kept = Operation("bitand", (bits(x), b.number(sign, word)), word, b.lanes)
    return Convert(Operation("bitor", (bits(value), kept), word, b.lanes), x.dtype, bits=True)


def _power_of_two(b: Body, u: Expr) -> tuple[Expr, Expr]:
    """(n as a power of two, f) with u = n + f, |f| <= 1/2, for -127 <= u <= 127; -127 gives the power 0.

    Adding 1.5 * 2^23 + 127 rounds u to an integer, which lies in the sum's low bits as an exponent field.
    """
    t = b.let("t", b.add(u, _FIELD))
    f = b.let("f", b.sub(u, b.sub(t, _FIELD)))
    return b.let("w", _with_exponent(b, Convert(t, "int32", bits=True))), f


def _expm1_2(b: Body, f: Expr) -> Expr:
    """2^f - 1 on |f| <= 1/2, exact to two units in the last place however small f is."""
    return b.let("p", b.mul(f, b.polynomial(f, _EXPM1_2)))


def _exp_below(b: Body, x: Expr) -> Expr:
    """exp(x) of x <= 0: in powers of two, without the halving of what is above 2^127 or below 2^-126 (it is 0)."""
    c = b.let("c", b.where("lt", x, -88.0, -88.0, x))
    power, f = _power_of_two(b, b.let("u", b.mul(c, LOG2E)))
    return b.mul(b.polynomial(f, (1.0, *_EXPM1_2)), power)


def _exp2_below(b: Body, x: Expr) -> Expr:
    """2^x of x <= 0; what is below 2^-126 is 0."""
    power, f = _power_of_two(b, b.let("c", b.where("lt", x, -127.0, -127.0, x)))
    return b.mul(b.polynomial(f, (1.0, *_EXPM1_2_SHORT)), power)


def _scaled(b: Body, x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """2^x by instructions that find the fraction f of x and scale 2^f, with nothing else for large and small x."""
    f = b.let("f", Call("lanes_fraction", (x,), x.dtype, b.lanes))
    return Call("lanes_scaled", (b.polynomial(f, (1.0, *coefficients)), x), x.dtype, b.lanes)


def _exp_below_scaled(b: Body, x: Expr) -> Expr:
    return _scaled(b, b.let("u", b.mul(x, LOG2E)), _EXPM1_2_ABOVE)


def _exp2_below_scaled(b: Body, x: Expr) -> Expr:
    return _scaled(b, x, _EXPM1_2_ABOVE_SHORT)


def _tanh(b: Body, x: Expr) -> Expr:
    """e / (e + 2), e = exp(2 x) - 1, which is 2^n (2^f - 1) + (2^n - 1): nothing cancels near 0.  Beyond 9.1 the
    result is one to half a unit in the last place."""
    c = b.let("c", b.where("lt", x, -9.1, -9.1, x))
    c = b.let("d", b.where("gt", c, 9.1, 9.1, c))
    power, f = _power_of_two(b, b.let("u", b.mul(c, 2 * LOG2E)))
    e = b.let("e", b.add(b.mul(_expm1_2(b, f), power), b.sub(power, 1.0)))
    return _with_sign_of(b, x, Operation("div", (e, b.add(e, 2.0)), x.dtype, b.lanes))


def _erf(b: Body, x: Expr) -> Expr:
    """N / (N + Q), N = |x| P(|x|), with the sign of x: nothing cancels near 0, and where the result nears 1, errors of
    N vanish in it and Q is small.  Beyond 3.93 the result is one to half a unit in the last place, and never more.

    One division in place of a power of two: fewer operations, and fewer that wait for one another.
    """
    bits = lambda value: Convert(value, "uint32", bits=True)
    a = Operation("bitand", (bits(x), b.number(0x7FFFFFFF, "uint32")), "uint32", b.lanes)
    t = b.let("a", Convert(a, "float32", bits=True))
    t = b.let("c", b.where("gt", t, _ERF_LAST, _ERF_LAST, t))
    p, q = b.polynomial(t, _ERF_P, "p"), b.polynomial(t, _ERF_Q, "q")
    e = b.let("e", b.op("div", b.mul(t, p), b.add(b.mul(t, p), q)))
    return _with_sign_of(b, x, e)


def _rsqrt(b: Body, x: Expr) -> Expr:
    root = _of_lanes(WIDEST_VECTOR, b.functions, "sqrt", x)
    return Operation("div", (b.number(1.0), root), x.dtype, b.lanes)


def _size_in_float64(b: Body, t: Expr, y: Expr) -> Expr:
    """t^y, whose log and exp need no more than 10 digits here."""
    power = b.let("m", b.mul(Convert(y, "float64"), _wide_log(b, b.let("wide", Convert(t, "float64")))))
    return Convert(_wide_exp(b, power), "float32")


def _size_in_pairs(b: Body, t: Expr, y: Expr) -> Expr:
    """The same without float64: what the product with the logarithm is off by is small, and exp(off) = 1 + off."""
    power, off = float_pairs.log_times(b, t, y)
    near = b.let("z0", b.own(_exp, "exp", power))
    return b.where("le", near, _LARGEST, b.add(near, b.mul(near, off)), near)


def _pow(b: Body, x: Expr, y: Expr, size_of: Callable[[Body, Expr, Expr], Expr] = _size_in_float64) -> Expr:
    """exp(y log |x|); then IEEE 754's sign and exceptions: 1 for y = 0 and for x = 1, NaN for negative finite x unless
    y is whole, the sign of x for odd y."""
    t = _magnitude(b, x)
    size = b.let("z", size_of(b, t, y))
    size = b.let("i", b.where("eq", t, 1.0, 1.0, size))
    half = b.let("h", b.mul(y, 0.5))
    odd = b.where("eq", b.own(_floor, "floor", half), half, size, Operation("neg", (size,), "float32", b.lanes))
    fractional = b.let("r", b.where("eq", b.mul(x, 2.0), x, size, float("nan")))  # equal: 0 and infinities
    signed = b.let("o", b.where("eq", b.own(_floor, "floor", y), y, odd, fractional))
    negative = Convert(x, "int32", bits=True)
    signed = b.let("g", b.where("lt", negative, 0, signed, size))
    signed = b.let("q", b.where("eq", x, x, signed, x))
    return b.where("eq", y, 0.0, 1.0, signed)


def _in_halves(of: Callable[..., Expr], name: str, b: Body, *operands: Expr) -> Expr:
    """The function of the first and of the second half of the lanes, put together."""
    half, parts = b.lanes // 2, []
    for first in (0, half):
        lanes = tuple(range(first, first + half))
        cut = [b.let(f"{one}{first}", Shuffle(whole, whole, lanes)) for one, whole in zip("xy", operands, strict=False)]
        parts.append(b.let(f"z{first}", of(b.functions, name, *cut)))
    return Shuffle(parts[0], parts[1], tuple(range(b.lanes)))


def _of_angles(functions: dict[str, Function], name: str, x: Expr) -> Expr:
    """The language's own of float32 lanes that are all small, else of the small ones and of the others apart.

    In a vector with a lane beyond 39,000 (or an infinity), PoCL's sine and tangent (3.0) of lanes near 0 are wrong
    by up to .01; so is its cosine, by 1e-4.
    """
    if x.lanes > WIDEST_VECTOR:
        return use(functions, partial(_in_halves, _of_angles, name), name, x)
    return Call(name, (x,), x.dtype) if x.lanes == 1 else use(functions, partial(_angles_apart, name), name, x)


def _angles_apart(name: str, b: Body, x: Expr) -> Expr:
    limit = b.number(_LARGE_ANGLE)
    small = b.let("m", b.test("lt", _magnitude(b, x), limit, 32))
    own = lambda angle: Call(name, (angle,), x.dtype, b.lanes)
    apart = b.choose(small, own(b.choose(small, x, b.number(0.0))), own(b.choose(small, limit, x)))
    return Operation("select", (Operation("every", (small,), "bool"), own(x), apart), x.dtype, b.lanes)


def _wide_log(b: Body, t: Expr) -> Expr:
    """log of a float64 that came from a non-negative float32: twice the area tangent of f / (2 + f)."""
    word = b.let("w", Convert(t, "int64", bits=True))
    fifty_two = b.number(52, "int64")
    shifted = b.sub(word, b.number(_SQRT_HALF_BITS_64, "int64"))
    k = b.let("k", Operation("shr", (shifted, fifty_two), "int64", b.lanes))
    scaled = Operation("shl", (k, fifty_two), "int64", b.lanes)
    f = b.let("f", b.sub(Convert(b.sub(word, scaled), "float64", bits=True), 1.0))
    s = b.let("s", Operation("div", (f, b.add(f, 2.0)), "float64", b.lanes))
    series = b.polynomial(b.let("u", b.mul(s, s)), _AREA_TANGENT, "l")
    log = b.let("v", b.add(b.mul(Convert(k, "float64"), _LN2), b.mul(s, series)))
    log = b.let("b", b.where("le", t, _LARGEST, log, t))
    return b.where("eq", t, 0.0, float("-inf"), log)


def _wide_exp(b: Body, x: Expr) -> Expr:
    """exp of a float64, for a float32: beyond the range of that, an infinity or 0 of it.

    The sum with 1.5 * 2^52 + 1023 rounds as in `_exp`.  A NaN is not converted to an integer: C leaves that undefined,
    and where the exponent is a constant a compiler makes the result any number.
    """
    c = b.let("c", b.where("lt", x, -110.0, -110.0, x))
    c = b.let("d", b.where("gt", c, 90.0, 90.0, c))
    whole = b.let("whole", b.add(b.mul(c, LOG2E), _WIDE_FIELD))
    rest = b.let("rest", b.sub(c, b.mul(b.sub(whole, _WIDE_FIELD), _LN2)))
    n = b.let("n", Convert(whole, "int64", bits=True))
    scale = Convert(Operation("shl", (n, b.number(52, "int64")), "int64", b.lanes), "float64", bits=True)
    return b.mul(b.polynomial(rest, _TAYLOR, "e"), scale)


def _round(b: Body, x: Expr) -> Expr:
    """To the nearest integer, ties to even: adding 2^p, p fraction bits, leaves no room for a fraction."""
    whole = 2.0 ** {32: 23, 64: 52}[BITS[x.dtype]]
    t = _magnitude(b, x)
    near = b.let("n", b.sub(b.let("m", b.add(t, whole)), whole))
    return b.where("lt", t, whole, b.let("r", _with_sign_of(b, x, near)), x)


def _floor(b: Body, x: Expr) -> Expr:
    near = b.let("n", b.own(_round, "round", x))
    return b.where("gt", near, x, b.let("l", b.sub(near, 1.0)), near)


def _to_odd(b: Body, x: Expr) -> Expr:
    """A float64 or integer as a float32: as the neighbour with an odd last bit where it is none, so that a narrower
    format rounds it as it would `x` itself (see `expr.dtypes.rounded`)."""
    exact = x if x.dtype == "float64" else b.let("whole", Convert(_within_float64(b, x), "float64"))
    single = b.let("single", Convert(exact, "float32"))
    back = b.let("back", Convert(single, "float64"))
    word = b.let("bits", Convert(single, "uint32", bits=True))
    larger = b.test("gt", _magnitude(b, back, "size"), _magnitude(b, exact, "size_of_exact"), 32)
    cut = b.let("cut", b.choose(larger, b.sub(word, b.number(1, "uint32")), word))
    odd = Operation("bitor", (cut, b.number(1, "uint32")), "uint32", b.lanes)
    return Convert(b.choose(b.test("ne", back, exact, 32), odd, cut), "float32", bits=True)


def _within_float64(b: Body, x: Expr) -> Expr:
    """Integers that float64 holds: of 64 bits beyond 2**53 the middle of the 2048 neighbours among which it lies,
    unless it is their first."""
    if BITS[x.dtype] < 64:
        return x
    bits = lambda op, a, mask: Operation(op, (a, b.number(mask, x.dtype)), x.dtype, b.lanes)
    low = b.let("low", bits("bitand", x, 2047))
    start = b.let("start", b.sub(x, low))
    middle = bits("shr", bits("bitand", b.add(low, b.number(2047, x.dtype)), 2048), 1)
    kept = b.let("kept", b.add(start, middle))
    size = b.let("size_of_whole", Convert(x, "float64"))
    return b.choose(b.test("lt", _magnitude(b, size, "of_whole"), b.number(2.0**53, "float64"), 64), x, kept)


_OURS: dict[str, Callable[..., Expr]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "erf": _erf,
    "rsqrt": _rsqrt,
    "pow": _pow,
    "round": _round,
    "floor": _floor,
    **narrow_floats.FUNCTIONS,
}
_WIDE: dict[str, Callable[..., Expr]] = {"rsqrt": _rsqrt, "round": _round, "floor": _floor, "to_odd": _to_odd}
