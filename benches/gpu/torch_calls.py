"""What torch offers for each kind of operator of the lists: what kernels are checked against, and timed beside.

Narrow and wide floating dtypes go the same way, so that the same call in float64 is the reference.  torch multiplies
int8 on a GPU only as `torch._int_mm`, of matrices whose sizes it likes; where it refuses, it does not compete.

A library is given its inputs as it likes them for nothing: `Operator.prepare` lays them out outside the timed calls,
and pads an image whose padding is larger on one side than on the other, which torch has no argument for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rollergen.bench.suites import Entry
from rollergen.errors import ArgumentError

Tensors = tuple[Any, ...]
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Operator:
    """``call(*prepare(*inputs))`` is the result, of any floating dtype; ``into(*prepared, out)`` writes it into an
    array that is there, for what torch has so."""

    call: Callable[..., Any]
    prepare: Callable[..., Tensors] = lambda *inputs: inputs
    into: Callable[..., object] | None = None


def operator(entry: Entry) -> Operator:
    """Of an entry of `cases.SUITES`.  Raises ArgumentError for any other."""
    if entry.kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise ArgumentError(f"torch's namesake of {entry.name} ({entry.kind}) is not known; known are {known}")
    return _KINDS[entry.kind](entry.fields)


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _product(a: Any, b: Any) -> Any:
    import torch

    return torch._int_mm(a, b) if a.dtype == torch.int8 else a @ b


def _matmul(fields: Fields) -> Operator:
    def into(a: Any, b: Any, out: Any) -> object:
        import torch

        return torch._int_mm(a, b, out=out) if a.dtype == torch.int8 else torch.mm(a, b, out=out)

    return Operator(_product, into=into)


def _batch_matmul(fields: Fields) -> Operator:
    def into(a: Any, b: Any, out: Any) -> object:
        import torch

        return torch.bmm(a, b, out=out)

    return Operator(lambda a, b: a @ b, into=into)


def _linear(fields: Fields) -> Operator:
    def call(x: Any, weights: Any) -> Any:
        return _functional().linear(x, weights) if x.is_floating_point() else _product(x, weights.t())

    return Operator(call)


def _attention(fields: Fields) -> Operator:
    return Operator(lambda q, k, v: _functional().scaled_dot_product_attention(q, k, v))


def _grouped(fields: Fields, decode: bool) -> Operator:
    """Heads of queries that share one of keys; ours has them in axes of their own (`cases`), torch asks for heads."""
    heads, shared = (fields["batch"], fields["heads"]), (fields["batch"], fields["kv"])
    rows = 1 if decode else fields["length"]
    groups, causal = fields["heads"] != fields["kv"], bool(fields.get("causal"))
    lead = (fields["batch"] * fields["kv"],) if decode else (fields["batch"], fields["kv"])
    shape = (*lead, fields["heads"] // fields["kv"], *(() if decode else (rows,)), fields["width"])

    def prepare(q: Any, k: Any, v: Any) -> Tensors:
        of_keys = (*shared, fields["length"], fields["width"])
        return q.reshape(*heads, rows, fields["width"]), k.reshape(of_keys), v.reshape(of_keys)

    def call(q: Any, k: Any, v: Any) -> Any:
        import torch

        attend = partial(_functional().scaled_dot_product_attention, is_causal=causal)
        if q.dtype is not torch.float64:
            return attend(q, k, v, enable_gqa=groups).reshape(shape)
        # the reference: the scores of all heads at once would be tens of gigabytes
        each = zip(q.split(1, 1), _of_each(k, q), _of_each(v, q), strict=True)
        return torch.cat([attend(*head) for head in each], 1).reshape(shape)

    return Operator(call, prepare)


def _of_each(shared: Any, q: Any) -> list[Any]:
    """For each head of the queries, the one that it shares with others."""
    times = q.shape[1] // shared.shape[1]
    return [head for head in shared.split(1, 1) for _ in range(times)]


def _plain(name: str) -> Callable[[Fields], Operator]:
    """A function of torch's that takes the inputs as they are, and ``out``."""

    def made(fields: Fields) -> Operator:
        import torch

        function = getattr(torch, name)
        return Operator(function, into=lambda *inputs: function(*inputs[:-1], out=inputs[-1]))

    return made


def _softmax(fields: Fields) -> Operator:
    def into(x: Any, out: Any) -> object:
        import torch

        return torch.softmax(x, -1, out=out)

    return Operator(lambda x: x.softmax(-1), into=into)


def _layer_norm(fields: Fields) -> Operator:
    return Operator(lambda x, w, b: _functional().layer_norm(x, x.shape[-1:], w, b))


def _rms_norm(fields: Fields) -> Operator:
    return Operator(lambda x, w: _functional().rms_norm(x, x.shape[-1:], w, 1e-6))


def _sum(fields: Fields) -> Operator:
    return _reduce_sum({"reduce_axes": (fields["axis"],)})


def _max(fields: Fields) -> Operator:
    def into(x: Any, out: Any) -> object:
        import torch

        return torch.amax(x, fields["axis"], out=out)

    return Operator(lambda x: x.amax(fields["axis"]), into=into)


