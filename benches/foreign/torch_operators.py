"""How calls of torch's operators are spelled with `rg.ops`: by the name in torch's ``op_db``, with torch's arguments.

Arguments that are tensors come as rollergen's.  What has no spelling is refused with a reason, never by a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import rollergen as rg
from benches.foreign import torch_pointwise as pointwise
from benches.foreign.refusals import Refused
from benches.foreign.torch_pointwise import (
    OF_CONDITIONS,
    Operator,
    as_dtype,
    binary,
    dtype_of,
    number,
    promoted,
    same,
    stand_in,
    torch_dtype,
    unary,
    whole,
)
from rollergen import ops
from rollergen.expr.dtypes import is_float
from rollergen.expr.language import Tensor


def axes_of(x: Tensor, dim: Any) -> tuple[int, ...]:
    """torch's axes: None or no axis at all means all."""
    given = tuple(range(x.ndim)) if dim is None or dim == [] or dim == () else dim
    given = (given,) if isinstance(given, int) else tuple(given)
    if not x.ndim:
        return ()
    return tuple(d % x.ndim for d in given)


def reduced(function: Operator, wider: Callable[[str], str] = lambda dtype: dtype) -> Operator:
    """Reductions: (x, dim, keepdim, dtype); of a scalar, the function over an axis of one element."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None, **more: Any) -> Tensor:
        x = as_dtype(x, wider(x.dtype) if dtype is None else dtype_of(dtype))
        if x.dtype == "bool":
            raise Refused("conditions", "a reduction of conditions")
        if not x.ndim:
            return ops.reshape(function(ops.reshape(x, (1,)), 0, False, **more), ())
        return function(x, axes_of(x, dim), keepdim, **more)

    return call


def counted(dtype: str) -> str:
    """torch sums integers and conditions in int64."""
    return dtype if is_float(dtype) else "int64"


def extreme(function: Operator, position: Operator, pair: Operator) -> Operator:
    """max and min: of all elements; along an axis, with positions; or of two tensors."""

    def call(x: Tensor, *arguments: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if arguments and isinstance(arguments[0], Tensor):
            return binary(pair, conditions=OF_CONDITIONS[pair])(x, *arguments)
        dim, keepdim = (*arguments, *(dim, keepdim)[len(arguments) :])
        if dim is None:
            return widest(function)(x)
        if not x.ndim:
            raise Refused("no axis", "positions within a scalar")
        return widest(function)(x, dim, keepdim), widest(position, False)(x, dim, keepdim)

    return call


def widest(function: Operator, back: bool = True) -> Operator:
    """Extremes, of conditions as int8, which have the same order."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if x.dtype != "bool":
            return reduced(function)(x, dim, keepdim)
        made = reduced(function)(ops.cast(x, "int8"), dim, keepdim)
        return ops.cast(made, "bool") if back else made

    return call


