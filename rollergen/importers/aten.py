"""ATen's operators by `rg.ops`: one line each.  Arguments are ATen's; tensors come as rollergen's, or as Python numbers
where they are constants without axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import ITEMSIZE, dtype_name, is_float
from rollergen.expr.einsum import einsum
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import elementwise
from rollergen.importers import aten_norms as norms
from rollergen.importers.graph import NotExpressedError
from rollergen.importers.places import indexed, put

Function = Callable[..., Any]


def _promoted(*operands: Any, floating: bool = False) -> list[Any]:
    """`operands` in torch's common dtype: of tensors with axes before those without, which yield within a kind."""
    tensors = [one for one in operands if isinstance(one, Tensor)]
    kind = lambda one: 2 if is_float(one) else 1 if one != "bool" else 0
    order = sorted(tensors, key=lambda t: (kind(t.dtype), t.ndim > 0, ITEMSIZE[t.dtype]))
    dtype = order[-1].dtype
    narrow = {t.dtype for t in tensors if kind(t.dtype) == kind(dtype) and t.ndim}
    if narrow == {"float16", "bfloat16"}:
        dtype = "float32"
    numbers = [one for one in operands if isinstance(one, (int, float)) and not isinstance(one, bool)]
    if (floating or any(isinstance(one, float) for one in numbers)) and not is_float(dtype):
        dtype = "float32"
    if dtype == "bool" and numbers:
        dtype = "int64"
    return [_cast(one, dtype) for one in operands]


def _cast(one: Any, dtype: str) -> Any:
    if isinstance(one, Tensor):
        return one if one.dtype == dtype else ops.cast(one, dtype)
    return bool(one) if dtype == "bool" else float(one) if is_float(dtype) else int(one)


def _dtype(dtype: Any) -> str:
    return dtype_name(dtype, "the model's dtype")


def _unary(function: Function) -> Function:
    return lambda x: function(*_promoted(x, floating=True))


def _binary(function: Function, floating: bool = False, conditions: Function | None = None) -> Function:
    def call(a: Any, b: Any) -> Tensor:
        x, y = _promoted(a, b, floating=floating)
        if next(one.dtype for one in (x, y) if isinstance(one, Tensor)) != "bool":
            return function(x, y)
        if conditions is None:
            raise NotExpressedError("arithmetic of conditions")
        return elementwise("conditions", conditions, x, y, name=None)

    return call


def _scaled(function: Function, conditions: Function | None = None) -> Function:
    """add and sub with ``alpha``."""
    plain = _binary(function, conditions=conditions)
    return lambda a, b, alpha=1: plain(a, b if alpha == 1 else _binary(ops.mul)(b, alpha))


