"""Losses of predicted classes: a sum over all classes selects the wanted one."""

from __future__ import annotations

import math
from typing import Any

import rollergen.expr.language as rg
from rollergen.errors import DtypeError, ExpressionError, ShapeError, shown
from rollergen.expr.dtypes import accumulator_dtype, is_float, is_integer
from rollergen.expr.language import Tensor
from rollergen.expr.operators import reductions
from rollergen.expr.operators.arguments import (
    as_dtype,
    integer,
    number,
    require_float,
    require_tensor,
    require_vector,
)
from rollergen.expr.operators.normalisation import log_softmax


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", *, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``-weight[target] * input[n, target]`` of log-probabilities (N, C, ...) or (C,); targets (N, ...) are classes.

    `reduction` is "none", "sum", or "mean", which divides by the sum of the weights of the targets; targets that are
    `ignore_index`, or no class at all, give 0.  `size_average` and `reduce` are torch's older names of `reduction`.

    >>> import rollergen as rg
    >>> x, target = rg.tensor("x", (1, 2)), rg.tensor("target", (1,), "int64")
    >>> rg.ops.nll_loss(x, target).evaluate(x=[[-1.0, -3.0]], target=[1])
    array(3.)

    Raises ShapeError where the shapes do not match, DtypeError for targets that are no integers.
    """
    how = reduction_of("nll_loss", size_average, reduce, reduction)
    _check("nll_loss", input, weight)
    chosen = _Chosen("nll_loss", input, target, weight, ignore_index)
    wide = accumulator_dtype(input.dtype)
    return reduced(chosen.total(as_dtype(input, wide)), chosen.weights(wide), how, input.dtype, name)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0, *,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`nll_loss` of ``log_softmax(input)`` over the classes; targets may also be the probabilities of all classes.

    `label_smoothing` is the part of each target that is spread over all classes.

    >>> import rollergen as rg
    >>> x, target = rg.tensor("x", (1, 2)), rg.tensor("target", (1,), "int64")
    >>> rg.ops.cross_entropy(x, target, reduction="none").evaluate(x=[[99.0, 0.0]], target=[1])
    array([99.])

    Raises ShapeError and DtypeError as `nll_loss`.
    """
    how = reduction_of("cross_entropy", size_average, reduce, reduction)
    _check("cross_entropy", input, weight)
    require_tensor(target, "cross_entropy", "target")
    smoothing = number(label_smoothing, "cross_entropy", "label_smoothing")
    if not 0 <= smoothing <= 1:
        raise ExpressionError(f"cross_entropy: label_smoothing is {shown(label_smoothing)}; expected 0 to 1")
    wide = accumulator_dtype(input.dtype)
    classes, axis = input.shape[_class_axis(input)], _class_axis(input)
    logs = log_softmax(as_dtype(input, wide), axis)
    spread = smoothing / max(classes, 1)  # of no classes there is no term to take a share

    def weighted(c: Any, value: Any) -> Any:
        return value if weight is None else value * rg.cast(weight[c], wide)

    if is_float(target.dtype) and target.shape == input.shape:
        share = lambda i: rg.cast(target[i], wide) * (1 - smoothing) + spread
        terms = rg.compute(logs.shape, lambda *i: -weighted(i[axis], logs[i] * share(i)))
        losses = reductions.sum(terms, axis)
        return reduced(losses, None, how, input.dtype, name)
    chosen = _Chosen("cross_entropy", input, target, weight, ignore_index)
    losses = chosen.total(logs)
    if smoothing:
        terms = rg.compute(logs.shape, lambda *i: -weighted(i[axis], logs[i]))
        everywhere, some = reductions.sum(terms, axis), losses
        smoothed = lambda i: rg.select(chosen.kept(i), everywhere[i] * spread, 0)
        losses = rg.compute(some.shape, lambda *i: some[i] * (1 - smoothing) + smoothed(i))
    return reduced(losses, chosen.weights(wide), how, input.dtype, name)