def _permuted(order: tuple[int, ...]) -> Callable[[Fields], Operator]:
    return lambda fields: Operator(
        lambda x: x.permute(order).contiguous(), into=lambda x, out: out.copy_(x.permute(order))
    )


def _relu(fields: Fields) -> Operator:
    def into(x: Any, out: Any) -> object:
        import torch

        return torch.clamp_min(x, 0, out=out)

    return Operator(lambda x: _functional().relu(x), into=into)


def _reduce_sum(fields: Fields) -> Operator:
    axes = tuple(fields["reduce_axes"])

    def into(x: Any, out: Any) -> object:
        import torch

        return torch.sum(x, axes, out=out)

    return Operator(lambda x: x.sum(axes), into=into)


def _conv2d(fields: Fields) -> Operator:
    return _convolution(fields, grouped=False)


def _depthwise(fields: Fields) -> Operator:
    return _convolution(fields, grouped=True)


def _convolution(fields: Fields, grouped: bool) -> Operator:
    """Of an image NCHW and weights FCHW (depthwise: channels first, and a channel of one tap each)."""
    image, weights = (_shape(fields, "input", 0), _shape(fields, "weight", 1))
    stride, dilation = _pair(fields["stride"]), _pair(fields.get("dilation") or 1)
    own, rest = _padding(fields["padding"], image[2:], weights[-2:], stride, dilation)
    groups = image[1] if grouped else 1

    def call(x: Any, w: Any) -> Any:
        return _functional().conv2d(x, w, stride=stride, padding=own, dilation=dilation, groups=groups)

    def prepare(x: Any, w: Any) -> Tensors:
        shape = (weights[0], 1, *weights[-2:]) if grouped else tuple(weights)
        return _padded(x, rest), w.reshape(shape)

    return Operator(call, prepare)


def _image(channels_last: bool) -> Callable[[Fields], Operator]:
    """Of `operators_beside`: padded by half a window, channels last as (N, H, W, C) with weights (KH, KW, C, F)."""

    def made(fields: Fields) -> Operator:
        stride, padding = fields["stride"], fields["window"] // 2

        def prepare(x: Any, w: Any) -> Tensors:
            import torch

            if not channels_last:
                return x, w
            filters = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
            return x.permute(0, 3, 1, 2), filters  # the same memory, which torch calls channels_last

        def call(x: Any, w: Any) -> Any:
            result = _functional().conv2d(x, w, stride=stride, padding=padding)
            return result.permute(0, 2, 3, 1) if channels_last else result

        return Operator(call, prepare)

    return made


def _avg_pool(fields: Fields) -> Operator:
    """Of the suite of ROLLER: zeros of the padding count."""
    taps = [extent for _, extent in fields["axes"]["reduce"]][-2:]
    if not fields["count_include_pad"]:
        raise ArgumentError(f"{fields['id']}: count_include_pad is false; expected true, as in all of the suite")
    stride = _pair(fields["stride"])
    own, rest = _padding(fields["padding"], _shape(fields, "input", 0)[2:], taps, stride, (1, 1))
    return Operator(
        lambda x: _functional().avg_pool2d(x, taps, stride, own, count_include_pad=True),
        lambda x: (_padded(x, rest),),
    )


def _shape(fields: Fields, name: str, number: int) -> list[int]:
    return list(fields[name] if name in fields else fields["inputs"][number]["shape"])


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _padding(
    padding: Any, image: list[int], taps: list[int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """(what torch pads on both sides, what is left to pad: left, right, top, bottom)."""
    if padding == "VALID":
        return (0, 0), (0, 0, 0, 0)
    if padding != "SAME":
        return _pair(padding), (0, 0, 0, 0)
    sides = []
    for extent, tap, step, spread in zip(image, taps, stride, dilation, strict=True):
        reach = (-(-extent // step) - 1) * step + (tap - 1) * spread + 1
        total = max(reach - extent, 0)
        sides.append((total // 2, total - total // 2))
    (top, bottom), (left, right) = sides
    if top == bottom and left == right:
        return (top, left), (0, 0, 0, 0)
    return (0, 0), (left, right, top, bottom)


def _padded(x: Any, rest: tuple[int, int, int, int]) -> Any:
    return _functional().pad(x, rest) if any(rest) else x


_KINDS: Mapping[str, Callable[[Fields], Operator]] = {
    "matmul": _matmul, "batch_matmul": _batch_matmul, "linear": _linear, "decode": _linear,
    "attention": _attention, "prefill": lambda f: _grouped(f, decode=False),
    "decode_attention": lambda f: _grouped(f, decode=True),
    "conv2d": _conv2d, "depthwise_conv2d": _depthwise, "avg_pool2d": _avg_pool,
    "conv_nhwc": _image(channels_last=True), "conv_nchw": _image(channels_last=False),
    "elementwise": _relu, "add": _plain("add"), "gelu": lambda f: Operator(lambda x: _functional().gelu(x)),
    "swiglu": lambda f: Operator(lambda x, gate: _functional().silu(x) * gate),
    "softmax": _softmax, "layer_norm": _layer_norm, "rms_norm": _rms_norm,
    "reduce_sum": _reduce_sum, "sum": _sum, "max": _max,
    "transpose": _permuted((1, 0)), "channels_last": _permuted((0, 2, 3, 1)),
}  # fmt: skip
