"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import rollergen.expr.language as rg
from rollergen.errors import ShapeError
from rollergen.expr import einsum as notation
from rollergen.expr.dtypes import accumulator_dtype, dtype_name, is_float, reduced_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import broadcast_extents, broadcast_index, promoted_dtype, require_tensor

T = TypeVar("T")


def matmul(
    input: Tensor, other: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None,
    dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``C[..., m, n] = sum_k input[..., m, k] * other[..., k, n]``; leading axes broadcast.

    A vector is a row on the left and a column on the right, an axis that the result lacks.  `transpose_a` and
    `transpose_b` take an operand as (..., k, m) or (..., n, k).  Products of int8 are int32.

    >>> import rollergen as rg
    >>> rg.ops.matmul(rg.tensor("A", (2, 3)), rg.tensor("B", (4, 3)), transpose_b=True).shape
    (2, 4)
    >>> rg.ops.matmul(rg.tensor("A", (5, 1, 2, 3)), rg.tensor("B", (7, 3, 4))).shape
    (5, 7, 2, 4)

    Raises ShapeError where k differs, leading axes do not broadcast, or an operand has no axes.
    """
    for operand, position in ((input, "first"), (other, "second")):
        require_tensor(operand, "matmul")
        if operand.ndim < 1:
            raise ShapeError(f"matmul: the {position} operand {operand.label} has shape (); expected at least one axis")
    return _product("matmul", input, other, transpose_a, transpose_b, acc, dtype, name)


def mm(input: Tensor, mat2: Tensor, out_dtype: Any = None, *, name: str | None = None) -> Tensor:
    """The product of two matrices, as `matmul`; `out_dtype` is the result's.

    >>> import rollergen as rg
    >>> rg.ops.mm(rg.tensor("A", (2, 3)), rg.tensor("B", (3, 4))).shape
    (2, 4)
    """
    return _of_ranks("mm", 2, input, mat2, out_dtype, name)


def bmm(input: Tensor, mat2: Tensor, out_dtype: Any = None, *, name: str | None = None) -> Tensor:
    """The products of two batches of matrices, (B, m, k) and (B, k, n), as `mm`.

    >>> import rollergen as rg
    >>> rg.ops.bmm(rg.tensor("A", (5, 2, 3)), rg.tensor("B", (5, 3, 4))).shape
    (5, 2, 4)
    """
    return _of_ranks("bmm", 3, input, mat2, out_dtype, name)


def batch_matmul(
    input: Tensor, other: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, acc: Any = None,
    dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`matmul` of operands that have equal leading axes, at least one.

    >>> import rollergen as rg
    >>> rg.ops.batch_matmul(rg.tensor("A", (5, 2, 3)), rg.tensor("B", (5, 3, 4))).shape
    (5, 2, 4)
    """
    require_tensor(input, "batch_matmul")
    require_tensor(other, "batch_matmul")
    if input.ndim < 3 or input.ndim != other.ndim or input.shape[:-2] != other.shape[:-2]:
        raise ShapeError(
            f"batch_matmul: {input.label} has shape {input.shape} and {other.label} {other.shape}; "
            "expected (..., m, k) and (..., k, n) with equal leading axes, at least one"
        )
    return _product("batch_matmul", input, other, transpose_a, transpose_b, acc, dtype, name)


def einsum(equation: str, *operands: Any, acc: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """`rg.einsum`, whose operands may come in a list; the sums of one integer operand are int64, as `sum` has them.

    >>> import rollergen as rg
    >>> rg.ops.einsum("...ij,...jk->...ik", [rg.tensor("A", (5, 2, 3)), rg.tensor("B", (3, 4))]).shape
    (5, 2, 4)
    """
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if dtype is None and len(tensors) == 1 and isinstance(tensors[0], Tensor) and not is_float(tensors[0].dtype):
        dtype = "int64"
    return notation.einsum(equation, *tensors, name=name, acc=acc, dtype=dtype)


def _of_ranks(operation: str, rank: int, a: Tensor, b: Tensor, dtype: Any, name: str | None) -> Tensor:
    for operand in (a, b):
        require_tensor(operand, operation)
    if a.ndim != rank or b.ndim != rank or (rank == 3 and a.shape[0] != b.shape[0]):
        raise ShapeError(
            f"{operation}: {a.label} has shape {a.shape} and {b.label} {b.shape}; expected "
            + ("(m, k) and (k, n)" if rank == 2 else "(batch, m, k) and (batch, k, n)")
        )
    return _product(operation, a, b, False, False, None, dtype, name)


def _product(
    operation: str, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, acc: Any, dtype: Any, name: str | None
) -> Tensor:
    row, column = a.ndim == 1, b.ndim == 1
    m, k = (1, *a.shape) if row else _transposed(a.shape[-2:], transpose_a)
    n = b.shape[-1] if column else _match_k(operation, a, b, k, transpose_a, transpose_b)
    if column and n != k:
        raise ShapeError(
            f"{operation}: {a.label} {a.shape} has k = {k}, {b.label} {b.shape} has k = {n}; expected equal k"
        )
    lead = broadcast_extents(operation, (a, a.shape[:-2]), (b, b.shape[:-2]))
    r = rg.reduce_axis("k", k)
    wanted = promoted_dtype(a, b)

    def element(*i: Any) -> Any:
        batch, inner = i[: len(lead)], i[len(lead) :]
        at_a = (r,) if row else _transposed((inner[0], r), transpose_a)
        at_b = (r,) if column else _transposed((r, inner[-1]), transpose_b)
        x = rg.cast(a[(*broadcast_index(a.shape[:-2], batch), *at_a)], wanted)
        y = rg.cast(b[(*broadcast_index(b.shape[:-2], batch), *at_b)], wanted)
        return rg.sum(x * y, axis=r, acc=acc, dtype=dtype)

    shape = (*lead, *(() if row else (m,)), *(() if column else (n,)))
    names = ("i", "j") if a.ndim == b.ndim == 2 else tuple(f"i{d}" for d in range(len(shape)))
    return rg.compute_named(tuple(zip(names, shape, strict=True)), element, name)


def _transposed(pair: Sequence[T], transposed: bool) -> Sequence[T]:
    return (pair[1], pair[0]) if transposed else pair


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, acc: Any = None, dtype: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """``y[..., n] = sum_k x[..., k] * weight[n, k] + bias[n]``:
    `input` (..., K), weight (N, K), bias (N,) into (..., N).

    A weight (K,) and a bias () give one number for each row: (...).

    >>> import rollergen as rg
    >>> rg.ops.linear(rg.tensor("x", (2, 5, 3)), rg.tensor("w", (4, 3)), rg.tensor("b", (4,))).shape
    (2, 5, 4)

    Raises ShapeError where K or N differ.
    """
    x = input
    require_tensor(x, "linear")
    require_tensor(weight, "linear")
    if x.ndim < 1 or weight.ndim not in (1, 2) or x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: {x.label} has shape {x.shape} and {weight.label} {weight.shape}; expected (..., k) and (n, k)"
        )
    kept, k = weight.shape[:-1], weight.shape[-1]
    r = rg.reduce_axis("k", k)
    if bias is not None:
        require_tensor(bias, "linear", "bias")
        if bias.shape not in (kept, (), (1,)):
            raise ShapeError(
                f"linear: bias {bias.label} has shape {bias.shape}; expected {kept}, one for each row of "
                f"{weight.label} {weight.shape}"
            )

    def element(*i: Any) -> Any:
        rows, column = i[: x.ndim - 1], i[x.ndim - 1 :]
        product = x[(*rows, r)] * weight[(*column, r)]
        added = None if bias is None else bias[broadcast_index(bias.shape, column) if column else (0,) * bias.ndim]
        return sum_and_bias(product, r, added, acc, dtype)

    return rg.compute((*x.shape[:-1], *kept), element, name)


def sum_and_bias(x: Any, axis: Any, bias: Any, acc: Any, dtype: Any) -> Any:
    """`x` summed over `axis`, plus the element `bias` (None: none): rounded to a narrow dtype once, with the bias."""
    if bias is None:
        return rg.sum(x, axis=axis, acc=acc, dtype=dtype)
    wanted = reduced_dtype(x.dtype) if dtype is None else dtype_name(dtype, "rg.sum's dtype")
    wide = accumulator_dtype(wanted)
    return rg.cast(rg.sum(x, axis=axis, acc=acc, dtype=wide) + rg.cast(bias, wide), wanted)


def with_bias(total: Any, bias: Any, dtype: Any) -> Any:
    """`total` plus the element `bias` (None: none), rounded to a dtype once."""
    wanted = dtype_name(dtype, "dtype")
    if bias is None:
        return rg.cast(total, wanted)
    wide = accumulator_dtype(wanted)
    return rg.cast(rg.cast(total, wide) + rg.cast(bias, wide), wanted)


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
