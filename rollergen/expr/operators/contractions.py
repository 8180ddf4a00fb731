"""Products of matrices."""

from __future__ import annotations

from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import ShapeError
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, reduced_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import require_tensor, require_vector


def matmul(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``C[m, n] = sum_k a[m, k] * b[k, n]``; a transposed operand is given as (k, m) or (n, k).

    >>> import rollergen as rg
    >>> rg.ops.matmul(rg.tensor("A", (2, 3)), rg.tensor("B", (4, 3)), transpose_b=True).shape
    (2, 4)

    Raises ShapeError where k differs, or for operands that are not matrices.
    """
    for operand, position in ((a, "first"), (b, "second")):
        require_tensor(operand, "matmul")
        if operand.ndim != 2:
            advice = "rg.ops.batch_matmul takes leading axes" if operand.ndim > 2 else "rg.einsum takes vectors"
            raise ShapeError(
                f"matmul: the {position} operand {operand.label} has shape {operand.shape}; "
                f"expected a matrix ({advice})"
            )
    m, k = reversed(a.shape) if transpose_a else a.shape
    n = _match_k("matmul", a, b, k, transpose_a, transpose_b)
    r = rg.reduce_axis("k", k)

    def element(i: Any, j: Any) -> Any:
        x = a[r, i] if transpose_a else a[i, r]
        y = b[j, r] if transpose_b else b[r, j]
        return rg.sum(x * y, axis=r, acc=acc, dtype=dtype)

    return rg.compute((m, n), element, name)


def batch_matmul(
    a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``C[..., m, n] = sum_k a[..., m, k] * b[..., k, n]`` for equal leading axes.

    >>> import rollergen as rg
    >>> rg.ops.batch_matmul(rg.tensor("A", (5, 2, 3)), rg.tensor("B", (5, 3, 4))).shape
    (5, 2, 4)
    """
    require_tensor(a, "batch_matmul")
    require_tensor(b, "batch_matmul")
    if a.ndim < 3 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"batch_matmul: {a.label} has shape {a.shape} and {b.label} {b.shape}; "
            "expected (..., m, k) and (..., k, n) with equal leading axes, at least one"
        )
    m, k = reversed(a.shape[-2:]) if transpose_a else a.shape[-2:]
    n = _match_k("batch_matmul", a, b, k, transpose_a, transpose_b)
    r = rg.reduce_axis("k", k)

    def element(*i: Any) -> Any:
        *batch, row, column = i
        x = a[(*batch, r, row)] if transpose_a else a[(*batch, row, r)]
        y = b[(*batch, column, r)] if transpose_b else b[(*batch, r, column)]
        return rg.sum(x * y, axis=r, acc=acc, dtype=dtype)

    return rg.compute((*a.shape[:-2], m, n), element, name)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``y[..., n] = sum_k x[..., k] * weight[n, k] + bias[n]``: x (..., K), weight (N, K), bias (N,) into (..., N).

    >>> import rollergen as rg
    >>> rg.ops.linear(rg.tensor("x", (2, 5, 3)), rg.tensor("w", (4, 3)), rg.tensor("b", (4,))).shape
    (2, 5, 4)

    Raises ShapeError where K or N differ.
    """
    require_tensor(x, "linear")
    require_tensor(weight, "linear")
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: {x.label} has shape {x.shape} and {weight.label} {weight.shape}; expected (..., k) and (n, k)"
        )
    n, k = weight.shape
    r = rg.reduce_axis("k", k)
    if bias is not None:
        require_vector(bias, n, "linear", "bias", f"one for each row of {weight.label} {weight.shape}")

    def element(*i: Any) -> Any:
        product = x[(*i[:-1], r)] * weight[i[-1], r]
        return sum_and_bias(product, r, None if bias is None else bias[i[-1]], acc, dtype)

    return rg.compute((*x.shape[:-1], n), element, name)


def sum_and_bias(x: Any, axis: Any, bias: Any, acc: Any, dtype: Any) -> Any:
    """`x` summed over `axis`, plus the element `bias` (None: none): rounded to a narrow dtype once, with the bias."""
    if bias is None:
        return rg.sum(x, axis=axis, acc=acc, dtype=dtype)
    wanted = reduced_dtype(x.dtype) if dtype is None else dtype_name(dtype, "rg.sum's dtype")
    wide = accumulator_dtype(wanted)
    return rg.cast(rg.sum(x, axis=axis, acc=acc, dtype=wide) + rg.cast(bias, wide), wanted)


def _match_k(operation: str, a: Tensor, b: Tensor, k: int, transpose_a: bool, transpose_b: bool) -> int:
    """The extent n of `b`, whose k must be that of `a`."""
    kb, n = reversed(b.shape[-2:]) if transpose_b else b.shape[-2:]
    if kb != k:
        hint = "" if n != k else f"; transpose_b={not transpose_b} would match"
        raise ShapeError(
            f"{operation}: {a.label} {a.shape}{' transposed' if transpose_a else ''} has k = {k}, "
            f"{b.label} {b.shape}{' transposed' if transpose_b else ''} has k = {kb}; expected equal k{hint}"
        )
    return n
