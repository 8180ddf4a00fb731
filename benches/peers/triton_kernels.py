"""Kernels in Triton, of float32, float16 and bfloat16 arrays in row-major order, products of int8 too; float32 stays
float32 (no TF32), integers are added up in int32.

Importing this needs Triton.  Each has a handful of configurations, the first of which fits every GPU since sm_80;
`tuned` is the kernel under Triton's own autotuner, which times them at the first call for each of its key's values.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, am, ak, bk, bn, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """``c[m, n] = a @ b``; am, ak, bk, bn: strides.  Programs go through columns of eight tiles, which L2 keeps."""
    number = tl.program_id(0)
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = number // (8 * across)
    high = min(down - 8 * group, 8)
    row = 8 * group + number % (8 * across) % high
    column = number % (8 * across) // high
    rows = row * TILE_M + tl.arange(0, TILE_M)
    columns = column * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    at_a = a + (rows % m)[:, None] * am + inner[None, :] * ak
    at_b = b + inner[:, None] * bk + (columns % n)[None, :] * bn
    whole: tl.constexpr = a.dtype.element_ty == tl.int8
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.int32 if whole else tl.float32)
    for done in range(0, k, TILE_K):
        left = k - done
        x = tl.load(at_a, mask=inner[None, :] < left, other=0)
        y = tl.load(at_b, mask=inner[:, None] < left, other=0)
        total = tl.dot(x, y, total, input_precision="ieee", out_dtype=tl.int32 if whole else tl.float32)
        at_a += TILE_K * ak
        at_b += TILE_K * bk
    at_c = c + rows[:, None] * n + columns[None, :]
    tl.store(at_c, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def matmul_by_descriptors(a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """As `matmul`, of matrices in row-major order whose tiles a copy engine brings and takes away."""
    number = tl.program_id(0)
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = number // (8 * across)
    high = min(down - 8 * group, 8)
    row = (8 * group + number % (8 * across) % high) * TILE_M
    column = number % (8 * across) // high * TILE_N
    all_a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [TILE_M, TILE_K])
    all_b = tl.make_tensor_descriptor(b, [k, n], [n, 1], [TILE_K, TILE_N])
    all_c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [TILE_M, TILE_N])
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for done in range(0, k, TILE_K):
        total = tl.dot(all_a.load([row, done]), all_b.load([done, column]), total)
    all_c.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def softmax(x, y, columns, TILE: tl.constexpr):
    """Of each row, which lies in registers: ``TILE`` is the power of two that holds it."""
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    value = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * columns + at, (power / tl.sum(power, axis=0)).to(y.dtype.element_ty), mask=at < columns)


@triton.jit
def norm(x, weight, bias, y, columns, eps, CENTRED: tl.constexpr, TILE: tl.constexpr):
    """Of each row, which lies in registers: layer norm, or (not ``CENTRED``) the root mean square's, without a bias."""
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    if CENTRED:
        value = tl.where(mask, value - tl.sum(value, axis=0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
    result = value * scale * tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    if CENTRED:
        result += tl.load(bias + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * columns + at, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def unary(x, y, size, NAME: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = tl.load(x + at, mask=at < size).to(tl.float32)
    if NAME == "relu":
        value = tl.maximum(value, 0.0)
    elif NAME == "sigmoid":
        value = tl.sigmoid(value)
    elif NAME == "tanh":
        value = 2.0 * tl.sigmoid(2.0 * value) - 1.0
    elif NAME == "silu":
        value = value * tl.sigmoid(value)
    else:
        tl.static_assert(NAME == "gelu")
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(y + at, value.to(y.dtype.element_ty), mask=at < size)


@triton.jit
def add(x, y, z, size, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = at < size
    tl.store(z + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def reduce_rows(x, y, columns, scale, IS_MAX: tl.constexpr, TILE: tl.constexpr):
    """``y[row] = scale * sum(x[row, :])``, or its maximum."""
    row = tl.program_id(0)
    at = tl.arange(0, TILE)
    neutral = float("-inf") if IS_MAX else 0.0
    found = tl.full((TILE,), neutral, dtype=tl.float32)
    for done in range(0, columns, TILE):
        value = tl.load(x + row * columns + done + at, mask=done + at < columns, other=neutral).to(tl.float32)
        found = tl.maximum(found, value) if IS_MAX else found + value
    result = tl.max(found, axis=0) if IS_MAX else tl.sum(found, axis=0) * scale
    tl.store(y + row, result.to(y.dtype.element_ty))


@triton.jit
def reduce_columns(x, y, rows, columns, scale, IS_MAX: tl.constexpr, TILE_R: tl.constexpr, TILE_C: tl.constexpr):
    """``y[outer, column] = scale * sum(x[outer, :, column])``, or its maximum."""
    outer = tl.program_id(1)
    at = tl.program_id(0) * TILE_C + tl.arange(0, TILE_C)
    down = tl.arange(0, TILE_R)
    neutral = float("-inf") if IS_MAX else 0.0
    found = tl.full((TILE_R, TILE_C), neutral, dtype=tl.float32)
    for done in range(0, rows, TILE_R):
        mask = (done + down < rows)[:, None] & (at < columns)[None, :]
        place = (outer * rows + done + down)[:, None] * columns + at[None, :]
        value = tl.load(x + place, mask=mask, other=neutral).to(tl.float32)
        found = tl.maximum(found, value) if IS_MAX else found + value
    result = tl.max(found, axis=0) if IS_MAX else tl.sum(found, axis=0) * scale
    tl.store(y + outer * columns + at, result.to(y.dtype.element_ty), mask=at < columns)


def _product(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"TILE_M": m, "TILE_N": n, "TILE_K": k}, num_warps=warps, num_stages=stages)


def _strips(*pairs: tuple[int, int]) -> list[triton.Config]:
    return [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in pairs]


CONFIGURATIONS: dict[str, list[triton.Config]] = {
    "matmul": [
        _product(64, 64, 32, 4, 3), _product(128, 128, 32, 8, 3), _product(128, 64, 32, 4, 4),
        _product(64, 128, 32, 4, 4), _product(32, 64, 64, 4, 3), _product(16, 128, 64, 4, 3),
        _product(16, 32, 64, 2, 3),
    ],
    "softmax": [triton.Config({}, num_warps=warps) for warps in (4, 8, 16, 2)],
    "norm": [triton.Config({}, num_warps=warps) for warps in (4, 8, 16, 2)],
    "unary": _strips((1024, 4), (2048, 8), (512, 4), (4096, 8)),
    "add": _strips((1024, 4), (2048, 8), (512, 4), (4096, 8)),
    "reduce_rows": _strips((1024, 4), (256, 2), (512, 4), (2048, 8), (4096, 16)),
    "reduce_columns": [
        triton.Config({"TILE_R": rows, "TILE_C": columns}, num_warps=warps)
        for rows, columns, warps in ((32, 64, 4), (8, 128, 4), (64, 32, 4), (16, 256, 8), (128, 32, 8))
    ],
}  # fmt: skip
KERNELS: dict[str, Any] = {
    "matmul": matmul, "softmax": softmax, "norm": norm, "unary": unary, "add": add, "reduce_rows": reduce_rows,
    "reduce_columns": reduce_columns,
}  # fmt: skip
_KEYS = {
    "matmul": ["m", "n", "k"], "softmax": ["columns"], "norm": ["columns", "CENTRED"], "unary": ["size", "NAME"],
    "add": ["size"],
    "reduce_rows": ["columns"], "reduce_columns": ["rows", "columns"],
}  # fmt: skip
_TUNED: dict[str, Any] = {}


def tuned(name: str) -> Any:
    """The kernel under the autotuner: one for the process, which remembers what it found."""
    if name not in _TUNED:
        _TUNED[name] = triton.autotune(CONFIGURATIONS[name], _KEYS[name])(KERNELS[name])
    return _TUNED[name]
