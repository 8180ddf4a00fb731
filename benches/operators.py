"""One description for each measured operator: read by the correctness check and by the timing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rollergen as rg

Arrays = Sequence[np.ndarray]
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """``peer(arrays)`` makes a call of the best that the peer library offers, output preallocated where it
    can be; ``target`` is the least acceptable peer time over ours; ``work`` counts floating-point
    operations (``unit`` GFLOP/s) or bytes (GB/s)."""

    name: str
    make: Callable[[], Any]
    peer_name: str
    peer: Callable[[Arrays], Call]
    target: float
    work: float
    unit: str


def _torch(arrays: Arrays) -> list[Any]:
    import torch

    return [torch.from_numpy(array) for array in arrays]


def _matmul(m: int, n: int, k: int, target: float, constant: bool = False) -> Case:
    def make() -> Any:
        return rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n), constant=constant), name="C")

    def peer(arrays: Arrays) -> Call:
        out = np.empty((m, n), np.float32)
        return lambda: np.matmul(arrays[0], arrays[1], out=out)

    name = f"matmul {m}x{n}x{k}" + (", constant B" if constant else "")
    return Case(name, make, "NumPy", peer, target, 2.0 * m * n * k, "GFLOP/s")


def _matmul_bias_relu(m: int, n: int, k: int, target: float) -> Case:
    def make() -> Any:
        product = rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n)))
        return rg.ops.relu(rg.ops.bias_add(product, rg.tensor("bias", (n,))), name="C")

    def peer(arrays: Arrays) -> Call:
        import torch

        a, b, bias = _torch(arrays)
        out = torch.empty(m, n)
        return lambda: torch.relu_(torch.addmm(bias, a, b, out=out))

    return Case(f"matmul+bias+relu {m}x{n}x{k}", make, "PyTorch", peer, target, 2.0 * m * n * k, "GFLOP/s")


def _conv(
    image: tuple[int, ...], filters: int, kernel: int, stride: int, padding: int, target: float
) -> Case:
    def make() -> Any:
        x, w = rg.tensor("X", image), rg.tensor("W", (filters, image[1], kernel, kernel))
        return rg.ops.conv2d(x, w, stride=stride, padding=padding, name="Y")

    def peer(arrays: Arrays) -> Call:
        from torch.nn.functional import conv2d

        x, w = _torch(arrays)
        return lambda: conv2d(x, w, stride=stride, padding=padding)

    size = (image[2] + 2 * padding - kernel) // stride + 1
    work = 2.0 * image[0] * filters * size * size * image[1] * kernel * kernel
    name = f"conv {kernel}x{kernel} stride {stride}, {'x'.join(map(str, image))} to {filters}"
    return Case(name, make, "PyTorch", peer, target, work, "GFLOP/s")


def _softmax(rows: int, columns: int, target: float) -> Case:
    def peer(arrays: Arrays) -> Call:
        import torch

        (x,) = _torch(arrays)
        out = torch.empty_like(x)
        return lambda: torch.softmax(x, -1, out=out)

    def make() -> Any:
        return rg.ops.softmax(rg.tensor("X", (rows, columns)), name="Y")

    return Case(f"softmax {rows}x{columns}", make, "PyTorch", peer, target, 8.0 * rows * columns, "GB/s")


def _sum(rows: int, columns: int, axis: int, target: float) -> Case:
    def peer(arrays: Arrays) -> Call:
        import torch

        (x,) = _torch(arrays)
        out = torch.empty(columns if axis == 0 else rows)
        return lambda: torch.sum(x, axis, out=out)

    def make() -> Any:
        return rg.ops.sum(rg.tensor("X", (rows, columns)), axis, name="S")

    name = f"sum over the {'first' if axis == 0 else 'last'} axis, {rows}x{columns}"
    return Case(name, make, "PyTorch", peer, target, 4.0 * rows * columns, "GB/s")


def _transpose(rows: int, columns: int, target: float) -> Case:
    def peer(arrays: Arrays) -> Call:
        import torch

        (x,) = _torch(arrays)
        out = torch.empty(columns, rows)
        return lambda: out.copy_(x.t())

    def make() -> Any:
        return rg.ops.t(rg.tensor("X", (rows, columns)), name="Y")

    return Case(f"transpose {rows}x{columns}", make, "PyTorch", peer, target, 8.0 * rows * columns, "GB/s")


def _elementwise(name: str, inputs: int, elements: int, peer: Callable[..., Any], make: Any, target: float) -> Case:
    def call(arrays: Arrays) -> Call:
        out = np.empty(elements, np.float32)
        return lambda: peer(*arrays, out=out)

    work = 4.0 * elements * (inputs + 1)
    return Case(f"{name} of {4 * elements >> 20} MB", make, "NumPy", call, target, work, "GB/s")


_MB64 = 1 << 24

CASES = (
    _matmul(1024, 1024, 1024, 0.97),
    _matmul(1024, 1024, 1024, 1.0, constant=True),
    _matmul(997, 997, 997, 0.9),
    _matmul(128, 4096, 4096, 0.9),
    _matmul_bias_relu(1024, 1024, 1024, 0.95),
    _conv((1, 64, 56, 56), 64, 3, 1, 1, 0.95),
    _conv((1, 3, 224, 224), 64, 7, 2, 3, 1.0),
    _softmax(4096, 1024, 1.4),
    _sum(4096, 1024, 1, 0.95),
    _sum(4096, 1024, 0, 1.0),
    _transpose(4096, 4096, 2.0),
    _elementwise(
        "relu", 1, _MB64, lambda x, out: np.maximum(x, np.float32(0), out=out),
        lambda: rg.ops.relu(rg.tensor("X", (_MB64,)), name="Y"), 1.0,
    ),
    _elementwise(
        "add", 2, _MB64, np.add,
        lambda: rg.ops.add(rg.tensor("A", (_MB64,)), rg.tensor("B", (_MB64,)), name="Y"), 1.0,
    ),
)  # fmt: skip
