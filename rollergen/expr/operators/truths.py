"""Reductions to whether something holds."""

from __future__ import annotations

from typing import Any

import rollergen.expr.language as rg
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import count_of, require_tensor
from rollergen.expr.operators.reductions import Dims, amax, amin, prod, sum


def any(input: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Whether any element over `dim` is not 0; bool, or uint8 of uint8.  `dim` and `keepdim` are those of `sum`.

    >>> import rollergen as rg
    >>> rg.ops.any(rg.tensor("x", (2, 2)), dim=1).evaluate([[0.0, 0.0], [4.0, 0.0]])
    array([False,  True])
    """
    return _truth("any", amax, input, dim, keepdim, name)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False, *, name: str | None = None) -> Tensor:
    """Whether no element over `dim` is 0; bool, or uint8 of uint8.  `dim` and `keepdim` are those of `sum`.

    >>> import rollergen as rg
    >>> rg.ops.all(rg.tensor("x", (2, 2)), dim=1).evaluate([[0.0, 1.0], [4.0, 2.0]])
    array([False,  True])
    """
    return _truth("all", amin, input, dim, keepdim, name)


def _truth(operation: str, extreme: Any, x: Tensor, dim: Dims, keepdim: bool, name: str | None) -> Tensor:
    require_tensor(x, operation)
    truth = x if x.dtype == "bool" else rg.compute(x.shape, lambda *i: x[i] != 0)
    wanted = "uint8" if x.dtype == "uint8" else "bool"
    if dim in ((), []):  # over no axes every element stays, as torch has it of these two alone
        return rg.compute(truth.shape, lambda *i: rg.cast(truth[i], wanted), name)
    if not count_of(x, dim, operation):  # of no elements none is the largest, but none is true, and all are
        extreme = sum if extreme is amax else prod
    elif wanted == "bool":
        return extreme(truth, dim, keepdim, name=name)  # type: ignore[no-any-return]
    found = extreme(truth, dim, keepdim)
    return rg.compute(found.shape, lambda *i: rg.cast(found[i], wanted), name)
