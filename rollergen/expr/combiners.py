"""The four named combiners; a user's own is built by `language.reduce`."""

from __future__ import annotations

import math

from rollergen.expr.values import Binary, Combiner, Const, Var

_INTEGER_LIMITS = {"int8": (-(2**7), 2**7 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_OPERATION = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def named_combiner(name: str, dtype: str) -> Combiner:
    """Combiner ``sum``, ``prod``, ``max`` or ``min`` on one value of `dtype`.

    The identity of max and min is the infinity of a floating dtype, the limit of an integer one.
    """
    low, high = _INTEGER_LIMITS.get(dtype, (-math.inf, math.inf))
    identity = {"sum": 0, "prod": 1, "max": low, "min": high}[name]
    both = Binary(_OPERATION[name], Var("lhs0", dtype), Var("rhs0", dtype), dtype)
    return Combiner(name, (Const(identity, dtype),), (both,))
