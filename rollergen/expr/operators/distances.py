"""Losses that compare what is predicted with a target, element by element: a row each.

`LOSSES` is the table; `operator` makes the function of a row, with torch's arguments in torch's order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from rollergen.errors import ExpressionError, ShapeError, shown
from rollergen.expr import language
from rollergen.expr.dtypes import accumulator_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.operators import reductions
from rollergen.expr.operators.arguments import (
    broadcast_index,
    broadcast_shape,
    number,
    promoted_dtype,
    require_float,
)
from rollergen.expr.operators.losses import reduced, reduction_of

rg: Any = language  # its functions come from a table
_OLDER = ("size_average", "reduce", "reduction")
_DEFAULTS = {
    "size_average": None, "reduce": None, "reduction": "mean", "weight": None, "pos_weight": None, "beta": 1.0,
    "delta": 1.0, "log_target": False,
}  # fmt: skip
_TENSORS = ("weight", "pos_weight")


class Loss(NamedTuple):
    """One row.

    ``meaning``
        What it is of `input` and `target`, before it is reduced.
    ``example``
        What comes out of inputs [0.5, 1.0] and targets [1.0, 1.0], as NumPy prints it.
    ``function``
        Of the element, the target's, and the settings by name.
    ``arguments``
        Names of the arguments after `target`, in torch's order.
    ``alike``
        Whether both must have one shape; else they are broadcast.
    ``by_weight``
        Whether "mean" divides by the sum of `weight`, not by the number of elements.
    """

    name: str
    meaning: str
    example: str
    function: Callable[..., Any]
    arguments: tuple[str, ...] = _OLDER
    alike: bool = False
    by_weight: bool = False


def _smooth(x: Any, t: Any, beta: float) -> Any:
    far = rg.abs(x - t)
    return far if not beta else rg.select(far < beta, far * far * (0.5 / beta), far - 0.5 * beta)


def _huber(x: Any, t: Any, delta: float) -> Any:
    far = rg.abs(x - t)
    return rg.select(far <= delta, far * far * 0.5, (far - 0.5 * delta) * delta)


def _divergence(x: Any, t: Any, log_target: float) -> Any:
    if log_target:
        return rg.exp(t) * (t - x)
    return rg.select(t == 0, t, t * rg.log(t)) - t * x


def _entropy(x: Any, t: Any) -> Any:
    """Logarithms end at -100, as torch's do."""
    return (t - 1) * rg.maximum(rg.log1p(-x), -100) - t * rg.maximum(rg.log(x), -100)


def _logit_entropy(x: Any, t: Any, pos_weight: Any = None) -> Any:
    below = rg.maximum(-x, 0) + rg.log1p(rg.exp(-rg.abs(x)))
    return (1 - t) * x + (below if pos_weight is None else ((pos_weight - 1) * t + 1) * below)


def _margin(x: Any, t: Any) -> Any:
    inside = -t * x
    return rg.maximum(inside, 0) + rg.log1p(rg.exp(-rg.abs(inside)))


_ROWS = (
    Loss("mse_loss", "(input - target)^2", "array(0.125)", lambda x, t: (x - t) * (x - t), (*_OLDER, "weight"),
         by_weight=True),
    Loss("l1_loss", "|input - target|", "array(0.25)", lambda x, t: rg.abs(x - t), (*_OLDER, "weight"), by_weight=True),
    Loss("smooth_l1_loss", "(input - target)^2 / (2 beta) where |input - target| < beta, else that less beta / 2",
         "array(0.0625)", _smooth, (*_OLDER, "beta")),
    Loss("huber_loss", "(input - target)^2 / 2 up to |input - target| = delta, beyond it delta (that less delta / 2)",
         "array(0.0625)", _huber, ("reduction", "delta", "weight")),
    Loss("kl_div", "target (log(target) - input); with `log_target` exp(target) (target - input)", "array(-0.75)",
         _divergence, (*_OLDER, "log_target")),
    Loss("binary_cross_entropy", "-target log(input) - (1 - target) log(1 - input), logarithms at least -100",
         "array(0.34657359)", _entropy, ("weight", *_OLDER), alike=True),
    Loss("binary_cross_entropy_with_logits", "`binary_cross_entropy` of sigmoid(input), of targets times `pos_weight`",
         "array(0.39366934)", _logit_entropy, ("weight", *_OLDER, "pos_weight"), alike=True),
    Loss("soft_margin_loss", "log(1 + exp(-target input))", "array(0.39366934)", _margin),
)  # fmt: skip

