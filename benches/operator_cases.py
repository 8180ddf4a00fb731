"""Operators of every class with the operation that libraries are asked for: the list of `bench_operators`, as tables.

A row begins with its class, over which ratios are averaged.  Where sizes are a network's, it is named behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import rollergen as rg
from benches.operation import Operation


def T(name: str, shape: tuple[int, ...], dtype: str = "float32", constant: bool = False) -> rg.Tensor:
    return rg.tensor(name, shape, dtype, constant=constant)


@dataclass(frozen=True)
class Case:
    """``kind``: the class over which ratios are averaged; ``operation``: what libraries are asked for."""

    kind: str
    name: str
    make: Callable[[], Any]
    operation: Operation


MATMULS = (  # class, rows, columns, reduced, dtype, whether the second factor is constant
    ("contraction", 1024, 1024, 1024, "float32", False),
    ("contraction", 997, 997, 997, "float32", False),
    ("contraction", 128, 4096, 4096, "float32", False),
    ("contraction", 512, 512, 2048, "float32", False),
    ("contraction", 512, 512, 512, "float32", True),
    ("few rows", 1, 4096, 4096, "float32", False),
    ("few rows", 1, 4096, 11008, "float32", False),
    ("int8", 512, 512, 512, "int8", False),
    ("int8", 1024, 1024, 1024, "int8", False),
    ("int8", 997, 997, 997, "int8", False),
    ("int8", 128, 3072, 768, "int8", True),  # BERT
    ("int8", 128, 768, 3072, "int8", True),  # BERT
    ("bfloat16", 512, 512, 512, "bfloat16", False),
    ("bfloat16", 1024, 1024, 1024, "bfloat16", False),
    ("bfloat16", 128, 3072, 768, "bfloat16", True),  # BERT
    ("bfloat16", 8, 4096, 4096, "bfloat16", True),  # LLaMA
    ("float16", 512, 512, 512, "float16", False),
    ("float16", 1024, 1024, 1024, "float16", False),
    ("float16", 128, 3072, 768, "float16", True),  # BERT
    ("float16", 8, 4096, 4096, "float16", True),  # LLaMA
)
BATCHES = (  # class, batch, rows, columns, reduced
    ("contraction", 12, 384, 384, 64),  # BERT, 384 tokens: scores
    ("contraction", 12, 128, 128, 64),  # BERT, 128 tokens: scores
    ("contraction", 12, 128, 64, 128),  # BERT: weighted values
    ("contraction", 12, 197, 197, 64),  # ViT
    ("contraction", 12, 1024, 64, 1024),  # GPT-2
    ("contraction", 6, 1500, 1500, 64),  # Whisper
)
CALL, CONSTANT, BIAS = ", weights of the call", ", constant weights", ""
LINEARS = (  # class, rows, inputs, outputs, the weights (outputs, inputs): of the call, constant, or with a bias too
    ("contraction", 512, 768, 3072, BIAS),  # BERT
    ("contraction", 128, 768, 768, BIAS),  # BERT
    ("contraction", 128, 3072, 768, BIAS),  # BERT
    ("contraction", 197, 768, 2304, BIAS),  # ViT
    ("contraction", 1500, 384, 1536, BIAS),  # Whisper
    ("contraction", 64, 4096, 4096, CONSTANT),  # LLaMA
    ("contraction", 128, 768, 768, CALL),
    ("few rows", 2, 1024, 4096, CALL),
    ("few rows", 8, 4096, 4096, CALL),
    ("few rows", 16, 768, 3072, CALL),
    ("few rows", 7, 768, 1000, CALL),
    ("few rows", 1, 4096, 4096, CALL),
    ("few rows", 4, 768, 3072, CALL),
    ("few rows", 32, 512, 2048, CALL),
    ("few rows, constant", 1, 4096, 4096, CONSTANT),  # LLaMA
    ("few rows, constant", 1, 4096, 11008, CONSTANT),  # LLaMA
    ("few rows, constant", 8, 4096, 4096, CONSTANT),  # LLaMA
    ("few rows, constant", 16, 768, 3072, CONSTANT),
    ("few rows, constant", 1, 768, 50257, CONSTANT),  # GPT-2
    ("few rows, constant", 1, 2048, 1000, BIAS),  # ResNet-50
    ("few rows, constant", 1, 1280, 1000, BIAS),  # MobileNet-V2
)
CONVOLUTIONS = (  # class, image, filters, size of the window, stride; odd windows are padded by half of them
    ("convolution", (1, 64, 56, 56), 64, 3, 1),  # ResNet-50
    ("convolution", (1, 256, 56, 56), 64, 1, 1),  # ResNet-50
    ("convolution", (1, 3, 224, 224), 64, 7, 2),  # ResNet-50
    ("convolution", (1, 128, 56, 56), 256, 3, 2),
    ("convolution", (1, 512, 7, 7), 512, 3, 1),  # ResNet-50
    ("convolution", (4, 64, 28, 28), 128, 1, 2),
    ("convolution", (1, 64, 56, 56), 256, 1, 1),  # ResNet-50
    ("convolution", (1, 128, 28, 28), 128, 3, 1),  # ResNet-50
    ("convolution", (1, 512, 28, 28), 128, 1, 1),  # ResNet-50
    ("convolution", (1, 1024, 14, 14), 256, 1, 1),  # ResNet-50
    ("convolution", (1, 512, 7, 7), 2048, 1, 1),  # ResNet-50
    ("convolution", (1, 512, 28, 28), 1024, 1, 2),  # ResNet-50
    ("convolution", (1, 3, 224, 224), 32, 3, 2),  # MobileNet-V2
    ("convolution", (1, 96, 56, 56), 24, 1, 1),  # MobileNet-V2
    ("convolution", (1, 384, 14, 14), 64, 1, 1),  # MobileNet-V2
    ("convolution", (1, 320, 7, 7), 1280, 1, 1),  # MobileNet-V2
    ("convolution", (1, 64, 128, 128), 64, 3, 1),  # U-Net
    ("convolution", (1, 256, 32, 32), 256, 3, 1),  # U-Net
    ("convolution", (1, 3, 224, 224), 768, 16, 16),  # ViT: patches
    ("convolution of 14x14", (1, 256, 14, 14), 256, 3, 1),  # ResNet-50
    ("convolution of 14x14", (4, 256, 14, 14), 256, 3, 1),  # ResNet-50
    ("convolution of 14x14", (1, 128, 28, 28), 256, 3, 2),  # ResNet-18
    ("convolution of 14x14", (4, 128, 28, 28), 256, 3, 2),  # ResNet-18
    ("convolution of 14x14", (1, 256, 28, 28), 256, 3, 2),  # ResNet-50
)
DEPTHWISE = (  # class, image, size of the window, stride
    ("depthwise", (1, 96, 112, 112), 3, 2),  # MobileNet-V2
    ("depthwise", (1, 144, 56, 56), 3, 1),  # MobileNet-V2
    ("depthwise", (1, 240, 28, 28), 5, 1),  # EfficientNet
    ("depthwise", (1, 960, 7, 7), 3, 1),  # MobileNet-V2
    ("depthwise", (1, 32, 112, 112), 3, 1),  # MobileNet-V2
    ("depthwise", (1, 384, 14, 14), 3, 1),  # MobileNet-V2
    ("depthwise", (1, 576, 14, 14), 3, 2),  # MobileNet-V2
    ("depthwise", (1, 672, 14, 14), 5, 1),  # EfficientNet
    ("depthwise", (1, 96, 56, 56), 7, 1),  # ConvNeXt
)
TRANSPOSED = (  # class, image, filters, size of the window, stride, padding
    ("transposed convolution", (1, 128, 1024), 64, 4, 2, 1),
    ("transposed convolution", (1, 256, 8, 8), 128, 4, 2, 1),  # DCGAN
    ("transposed convolution", (1, 128, 16, 16), 64, 4, 2, 1),  # DCGAN
    ("transposed convolution", (1, 64, 32, 32), 3, 4, 2, 1),  # DCGAN
    ("transposed convolution", (1, 256, 32, 32), 128, 2, 2, 0),  # U-Net
)
POOLS = (  # class, how, image, size of the window, stride, padding
    ("pooling", "max", (1, 64, 112, 112), 3, 2, 1),  # ResNet-50
    ("pooling", "max", (1, 128, 56, 56), 2, 2, 0),  # VGG
    ("pooling", "max", (1, 64, 128, 128), 2, 2, 0),  # U-Net
    ("pooling", "avg", (1, 192, 35, 35), 3, 1, 1),  # Inception
    ("strided averages", "avg", (1, 256, 56, 56), 2, 2, 0),  # DenseNet
    ("strided averages", "avg", (1, 512, 28, 28), 2, 2, 0),  # DenseNet
    ("strided averages", "avg", (1, 64, 112, 112), 3, 2, 1),
    ("strided averages", "avg", (1, 192, 35, 35), 3, 2, 0),
)
GLOBAL_AVERAGES = (("pooling", (8, 512, 7, 7)), ("pooling", (1, 2048, 7, 7)), ("pooling", (1, 1280, 7, 7)))
ADAPTIVE = (("pooling", (8, 256, 14, 14), 7), ("pooling", (8, 256, 13, 13), 6))  # class, image, side of the result
REDUCTIONS = (  # class, how, shape, axis
    ("reduction", "sum", (4096, 1024), 1),
    ("reduction", "amax", (4096, 1024), 1),
    ("reduction", "amax", (257, 1021), 0),
    ("reduction", "sum", (64, 50000), 1),
    ("reduction", "sum", (8192, 64), 1),
    ("reduction", "amax", (384, 384), 1),
    ("leading sums", "sum", (4096, 1024), 0),
    ("leading sums", "sum", (64, 512, 256), 1),
    ("leading sums", "sum", (1024, 4096), 0),
    ("leading sums", "sum", (8192, 256), 0),
    ("leading sums", "sum", (128, 768), 0),
    ("leading sums", "sum", (32, 64, 3136), 0),
    ("argmax", "argmax", (4096, 10), 1),
    ("argmax", "argmax", (4096, 64), 1),
    ("argmax", "argmax", (128, 1000), 1),  # ImageNet's classes
    ("argmax", "argmax", (8, 50257), 1),  # GPT-2
    ("argmax", "argmax", (21, 65536), 0),  # segmentation
)
ROWS = (  # class, how, shape, PyTorch's setting
    ("row-resident", "softmax", (4096, 1024), {"dim": -1}),
    ("row-resident", "softmax", (384, 384), {"dim": -1}),
    ("row-resident", "softmax", (256, 8192), {"dim": -1}),
    ("row-resident", "softmax", (1536, 128), {"dim": -1}),  # BERT
    ("row-resident", "softmax", (2364, 197), {"dim": -1}),  # ViT
    ("row-resident", "softmax", (1, 50257), {"dim": -1}),  # GPT-2
    ("row-resident", "log_softmax", (2048, 1000), {"dim": -1}),
    ("norms", "layer_norm", (2048, 768), {"normalized_shape": (768,)}),
    ("norms", "layer_norm", (128, 768), {"normalized_shape": (768,)}),  # BERT
    ("norms", "layer_norm", (197, 768), {"normalized_shape": (768,)}),  # ViT
    ("norms", "layer_norm", (1500, 384), {"normalized_shape": (384,)}),  # Whisper
    ("norms", "layer_norm", (4096, 1024), {"normalized_shape": (1024,)}),
    ("norms", "rms_norm", (32, 4096), {"normalized_shape": (4096,)}),  # LLaMA
    ("norms", "rms_norm", (512, 4096), {"normalized_shape": (4096,)}),  # LLaMA
    ("norms", "group_norm", (4, 128, 28, 28), {"num_groups": 32}),
    ("norms", "group_norm", (1, 320, 64, 64), {"num_groups": 32}),  # U-Net of Stable Diffusion
)
MAPS = (  # class, how, inputs, elements
    ("elementwise", "relu", 1, 1 << 24),
    ("elementwise", "add", 2, 1 << 24),
    ("elementwise", "gelu", 1, 1 << 20),
    ("elementwise", "silu", 1, 1 << 20),
    ("elementwise", "sigmoid", 1, 1 << 20),
    ("elementwise", "tanh", 1, 1 << 20),
    ("elementwise", "hardswish", 1, 1 << 20),
    ("elementwise", "mul", 2, 128 * 11008),  # LLaMA
    ("elementwise", "relu", 1, 256 * 56 * 56),  # ResNet-50
    ("small maps", "relu", 1, 1 << 16),
    ("small maps", "add", 2, 1 << 16),
    ("small maps", "mul", 2, 1 << 16),
    ("small maps", "gelu", 1, 1 << 16),
    ("small maps", "silu", 1, 1 << 16),
    ("small maps", "tanh", 1, 1 << 14),
    ("small maps", "sigmoid", 1, 1 << 12),
    ("small maps", "add", 2, 1 << 12),
)
RESIZED = (  # class, image, size of the result
    ("resizing", (1, 64, 56, 56), (112, 112)),
    ("resizing", (1, 256, 16, 16), (32, 32)),  # U-Net
    ("resizing", (1, 21, 65, 65), (513, 513)),  # DeepLab
)
TRANSPOSES = (  # class, shape, order of its axes
    ("transpose", (4096, 4096), (1, 0)),
    ("transpose", (8, 64, 56, 56), (0, 2, 3, 1)),
    ("transpose", (512, 128, 64), (1, 0, 2)),
    ("transpose", (1009, 997), (1, 0)),
    ("transpose", (1024, 1024), (1, 0)),
    ("transpose", (1, 56, 56, 64), (0, 3, 1, 2)),
    ("transpose", (128, 12, 64), (1, 0, 2)),  # BERT
)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _matmul(kind: str, m: int, n: int, k: int, dtype: str, constant: bool) -> Case:
    make = lambda: rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype, constant=constant), name="C")
    called, result = ("int_matmul", "int32") if dtype == "int8" else ("matmul", dtype)
    name = f"matmul {m}x{n}x{k}" + f" {dtype}" * (dtype != "float32") + ", constant" * constant
    return Case(kind, name, make, Operation(called, (m, n), weights=(1,) * constant, dtype=result))


def _batch(kind: str, b: int, m: int, n: int, k: int) -> Case:
    make = lambda: rg.ops.batch_matmul(T("A", (b, m, k)), T("B", (b, k, n)), name="C")
    return Case(kind, f"batch_matmul {b}x{m}x{n}x{k}", make, Operation("batch_matmul", (b, m, n)))


def _linear(kind: str, rows: int, inputs: int, outputs: int, weights: str) -> Case:
    constant, shapes = weights != CALL, [("W", (outputs, inputs)), ("bias", (outputs,))][: 1 + (weights == BIAS)]
    tensors = lambda: (T(name, shape, constant=constant) for name, shape in shapes)
    make = lambda: rg.ops.linear(T("X", (rows, inputs)), *tensors(), name="Y")
    operation = Operation("linear", (rows, outputs), weights=(1, 2)[: len(shapes)] if constant else ())
    return Case(kind, f"linear {rows}x{inputs} to {outputs}{weights}", make, operation)


def _conv(kind: str, image: tuple[int, ...], filters: int, size: int, stride: int, groups: int = 1) -> Case:
    weight, padding = (filters, image[1] // groups, size, size), size // 2 if size % 2 else 0
    side = (image[2] + 2 * padding - size) // stride + 1
    settings = {"stride": stride, "padding": padding, "groups": groups}
    make = lambda: rg.ops.conv2d(T("X", image), T("W", weight, constant=True), name="Y", **settings)
    operation = Operation("conv2d", (image[0], filters, side, side), settings, weights=(1,))
    label = "depthwise" if groups > 1 else "convolution"
    return Case(kind, f"{label} {size}x{size}/{stride} {_by(image)} to {filters}", make, operation)


def _depthwise(kind: str, image: tuple[int, ...], size: int, stride: int) -> Case:
    return _conv(kind, image, image[1], size, stride, groups=image[1])


def _transposed(kind: str, image: tuple[int, ...], filters: int, size: int, stride: int, padding: int) -> Case:
    batch, channels, *sides = image
    weight, settings = (channels, filters, *[size] * len(sides)), {"stride": stride, "padding": padding}
    called = f"conv_transpose{len(sides)}d"
    make = lambda: getattr(rg.ops, called)(T("X", image), T("W", weight, constant=True), name="Y", **settings)
    result = (batch, filters, *((side - 1) * stride - 2 * padding + size for side in sides))
    operation = Operation(called, result, settings, weights=(1,))
    return Case(kind, f"transposed {size}/{stride} {_by(image)} to {filters}", make, operation)


def _pool(kind: str, how: str, image: tuple[int, ...], size: int, stride: int, padding: int) -> Case:
    side = (image[2] + 2 * padding - size) // stride + 1
    settings = {"kernel_size": size, "stride": stride, "padding": padding}
    operation = Operation(f"{how}_pool2d", (*image[:2], side, side), settings)
    make = lambda: getattr(rg.ops, f"{how}_pool2d")(T("X", image), size, stride, padding, name="Y")
    return Case(kind, f"{how} pool {size}x{size}/{stride} {_by(image)}", make, operation)


def _global_average(kind: str, image: tuple[int, ...]) -> Case:
    make = lambda: rg.ops.mean(T("X", image), (2, 3), name="Y")
    return Case(kind, f"global average {_by(image)}", make, Operation("mean", image[:2], {"dim": (2, 3)}))


def _adaptive(kind: str, image: tuple[int, ...], side: int) -> Case:
    make = lambda: rg.ops.adaptive_avg_pool2d(T("X", image), side, name="Y")
    operation = Operation("adaptive_avg_pool2d", (*image[:2], side, side), {"output_size": side})
    return Case(kind, f"adaptive average {_by(image)} to {side}x{side}", make, operation)


def _reduction(kind: str, how: str, shape: tuple[int, ...], axis: int) -> Case:
    left = tuple(e for n, e in enumerate(shape) if n != axis)
    make = lambda: getattr(rg.ops, how)(T("X", shape), axis, name="Y")
    operation = Operation(how, left, {"dim": axis}, dtype="int64" if how == "argmax" else "float32")
    return Case(kind, f"{how} over axis {axis} of {_by(shape)}", make, operation)


def _rows(kind: str, how: str, shape: tuple[int, ...], settings: dict[str, Any]) -> Case:
    make = lambda: getattr(rg.ops, how)(T("X", shape), *settings.values(), name="Y")
    return Case(kind, f"{how} {_by(shape)}", make, Operation(how, shape, settings))


def _map(kind: str, how: str, inputs: int, elements: int) -> Case:
    make = lambda: getattr(rg.ops, how)(*(T(f"X{n}", (elements,)) for n in range(inputs)), name="Y")
    return Case(kind, f"{how} of {elements * 4 >> 10} KB", make, Operation(how, (elements,)))


def _resized(kind: str, image: tuple[int, ...], size: tuple[int, int]) -> Case:
    settings = {"size": size, "mode": "bilinear"}
    make = lambda: rg.ops.interpolate(T("X", image), size, mode="bilinear", name="Y")
    operation = Operation("interpolate", (*image[:2], *size), settings)
    return Case(kind, f"bilinear {_by(image)} to {_by(size)}", make, operation)


def _transpose(kind: str, shape: tuple[int, ...], order: tuple[int, ...]) -> Case:
    make = lambda: rg.ops.permute(T("X", shape), order, name="Y")
    operation = Operation("transpose", tuple(shape[n] for n in order), {"dims": order})
    return Case(kind, f"transpose {_by(shape)} to {order}", make, operation)


TABLES: tuple[tuple[Callable[..., Case], tuple[tuple[Any, ...], ...]], ...] = (
    (_matmul, MATMULS), (_batch, BATCHES), (_linear, LINEARS), (_conv, CONVOLUTIONS), (_depthwise, DEPTHWISE),
    (_transposed, TRANSPOSED), (_pool, POOLS), (_global_average, GLOBAL_AVERAGES), (_adaptive, ADAPTIVE),
    (_reduction, REDUCTIONS), (_rows, ROWS), (_map, MAPS), (_resized, RESIZED), (_transpose, TRANSPOSES),
)  # fmt: skip
"""What makes a case of a row."""


def _listed() -> Iterator[Case]:
    """The cases of all tables, those of a class together."""
    every = [made(*row) for made, table in TABLES for row in table]
    for kind in dict.fromkeys(one.kind for one in every):
        yield from (one for one in every if one.kind == kind)


CASES = tuple(_listed())
