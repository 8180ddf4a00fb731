"""Operators beside the suites: odd, small and narrow ones of every class, for what the frozen lists would hide.

Half of the list is written down; the other half is drawn by class from a seed, the same at every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import rollergen as rg
from rollergen.construct.options import BuildOptions

T = rg.tensor
SEED = 1
NARROW = ("float16", "bfloat16", "int8")


@dataclass(frozen=True)
class Beside:
    """``id`` says all; ``options``: what it is built with."""

    id: str
    kind: str
    make: Callable[[], Any]
    options: BuildOptions = BuildOptions()


def entries(seed: int = SEED) -> tuple[Beside, ...]:
    """The list; drawn sizes follow from the seed."""
    draw = random.Random(seed)
    found = [
        *_matmuls(), *_drawn_matmuls(draw), *_batches(), *_images(), *_drawn_images(draw), *_windows(), *_rows(),
        *_drawn_rows(draw), *_moves(),
    ]  # fmt: skip
    return tuple({one.id: one for one in found}.values())


def _matmul(m: int, n: int, k: int, dtype: str = "float32", transposed: bool = False, tf32: bool = False) -> Beside:
    shape = (n, k) if transposed else (k, n)
    make = lambda: rg.ops.matmul(T("A", (m, k), dtype), T("B", shape, dtype), transpose_b=transposed, name="C")
    id_ = f"matmul {m}x{n}x{k}{', B transposed' if transposed else ''} {'tf32' if tf32 else dtype}"
    return Beside(id_, "matmul", make, BuildOptions(allow_tf32=tf32))


def _matmuls() -> Iterator[Beside]:
    for m, n, k in ((96, 80, 64), (96, 80, 128), (33, 65, 31), (128, 128, 32), (1000, 1000, 1000), (4095, 4097, 511)):
        yield _matmul(m, n, k)
    yield _matmul(256, 256, 16)
    yield _matmul(7, 3000, 300, transposed=True)
    for dtype in NARROW:
        for m, n, k in ((64, 64, 64), (96, 80, 128), (257, 129, 65), (2048, 2048, 2048)):
            yield _matmul(m, n, k, dtype)
    yield _matmul(512, 1536, 768, "float16", transposed=True)
    yield _matmul(512, 1536, 768, "int8", transposed=True)
    yield _matmul(512, 768, 1024, tf32=True)
    yield _matmul(100, 75, 50, tf32=True)


def _drawn_matmuls(draw: random.Random) -> Iterator[Beside]:
    sizes = (17, 24, 40, 63, 64, 100, 127, 192, 200, 384, 640, 1023, 2000)
    for _ in range(8):
        m, n, k = (draw.choice(sizes) for _ in range(3))
        yield _matmul(m, n, k, draw.choice(("float32", *NARROW)), draw.random() < 0.4)


def _batches() -> Iterator[Beside]:
    for b, m, n, k, dtype in (
        (12, 128, 128, 64, "float32"), (5, 33, 47, 29, "float32"), (96, 64, 64, 32, "float16"), (3, 77, 77, 64, "int8"),
    ):  # fmt: skip
        make = lambda b=b, m=m, n=n, k=k, dtype=dtype: rg.ops.batch_matmul(
            T("A", (b, m, k), dtype), T("B", (b, k, n), dtype), name="C"
        )
        yield Beside(f"batch_matmul {b}x{m}x{n}x{k} {dtype}", "batch_matmul", make)


def nhwc(n: int, h: int, w: int, ci: int, co: int, size: int, stride: int = 1, dtype: str = "float32") -> Any:
    """A convolution of images that lie channels last, padded by half a window."""
    image, weights = T("X", (n, h, w, ci), dtype), T("W", (size, size, ci, co), dtype)
    half = size // 2
    padded = rg.ops.pad(image, (0, 0, half, half, half, half))
    i, j, c = rg.reduce_axis("i", size), rg.reduce_axis("j", size), rg.reduce_axis("c", ci)
    sides = tuple((side + 2 * half - size) // stride + 1 for side in (h, w))
    return rg.compute(
        (n, *sides, co),
        lambda b, y, x, o: rg.sum(padded[b, y * stride + i, x * stride + j, c] * weights[i, j, c, o], axis=(i, j, c)),
    )


def nchw(n: int, h: int, w: int, ci: int, co: int, size: int, stride: int = 1, dtype: str = "float32") -> Any:
    """The same with channels outside the pixels."""
    image, weights = T("X", (n, ci, h, w), dtype), T("W", (co, ci, size, size), dtype)
    return rg.ops.conv2d(image, weights, stride=stride, padding=size // 2, name="Y")


def _image(layout: Callable[..., Any], *sizes: Any) -> Beside:
    n, h, w, ci, co, size, stride, dtype = sizes
    id_ = f"conv {layout.__name__} {size}x{size}/{stride} {n}x{h}x{w}x{ci} to {co} {dtype}"
    return Beside(id_, f"conv {layout.__name__}", lambda: layout(*sizes))


def _images() -> Iterator[Beside]:
    for layout in (nhwc, nchw):
        for dtype in ("float32", *NARROW):
            yield _image(layout, 16, 58, 58, 64, 64, 3, 1, dtype)
            yield _image(layout, 3, 31, 29, 37, 41, 3, 1, dtype)
        yield _image(layout, 16, 56, 56, 64, 64, 3, 1, "float16")
        yield _image(layout, 32, 28, 28, 128, 128, 3, 1, "float16")
        yield _image(layout, 8, 14, 14, 256, 512, 1, 1, "float16")
        yield _image(layout, 4, 224, 224, 3, 64, 7, 2, "float32")
        yield _image(layout, 4, 112, 112, 16, 32, 5, 1, "float16")


def _drawn_images(draw: random.Random) -> Iterator[Beside]:
    for _ in range(12):
        size, stride = draw.choice((1, 3, 3, 5, 7)), draw.choice((1, 1, 2))
        side, channels = draw.choice((9, 13, 20, 28, 35, 56)), (8, 12, 24, 30, 48, 96, 160)
        sizes = (draw.choice((1, 2, 5, 16)), side, side + draw.choice((0, 0, 1, 3)))
        dtype = draw.choice(("float32", "float32", *NARROW))
        ends = (draw.choice(channels), draw.choice(channels))
        yield _image(draw.choice((nhwc, nchw)), *sizes, *ends, size, stride, dtype)


def _windows() -> Iterator[Beside]:
    for channels, side, size, stride, dtype in (
        (96, 57, 3, 1, "float32"), (144, 30, 5, 2, "float32"), (64, 33, 7, 1, "float32"), (32, 19, 11, 1, "float32"),
        (96, 56, 3, 1, "float16"), (240, 28, 5, 1, "float16"), (48, 31, 3, 2, "float16"),
    ):  # fmt: skip
        make = lambda channels=channels, side=side, size=size, stride=stride, dtype=dtype: rg.ops.depthwise_conv2d(
            T("X", (4, channels, side, side), dtype), T("W", (channels, 1, size, size), dtype), stride=stride,
            padding=size // 2, name="Y",
        )  # fmt: skip
        id_ = f"depthwise {size}x{size}/{stride} 4x{channels}x{side}x{side} {dtype}"
        yield Beside(id_, "depthwise_conv2d", make)
    for how, channels, side, size, stride, dtype in (
        ("max", 64, 57, 3, 2, "float32"), ("avg", 96, 28, 3, 1, "float32"), ("max", 32, 55, 2, 2, "float16"),
        ("avg", 17, 21, 5, 3, "float16"), ("max", 24, 33, 7, 1, "float32"),
    ):  # fmt: skip
        pool = rg.ops.max_pool2d if how == "max" else rg.ops.avg_pool2d
        make = lambda pool=pool, channels=channels, side=side, size=size, stride=stride, dtype=dtype: pool(
            T("X", (8, channels, side, side), dtype), size, stride, size // 2, name="Y"
        )
        yield Beside(f"{how} pool {size}x{size}/{stride} 8x{channels}x{side}x{side} {dtype}", "pooling", make)


def _of_rows(how: str, rows: int, columns: int, dtype: str) -> Beside:
    def make() -> Any:
        x = T("X", (rows, columns), dtype)
        if how == "layer_norm":
            return rg.ops.layer_norm(x, columns, T("g", (columns,), dtype), T("b", (columns,), dtype), name="Y")
        return getattr(rg.ops, how)(x, axis=-1, name="Y")

    return Beside(f"{how} {rows}x{columns} {dtype}", how, make)


def _rows() -> Iterator[Beside]:
    for columns in (64, 197, 768, 1000, 4096, 8192):
        yield _of_rows("softmax", 512, columns, "float32")
        yield _of_rows("layer_norm", 512, columns, "float32")
    for how, rows, columns in (("sum", 64, 50000), ("sum", 4096, 96), ("amax", 777, 333), ("mean", 3, 100003)):
        yield _of_rows(how, rows, columns, "float32")


def _drawn_rows(draw: random.Random) -> Iterator[Beside]:
    for _ in range(6):
        how = draw.choice(("softmax", "layer_norm", "sum", "argmax"))
        yield _of_rows(how, draw.choice((40, 513, 2048)), draw.choice((70, 384, 1031, 3000)), draw.choice(NARROW[:2]))


def _moves() -> Iterator[Beside]:
    for rows, columns, dtype in ((1024, 1024, "float32"), (333, 777, "float32"), (2048, 512, "float16")):
        make = lambda rows=rows, columns=columns, dtype=dtype: rg.ops.permute(
            T("X", (rows, columns), dtype), (1, 0), name="Y"
        )
        yield Beside(f"transpose {rows}x{columns} {dtype}", "transpose", make)
    make = lambda: rg.ops.sum(T("X", (500, 1000)), axis=0, name="Y")
    yield Beside("sum of columns 500x1000 float32", "sum", make)
    make = lambda: rg.ops.gelu(rg.ops.bias_add(T("X", (128, 3072), "float16"), T("b", (3072,), "float16"), axis=-1))
    yield Beside("gelu of bias_add 128x3072 float16", "elementwise", make)
    q = lambda: (T(name, (16, 197, 64)) for name in "QKV")
    yield Beside("attention 16x197x64 float32", "attention", lambda: rg.ops.attention(*q()))
