"""Operators that between them use every mechanism of the model: what a spec is tried on.

Each is small enough to be constructed in a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rollergen as rg
from rollergen.expr.language import Tensor
from rollergen.expr.primitives import FUNCTIONS, PRIMITIVES


def representative() -> dict[str, Tensor]:
    """Expressions by name: products in each arithmetic, windows, chains, rows, columns, functions, copies, tails."""
    return {name: make() for name, make in _MAKERS.items()}


def _product(m: int, n: int, k: int, dtype: str = "float32") -> Callable[[], Tensor]:
    return lambda: rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype), name="C")


def _quantized() -> Tensor:
    left, right = rg.tensor("A", (256, 512), "int8"), rg.tensor("B", (512, 256), "int8")
    return rg.ops.quantized_matmul(left, right, a_scale=0.1, b_scale=0.1, name="C")


def _convolution(dtype: str = "float32") -> Tensor:
    image, weight = rg.tensor("X", (2, 32, 29, 29), dtype), rg.tensor("W", (48, 32, 3, 3), dtype)
    return rg.ops.conv2d(image, weight, padding=1, name="Y")


def _depthwise() -> Tensor:
    return rg.ops.depthwise_conv2d(rg.tensor("X", (4, 32, 30, 30)), rg.tensor("W", (32, 1, 3, 3)), name="Y")


def _attention() -> Tensor:
    return rg.ops.attention(*[rg.tensor(name, (2, 128, 64), "float16") for name in "QKV"], name="O")


def _functions() -> Tensor:
    """One of each function that a spec has a cost for."""
    x, y = rg.tensor("X", (64, 100)), rg.tensor("Z", (64, 100))

    def at(i: Any, j: Any) -> Any:
        a, b = x[i, j], y[i, j]
        first = {PRIMITIVES[name].cost: name for name in reversed(FUNCTIONS) if PRIMITIVES[name].cost}
        priced = [getattr(rg, name)(a) for name in FUNCTIONS if first.get(PRIMITIVES[name].cost) == name]
        return sum(priced) / rg.pow(a, b) + rg.cast(i + j, "float32")

    return rg.compute((64, 100), at, name="Y")


def _unary(function: str, shape: tuple[int, ...], **arguments: object) -> Callable[[], Tensor]:
    return lambda: getattr(rg.ops, function)(rg.tensor("X", shape), **arguments, name="Y")


_MAKERS: dict[str, Callable[[], Tensor]] = {
    "matmul": _product(512, 512, 512),
    "matmul with tails": _product(63, 1000, 130),
    "matmul beyond caches": _product(6000, 4096, 5000),
    "matmul, float16": _product(256, 256, 256, "float16"),
    "matmul, bfloat16": _product(256, 256, 256, "bfloat16"),
    "matmul, float64": _product(256, 256, 256, "float64"),
    "matmul, int8": _quantized,
    "conv2d": _convolution,
    "conv2d, float16": lambda: _convolution("float16"),
    "depthwise conv2d": _depthwise,
    "sum of rows": _unary("sum", (512, 4096), axis=-1),
    "sum of columns": _unary("sum", (256, 256), axis=0),
    "softmax": _unary("softmax", (512, 1000)),
    "functions": _functions,
    "attention, float16": _attention,
    "transpose": _unary("t", (2048, 1000)),
}