class _Chosen:
    """The classes that targets choose among those of `x`."""

    def __init__(self, operation: str, x: Tensor, target: Any, weight: Tensor | None, ignore_index: Any) -> None:
        require_tensor(target, operation, "target")
        self.axis, self.target, self.weight = _class_axis(x), target, weight
        self.classes, self.ignored = x.shape[self.axis], integer(ignore_index)
        wanted = (*x.shape[: self.axis], *x.shape[self.axis + 1 :])
        if target.shape != wanted:
            raise ShapeError(
                f"{operation}: target {target.label} has shape {target.shape}; expected {wanted}, one for each row of "
                f"{self.classes} classes of {x.label} {x.shape}"
            )
        if not is_integer(target.dtype):
            raise DtypeError(f"{operation}: target {target.label} has dtype {target.dtype}; expected integers")
        if self.ignored is None:
            raise ExpressionError(f"{operation}: ignore_index is {shown(ignore_index)}; expected an integer")

    def kept(self, i: tuple[Any, ...]) -> Any:
        """Whether a target is not the one that is ignored."""
        return rg.cast(self.target[i], "int64") != self.ignored

    def _summed(self, i: tuple[Any, ...], value: Any) -> Any:
        """The value of the class that is chosen; 0 of none."""
        c = rg.reduce_axis("c", self.classes)
        here = rg.cast(self.target[i], "int64") == rg.cast(c, "int64")
        if 0 <= self.ignored < self.classes:  # type: ignore[operator]
            here = here & self.kept(i)
        return rg.sum(rg.select(here, value(c), 0), axis=c)

    def _weight(self, c: Any, dtype: str) -> Any:
        return rg.cast(self.weight[c], dtype) if self.weight is not None else rg.cast(1, dtype)

    def total(self, logs: Tensor) -> Tensor:
        """Of each target the weighted logarithm, negated."""
        at = lambda i, c: (*i[: self.axis], c, *i[self.axis :])
        one = lambda i, c: -(logs[at(i, c)] if self.weight is None else logs[at(i, c)] * self._weight(c, logs.dtype))
        return rg.compute(self.target.shape, lambda *i: self._summed(i, lambda c: one(i, c)))

    def weights(self, dtype: str) -> Tensor:
        """Of each target its weight."""
        if self.weight is None:
            return rg.compute(self.target.shape, lambda *i: rg.cast(rg.select(self.kept(i), 1, 0), dtype))
        return rg.compute(self.target.shape, lambda *i: self._summed(i, lambda c: self._weight(c, dtype)))


def _class_axis(x: Tensor) -> int:
    return 0 if x.ndim == 1 else 1


def _check(operation: str, x: Any, weight: Any) -> None:
    require_float(x, operation)
    if not x.ndim:
        raise ShapeError(f"{operation}: {x.label} has shape (); expected (N, C, ...) or (C,)")
    if weight is not None:
        classes = x.shape[_class_axis(x)]
        require_vector(weight, classes, operation, "weight", f"one for each class of {x.label} {x.shape}")


def reduction_of(operation: str, size_average: Any, reduce: Any, given: Any) -> str:
    """The reduction, by torch's older arguments where there are any."""
    if size_average is not None or reduce is not None:
        return "none" if reduce is False else "sum" if size_average is False else "mean"
    if given not in ("none", "sum", "mean"):
        raise ExpressionError(f'{operation}: reduction is {shown(given)}; expected "none", "sum" or "mean"')
    return str(given)


def reduced(losses: Tensor, weights: Tensor | None, how: str, dtype: str, name: str | None) -> Tensor:
    """`losses` as they are, summed, or their mean by `weights` (None: of the first axis), in `dtype`."""
    if how == "none":
        return rg.compute(losses.shape, lambda *i: rg.cast(losses[i], dtype), name)
    total = reductions.sum(losses)
    if how == "sum":
        return rg.compute((), lambda: rg.cast(total[()], dtype), name)
    if weights is None:
        return rg.compute((), lambda: rg.cast(total[()] / math.prod(losses.shape), dtype), name)
    counted = reductions.sum(weights)
    return rg.compute((), lambda: rg.cast(total[()] / counted[()], dtype), name)
