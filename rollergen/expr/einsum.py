"""An einsum string as an expression."""

from __future__ import annotations

import functools
import operator
from typing import Any

from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.language import Tensor, compute_named
from rollergen.expr.reductions import sum as reduce_sum
from rollergen.expr.slots import ReduceAxis


def einsum(subscripts: str, *tensors: Tensor, name: str | None = None, acc: Any = None, dtype: Any = None) -> Tensor:
    """The product of `tensors`, summed over the letters that the output lacks.

    Without ``->`` the output has the letters that occur once, in alphabetical order.  A letter
    repeated in one operand walks its diagonal.  `acc` and `dtype` as for `rg.sum`.

    >>> import rollergen as rg
    >>> A, B = rg.tensor("A", (2, 3)), rg.tensor("B", (3, 4))
    >>> rg.einsum("mk,kn->mn", A, B).shape
    (2, 4)

    Raises ShapeError for sizes that differ, ExpressionError for a string that means nothing.
    """
    if not isinstance(subscripts, str):
        hint = ": the string goes first" if any(isinstance(t, str) for t in tensors) else ""
        raise ExpressionError(f"rg.einsum(subscripts, *tensors): subscripts is {subscripts!r}; expected a string{hint}")
    operands, output = _parse(subscripts)
    if len(operands) != len(tensors):
        raise ExpressionError(f"einsum {subscripts!r} names {len(operands)} operands; got {len(tensors)} tensors")
    extents = _extents(subscripts, operands, tensors)
    summed = tuple(letter for letter in extents if letter not in output)

    def element(*indices: Any) -> Any:
        reduced = tuple(ReduceAxis(letter, extents[letter]) for letter in summed)
        at = dict(zip(output, indices, strict=True)) | {axis.name: axis for axis in reduced}
        factors = [t[tuple(at[c] for c in letters)] for t, letters in zip(tensors, operands, strict=True)]
        product = functools.reduce(operator.mul, factors)
        return reduce_sum(product, axis=reduced, acc=acc, dtype=dtype) if reduced else product

    return compute_named(tuple((letter, extents[letter]) for letter in output), element, name)


def _parse(subscripts: str) -> tuple[list[str], str]:
    """Letters of each operand, and of the output."""
    text = subscripts.replace(" ", "")
    if "." in text:
        raise ExpressionError(f"einsum {subscripts!r}: an ellipsis is not accepted; name every axis with a letter")
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    letters = "".join(operands)
    for letter in letters + output:
        if not (letter.isascii() and letter.isalpha()):
            raise ExpressionError(f"einsum {subscripts!r}: {letter!r} stands there; expected letters, ',' and one '->'")
    if not arrow:
        output = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    for letter in output:
        if output.count(letter) > 1:
            raise ExpressionError(f"einsum {subscripts!r}: the output names {letter!r} twice")
        if letter not in letters:
            raise ExpressionError(f"einsum {subscripts!r}: the output's {letter!r} occurs in no operand")
    return operands, output


def _extents(subscripts: str, operands: list[str], tensors: tuple[Tensor, ...]) -> dict[str, int]:
    """Extent of every letter, in order of first appearance."""
    found: dict[str, tuple[int, str]] = {}
    for position, (letters, tensor) in enumerate(zip(operands, tensors, strict=True)):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(f"einsum {subscripts!r}: operand {position} is {tensor!r}; expected a rg.tensor")
        if len(letters) != tensor.ndim:
            raise ShapeError(
                f"einsum {subscripts!r}: {letters!r} names {len(letters)} axes; {tensor.label} has shape {tensor.shape}"
            )
        for axis, (letter, extent) in enumerate(zip(letters, tensor.shape, strict=True)):
            here = f"{tensor.label} (axis {axis})"
            known, where = found.setdefault(letter, (extent, here))
            if known != extent:
                raise ShapeError(f"einsum {subscripts!r}: {letter} is {known} in {where} but {extent} in {here}")
    return {letter: extent for letter, (extent, _) in found.items()}