def position(function: Operator) -> Operator:
    def call(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if not x.ndim:
            raise Refused("no axis", "positions within a scalar")
        return function(x, axes_of(x, dim), keepdim)

    return call


def spread(function: Operator) -> Operator:
    """var and std: ``unbiased`` is torch's older name of ``correction``."""

    def call(x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if arguments and isinstance(arguments[0], bool):
            arguments, named = arguments[1:], {**named, "unbiased": arguments[0]}
        if len(arguments) > 1:
            named["unbiased"] = arguments[1]
        if len(arguments) > 2:
            named["keepdim"] = arguments[2]
        dim = arguments[0] if arguments else named.get("dim")
        correction = named.get("correction", int(named.get("unbiased", True)))
        correction = 1 if correction is None else correction
        axes = axes_of(x, dim)
        if not x.ndim or math.prod(x.shape[d] for d in axes) <= correction:
            raise Refused("empty", "a variance of fewer elements than its correction")
        if correction != int(correction):
            raise Refused("attribute", f"correction={correction}")
        return function(x, axes, int(correction), named.get("keepdim", False))

    return call


def rows(function: Operator) -> Operator:
    """softmax and its kin: (x, dim, dtype)."""

    def call(x: Tensor, dim: int = -1, dtype: Any = None, **_: Any) -> Tensor:
        x = as_dtype(x, x.dtype if dtype is None else dtype_of(dtype))
        if not is_float(x.dtype):
            raise Refused("dtype", f"softmax of {x.dtype}")
        return function(x, dim) if x.ndim else ops.reshape(function(ops.reshape(x, (1,)), 0), ())

    return call


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return reduced(ops.logsumexp)(*promoted(x, floating=True), dim, keepdim)


def product(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return reduced(ops.prod, counted)(x, dim, keepdim, dtype)


def batched(function: Operator, axes: int) -> Operator:
    """torch's images without a batch axis get one of extent 1."""

    def call(x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if x.ndim == axes + 2:
            return function(x, *arguments, **named)
        made = function(ops.reshape(x, (1, *x.shape)), *arguments, **named)
        return ops.reshape(made, made.shape[1:])

    return call


def setting(value: Any) -> Any:
    """torch takes sequences of one for all axes."""
    if isinstance(value, (tuple, list)):
        return value[0] if len(value) == 1 else tuple(value)
    return value


def settings(function: Operator) -> Operator:
    def call(x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        if named.pop("return_indices", False):
            raise Refused("attribute", "return_indices")
        narrow = lambda made: as_dtype(made, x.dtype)
        made = function(x, *map(setting, arguments), **{name: setting(value) for name, value in named.items()})
        return narrow(made)

    return call


def max_pool(x: Tensor, kernel_size: Any, stride: Any = None, *rest: Any, **more: Any) -> Tensor:
    return ops.max_pool2d(x, kernel_size, stride or None, *rest, **more)


def avg_pool(x: Tensor, kernel_size: Any, stride: Any = None, *rest: Any, **more: Any) -> Tensor:
    if not is_float(x.dtype):
        raise Refused("dtype", f"averages of {x.dtype}")
    return ops.avg_pool2d(x, kernel_size, stride or None, *rest, **more)


def batch_norm(
    x: Tensor, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if training:
        raise Refused("state", "statistics that a call updates")
    return ops.batch_norm(x, mean, var, weight, bias, eps)


def rms_norm(x: Tensor, shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    least = torch.finfo(torch_dtype(x.dtype)).eps if eps is None else eps
    return ops.rms_norm(x, tuple(shape), weight, least)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """Pairs of the last axis first; negative widths cut."""
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    if any(e + min(a, 0) + min(b, 0) < 1 for e, (a, b) in zip(x.shape, pairs, strict=True)):
        raise Refused("empty", "negative padding that leaves no elements")
    if any(width < 0 for pair in pairs for width in pair):
        if mode == "circular" or mode == "reflect":
            raise Refused("attribute", f"negative padding of mode {mode}")
        x = ops.slice(x, tuple(slice(max(-a, 0), e - max(-b, 0)) for e, (a, b) in zip(x.shape, pairs, strict=True)))
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    fill = 0 if value is None else value
    if x.dtype == "bool":
        return ops.cast(ops.pad(ops.cast(x, "int8"), pairs, _MODES[mode], int(bool(fill))), "bool")
    return ops.pad(x, pairs, _MODES[mode], number(fill, x.dtype))


def upsample(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    if size is not None:
        size = (size,) * (x.ndim - 2) if isinstance(size, int) else tuple(size)
        if any(s % e for s, e in zip(size, x.shape[2:], strict=True)):
            raise Refused("attribute", "sizes that are no multiples")
        return ops.upsample_nearest(x, tuple(s // e for s, e in zip(size, x.shape[2:], strict=True)))
    factors = (scale_factor,) * (x.ndim - 2) if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
    if any(f != int(f) or f < 1 for f in factors):
        raise Refused("attribute", "a scale factor that is no integer")
    return ops.upsample_nearest(x, tuple(map(int, factors)))


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if attn_mask is not None:
        raise Refused("attribute", "attn_mask")
    if dropout_p:
        raise Refused("random", "dropout")
    if k.shape[:-2] != q.shape[:-2]:
        raise Refused("attribute", "several heads of queries for one of keys")
    return ops.attention(q, k, v, causal=is_causal, scale=scale)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's and torch's: vectors, matrices, and leading axes that broadcast, by an einsum."""
    if a.ndim == b.ndim == 2:
        return ops.matmul(a, b)
    if a.ndim == b.ndim and a.ndim > 2 and a.shape[:-2] == b.shape[:-2]:
        return ops.batch_matmul(a, b)
    lead = "..." if max(a.ndim, b.ndim) > 2 else ""
    left, row = ("k", "") if a.ndim == 1 else (f"{lead if a.ndim > 2 else ''}mk", "m")
    right, column = ("k", "") if b.ndim == 1 else (f"{lead if b.ndim > 2 else ''}kn", "n")
    return rg.einsum(f"{left},{right}->{lead}{row}{column}", a, b)


def integral(function: Operator) -> Operator:
    """Contractions: an int8 result is the sum's low byte."""

    def call(*arguments: Any, **named: Any) -> Tensor:
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        return as_dtype(function(*arguments, **named), tensors[0].dtype)

    return call


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    wide = bias if bias is None or bias.dtype != "int8" else ops.cast(bias, "int32")
    return ops.linear(x, weight, wide)


def einsum(tensors: Sequence[Tensor], equation: str) -> Tensor:
    """torch sums a letter of one operand alone first, integers in int64; products have the operands' dtype."""
    operands, _, output = equation.replace(" ", "").partition("->")
    one_has = lambda letter: sum(letter in operand for operand in operands.split(",")) == 1
    alone = "->" in equation and any(one_has(c) and c not in output for c in operands if c.isalpha())
    dtype = counted(tensors[0].dtype) if alone else tensors[0].dtype
    return as_dtype(rg.einsum(equation, *(as_dtype(one, dtype) for one in tensors)), dtype)


def cumulative(function: Operator) -> Operator:
    """Refused by rollergen, with advice."""

    def call(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
        if not x.ndim:
            raise Refused("no axis", "running totals of a scalar")
        return function(x, dim)

    return call


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    kept = list(tensors)
    dtypes = {one.dtype for one in kept}
    if len(dtypes) > 1:
        common = stand_in(kept[0]).dtype
        for one in kept[1:]:
            common = torch.promote_types(common, stand_in(one).dtype)
        kept = [as_dtype(one, dtype_of(common)) for one in kept]
    return ops.concat(kept, dim)


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    if not x.ndim:
        return same(x)
    order = list(range(x.ndim))
    order[dim0 % x.ndim], order[dim1 % x.ndim] = order[dim1 % x.ndim], order[dim0 % x.ndim]
    return ops.transpose(x, order)


def sliced(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    part = slice(start, end, step)
    if not len(range(*part.indices(x.shape[dim]))):
        raise Refused("empty", "a slice without elements")
    return ops.slice(x, tuple(part if d == dim % x.ndim else slice(None) for d in range(x.ndim)))


def expand(x: Tensor, *shape: Any) -> Tensor:
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    own = (1,) * (len(wanted) - x.ndim) + x.shape
    return ops.expand(x, tuple(o if w == -1 else w for o, w in zip(own, wanted, strict=True)))


_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "char": "int8",
          "int": "int32", "long": "int64", "bool": "bool"}  # fmt: skip
"""torch's methods that convert, and to what."""


def converted(dtype: str) -> Operator:
    """A conversion; torch's argument for the order in memory changes no values."""
    return lambda x, memory_format=None: ops.cast(x, dtype)


TABLE: dict[str, Operator] = {
    "abs": ops.abs, "neg": ops.neg, "floor": whole(ops.floor), "round": pointwise.rounded,
    **{name: unary(getattr(ops, name)) for name in ("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid")},
    "nn.functional.relu": lambda x, inplace=False: ops.relu(x),
    "nn.functional.leaky_relu": lambda x, negative_slope=0.01, inplace=False: ops.leaky_relu(x, negative_slope),
    "nn.functional.silu": lambda x, inplace=False: ops.silu(x),
    "nn.functional.gelu": ops.gelu,
    "add": pointwise.shifted(ops.add), "sub": pointwise.shifted(ops.sub), "div": pointwise.divide,
    "pow": pointwise.power, "where": pointwise.where,
    "mul": binary(ops.mul, conditions=lambda a, b: a & b),
    "maximum": binary(ops.maximum, conditions=OF_CONDITIONS[ops.maximum]),
    "minimum": binary(ops.minimum, conditions=OF_CONDITIONS[ops.minimum]),
    **{name: pointwise.compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "clamp": pointwise.clamp, "clamp_min": lambda x, low: pointwise.clamp(x, min=low),
    "clamp_max": lambda x, high: pointwise.clamp(x, max=high),
    "sum": reduced(ops.sum, counted), "prod": product, "mean": reduced(ops.mean),
    "amax": widest(ops.max), "amin": widest(ops.min), "logsumexp": logsumexp,
    "max": extreme(ops.max, ops.argmax, ops.maximum), "min": extreme(ops.min, ops.argmin, ops.minimum),
    "argmax": position(ops.argmax), "argmin": position(ops.argmin),
    "var": spread(ops.var), "std": spread(ops.std),
    "softmax": rows(ops.softmax), "log_softmax": rows(ops.log_softmax),
    "nn.functional.layer_norm": lambda x, shape, w=None, b=None, eps=1e-5: ops.layer_norm(x, tuple(shape), w, b, eps),
    "nn.functional.rms_norm": rms_norm, "nn.functional.batch_norm": batch_norm,
    "matmul": integral(matmul), "mm": integral(ops.matmul), "bmm": integral(ops.batch_matmul),
    "nn.functional.linear": integral(linear),
    "einsum": einsum,
    "nn.functional.conv1d": batched(settings(ops.conv1d), 1),
    "nn.functional.conv2d": batched(settings(ops.conv2d), 2),
    "nn.functional.conv3d": batched(settings(ops.conv3d), 3),
    "nn.functional.conv_transpose2d": batched(settings(ops.conv_transpose2d), 2),
    "nn.functional.max_pool2d": batched(settings(max_pool), 2),
    "nn.functional.avg_pool2d": batched(settings(avg_pool), 2),
    "nn.functional.pad": pad, "nn.functional.upsample_nearest": upsample,
    "nn.functional.scaled_dot_product_attention": attention,
    **{name: converted(dtype) for name, dtype in _CASTS.items()},
    "cat": concat, "reshape": lambda x, shape: ops.reshape(x, tuple(shape)), "expand": expand,
    "transpose": transpose, "permute": lambda x, dims: ops.transpose(x, tuple(dims)) if x.ndim else same(x),
    "slice": sliced,
    "cumsum": cumulative(ops.cumsum), "cumprod": cumulative(ops.cumprod),
}  # fmt: skip
"""The operators of torch's ``op_db`` that `rg.ops` has, by torch's name."""
