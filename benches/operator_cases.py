"""Operators of every class with the calls that compete: the frozen list of `bench_operators`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import Peer, numpy_into, onnx_node, torch_call, torch_into

import rollergen as rg

T = rg.tensor


@dataclass(frozen=True)
class Case:
    """``kind``: the class over which ratios are averaged; ``peers``: by library."""

    kind: str
    name: str
    make: Callable[[], Any]
    peers: Mapping[str, Peer]


def functional() -> Any:
    import torch

    return torch.nn.functional


def contractions() -> Iterator[Case]:
    for m, n, k in ((1024, 1024, 1024), (997, 997, 997), (128, 4096, 4096), (512, 512, 2048), (1, 4096, 4096)):
        make = lambda m=m, n=n, k=k: rg.ops.matmul(T("A", (m, k)), T("B", (k, n)), name="C")
        peers = {
            "NumPy": numpy_into(np.matmul, (m, n)),
            "PyTorch": torch_into(_mm, (m, n)),
            "ONNX Runtime": onnx_node("MatMul", (m, n)),
        }
        yield Case("contraction", f"matmul {m}x{n}x{k}", make, peers)
    b, m, n, k = 12, 384, 384, 64
    peers = {
        "NumPy": numpy_into(np.matmul, (b, m, n)),
        "PyTorch": torch_into(_bmm, (b, m, n)),
        "ONNX Runtime": onnx_node("MatMul", (b, m, n)),
    }
    make = lambda: rg.ops.batch_matmul(T("A", (b, m, k)), T("B", (b, k, n)), name="C")
    yield Case("contraction", f"batch_matmul {b}x{m}x{n}x{k}", make, peers)
    rows, outputs, inputs = 512, 3072, 768
    peers = {
        "PyTorch": torch_call(lambda x, w, bias: functional().linear(x, w, bias)),
        "ONNX Runtime": onnx_node("Gemm", (rows, outputs), weights=(1, 2), transB=1),
    }
    weights = lambda: (T("W", (outputs, inputs), constant=True), T("bias", (outputs,), constant=True))
    make = lambda: rg.ops.linear(T("X", (rows, inputs)), *weights(), name="Y")
    yield Case("contraction", f"linear {rows}x{inputs} to {outputs}", make, peers)


def _mm(a: Any, b: Any, out: Any) -> object:
    import torch

    return torch.mm(a, b, out=out)


def _bmm(a: Any, b: Any, out: Any) -> object:
    import torch

    return torch.bmm(a, b, out=out)


def _conv(
    kind: str, image: tuple[int, ...], filters: int, size: int, stride: int, padding: int, groups: int = 1
) -> Case:
    weight = (filters, image[1] // groups, size, size)
    side = (image[2] + 2 * padding - size) // stride + 1
    shape = (image[0], filters, side, side)
    settings = {"stride": stride, "padding": padding, "groups": groups}

    def make() -> Any:
        return rg.ops.conv2d(T("X", image), T("W", weight, constant=True), name="Y", **settings)

    peers = {
        "PyTorch": torch_call(lambda x, w: functional().conv2d(x, w, **settings)),
        "ONNX Runtime": onnx_node("Conv", shape, weights=(1,), strides=[stride] * 2, pads=[padding] * 4, group=groups),
    }
    return Case(kind, f"{kind} {size}x{size}/{stride} {'x'.join(map(str, image))} to {filters}", make, peers)


def convolutions() -> Iterator[Case]:
    yield _conv("convolution", (1, 64, 56, 56), 64, 3, 1, 1)
    yield _conv("convolution", (1, 256, 56, 56), 64, 1, 1, 0)
    yield _conv("convolution", (1, 3, 224, 224), 64, 7, 2, 3)
    yield _conv("convolution", (1, 128, 56, 56), 256, 3, 2, 1)
    yield _conv("convolution", (1, 512, 7, 7), 512, 3, 1, 1)
    yield _conv("convolution", (4, 64, 28, 28), 128, 1, 2, 0)


def depthwise() -> Iterator[Case]:
    for channels, side, size, stride in ((96, 112, 3, 2), (144, 56, 3, 1), (240, 28, 5, 1), (960, 7, 3, 1)):
        yield _conv("depthwise", (1, channels, side, side), channels, size, stride, size // 2, groups=channels)


def _pool(how: str, image: tuple[int, ...], size: int, stride: int, padding: int) -> Case:
    side = (image[2] + 2 * padding - size) // stride + 1
    shape = (*image[:2], side, side)
    ours = rg.ops.max_pool2d if how == "max" else rg.ops.avg_pool2d
    theirs = f"{how}_pool2d"
    attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
    if how == "avg":
        attributes["count_include_pad"] = 1  # type: ignore[assignment]
    peers = {
        "PyTorch": torch_call(lambda x: getattr(functional(), theirs)(x, size, stride, padding)),
        "ONNX Runtime": onnx_node("MaxPool" if how == "max" else "AveragePool", shape, **attributes),
    }
    make = lambda: ours(T("X", image), size, stride, padding, name="Y")
    return Case("pooling", f"{how} pool {size}x{size}/{stride} {'x'.join(map(str, image))}", make, peers)


def pooling() -> Iterator[Case]:
    yield _pool("max", (1, 64, 112, 112), 3, 2, 1)
    yield _pool("max", (1, 128, 56, 56), 2, 2, 0)
    yield _pool("avg", (1, 192, 35, 35), 3, 1, 1)
    image = (8, 512, 7, 7)
    peers = {
        "NumPy": numpy_into(lambda x, out: np.mean(x, axis=(2, 3), out=out), image[:2]),
        "PyTorch": torch_into(_mean, image[:2]),
        "ONNX Runtime": onnx_node("ReduceMean", image[:2], constants=(np.array([2, 3]),), keepdims=0),
    }
    yield Case("pooling", "global average 8x512x7x7", lambda: rg.ops.mean(T("X", image), (2, 3), name="Y"), peers)


def _mean(x: Any, out: Any) -> object:
    import torch

    return torch.mean(x, (2, 3), out=out)


def _reduction(how: str, shape: tuple[int, ...], axis: int) -> Case:
    left = tuple(e for n, e in enumerate(shape) if n != axis)

    def theirs(x: Any, out: Any) -> object:
        import torch

        return torch.sum(x, axis, out=out) if how == "sum" else torch.amax(x, axis, out=out)

    peers = {
        "NumPy": numpy_into(lambda x, out: getattr(np, how)(x, axis=axis, out=out), left),
        "PyTorch": torch_into(theirs, left),
        "ONNX Runtime": onnx_node(
            "ReduceSum" if how == "sum" else "ReduceMax", left, constants=(np.array([axis]),), keepdims=0
        ),
    }
    make = lambda: getattr(rg.ops, how)(T("X", shape), axis, name="Y")
    return Case("reduction", f"{how} over axis {axis} of {'x'.join(map(str, shape))}", make, peers)


def reductions() -> Iterator[Case]:
    yield _reduction("sum", (4096, 1024), 1)
    yield _reduction("sum", (4096, 1024), 0)
    yield _reduction("max", (4096, 1024), 1)
    yield _reduction("sum", (64, 512, 256), 1)
    yield _reduction("max", (257, 1021), 0)


def _rows(
    name: str, shape: tuple[int, int], ours: Callable[[Any], Any], theirs: Callable[..., object], node: Peer
) -> Case:
    peers = {"PyTorch": torch_call(theirs), "ONNX Runtime": node}
    return Case("row-resident", f"{name} {'x'.join(map(str, shape))}", lambda: ours(T("X", shape)), peers)


def row_resident() -> Iterator[Case]:
    for shape in ((4096, 1024), (384, 384), (256, 8192)):
        softmax = lambda x: functional().softmax(x, -1)
        node = onnx_node("Softmax", shape, axis=-1)
        yield _rows("softmax", shape, lambda x: rg.ops.softmax(x, name="Y"), softmax, node)
    shape = (2048, 1000)
    log_softmax = lambda x: functional().log_softmax(x, -1)
    node = onnx_node("LogSoftmax", shape, axis=-1)
    yield _rows("log_softmax", shape, lambda x: rg.ops.log_softmax(x, name="Y"), log_softmax, node)
    shape = (2048, 768)
    norm = lambda x: functional().layer_norm(x, shape[1:])
    node = onnx_node("LayerNormalization", shape, constants=(np.ones(768, np.float32), np.zeros(768, np.float32)))
    yield _rows("layer_norm", shape, lambda x: rg.ops.layer_norm(x, 768, name="Y"), norm, node)


def _elementwise(
    name: str, inputs: int, elements: int, ours: Callable[..., Any], peers: Mapping[str, Peer]
) -> Case:
    shape = (elements,)
    make = lambda: ours(*(T(f"X{n}", shape) for n in range(inputs)))
    return Case("elementwise", f"{name} of {elements * 4 >> 10} KB", make, peers)


def elementwise() -> Iterator[Case]:
    for n in (1 << 24, 1 << 16):
        peers = {
            "NumPy": numpy_into(lambda x, out: np.maximum(x, np.float32(0), out=out), (n,)),
            "PyTorch": torch_into(_clamp, (n,)),
            "ONNX Runtime": onnx_node("Relu", (n,)),
        }
        yield _elementwise("relu", 1, n, lambda x: rg.ops.relu(x, name="Y"), peers)
    n = 1 << 24
    numpy, torch = numpy_into(np.add, (n,)), torch_into(_add, (n,))
    peers = {"NumPy": numpy, "PyTorch": torch, "ONNX Runtime": onnx_node("Add", (n,))}
    yield _elementwise("add", 2, n, lambda x, y: rg.ops.add(x, y, name="Y"), peers)
    n = 1 << 20
    gelu = torch_call(lambda x: functional().gelu(x))
    peers = {"PyTorch": gelu, "ONNX Runtime": onnx_node("Gelu", (n,))}
    yield _elementwise("gelu", 1, n, lambda x: rg.ops.gelu(x, name="Y"), peers)
    peers = {"PyTorch": torch_call(lambda x: functional().silu(x))}
    yield _elementwise("silu", 1, n, lambda x: rg.ops.silu(x, name="Y"), peers)
    peers = {"PyTorch": torch_call(lambda x: x.sigmoid()), "ONNX Runtime": onnx_node("Sigmoid", (n,))}
    yield _elementwise("sigmoid", 1, n, lambda x: rg.ops.sigmoid(x, name="Y"), peers)
    torch = torch_call(lambda x: x.tanh())
    peers = {"NumPy": numpy_into(np.tanh, (n,)), "PyTorch": torch, "ONNX Runtime": onnx_node("Tanh", (n,))}
    yield _elementwise("tanh", 1, n, lambda x: rg.ops.tanh(x, name="Y"), peers)


def _clamp(x: Any, out: Any) -> object:
    import torch

    return torch.clamp_min(x, 0, out=out)


def _add(x: Any, y: Any, out: Any) -> object:
    import torch

    return torch.add(x, y, out=out)


def transposes() -> Iterator[Case]:
    for shape, order in (
        ((4096, 4096), (1, 0)),
        ((8, 64, 56, 56), (0, 2, 3, 1)),
        ((512, 128, 64), (1, 0, 2)),
        ((1009, 997), (1, 0)),
    ):
        turned = tuple(shape[n] for n in order)
        peers = {
            "NumPy": numpy_into(lambda x, out, order=order: np.copyto(out, x.transpose(order)), turned),
            "PyTorch": torch_into(lambda x, out, order=order: out.copy_(x.permute(order)), turned),
            "ONNX Runtime": onnx_node("Transpose", turned, perm=list(order)),
        }
        make = lambda shape=shape, order=order: rg.ops.transpose(T("X", shape), order, name="Y")
        yield Case("transpose", f"transpose {'x'.join(map(str, shape))} to {order}", make, peers)


CASES = tuple(
    case
    for family in (
        contractions, convolutions, depthwise, pooling, reductions, row_resident, elementwise, transposes
    )
    for case in family()
)  # fmt: skip