LOSSES = {row.name: row for row in _ROWS}


def operator(row: Loss) -> Callable[..., Tensor]:
    """The operator of a row."""
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    tensors = [inspect.Parameter(name, positional, annotation="Tensor") for name in ("input", "target")]
    annotated = lambda name: "Tensor | None" if name in _TENSORS else "Any"
    more = [
        inspect.Parameter(name, positional, default=_DEFAULTS[name], annotation=annotated(name))
        for name in row.arguments
    ]
    last = inspect.Parameter("name", keyword, default=None, annotation="str | None")

    def applied(x: Any, target: Any, *given: Any, name: str | None = None) -> Tensor:
        return _made(row, x, target, dict(zip(row.arguments, given, strict=True)), name)

    applied.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*tensors, *more, last], return_annotation="Tensor"
    )
    applied.__name__ = applied.__qualname__ = row.name
    shapes = "one shape" if row.alike else "shapes that broadcast"
    batch = ' or "batchmean", the sum by the first extent' if row.name == "kl_div" else ""
    applied.__doc__ = f"""{row.meaning}, of floating tensors of {shapes}.

    `reduction` is "none", "sum", "mean"{batch}.  `size_average` and `reduce` are torch's older names of it.

    >>> import rollergen as rg
    >>> x, target = rg.tensor("x", (2,)), rg.tensor("target", (2,))
    >>> rg.ops.{row.name}(x, target).evaluate(x=[0.5, 1.0], target=[1.0, 1.0])
    {row.example}
    """
    return applied


def _made(row: Loss, x: Any, target: Any, given: dict[str, Any], name: str | None) -> Tensor:
    require_float(x, row.name)
    require_float(target, row.name)
    if row.alike and x.shape != target.shape:
        raise ShapeError(f"{row.name}: target {target.label} has shape {target.shape}; expected {x.shape} of {x.label}")
    wanted = given.pop("reduction")
    batch = row.name == "kl_div" and wanted == "batchmean"
    older = given.pop("size_average", None), given.pop("reduce", None)
    how = reduction_of(row.name, *older, "sum" if batch else wanted)
    parts = {one: given.pop(one) for one in _TENSORS if one in given}
    dtype = promoted_dtype(x, target)
    wide = accumulator_dtype(dtype)
    settings = {one: _setting(row.name, one, value) for one, value in given.items()}
    weight = _checked(row, "weight", parts.get("weight"), x)
    positive = _checked(row, "pos_weight", parts.get("pos_weight"), x)

    def element(*i: Any) -> Any:
        more = {} if positive is None else {"pos_weight": _at(positive, i, wide)}
        loss = row.function(_at(x, i, wide), _at(target, i, wide), **settings, **more)
        return loss if weight is None else loss * _at(weight, i, wide)

    shape = broadcast_shape(row.name, x, target)
    losses = rg.compute(shape, element)
    if batch:
        total = reductions.sum(losses)
        return rg.compute((), lambda: rg.cast(total[()] / (x.shape[0] if x.ndim else 1), dtype), name)
    counted = weight is not None and row.by_weight and how == "mean"
    weights = rg.compute(shape, lambda *i: _at(weight, i, wide)) if counted else None
    return reduced(losses, weights, how, dtype, name)


def _at(tensor: Any, i: tuple[Any, ...], dtype: str) -> Any:
    return rg.cast(tensor[broadcast_index(tensor.shape, i)], dtype)


def _setting(operation: str, name: str, value: Any) -> Any:
    if name == "log_target":
        if not isinstance(value, bool):
            raise ExpressionError(f"{operation}: log_target is {shown(value)}; expected True or False")
        return value
    found = number(value, operation, name)
    if found < 0 or (name == "delta" and not found):
        raise ExpressionError(f"{operation}: {name} is {shown(value)}; expected a positive number")
    return found


def _checked(row: Loss, name: str, weight: Any, like: Tensor) -> Any:
    """Weights have the shape of the input; of those that are alike, one that broadcasts to it."""
    if weight is None:
        return None
    require_float(weight, row.name)
    wanted = broadcast_shape(row.name, weight, like) if row.alike else weight.shape
    if wanted != like.shape:
        raise ShapeError(
            f"{row.name}: {name} {weight.label} has shape {weight.shape}; expected {like.shape} of {like.label}"
        )
    return weight
