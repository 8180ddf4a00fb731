"""Operands of equal lanes, comparisons and choices: of scalars by a bool, of vectors by a mask.

Where a mask meets operands of another width it is widened or narrowed.
"""

from __future__ import annotations

from rollergen.lower.expressions import BITS, Broadcast, Convert, Expr, Number, Operation


def widen(*operands: Expr) -> tuple[Expr, ...]:
    """The operands with equal lanes: scalars become vectors if any operand is one; masks take the first one's width."""
    widths = [operand.lanes for operand in operands]
    lanes = max(widths)
    wide = operands if min(widths) == lanes else tuple([in_lanes(operand, lanes) for operand in operands])
    return tuple([as_mask(one, bits_of(wide[0].dtype)) for one in wide]) if is_mask(wide[0]) else wide


def in_lanes(operand: Expr, lanes: int) -> Expr:
    if operand.lanes == lanes:
        return operand
    if operand.dtype == "bool":
        holds, fails = Number(-1, "mask32", lanes), Number(0, "mask32", lanes)
        if isinstance(operand, Number):
            return holds if operand.value else fails
        return Operation("select", (operand, holds, fails), "mask32", lanes)
    if isinstance(operand, Number):
        return Number(operand.value, operand.dtype, lanes)
    return Broadcast(operand, lanes)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    a, b = widen(a, b)
    dtype = "bool" if a.lanes == 1 else f"mask{bits_of(a.dtype)}"
    return Operation(op, (a, b), dtype, a.lanes)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """``a`` where the condition holds, else ``b``; lane by lane where the condition is a mask."""
    if condition.lanes == 1:
        a, b = widen(a, b)
        return Operation("select", (condition, a, b), a.dtype, a.lanes)
    a, b = (in_lanes(side, condition.lanes) for side in (a, b))
    if a.dtype.startswith("mask"):
        a, b = (as_mask(side, bits_of(condition.dtype)) for side in (a, b))
    return Operation("select", (as_mask(condition, bits_of(a.dtype)), a, b), a.dtype, a.lanes)


def truth(x: Expr) -> Expr:
    """A vector of stored zeros and ones as a mask (vectors choose by their lanes' highest bits); others as they are."""
    return compare("ne", x, Number(0, "int8")) if x.dtype == "bool" and x.lanes > 1 else x


def bits_of(dtype: str) -> int:
    return int(dtype[4:]) if dtype.startswith("mask") else BITS[dtype]


def as_mask(mask: Expr, bits: int) -> Expr:
    return mask if mask.dtype == f"mask{bits}" else Convert(mask, f"mask{bits}")


def is_mask(value: Expr) -> bool:
    return value.dtype.startswith("mask")