def _div(a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    whole = rounding_mode is not None
    return ops.div(*_promoted(a, b, floating=not whole), rounding_mode=rounding_mode)


def _power(a: Any, b: Any) -> Tensor:
    return ops.pow(*_promoted(a, b))


def _of_conditions(function: Function) -> Function:
    truth = lambda x: x if isinstance(x, bool) or x.dtype == "bool" else ops.not_equal(x, 0)
    return lambda *given: elementwise("conditions", function, *map(truth, given), name=None)


def _clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    for limit, function in ((min, ops.maximum), (max, ops.minimum)):
        if limit is not None:
            x = _binary(function)(x, limit)
    return x


def _where(condition: Tensor, a: Any, b: Any) -> Tensor:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise NotExpressedError("a choice between two numbers")
    return ops.where(condition, *_promoted(a, b))


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    below = lambda v: rg.expm1(rg.minimum(v, 0) * input_scale) * (alpha * scale)
    value = lambda v: rg.select(v > 0, v * scale, below(v))
    return elementwise("elu", value, x, name=None)


def _axes(x: Tensor, dim: Any) -> tuple[int, ...]:
    given = range(x.ndim) if dim is None or dim == [] else (dim,) if isinstance(dim, int) else dim
    return tuple(one % x.ndim for one in given)


def _reduced(function: Function, counts: bool = False) -> Function:
    def call(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        wanted = _dtype(dtype) if dtype is not None else "int64" if counts and not is_float(x.dtype) else x.dtype
        return function(_cast(x, wanted), _axes(x, dim), keepdim)

    return call


def _any_or_all(function: Function) -> Function:
    def call(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        return function(x if x.dtype == "bool" else ops.not_equal(x, 0), _axes(x, dim), keepdim)

    return call


def _vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    x, axes = x if dtype is None else _cast(x, _dtype(dtype)), _axes(x, dim)
    if abs(ord) == math.inf:
        return (ops.amax if ord > 0 else ops.amin)(ops.abs(x), axes, keepdim)
    if ord == 0:
        return ops.sum(_cast(ops.not_equal(x, 0), x.dtype), axes, keepdim)
    if ord == 1:
        return ops.sum(ops.abs(x), axes, keepdim)
    if ord == 2:
        return ops.sqrt(ops.sum(ops.mul(x, x), axes, keepdim))
    return ops.pow(ops.sum(ops.pow(ops.abs(x), float(ord)), axes, keepdim), 1 / ord)


def _full_like(x: Tensor, value: float | int, *, dtype: Any = None, **memory: Any) -> Tensor:
    return ops.full(x.shape, value, dtype=x.dtype if dtype is None else _dtype(dtype))


def _best(value: Function, place: Function) -> Function:
    """max and min: of all elements, or along a dimension the elements and where they stand."""
    return lambda x, dim=None, keepdim=False: (
        value(x) if dim is None else (value(x, dim, keepdim), place(x, dim, keepdim))
    )


def _variance(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return ops.var(x, dim, correction=correction, keepdim=keepdim)


def _rows(function: Function) -> Function:
    return lambda x, dim, dtype=None: function(x if dtype in (None, False, True) else _cast(x, _dtype(dtype)), dim)


def _convolution(
    x: Tensor, w: Tensor, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    if not transposed:
        return {3: ops.conv1d, 4: ops.conv2d, 5: ops.conv3d}[x.ndim](x, w, b, stride, padding, dilation, groups)
    function = {3: ops.conv_transpose1d, 4: ops.conv_transpose2d, 5: ops.conv_transpose3d}[x.ndim]
    return function(x, w, b, stride, padding, output_padding, groups, dilation)


def _pool(function: Function) -> Function:
    return lambda x, size, stride=(), *rest: function(x, size, stride or None, *rest)


def _adaptive_maximum(function: Function) -> Function:
    return lambda x, size: function(x, tuple(size), True)


def _cross_entropy(
    x: Tensor, target: Tensor, w: Any = None, reduction: int = 1, ignored: int = -100, smoothing: float = 0.0
) -> Tensor:
    return ops.cross_entropy(x, target, w, None, ignored, None, ("none", "mean", "sum")[reduction], smoothing)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == b.ndim == 2:
        return ops.matmul(a, b)
    if a.ndim == b.ndim and a.shape[:-2] == b.shape[:-2]:
        return ops.batch_matmul(a, b)
    lead = lambda one: "..." if one.ndim > 2 else ""
    left, row = (f"{lead(a)}mk", "m") if a.ndim > 1 else ("k", "")
    right, column = (f"{lead(b)}kn", "n") if b.ndim > 1 else ("k", "")
    return einsum(f"{left},{right}->{lead(a) or lead(b)}{row}{column}", a, b)


def _addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if (beta, alpha) != (1, 1):
        raise NotExpressedError(f"beta {beta}, alpha {alpha}")
    return ops.add(_matmul(a, b), c)


def _scaled_mm(
    a: Tensor, b: Tensor, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None,
    out_dtype: Any = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Of float8, with sums in float32: fewer bits are for `BuildOptions` to allow."""
    narrow = any(isinstance(one, Tensor) and one.dtype != "float32" for one in (scale_a, scale_b))  # those of blocks
    if scale_result is not None or narrow:
        raise NotExpressedError("a product with a scale of its result, or with scales that are no float32")
    product = ops.matmul(_cast(a, "float32"), _cast(b, "float32"))
    scaled = ops.mul(ops.mul(product, scale_a), scale_b)
    scaled = scaled if bias is None else ops.add(scaled, _cast(bias, "float32"))
    return _to(scaled, out_dtype or a.dtype)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: float = 0.0, causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if dropout:
        raise NotExpressedError("attention with dropout")
    mask = mask if mask is None or mask.dtype == "bool" else _cast(mask, q.dtype)
    return ops.attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=enable_gqa)


def _shape_of(x: Tensor, shape: Sequence[int]) -> Tensor:
    return ops.reshape(x, tuple(shape))


def _without(x: Tensor, dims: Any = None) -> Tensor:
    gone = [d for d in _axes(x, dims) if x.shape[d] == 1]
    return ops.reshape(x, tuple(extent for d, extent in enumerate(x.shape) if d not in gone))


def _with(x: Tensor, dim: int) -> Tensor:
    at = dim % (x.ndim + 1)
    return ops.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def _transpose(x: Tensor, one: int, other: int) -> Tensor:
    order = list(range(x.ndim))
    order[one], order[other] = order[other], order[one]
    return ops.permute(x, order)


def _expand(x: Tensor, shape: Sequence[int], *, implicit: bool = False) -> Tensor:
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return ops.expand(x, tuple(o if w == -1 else w for o, w in zip(own, shape, strict=True)))


def _slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return ops.getitem(x, (*(slice(None),) * (dim % x.ndim), slice(start, end, step)))


def _select(x: Tensor, dim: int, index: int) -> Tensor:
    return ops.getitem(x, (*(slice(None),) * (dim % x.ndim), index))


def _index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    if accumulate:
        raise NotExpressedError("values that are added up")
    return put(x, indices, lambda shape: _cast(_expand(values, shape), x.dtype))


def _parts(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return [_slice(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _split(x: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    extent = x.shape[dim]
    return _parts(x, [min(size, extent - start) for start in range(0, extent, size)], dim)


def _concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return ops.concat(_promoted(*tensors), dim)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        raise NotExpressedError("a roll of the flattened tensor")
    for shift, dim in zip(shifts, dims, strict=True):
        if at := -shift % max(x.shape[dim], 1):
            x = ops.concat([_slice(x, dim, at), _slice(x, dim, 0, at)], dim)
    return x


def _pad(x: Tensor, widths: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    return ops.pad(x, tuple(widths), mode, _cast(value or 0, x.dtype))


def _resized(mode: str, x: Tensor, size: Any, scales: Sequence[Any], align: bool | None = None) -> Tensor:
    """``.vec`` has the scales in a list, ``.default`` one by one, None where there are none."""
    factors = scales[0] if len(scales) == 1 and isinstance(scales[0], (tuple, list)) else scales
    if factors and None not in factors:
        return ops.interpolate(x, scale_factor=tuple(factors), mode=mode, align_corners=align)
    return ops.interpolate(x, tuple(size), mode=mode, align_corners=align)


def _interpolated(mode: str) -> Function:
    return lambda x, size, align, *scales: _resized(mode, x, size, scales, align)


def _nearest(x: Tensor, size: Any, *scales: Any) -> Tensor:
    return _resized("nearest", x, size, scales)


def _to(x: Tensor, dtype: Any = None, *_: Any, **more: Any) -> Tensor:
    """Of torch's float8 the largest number, where what is cast is beyond it."""
    if dtype is None:
        return x
    wanted = _dtype(dtype)
    return ops.cast(x, wanted, overflow="saturate") if wanted.startswith("float8") else _cast(x, wanted)


def _same(x: Tensor, *_: Any, **more: Any) -> Tensor:
    return x


_MAXIMUM = _binary(ops.maximum, conditions=lambda a, b: a | b)
_MINIMUM = _binary(ops.minimum, conditions=lambda a, b: a & b)

_LITERAL = (
    "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "asin", "asinh", "atan",
    "atan2", "atanh", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "ceil", "celu", "conv_transpose1d", "conv_transpose3d", "cos", "cosh", "cummax", "cummin",
    "cumprod", "cumsum", "erfc", "exp2", "expm1", "fmod", "hardsigmoid", "hardswish", "isinf", "isnan", "log10",
    "log1p", "log2", "logcumsumexp", "logical_xor", "mish", "pixel_shuffle", "pixel_unshuffle", "remainder", "sign",
    "sin", "sinh", "softshrink", "tan", "tril", "triu", "trunc",
)  # fmt: skip
"""Operators of `rg.ops` that take ATen's arguments as they are."""

_SYMBOLS = {"and": "and", "or": "or", "xor": "xor", "lshift": "left_shift", "rshift": "right_shift"}

TABLE: dict[str, Function] = {
    **{name: getattr(ops, name) for name in _LITERAL},
    **{f"__{name}__": getattr(ops, f"bitwise_{ours}") for name, ours in _SYMBOLS.items()},
    "floor_divide": lambda a, b: _div(a, b, "floor"), "log_sigmoid": ops.logsigmoid,
    **{name: getattr(ops, name) for name in ("abs", "neg", "floor", "round", "relu", "silu", "leaky_relu")},
    **{name: _unary(getattr(ops, name)) for name in ("exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid")},
    "gelu": ops.gelu, "elu": _elu, "softplus": ops.softplus, "clamp": _clamp, "clamp_min": _clamp, "hardtanh": _clamp,
    "relu6": lambda x: _clamp(x, 0, 6), "clamp_max": lambda x, most: _clamp(x, None, most),
    "reciprocal": _unary(lambda x: ops.div(1.0, x)), "square": lambda x: ops.mul(x, x),
    "add": _scaled(ops.add, lambda a, b: a | b), "sub": _scaled(ops.sub), "div": _div, "pow": _power,
    "rsub": lambda a, b, alpha=1: _scaled(ops.sub)(b, a, alpha), "mul": _binary(ops.mul, conditions=lambda a, b: a & b),
    "maximum": _MAXIMUM, "minimum": _MINIMUM, "where": _where,
    "masked_fill": lambda x, mask, value: _where(mask, value, x),
    **{name: _binary(getattr(ops, ours), conditions=meant) for name, ours, meant in (
        ("eq", "equal", lambda a, b: (a & b) | ~(a | b)), ("ne", "not_equal", lambda a, b: (a | b) & ~(a & b)),
        ("lt", "less", None), ("le", "less_equal", None), ("gt", "greater", None), ("ge", "greater_equal", None))},
    "logical_and": _of_conditions(lambda a, b: a & b), "logical_or": _of_conditions(lambda a, b: a | b),
    "logical_not": _of_conditions(lambda a: ~a),
    "sum": _reduced(ops.sum, counts=True), "mean": _reduced(ops.mean), "prod": _reduced(ops.prod, counts=True),
    "amax": _reduced(ops.amax), "amin": _reduced(ops.amin), "var": _variance, "logsumexp": _reduced(ops.logsumexp),
    "any": _any_or_all(ops.any), "all": _any_or_all(ops.all), "linalg_vector_norm": _vector_norm,
    "full_like": _full_like,
    "max": _best(ops.amax, ops.argmax), "min": _best(ops.amin, ops.argmin),
    "argmax": lambda x, dim=None, keepdim=False: ops.argmax(x, dim, keepdim),
    "argmin": lambda x, dim=None, keepdim=False: ops.argmin(x, dim, keepdim),
    "_softmax": _rows(ops.softmax), "softmax": _rows(ops.softmax),
    "_log_softmax": _rows(ops.log_softmax), "log_softmax": _rows(ops.log_softmax),
    "layer_norm": norms.layer_norm, "native_layer_norm": lambda *given: (norms.layer_norm(*given), None, None),
    "group_norm": norms.group_norm, "rms_norm": norms.rms_norm, "instance_norm": norms.instance_norm,
    "native_group_norm": lambda x, w, b, n, c, pixels, groups, eps: (
        norms.group_norm(x, groups, w, b, eps), None, None),
    "_native_batch_norm_legit_no_training": norms.batch_norm, "convolution": _convolution,
    "conv1d": ops.conv1d, "conv2d": ops.conv2d, "conv3d": ops.conv3d, "conv_transpose2d": ops.conv_transpose2d,
    "max_pool2d": _pool(ops.max_pool2d), "avg_pool2d": _pool(ops.avg_pool2d),
    "max_pool2d_with_indices": lambda *given: (_pool(ops.max_pool2d)(*given), None),
    "max_pool1d": _pool(ops.max_pool1d), "avg_pool1d": _pool(ops.avg_pool1d), "avg_pool3d": _pool(ops.avg_pool3d),
    "max_pool3d": _pool(ops.max_pool3d),
    "max_pool3d_with_indices": lambda *given: (_pool(ops.max_pool3d)(*given), None),
    "_adaptive_avg_pool2d": ops.adaptive_avg_pool2d, "_adaptive_avg_pool3d": ops.adaptive_avg_pool3d,
    **{name: _adaptive_maximum(getattr(ops, name)) for name in (f"adaptive_max_pool{n}d" for n in (1, 2, 3))},
    "cross_entropy_loss": _cross_entropy,
    "im2col": ops.unfold, "unfold": ops.unfold_copy, "repeat": lambda x, times: ops.repeat(x, tuple(times)),
    "linear": ops.linear, "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "addmm": _addmm, "baddbmm": _addmm,
    "_scaled_mm": _scaled_mm, "_int_mm": _matmul,
    "_weight_int8pack_mm": lambda x, weight, scales: ops.mul(ops.linear(x, _cast(weight, x.dtype)), scales),
    "scaled_dot_product_attention": _attention,
    "view": _shape_of, "reshape": _shape_of, "_unsafe_view": _shape_of, "squeeze": _without, "unsqueeze": _with,
    "permute": lambda x, dims: ops.permute(x, tuple(dims)), "transpose": _transpose,
    "t": lambda x: ops.permute(x, (1, 0)) if x.ndim == 2 else x, "expand": _expand, "slice": _slice, "select": _select,
    "split": _split, "split_with_sizes": _parts,
    "unbind": lambda x, dim=0: [_select(x, dim, index) for index in range(x.shape[dim])],
    "embedding": lambda weight, ids, *_: ops.embedding(ids, weight), "index": indexed, "index_put": _index_put,
    "index_select": ops.index_select,
    "gather": lambda x, dim, index, *_, **more: ops.gather(x, dim, index),
    "cat": _concat, "stack": lambda tensors, dim=0: _concat([_with(one, dim) for one in tensors], dim),
    "roll": _roll, "flip": lambda x, dims: ops.getitem(x, tuple(
        slice(None, None, -1 if d in _axes(x, list(dims)) else 1) for d in range(x.ndim))),
    "constant_pad_nd": lambda x, widths, value=0: _pad(x, widths, value=value), "pad": _pad,
    **dict.fromkeys((f"upsample_nearest{n}d" for n in (1, 2, 3)), _nearest),
    "upsample_linear1d": _interpolated("linear"), "upsample_bilinear2d": _interpolated("bilinear"),
    "upsample_trilinear3d": _interpolated("trilinear"), "upsample_bicubic2d": _interpolated("bicubic"),
    "_to_copy": _to, "to": _to, "select_scatter": ops.select_scatter, "slice_scatter": ops.slice_scatter,
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "detach_", "dropout", "lift_fresh_copy"), _same),
}  # fmt: skip
"""By ATen's name without its overload: overloads differ in which arguments are tensors, which the functions look at."""
