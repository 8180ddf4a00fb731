"""Which keys the scores of a chain (`chains`) rule out, as its conditions on indices say: causal masks, windows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollergen.expr.chains import ROW
from rollergen.expr.index import Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Const, IndexValue, Select, Unary, Value


def ruled_out(op: TensorOp) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """(first, last): keys of a row before one of ``first``, or after one of ``last``, have a score of -inf, as the
    chain's conditions on indices say: a causal mask, a window.  They weigh nothing.  None where nothing shrinks sums.

    >>> import rollergen as rg
    >>> q, k, v = (rg.tensor(name, (4, 8)) for name in "qkv")
    >>> from rollergen.expr.canonical import canonicalize
    >>> from rollergen.expr.one_stage import RowLimits
    >>> graph = canonicalize(rg.ops.scaled_dot_product_attention(q, k, v, is_causal=True), rows=RowLimits(chains=True))
    >>> [[str(index) for index in side] for side in ruled_out(graph.tensor_ops[0])]
    [[], ['i0']]
    """
    pair = next((one for one in op.reductions if one.name == ROW), None)
    keys, spatial = [axis.name for axis in op.of_role("reduce")], {axis.name for axis in op.of_role("spatial")}
    first: dict[Index, None] = {}
    last: dict[Index, None] = {}
    value = pair.bodies[0] if pair is not None and len(keys) == 1 else None
    while isinstance(value, Select):
        lowest = Const(-math.inf, value.dtype)
        if value.b == lowest:
            conditions, value = _needed(value.cond), value.a
        elif value.a == lowest:
            conditions, value = _needed(Unary("not", value.cond, "bool")), value.b
        else:
            break
        for most in conditions:  # each is at most 0
            if _of_key(most, keys[0], spatial):
                key = most.coefficient(keys[0])
                (last if key == 1 else first)[most.without(keys[0]) * -key] = None
    return tuple(first), tuple(last)


def scores_of_whole_blocks(op: TensorOp) -> Value:
    """The chain's scores where no key of a row is ruled out (`ruled_out`)."""
    (pair,) = [one for one in op.reductions if one.name == ROW]
    return _unmasked(pair.bodies[0], op.of_role("reduce")[0].name, {axis.name for axis in op.of_role("spatial")})


def _unmasked(value: Value, key: str, spatial: set[str]) -> Value:
    if not isinstance(value, Select):
        return value
    lowest = Const(-math.inf, value.dtype)
    for cond, side, other in ((value.cond, value.a, value.b), (Unary("not", value.cond, "bool"), value.b, value.a)):
        if other == lowest:
            inside = _unmasked(side, key, spatial)
            left = _left(cond, key, spatial)
            return inside if left is None else Select(left, inside, other, value.dtype)
    return value


def _left(cond: Value, key: str, spatial: set[str], holds: bool = True) -> Value | None:
    """What it says, beside bounds of keys, that a condition holds, or does not; None: nothing."""
    if isinstance(cond, Unary) and cond.op == "not":
        return _left(cond.x, key, spatial, not holds)
    if isinstance(cond, Binary) and cond.op == ("and" if holds else "or"):
        a, b = (_left(side, key, spatial, holds) for side in (cond.a, cond.b))
        return Binary("and", a, b, "bool") if a is not None and b is not None else a if b is None else b
    bounds = list(_needed(cond, holds))
    if bounds and all(_of_key(one, key, spatial) for one in bounds):
        return None
    return cond if holds else Unary("not", cond, "bool")


def _of_key(most: Index, key: str, spatial: set[str]) -> bool:
    """Whether an index that is at most 0 bounds the key by others."""
    return abs(most.coefficient(key)) == 1 and most.is_affine and most.without(key).axes() <= spatial


_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "or": "nor"}


def _needed(cond: Value, holds: bool = True) -> Iterator[Index]:
    """Indices that are at most 0 wherever the condition holds, or does not."""
    if isinstance(cond, Unary) and cond.op == "not":
        yield from _needed(cond.x, not holds)
        return
    if not isinstance(cond, Binary):
        return
    op = cond.op if holds else _NEGATED.get(cond.op, "")
    if op == ("and" if holds else "nor"):
        yield from _needed(cond.a, holds)
        yield from _needed(cond.b, holds)
        return
    a, b = _whole(cond.a), _whole(cond.b)
    if a is None or b is None:
        return
    if op in ("lt", "le", "eq"):
        yield a - b + (op == "lt")
    if op in ("gt", "ge", "eq"):
        yield b - a + (op == "gt")


def _whole(value: Value) -> Index | None:
    """The value as an index; None where it is none."""
    if isinstance(value, IndexValue):
        return value.index
    return Index((), int(value.value)) if isinstance(value, Const) and isinstance(value.value, int) else None
