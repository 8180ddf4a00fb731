"""torch's elementwise operators with `rg.ops`: its promotion of dtypes made of casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import rollergen as rg
from benches.foreign.refusals import Refused, accepted_dtype
from rollergen import ops
from rollergen.expr.dtypes import is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import elementwise

Operator = Callable[..., Any]


def dtype_of(dtype: torch.dtype) -> str:
    """Its name; Refused where rollergen has no such dtype."""
    name = str(dtype).removeprefix("torch.")
    if name == "bfloat16":
        return name
    if name.startswith(("complex", "float8")):
        raise Refused("dtype", name)
    return accepted_dtype(name)


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def stand_in(value: Any) -> Any:
    """What torch's rules of promotion look at: a tensor's dtype and whether it has axes."""
    if isinstance(value, Tensor):
        return torch.empty((1,) if value.ndim else (), dtype=torch_dtype(value.dtype))
    return value


def promoted(*operands: Any, floating: bool = False) -> list[Any]:
    """`operands` in torch's common dtype; with `floating`, a floating one."""
    common = torch.result_type(*(map(stand_in, operands))) if len(operands) == 2 else stand_in(operands[0]).dtype
    if floating and not common.is_floating_point:
        common = torch.float32
    wanted = dtype_of(common)
    return [as_dtype(one, wanted) if isinstance(one, Tensor) else number(one, wanted) for one in operands]


def number(value: Any, dtype: str) -> Any:
    """A Python number as one that `dtype` takes."""
    if dtype == "bool":
        return bool(value)
    return float(value) if is_float(dtype) else int(value)


def as_dtype(x: Tensor, dtype: str) -> Tensor:
    return x if x.dtype == dtype else ops.cast(x, dtype)


def same(x: Tensor) -> Tensor:
    return rg.compute(x.shape, lambda *i: x[i])


def unary(function: Operator) -> Operator:
    """Functions of floating values: torch takes integers as float32."""
    return lambda x: function(*promoted(x, floating=True))


def whole(function: Operator) -> Operator:
    """Roundings: integers stay as they are."""
    return lambda x: function(x) if is_float(x.dtype) else same(x)


def binary(function: Operator, floating: bool = False, conditions: Operator | None = None) -> Operator:
    """Elementwise functions of two; of conditions by `conditions`, if there is such a thing."""

    def call(a: Any, b: Any) -> Tensor:
        x, y = promoted(a, b, floating=floating)
        if dtype_in((x, y)) == "bool":
            if conditions is None:
                raise Refused("conditions", "arithmetic of conditions")
            return elementwise("conditions", conditions, x, y, name=None)
        return function(x, y)

    return call


def dtype_in(operands: Sequence[Any]) -> str:
    return next(one.dtype for one in operands if isinstance(one, Tensor))


def shifted(function: Operator) -> Operator:
    """add and sub with ``alpha``."""

    def call(a: Any, b: Any, alpha: Any = 1) -> Tensor:
        x, y = promoted(a, b)
        if dtype_in((x, y)) == "bool":
            if function is ops.add and alpha in (1, True):
                return elementwise("or", lambda p, q: p | q, x, y, name=None)
            raise Refused("conditions", "arithmetic of conditions")
        factor = number(alpha, dtype_in((x, y)))
        return function(x, y if factor == 1 else ops.mul(y, factor) if isinstance(y, Tensor) else y * factor)

    return call


def divide(a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    """Quotients are floored or cut off in float64, where those of narrower numbers never reach the next integer."""
    if rounding_mode is None:
        return ops.div(*promoted(a, b, floating=True))
    x, y = promoted(a, b)
    dtype = dtype_in((x, y))
    if dtype == "int64":
        raise Refused("integer division", dtype)
    towards = rg.floor if rounding_mode == "floor" else truncated
    wide = lambda v: rg.cast(v, "float64")
    return elementwise("quotient", lambda p, q: rg.cast(towards(wide(p) / wide(q)), dtype), x, y, name=None)


def truncated(v: Any) -> Any:
    return rg.select(v < 0, -rg.floor(-v), rg.floor(v))


def power(a: Any, b: Any) -> Tensor:
    x, y = promoted(a, b)
    if not is_float(dtype_in((x, y))):
        raise Refused("function", "powers of integers")
    return ops.pow(x, y)


def compared(op: str) -> Operator:
    function = {"eq": ops.equal, "ne": ops.not_equal, "lt": ops.less, "le": ops.less_equal, "gt": ops.greater,
                "ge": ops.greater_equal}[op]  # fmt: skip

    def call(a: Any, b: Any) -> Tensor:
        x, y = promoted(a, b)
        if dtype_in((x, y)) == "bool" and op not in ("eq", "ne"):
            x, y = (ops.cast(v, "int8") if isinstance(v, Tensor) else int(v) for v in (x, y))
        return function(x, y)

    return call


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    for limit, function in ((min, ops.maximum), (max, ops.minimum)):
        if limit is not None:
            x = binary(function)(x, limit)
    return x


def where(x: Any, condition: Tensor, other: Any) -> Tensor:
    a, b = promoted(x, other)
    return ops.where(condition, a, b)


def rounded(x: Tensor, decimals: int = 0) -> Tensor:
    if decimals:
        raise Refused("attribute", "decimals")
    return whole(ops.round)(x)


OF_CONDITIONS = {ops.maximum: lambda a, b: a | b, ops.minimum: lambda a, b: a & b}
