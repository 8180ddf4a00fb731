"""An einsum string as an expression."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rollergen.errors import ExpressionError, ShapeError, array_advice, shown
from rollergen.expr.contraction_order import Order, contraction_order, kept_letters
from rollergen.expr.dtypes import accumulator_dtype, reduced_dtype
from rollergen.expr.functions import cast
from rollergen.expr.language import Tensor, compute_named
from rollergen.expr.reductions import sum as reduce_sum
from rollergen.expr.slots import ReduceAxis

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def einsum(subscripts: str, *tensors: Tensor, name: str | None = None, acc: Any = None, dtype: Any = None) -> Tensor:
    """The product of `tensors`, summed over the letters that the output lacks.

    Without ``->`` the output has the letters that occur once, in alphabetical order.  A letter
    repeated in one operand walks its diagonal.  ``...`` stands for any number of axes, aligned from
    the last and repeated where an operand has 1, and summed where the output has no ``...``.  `acc` and `dtype` as for
    `rg.sum`.

    Three operands and more are multiplied in pairs where that takes fewer multiplications, in the order that takes
    fewest; parts have the accumulator's dtype.  With `acc` they are multiplied all at once.

    >>> import rollergen as rg
    >>> A, B = rg.tensor("A", (2, 3)), rg.tensor("B", (3, 4))
    >>> rg.einsum("mk,kn->mn", A, B).shape
    (2, 4)

    Raises ShapeError for sizes that differ, ExpressionError for an invalid string.
    """
    if not isinstance(subscripts, str):
        hint = ": the string goes first" if any(isinstance(t, str) for t in tensors) else ""
        raise ExpressionError(
            f"rg.einsum(subscripts, *tensors): subscripts is {shown(subscripts)}; expected a string{hint}"
        )
    operands, output = _parse(subscripts)
    if len(operands) != len(tensors):
        raise ExpressionError(f"einsum {subscripts!r} names {len(operands)} operands; got {len(tensors)} tensors")
    axes = [
        _axes(subscripts, letters, tensor, position)
        for position, (letters, tensor) in enumerate(zip(operands, tensors, strict=True))
    ]
    extents = _extents(subscripts, axes, tensors)
    kept = _output_axes(output, axes)
    order = () if acc is not None else _order(tensors, axes, kept, extents)
    if not order:
        return _product(tensors, axes, kept, extents, name, acc, dtype)
    narrow = tensors[0].dtype
    wide, factors = accumulator_dtype(narrow), list(tensors)
    for a, b in order[:-1]:
        letters = kept_letters([frozenset(names) for names in axes], frozenset(kept), (a, b))
        names, pair = (axes[a], axes[b]), (factors[a], factors[b])
        result = tuple(one for one in dict.fromkeys((*axes[a], *axes[b])) if one in letters)
        product = _product(pair, names, result, _extents(subscripts, names, pair), None, None, wide, wide)
        factors = [*(one for n, one in enumerate(factors) if n not in (a, b)), product]
        axes = [*(one for n, one in enumerate(axes) if n not in (a, b)), result]
    if dtype is None:
        dtype = reduced_dtype(narrow) if len(extents) > len(kept) else narrow
    made = _product(factors, axes, kept, _extents(subscripts, axes, factors), name, None, dtype, wide)
    assert made.producer is not None  # it is computed
    return replace(made, producer=replace(made.producer, appear=tensors))


def _order(
    tensors: Sequence[Tensor], axes: Sequence[tuple[str, ...]], kept: tuple[str, ...], extents: Mapping[str, int]
) -> Order:
    """Pairs in which several numbers of one dtype are multiplied; none where all are at once."""
    if len(tensors) < 3 or len({one.dtype for one in tensors}) > 1 or tensors[0].dtype == "bool":
        return ()
    return contraction_order([frozenset(names) for names in axes], frozenset(kept), extents)


def _product(
    tensors: Sequence[Tensor], axes: Sequence[tuple[str, ...]], kept: tuple[str, ...], extents: Mapping[str, int],
    name: str | None, acc: Any, dtype: Any, wide: str | None = None,
) -> Tensor:  # fmt: skip
    """One contraction; ``wide``: the dtype of parts of a longer product, in which all are multiplied but for narrow
    ones that a sum widens itself."""
    summed = tuple(name for name in extents if name not in kept)
    if wide is not None and summed and len({one.dtype for one in tensors}) == 1:
        wide = None

    def element(*indices: Any) -> Any:
        reduced = tuple(ReduceAxis(name, extents[name]) for name in summed)
        at = dict(zip(kept, indices, strict=True)) | {axis.name: axis for axis in reduced}
        factors = [t[_place(t, names, at)] for t, names in zip(tensors, axes, strict=True)]
        product = functools.reduce(operator.mul, [cast(one, wide) for one in factors] if wide else factors)
        if reduced:
            return reduce_sum(product, axis=reduced, acc=acc, dtype=dtype)
        return product if dtype is None else cast(product, dtype)

    return compute_named(tuple((name, extents[name]) for name in kept), element, name)


def _parse(subscripts: str) -> tuple[list[str], str]:
    """Letters of each operand, and of the output; an ellipsis as one character."""
    text = subscripts.replace(" ", "").replace("...", _ELLIPSIS)
    left, arrow, output = text.partition("->")
    operands = left.split(",")
    letters = left.replace(",", "")
    for letter in letters + output:
        if not (letter.isascii() and letter.isalpha()) and letter != _ELLIPSIS:
            raise ExpressionError(
                f"einsum {subscripts!r}: {letter!r} stands there; expected letters, '...', ',' and one '->'"
            )
    if not arrow:
        once = sorted(letter for letter in set(letters) - {_ELLIPSIS} if letters.count(letter) == 1)
        output = _ELLIPSIS * (_ELLIPSIS in letters) + "".join(once)
    for letter in output:
        if output.count(letter) > 1:
            raise ExpressionError(f"einsum {subscripts!r}: the output names {_shown(letter)} twice")
        if letter not in letters:
            raise ExpressionError(f"einsum {subscripts!r}: the output's {_shown(letter)} occurs in no operand")
    if any(operand.count(_ELLIPSIS) > 1 for operand in operands):
        raise ExpressionError(f"einsum {subscripts!r}: an operand has two ellipses; expected one at most")
    return operands, output


def _shown(letter: str) -> str:
    return "'...'" if letter == _ELLIPSIS else repr(letter)


def _axes(subscripts: str, letters: str, tensor: Tensor, position: int) -> tuple[str, ...]:
    """A name for every axis of an operand; those under an ellipsis are ``d1``, ``d2``, ... from the last."""
    if not isinstance(tensor, Tensor):
        raise ExpressionError(
            f"einsum {subscripts!r}: operand {position} is {shown(tensor)}; "
            f"expected a rollergen tensor{array_advice(tensor)}"
        )
    named = len(letters.replace(_ELLIPSIS, ""))
    if tensor.ndim != named and not (tensor.ndim > named and _ELLIPSIS in letters):
        raise ShapeError(
            f"einsum {subscripts!r}: {letters.replace(_ELLIPSIS, '...')!r} names {named} axes; "
            f"{tensor.label} has shape {tensor.shape}"
        )
    before, ellipsis, after = letters.partition(_ELLIPSIS)
    hidden = tuple(f"d{n}" for n in range(tensor.ndim - named, 0, -1)) if ellipsis else ()
    return (*before, *hidden, *after)


def _output_axes(output: str, axes: list[tuple[str, ...]]) -> tuple[str, ...]:
    hidden = sorted({name for names in axes for name in names if len(name) > 1}, key=lambda name: -int(name[1:]))
    before, ellipsis, after = output.partition(_ELLIPSIS)
    return (*before, *(hidden if ellipsis else ()), *after)


def _place(tensor: Tensor, names: tuple[str, ...], at: dict[str, Any]) -> tuple[Any, ...]:
    """Where an operand is read; an axis of 1 under an ellipsis is repeated."""
    repeated = (len(name) > 1 and extent == 1 for name, extent in zip(names, tensor.shape, strict=True))
    return tuple(0 if one else at[name] for one, name in zip(repeated, names, strict=True))


def _extents(subscripts: str, axes: Sequence[tuple[str, ...]], tensors: Sequence[Tensor]) -> dict[str, int]:
    """Extent of every axis, in order of first appearance."""
    found: dict[str, tuple[int, str]] = {}
    for names, tensor in zip(axes, tensors, strict=True):
        for axis, (name, extent) in enumerate(zip(names, tensor.shape, strict=True)):
            here = f"{tensor.label} (axis {axis})"
            known, where = found.setdefault(name, (extent, here))
            if len(name) > 1 and known == 1:
                found[name] = (extent, here)
            elif known != extent and not (len(name) > 1 and extent == 1):
                shown = name if len(name) == 1 else f"axis -{name[1:]} under '...'"
                raise ShapeError(f"einsum {subscripts!r}: {shown} is {known} in {where} but {extent} in {here}")
    return {name: extent for name, (extent, _) in found.items()}
