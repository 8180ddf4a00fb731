"""Integers: what wraps around, and what C leaves open of divisions, remainders and shifts."""

from __future__ import annotations

from rollergen.hal.dtypes import DOTS, DTYPES
from rollergen.lower.expressions import BITS, Convert, Expr, Number, Operation
from rollergen.lower.masks import compare, select, widen
from rollergen.lower.writer import Writer

DIVISIONS = ("floor_divide", "remainder", "trunc_divide", "trunc_remainder")


def wrapping(op: str, operands: tuple[Expr, ...], dtype: str) -> Expr:
    """The operation in `dtype`; of integers sums, differences, products and negations wrap around at its ends.

    They are computed unsigned: what passes the ends of a signed integer C leaves undefined, so that compilers take a
    square for positive.  A dot product that is added to something is one operation.
    """
    lanes, row = operands[0].lanes, DTYPES[dtype]
    last = operands[-1]
    if op == "add" and isinstance(last, Operation) and last.op in DOTS.values() and len(last.operands) == 2:
        return Operation(last.op, (*last.operands, operands[0]), dtype, lanes)
    if row.kind != "integer" or not row.signed or op not in ("add", "sub", "mul", "neg"):
        return Operation(op, operands, dtype, lanes)
    unsigned = row.word
    made = Operation(op, tuple(_as_unsigned(one, unsigned) for one in operands), unsigned, lanes)
    return Convert(made, dtype, bits=True)


def _as_unsigned(x: Expr, dtype: str) -> Expr:
    if isinstance(x, Convert) and x.operand.dtype == dtype:
        return x.operand
    return Number(x.value, dtype, x.lanes) if isinstance(x, Number) and x.value >= 0 else Convert(x, dtype, bits=True)


def divided(out: Writer, op: str, a: Expr, b: Expr, dtype: str) -> Expr:
    """One of `DIVISIONS`.  Quotients and remainders of 0 are 0, as NumPy's; that of the least integer and -1 wraps
    around.  Processors may end the program for either, so neither is divided."""
    a, b = (out.atom(wish, one) for wish, one in zip("ab", widen(a, b), strict=True))
    signed, number = DTYPES[dtype].signed, lambda value: Number(value, dtype, b.lanes)
    careless = b.value not in ((0, -1) if signed else (0,)) if isinstance(b, Number) else False
    none, minus = compare("eq", b, number(0)), compare("eq", b, number(-1)) if signed else None
    by = b if careless else select(none, number(1), b)
    by = by if careless or minus is None else out.atom("by", select(minus, number(1), by))
    rest: Expr = Operation("mod", (a, by), dtype, a.lanes)
    below = None
    if signed and op in ("floor_divide", "remainder"):
        rest = out.atom("rest", rest)
        unlike = compare("lt", Operation("xor", (rest, b), dtype, a.lanes), number(0))
        below = both(unlike, compare("ne", rest, number(0)))
    if op in ("remainder", "trunc_remainder"):
        return rest if below is None else select(below, wrapping("add", (rest, b), dtype), rest)
    whole: Expr = Operation("div", (a, by), dtype, a.lanes)
    if below is not None:
        whole = select(below, wrapping("sub", (whole, number(1)), dtype), whole)
    if careless:
        return whole
    whole = select(none, number(0), whole)
    return whole if minus is None else select(minus, wrapping("neg", (a,), dtype), whole)


def powered(out: Writer, a: Expr, b: Expr, dtype: str) -> Expr:
    """``a ** b`` by squares: one for each bit of the exponent, whose sign leaves 1 and -1 alone (the rest is 0)."""
    a, b = (out.atom(wish, one) for wish, one in zip("ab", (a, b), strict=True))
    row, number = DTYPES[dtype], lambda value: Number(value, dtype, a.lanes)
    known = int(b.value) if isinstance(b, Number) else None
    bits = row.bits - row.signed if known is None else known.bit_length()
    made: Expr = number(1)
    square = a
    for bit in range(bits):
        if known is None:
            taken = compare("ne", Operation("bitand", (b, number(1 << bit)), dtype, a.lanes), number(0))
            made = out.let("power", select(taken, wrapping("mul", (made, square), dtype), made))
        elif known >> bit & 1:
            made = out.let("power", wrapping("mul", (made, square), dtype))
        if bit < bits - 1:
            square = out.let("square", wrapping("mul", (square, square), dtype))
    if known is not None or not row.signed:
        return made
    odd = compare("ne", Operation("bitand", (b, number(1)), dtype, a.lanes), number(0))
    unit = select(compare("eq", a, number(-1)), select(odd, number(-1), number(1)), number(0))
    inverse = select(compare("eq", a, number(1)), number(1), unit)
    return select(compare("lt", b, number(0)), inverse, made)


def both(a: Expr, b: Expr) -> Expr:
    return Operation("and", (a, b), a.dtype, a.lanes)


def shifted(out: Writer, op: str, a: Expr, b: Expr, dtype: str) -> Expr:
    """``a << b`` or ``a >> b``.  By as many bits as the dtype has, or more, or less than none, nothing is left but the
    sign of what is shifted to the right, as NumPy has it."""
    a, b = (out.atom(wish, one) for wish, one in zip("ab", widen(a, b), strict=True))
    row, most = DTYPES[dtype], BITS[dtype] - 1
    by, fits = b, None
    if not (isinstance(b, Number) and 0 <= b.value <= most):
        word = _as_unsigned(b, row.word) if row.signed else b
        fits = compare("le", word, Number(most, row.word, b.lanes))
        by = out.atom("by", select(fits, b, Number(most, dtype, b.lanes)))
    if op == "shr":
        made: Expr = Operation("shr", (a, by), dtype, a.lanes)
        return made if fits is None or row.signed else select(fits, made, Number(0, dtype, a.lanes))
    unsigned = tuple(_as_unsigned(one, row.word) if row.signed else one for one in (a, by))
    made = Operation("shl", unsigned, row.word, a.lanes)
    made = Convert(made, dtype, bits=True) if row.signed else made
    return made if fits is None else select(fits, made, Number(0, dtype, a.lanes))
