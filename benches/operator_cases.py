"""Operators of every class with the operation that libraries are asked for: the frozen list of `bench_operators`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import rollergen as rg
from benches.peers.interface import Operation

T = rg.tensor


@dataclass(frozen=True)
class Case:
    """``kind``: the class over which ratios are averaged; ``operation``: what libraries are asked for."""

    kind: str
    name: str
    make: Callable[[], Any]
    operation: Operation


def contractions() -> Iterator[Case]:
    for m, n, k in ((1024, 1024, 1024), (997, 997, 997), (128, 4096, 4096), (512, 512, 2048), (1, 4096, 4096)):
        make = lambda m=m, n=n, k=k: rg.ops.matmul(T("A", (m, k)), T("B", (k, n)), name="C")
        yield Case("contraction", f"matmul {m}x{n}x{k}", make, Operation("matmul", (m, n)))
    b, m, n, k = 12, 384, 384, 64
    make = lambda: rg.ops.batch_matmul(T("A", (b, m, k)), T("B", (b, k, n)), name="C")
    yield Case("contraction", f"batch_matmul {b}x{m}x{n}x{k}", make, Operation("batch_matmul", (b, m, n)))
    rows, outputs, inputs = 512, 3072, 768
    weights = lambda: (T("W", (outputs, inputs), constant=True), T("bias", (outputs,), constant=True))
    make = lambda: rg.ops.linear(T("X", (rows, inputs)), *weights(), name="Y")
    linear = Operation("linear", (rows, outputs), weights=(1, 2))
    yield Case("contraction", f"linear {rows}x{inputs} to {outputs}", make, linear)


def few_rows() -> Iterator[Case]:
    """Linear layers whose weights (N, K) come with the call, and a vector times a matrix (K, N)."""
    for rows, inputs, outputs in ((2, 1024, 4096), (8, 4096, 4096), (16, 768, 3072), (7, 768, 1000)):
        make = lambda m=rows, k=inputs, n=outputs: rg.ops.linear(T("X", (m, k)), T("W", (n, k)), name="Y")
        name = f"linear {rows}x{inputs} to {outputs}, weights of the call"
        yield Case("few rows", name, make, Operation("linear", (rows, outputs)))
    make = lambda: rg.ops.matmul(T("A", (1, 11008)), T("B", (11008, 4096)), name="C")
    yield Case("few rows", "matmul 1x4096x11008", make, Operation("matmul", (1, 4096)))


def _conv(
    kind: str, image: tuple[int, ...], filters: int, size: int, stride: int, padding: int, groups: int = 1
) -> Case:
    weight = (filters, image[1] // groups, size, size)
    side = (image[2] + 2 * padding - size) // stride + 1
    settings = {"stride": stride, "padding": padding, "groups": groups}

    def make() -> Any:
        return rg.ops.conv2d(T("X", image), T("W", weight, constant=True), name="Y", **settings)

    operation = Operation("conv2d", (image[0], filters, side, side), settings, weights=(1,))
    return Case(kind, f"{kind} {size}x{size}/{stride} {_by(image)} to {filters}", make, operation)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def convolutions() -> Iterator[Case]:
    yield _conv("convolution", (1, 64, 56, 56), 64, 3, 1, 1)
    yield _conv("convolution", (1, 256, 56, 56), 64, 1, 1, 0)
    yield _conv("convolution", (1, 3, 224, 224), 64, 7, 2, 3)
    yield _conv("convolution", (1, 128, 56, 56), 256, 3, 2, 1)
    yield _conv("convolution", (1, 512, 7, 7), 512, 3, 1, 1)
    yield _conv("convolution", (4, 64, 28, 28), 128, 1, 2, 0)
    shape, weight, settings = (1, 128, 1024), (128, 64, 4), {"stride": 2, "padding": 1}
    make = lambda: rg.ops.conv_transpose1d(T("X", shape), T("W", weight, constant=True), name="Y", **settings)
    operation = Operation("conv_transpose1d", (1, 64, 2048), settings, weights=(1,))
    yield Case("convolution", "transposed 4/2 1x128x1024 to 64", make, operation)


def depthwise() -> Iterator[Case]:
    for channels, side, size, stride in ((96, 112, 3, 2), (144, 56, 3, 1), (240, 28, 5, 1), (960, 7, 3, 1)):
        yield _conv("depthwise", (1, channels, side, side), channels, size, stride, size // 2, groups=channels)


def _pool(how: str, image: tuple[int, ...], size: int, stride: int, padding: int) -> Case:
    side = (image[2] + 2 * padding - size) // stride + 1
    ours = rg.ops.max_pool2d if how == "max" else rg.ops.avg_pool2d
    settings = {"kernel_size": size, "stride": stride, "padding": padding}
    operation = Operation(f"{how}_pool2d", (*image[:2], side, side), settings)
    make = lambda: ours(T("X", image), size, stride, padding, name="Y")
    return Case("pooling", f"{how} pool {size}x{size}/{stride} {_by(image)}", make, operation)


def pooling() -> Iterator[Case]:
    yield _pool("max", (1, 64, 112, 112), 3, 2, 1)
    yield _pool("max", (1, 128, 56, 56), 2, 2, 0)
    yield _pool("avg", (1, 192, 35, 35), 3, 1, 1)
    image = (8, 512, 7, 7)
    make = lambda: rg.ops.mean(T("X", image), (2, 3), name="Y")
    yield Case("pooling", "global average 8x512x7x7", make, Operation("mean", image[:2], {"dim": (2, 3)}))
    for input_side, side in ((14, 7), (13, 6)):
        yield _adaptive_average((8, 256, input_side, input_side), side)


def _adaptive_average(image: tuple[int, ...], side: int) -> Case:
    make = lambda: rg.ops.adaptive_avg_pool2d(T("X", image), side, name="Y")
    operation = Operation("adaptive_avg_pool2d", (*image[:2], side, side), {"output_size": side})
    return Case("pooling", f"adaptive average {_by(image)} to {side}x{side}", make, operation)


def _reduction(how: str, shape: tuple[int, ...], axis: int) -> Case:
    left = tuple(e for n, e in enumerate(shape) if n != axis)
    make = lambda: getattr(rg.ops, how)(T("X", shape), axis, name="Y")
    return Case("reduction", f"{how} over axis {axis} of {_by(shape)}", make, Operation(how, left, {"dim": axis}))


def reductions() -> Iterator[Case]:
    yield _reduction("sum", (4096, 1024), 1)
    yield _reduction("sum", (4096, 1024), 0)
    yield _reduction("amax", (4096, 1024), 1)
    yield _reduction("sum", (64, 512, 256), 1)
    yield _reduction("amax", (257, 1021), 0)


def _rows(shape: tuple[int, ...], ours: Callable[[Any], Any], operation: Operation) -> Case:
    return Case("row-resident", f"{operation.name} {_by(shape)}", lambda: ours(T("X", shape)), operation)


def row_resident() -> Iterator[Case]:
    for shape in ((4096, 1024), (384, 384), (256, 8192)):
        yield _rows(shape, lambda x: rg.ops.softmax(x, name="Y"), Operation("softmax", shape, {"dim": -1}))
    shape = (2048, 1000)
    yield _rows(shape, lambda x: rg.ops.log_softmax(x, name="Y"), Operation("log_softmax", shape, {"dim": -1}))
    shape = (2048, 768)
    norm = Operation("layer_norm", shape, {"normalized_shape": (768,)})
    yield _rows(shape, lambda x: rg.ops.layer_norm(x, 768, name="Y"), norm)
    shape = (4, 128, 28, 28)
    norm = Operation("group_norm", shape, {"num_groups": 32})
    yield _rows(shape, lambda x: rg.ops.group_norm(x, 32, name="Y"), norm)


def _elementwise(name: str, inputs: int, elements: int) -> Case:
    shape = (elements,)
    make = lambda: getattr(rg.ops, name)(*(T(f"X{n}", shape) for n in range(inputs)), name="Y")
    return Case("elementwise", f"{name} of {elements * 4 >> 10} KB", make, Operation(name, shape))


def elementwise() -> Iterator[Case]:
    for n in (1 << 24, 1 << 16):
        yield _elementwise("relu", 1, n)
    yield _elementwise("add", 2, 1 << 24)
    for name in ("gelu", "silu", "sigmoid", "tanh", "hardswish"):
        yield _elementwise(name, 1, 1 << 20)


def resizing() -> Iterator[Case]:
    image, size = (1, 64, 56, 56), (112, 112)
    settings = {"size": size, "mode": "bilinear"}
    make = lambda: rg.ops.interpolate(T("X", image), size, mode="bilinear", name="Y")
    operation = Operation("interpolate", (1, 64, *size), settings)
    yield Case("resizing", f"bilinear {_by(image)} to 112x112", make, operation)


def transposes() -> Iterator[Case]:
    for shape, order in (
        ((4096, 4096), (1, 0)),
        ((8, 64, 56, 56), (0, 2, 3, 1)),
        ((512, 128, 64), (1, 0, 2)),
        ((1009, 997), (1, 0)),
    ):
        operation = Operation("transpose", tuple(shape[n] for n in order), {"dims": order})
        make = lambda shape=shape, order=order: rg.ops.permute(T("X", shape), order, name="Y")
        yield Case("transpose", f"transpose {_by(shape)} to {order}", make, operation)


CASES = tuple(
    case
    for family in (
        contractions, few_rows, convolutions, depthwise, pooling, reductions, row_resident, elementwise,
        resizing, transposes,
    )
    for case in family()
)  # fmt: skip

