"""Products of narrow dtypes beside libraries: ``python benches/bench_narrow.py [--case TEXT] [--seconds S]``.

Of int8 and uint8 into int32 and into quantised bytes, of float16 and bfloat16, on one core: PyTorch (`torch._int_mm`,
`torch.mm`) and ONNX Runtime (MatMulInteger, QLinearMatMul, QLinearConv; weights as initializers, as ours are declared
constant).  Results are compared first: integers exactly, quantised bytes to one step, floats to a hundredth of the
largest; then all take turns in one process (`benches/timing`).  A case's ratio is the smallest, over the libraries, of
the median of their time over ours; a library whose result differs is named with the difference, and not timed.  So is
ONNX Runtime of uint8 and int8 where processors have no VNNI, unless weights are within 7 bits: it adds up pairs of
products that saturate at 16 bits.  All cases together are kept, in results/narrow_<cpu>_<day>.json.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.cores import bind

bind()

from collections.abc import Callable
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import rollergen as rg
from benches.aims import Aim
from benches.by_case import Row, run
from benches.timing import in_turns
from rollergen.expr.dtypes import bounds, is_float, numpy_dtype

LEAST = 1.0
T = rg.tensor
Arrays = list[np.ndarray]
Peer = Callable[[Arrays], tuple[Callable[[], object], Callable[[], np.ndarray]]]
"""Arrays -> a call, and what gives its result."""


@dataclass(frozen=True)
class Case:
    """``apart``: how far results may lie apart, of the largest; ``narrow``: the second factor within 7 bits."""

    kind: str
    name: str
    make: Callable[[], Any]
    peers: dict[str, Peer]
    products: int
    apart: float = 0.0
    narrow: bool = False


def torch_into(function: str, shape: tuple[int, ...], dtype: str) -> Peer:
    """A function of torch that writes into an array which is there."""

    def peer(arrays: Arrays) -> Any:
        import torch

        torch.set_num_threads(1)
        made = [torch.from_numpy(a.view(np.int16)).view(getattr(torch, dtype)) if is_float(dtype) else
                torch.from_numpy(a) for a in arrays]  # fmt: skip
        out = torch.empty(shape, dtype=getattr(torch, dtype if is_float(dtype) else "int32"))
        return lambda: getattr(torch, function)(*made, out=out), lambda: out.to(torch.float64).numpy()

    return peer


def onnx(op: str, shape: tuple[int, ...], dtype: str, weights: tuple[int, ...] = (), order: str = "ab",
         constants: dict[str, Any] | None = None, **attributes: Any) -> Peer:  # fmt: skip
    """One node of ONNX Runtime; ``order``: the names of its inputs, of which a and b are the arrays."""

    def peer(arrays: Arrays) -> Any:
        import onnxruntime
        from onnx import helper, numpy_helper

        known = dict(zip("ab", arrays, strict=True)) | {k: np.asarray(v) for k, v in (constants or {}).items()}
        of = lambda what: helper.np_dtype_to_tensor_dtype(np.dtype(what))
        given = [name for n, name in enumerate("ab") if n not in weights]
        inputs = [helper.make_tensor_value_info(name, of(known[name].dtype), known[name].shape) for name in given]
        out = helper.make_tensor_value_info("y", of(dtype), shape)
        kept = [numpy_helper.from_array(value, name) for name, value in known.items() if name not in given]
        node = helper.make_node(op, list(order), ["y"], **attributes)
        graph = helper.make_graph([node], "graph", inputs, [out], kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name in given:
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(known[name]))
        result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(shape, dtype))
        binding.bind_ortvalue_output("y", result)
        return lambda: session.run_with_iobinding(binding), lambda: result.numpy().astype(np.float64)

    return peer


def whole(m: int, n: int, k: int, a: str, b: str, constant: bool = False, narrow: bool = False) -> Case:
    """A product into int32."""
    make = lambda: rg.ops.matmul(T("A", (m, k), a), T("B", (k, n), b, constant=constant))
    peers = {"ONNX Runtime": onnx("MatMulInteger", (m, n), "int32", (1,) if constant else ())}
    if (a, b) == ("int8", "int8"):
        peers["PyTorch"] = torch_into("_int_mm", (m, n), "int8")
    name = f"{a} x {b} {m}x{n}x{k}{', constant' if constant else ''}{', of 7 bits' if narrow else ''}"
    return Case("int32", name, make, peers, m * n * k, narrow=narrow)


SCALES = {"s": np.float32(1), "z": np.uint8(128), "t": np.float32(1 / 512), "i": np.int8(0), "u": np.float32(1),
          "o": np.uint8(120)}  # fmt: skip
QUANTISED = {"scale": 1.0, "zero_point": 120, "dtype": "uint8"}


def quantised_matmul(m: int, n: int, k: int, narrow: bool = False) -> Case:
    tensors = lambda: (T("A", (m, k), "uint8"), T("B", (k, n), "int8", constant=True), 1.0, 1 / 512)
    make = lambda: rg.ops.quantized_matmul(*tensors(), a_zero_point=128, **QUANTISED)
    peers = {"ONNX Runtime": onnx("QLinearMatMul", (m, n), "uint8", (1,), "aszbtiuo", SCALES)}
    name = f"quantised matmul {m}x{n}x{k}{', of 7 bits' if narrow else ''}"
    return Case("quantised", name, make, peers, m * n * k, 1 / 255, narrow)


def quantised_conv(channels: int, side: int, filters: int, size: int, stride: int = 1, narrow: bool = False) -> Case:
    half = size // 2
    out, weight = (side + 2 * half - size) // stride + 1, (filters, channels, size, size)
    tensors = lambda: (T("X", (1, channels, side, side), "uint8"), T("W", weight, "int8", constant=True), 1.0, 1 / 512)
    make = lambda: rg.ops.quantized_conv2d(*tensors(), stride=stride, padding=half, x_zero_point=128, **QUANTISED)
    settings = {"strides": [stride] * 2, "pads": [half] * 4}
    shape = (1, filters, out, out)
    peers = {"ONNX Runtime": onnx("QLinearConv", shape, "uint8", (1,), "aszbtiuo", SCALES, **settings)}
    name = f"quantised convolution {size}x{size}/{stride} {channels}x{side}x{side} to {filters}"
    name += ", of 7 bits" if narrow else ""
    return Case("quantised", name, make, peers, filters * channels * size * size * out * out, 1 / 255, narrow)


def half(m: int, n: int, k: int, dtype: str) -> Case:
    make = lambda: rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype))
    peers = {"PyTorch": torch_into("mm", (m, n), dtype)}
    return Case("halves", f"{dtype} {m}x{n}x{k}", make, peers, m * n * k, 1e-2)


CASES = (
    whole(512, 512, 512, "int8", "int8"), whole(1024, 1024, 1024, "int8", "int8"),
    whole(512, 512, 512, "int8", "int8", True), whole(8, 4096, 4096, "int8", "int8", True),
    whole(512, 512, 512, "uint8", "int8"), whole(512, 512, 512, "uint8", "uint8"),
    whole(128, 3072, 768, "uint8", "int8", True), whole(1, 4096, 4096, "uint8", "int8", True),
    whole(997, 997, 997, "int8", "int8"),
    whole(512, 512, 512, "uint8", "int8", narrow=True), whole(128, 3072, 768, "uint8", "int8", True, narrow=True),
    whole(1, 4096, 4096, "uint8", "int8", True, narrow=True),
    quantised_matmul(128, 768, 3072), quantised_matmul(512, 512, 512), quantised_matmul(1, 4096, 4096),
    quantised_conv(64, 56, 64, 3), quantised_conv(256, 56, 64, 1), quantised_conv(128, 28, 128, 3),
    quantised_conv(256, 14, 256, 3), quantised_conv(3, 224, 64, 7, 2), quantised_conv(128, 56, 128, 3, 2),
    quantised_matmul(128, 768, 3072, True), quantised_conv(64, 56, 64, 3, narrow=True),
    quantised_conv(256, 56, 64, 1, narrow=True), quantised_conv(128, 28, 128, 3, narrow=True),
    half(512, 512, 512, "float16"), half(512, 512, 512, "bfloat16"), half(128, 3072, 768, "bfloat16"),
)  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if is_float(dtype):
        return (rng.random(shape, dtype=np.float32) * 2 - 1).astype(numpy_dtype(dtype))
    low, high = bounds(dtype)
    return rng.integers(low, high, shape, dtype, endpoint=True)


def measure(case: Case, seconds: float) -> Row:
    kernel = rg.build(case.make(), "cpu", cache=False)
    rng = np.random.default_rng(1)
    arrays = [drawn(b.shape, b.dtype, rng) for b in kernel.signature.inputs]
    if case.narrow:
        arrays[1] //= 2
    out = kernel(*arrays)
    ours = out.astype(np.float64)
    calls: dict[str, Callable[[], object]] = {}
    missing: dict[str, str] = {}
    for library, peer in case.peers.items():
        try:
            calls[library], result = peer(arrays)
            calls[library]()
        except (ImportError, RuntimeError, NotImplementedError) as error:
            missing[library] = str(error).splitlines()[0]
            calls.pop(library, None)
            continue
        apart = float(np.abs(result() - ours).max() / np.abs(ours).max())
        if apart > case.apart:
            missing[library] = f"computes something else (largest difference {apart:.2g})"
            del calls[library]
    turns = in_turns({"rollergen": lambda: kernel(*arrays, out=out), **calls}, seconds)
    own = turns["rollergen"].again
    ratios = {name: median(t / o for t, o in zip(turns[name].again, own, strict=True)) for name in calls}
    return {
        "kind": case.kind, "case": case.name, "ratio": min(ratios.values(), default=None), "ratios": ratios,
        "missing": missing, "ours_seconds": median(own), "seconds": {name: median(turns[name].again) for name in calls},
        "predicted_seconds": kernel.predicted_time, "rounds": len(own),
        "gop_s": 2 * case.products / median(own) / 1e9,
        "instructions": sorted({stage.compute.instruction for stage in kernel.program.stages}),
    }  # fmt: skip


def said(row: Row) -> str:
    without = "".join(f", {library} {why}" for library, why in row["missing"].items())
    return f"{row['gop_s']:.0f} Gop/s{without}"


def aims(found: list[Row]) -> tuple[Aim, ...]:
    found = [one for one in found if one["ratio"] is not None]
    mean, worst = geometric_mean(one["ratio"] for one in found), min(found, key=lambda one: one["ratio"])
    what = f"The best library's time over ours, {len(found)} products of narrow dtypes on one core"
    return (
        Aim(f"{what}, geometric mean", f"{mean:.3f}", f"at least {LEAST}", mean >= LEAST),
        Aim(f"{what}, the lowest", f"{worst['ratio']:.2f}, {worst['case']}", "", True),
    )


if __name__ == "__main__":
    raise SystemExit(run(__doc__, "narrow", CASES, measure, said, aims))
