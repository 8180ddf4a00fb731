"""Who kernels compete with: torch's own calls (cuBLAS, cuDNN, its kernels), torch.compile, and kernels in Triton and
TileLang (`benches.peers`), where these are present.  A peer that is absent, or does not offer an operator, is named
with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benches.gpu.torch_calls import Tensors, operator
from benches.peers import with_tilelang, with_triton
from benches.peers.interface import NotOfferedError
from rollergen.bench.suites import Entry

Call = Callable[[], object]
Offered = tuple[dict[str, Call], dict[str, str]]
"""Calls that compete, by name, and why others do not."""

WRITTEN: Sequence[Any] = (with_triton, with_tilelang)
"""Of `benches.peers`: with a ``LIBRARY``, and ``enqueued(name, tensors, out, settings)``."""
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2, "int32": 0.0, "int8": 0.0}
"""Relative difference, of the largest element, beyond which a peer has computed something else than we."""
NAME = "peers"
"""Of the result file of `compilers`."""
TORCH, COMPILED = "torch", "torch.compile"


def libraries(entry: Entry, inputs: Tensors, want: Any, compile_with: Mapping[str, Any]) -> Offered:
    """torch's own call, which writes into an array that is there where torch has it so."""
    made = operator(entry)
    prepared = made.prepare(*inputs)
    if made.into is None:
        return _held({TORCH: lambda: lambda: made.call(*prepared)}, want)
    into, out = made.into, _like(want)

    def call() -> Any:
        into(*prepared, out)
        return out

    return _held({TORCH: lambda: call}, want)


def compilers(entry: Entry, inputs: Tensors, want: Any, compile_with: Mapping[str, Any]) -> Offered:
    """torch.compile (its arguments ``compile_with``), and the kernels that are written for this comparison."""

    def compiled() -> Call:
        import torch

        made = operator(entry)
        prepared = made.prepare(*inputs)
        function = torch.compile(made.call, dynamic=False, **compile_with)
        return lambda: function(*prepared)

    makers = {COMPILED: compiled}
    for module in WRITTEN:
        if module.LIBRARY.absent() is None:
            makers[module.LIBRARY.name] = lambda module=module: _written(module.enqueued, entry, inputs, want)
    return _held(makers, want)


def _held(makers: Mapping[str, Callable[[], Call]], want: Any) -> Offered:
    """The calls whose results agree with ours ``want``, which was checked in whole."""
    found: dict[str, Call] = {}
    refused: dict[str, str] = {}
    for name, make in makers.items():
        try:
            call = make()
            _agree(call(), want)
        except NotOfferedError as error:
            refused[name] = str(error)
        except Exception as error:  # whatever a library, a compiler or a tuner raises: there is no kernel to time
            refused[name] = f"fails: {(str(error).splitlines() or [repr(error)])[0][:200]}"
        else:
            found[name] = call
    return found, refused


def _agree(got: Any, want: Any) -> None:
    """Raises ValueError for another shape, and for elements too far apart."""
    if got.shape != want.shape:
        raise ValueError(f"its result has shape {tuple(got.shape)}, ours {tuple(want.shape)}")
    apart = float((got.double() - want.double()).abs().max() / want.double().abs().max().clamp_min(1e-30))
    if not apart <= TOLERANCE[str(want.dtype).removeprefix("torch.")]:
        raise ValueError(f"it computes something else than we (largest difference {apart:.2g})")


def _like(want: Any) -> Any:
    """An array that no result has been written to."""
    fill = float("nan") if want.is_floating_point() else -1
    return want.new_full(want.shape, fill)


def _written(enqueued: Callable[..., Call], entry: Entry, inputs: Tensors, want: Any) -> Call:
    name, tensors, settings = _request(entry, inputs)
    out = _like(want)
    call = enqueued(name, tensors, out.view(-1, out.shape[-1]) if name == "matmul" else out, settings)

    def whole() -> Any:
        call()
        return out

    return whole


def _request(entry: Entry, inputs: Tensors) -> tuple[str, Tensors, Mapping[str, Any]]:
    """The entry as an operation of `benches.peers`, on the same memory.  Raises NotOfferedError."""
    fields, kind = entry.fields, entry.kind
    if kind in ("linear", "decode"):
        x, weights = inputs
        return "matmul", (x.reshape(-1, x.shape[-1]), weights.t()), {}
    if kind in ("layer_norm", "rms_norm"):
        return kind, inputs, {"normalized_shape": inputs[0].shape[-1:]}
    settings: Mapping[str, Mapping[str, Any]] = {
        "matmul": {}, "add": {}, "gelu": {}, "elementwise": {}, "softmax": {"dim": -1},
        "reduce_sum": {"dim": tuple(fields.get("reduce_axes", ()))},
        "sum": {"dim": fields.get("axis")}, "max": {"dim": fields.get("axis")},
    }  # fmt: skip
    if kind not in settings:
        raise NotOfferedError(f"no kernel is written for {kind}")
    return {"elementwise": "relu", "reduce_sum": "sum"}.get(kind, kind), inputs, settings[kind]


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
