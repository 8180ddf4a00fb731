"""What torch offers for the operators of the suites: what our kernels are checked against and timed beside; and
kernels in Triton and TileLang (`benches.peers`), where these are present.

A library is given its inputs as it likes them for nothing: `Operator.prepare` pads an image whose padding is larger on
one side than on the other, which torch has no argument for, outside the timed calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benches.peers import with_tilelang, with_triton
from benches.peers.interface import NotOfferedError
from rollergen.errors import ArgumentError
from rollergen.suites import Entry

Call = Callable[[], object]
Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Operator:
    """``call(*prepare(*inputs))`` is the result, of any floating dtype; ``into(*prepared, out)`` writes it into an
    array that is there, for what torch has so."""

    call: Callable[..., Any]
    prepare: Callable[..., Tensors] = lambda *inputs: inputs
    into: Callable[..., object] | None = None


def operator(entry: Entry) -> Operator:
    """Of an entry of the suites `SUITES`.  Raises ArgumentError for any other."""
    if entry.kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise ArgumentError(f"torch's namesake of {entry.name} ({entry.kind}) is not known; known are {known}")
    return _KINDS[entry.kind](entry.fields)


def peers(entry: Entry, inputs: Tensors, out: Any, compile_with: Mapping[str, Any]) -> dict[str, Call]:
    """Calls that compete, by name: torch's own (cuBLAS, cuDNN, its kernels) and torch.compile (its arguments
    ``compile_with``).  ``out``: an array of the result's shape, which nobody else may use."""
    import torch

    made = operator(entry)
    prepared = made.prepare(*inputs)
    compiled = torch.compile(made.call, dynamic=False, **compile_with)
    into = made.into
    own = (lambda: made.call(*prepared)) if into is None else (lambda: into(*prepared, out))
    return {"torch": own, "torch.compile": lambda: compiled(*prepared)}


WRITTEN: Sequence[Any] = (with_triton, with_tilelang)
"""Of `benches.peers`: with a ``LIBRARY``, and ``enqueued(name, tensors, out, settings)``."""
TOLERANCE = {"float32": 1e-4, "float16": 4e-3}
"""Relative difference, of the largest element, beyond which a kernel has computed something else than torch."""


def written(entry: Entry, inputs: Tensors, want: Any) -> tuple[dict[str, Call], dict[str, str]]:
    """Calls of the kernels that are written for this comparison, by library, tuned, and held to torch's result
    ``want``; and why the others of the libraries that are here do not compete."""
    found: dict[str, Call] = {}
    refused: dict[str, str] = {}
    for module in WRITTEN:
        name = module.LIBRARY.name
        if module.LIBRARY.absent() is not None:
            continue
        try:
            found[name] = _held(module.enqueued, entry, inputs, want)
        except NotOfferedError as error:
            refused[name] = str(error)
        except Exception as error:  # whatever its compiler, or its autotuner, raises: there is no kernel to time
            refused[name] = f"fails: {(str(error).splitlines() or [repr(error)])[0][:200]}"
    return found, refused


def _held(enqueued: Callable[..., Call], entry: Entry, inputs: Tensors, want: Any) -> Call:
    name, tensors, settings = _request(entry, inputs)
    out = want.new_full(want.shape, float("nan"))
    call = enqueued(name, tensors, out.view(-1, out.shape[-1]) if name == "matmul" else out, settings)
    call()
    apart = float((out.double() - want.double()).abs().max() / want.double().abs().max().clamp_min(1e-30))
    if not apart <= TOLERANCE[entry.dtype]:
        raise ValueError(f"it computes something else than torch (largest difference {apart:.2g})")
    return call


def _request(entry: Entry, inputs: Tensors) -> tuple[str, Tensors, Mapping[str, Any]]:
    """The entry as an operation of `benches.peers`, on the same memory.  Raises NotOfferedError."""
    if entry.kind == "matmul":
        return "matmul", inputs, {}
    if entry.kind == "linear":
        x, weights = inputs
        return "matmul", (x.reshape(-1, x.shape[-1]), weights.t()), {}
    if entry.kind == "elementwise":
        return "relu", inputs, {}
    if entry.kind == "reduce_sum":
        return "sum", inputs, {"dim": tuple(entry.fields["reduce_axes"])}
    raise NotOfferedError(f"no kernel is written for {entry.kind}")


def fix_precision() -> dict[str, Any]:
    """float32 is float32 in torch from here on, and cuDNN looks for its fastest algorithm; what was set."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
    }


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _matmul(fields: Mapping[str, Any]) -> Operator:
    def into(a: Any, b: Any, out: Any) -> object:
        import torch

        return torch.mm(a, b, out=out)

    return Operator(lambda a, b: a @ b, into=into)


def _linear(fields: Mapping[str, Any]) -> Operator:
    return Operator(lambda x, weights: _functional().linear(x, weights))


def _attention(fields: Mapping[str, Any]) -> Operator:
    return Operator(lambda q, k, v: _functional().scaled_dot_product_attention(q, k, v))


def _relu(fields: Mapping[str, Any]) -> Operator:
    def into(x: Any, out: Any) -> object:
        import torch

        return torch.clamp_min(x, 0, out=out)

    return Operator(lambda x: _functional().relu(x), into=into)


def _reduce_sum(fields: Mapping[str, Any]) -> Operator:
    axes = tuple(fields["reduce_axes"])

    def into(x: Any, out: Any) -> object:
        import torch

        return torch.sum(x, axes, out=out)

    return Operator(lambda x: x.sum(axes), into=into)


def _conv2d(fields: Mapping[str, Any]) -> Operator:
    return _convolution(fields, grouped=False)


def _depthwise(fields: Mapping[str, Any]) -> Operator:
    return _convolution(fields, grouped=True)


def _convolution(fields: Mapping[str, Any], grouped: bool) -> Operator:
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


def _avg_pool(fields: Mapping[str, Any]) -> Operator:
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


def _shape(fields: Mapping[str, Any], name: str, number: int) -> list[int]:
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


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Operator]] = {
    "matmul": _matmul,
    "linear": _linear,
    "attention": _attention,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "avg_pool2d": _avg_pool,
    "elementwise": _relu,
    "reduce_sum": _reduce_sum,
}

SUITES = ("roller", "autotvm-resnet18", "pruner-linears", "pruner-attention")
"""The suites whose kinds all have a namesake."""
