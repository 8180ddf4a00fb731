"""Programs with matrix instructions, from plans written out: what all readers are tested on."""

from __future__ import annotations

from functools import lru_cache

import rollergen as rg
from rollergen.construct.roles import contraction_roles
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan, matrix_stage
from rollergen.program.check import check
from rollergen.program.rprogram import RProgram

T = rg.tensor


def matmul(m: int, k: int, n: int, dtype: str = "float16", **how):
    shapes = (n, k) if how.get("transpose_b") else (k, n)
    a = (k, m) if how.get("transpose_a") else (m, k)
    return rg.ops.matmul(T("A", a, dtype), T("B", shapes, dtype), **how)


def product(m: int, k: int, n: int, dtype: str, turned: bool = True):
    """A product in float32, as its sums are; ``turned``: B lies (n, k)."""
    a, b = T("A", (m, k), dtype), T("B", (n, k) if turned else (k, n), dtype)
    at = rg.reduce_axis("k", k)
    single = lambda element: rg.cast(element, "float32")
    body = lambda i, j: rg.sum(single(a[i, at]) * single(b[(j, at) if turned else (at, j)]), axis=at)
    return rg.compute((m, n), body, name="out")


def gated(m: int, k: int, n: int, dtype: str = "float16", names: tuple[str, ...] = ("A", "B", "A", "C"), **how):
    """A product less what is positive of another; ``names`` of their factors."""
    a, b = ((m, k), (n, k)) if how.get("transpose_b") else ((m, k), (k, n))
    given = {name: T(name, shape, dtype) for name, shape in zip(names, (a, b, a, b), strict=True)}
    one, other = (rg.ops.matmul(given[names[at]], given[names[at + 1]], **how) for at in (0, 2))
    return rg.ops.sub(rg.ops.relu(one), other)


def nhwc_convolution(n: int, h: int, w: int, ci: int, co: int, r: int, dtype: str = "float16"):
    """Of images that lie channels last, padded so that the output is as large."""
    image, weights = T("X", (n, h, w, ci), dtype), T("W", (r, r, ci, co), dtype)
    padded = rg.ops.pad(image, (0, 0, r // 2, r // 2, r // 2, r // 2))
    i, j, c = rg.reduce_axis("i", r), rg.reduce_axis("j", r), rg.reduce_axis("c", ci)
    return rg.compute(
        (n, h, w, co), lambda b, y, x, o: rg.sum(padded[b, y + i, x + j, c] * weights[i, j, c, o], axis=(i, j, c))
    )


ODD, WHOLE = (75, 37, 107), (64, 64, 64)

# Remainders on every axis with several tiles along each; then whole tiles.
CASES = {
    "wmma": ("v100", lambda: matmul(*ODD), MatrixPlan("wmma", 1, 2, 2, 1, 1)),
    "wmma, two buffers, two warps each way": ("v100", lambda: matmul(*ODD), MatrixPlan("wmma", 2, 1, 1, 2, 2, 2)),
    "wmma, whole tiles": ("v100", lambda: matmul(*WHOLE), MatrixPlan("wmma", 2, 2, 2, 1, 2, 2)),
    "wmma, both turned": (
        "v100", lambda: matmul(*WHOLE, transpose_a=True, transpose_b=True), MatrixPlan("wmma", 1, 2, 2, 1, 1),
    ),
    "mma": ("a100", lambda: matmul(*ODD), MatrixPlan("mma", 1, 2, 2, 1, 1)),
    "mma, three columns of tiles": ("a100", lambda: matmul(*ODD), MatrixPlan("mma", 1, 3, 2, 1, 1)),
    "mma, five columns of tiles, a ring": ("a100", lambda: matmul(72, 88, 104), MatrixPlan("mma", 2, 5, 1, 1, 1, 3)),
    "wmma, three columns of tiles": ("v100", lambda: matmul(*ODD), MatrixPlan("wmma", 1, 3, 2, 1, 1)),
    "mma, one column of tiles": ("a100", lambda: matmul(*ODD), MatrixPlan("mma", 2, 1, 1, 2, 2, 2)),
    "mma, whole tiles": ("h200", lambda: matmul(*WHOLE), MatrixPlan("mma", 2, 4, 2, 1, 2, 2)),
    "mma, both turned": (
        "a100", lambda: matmul(*WHOLE, transpose_a=True, transpose_b=True), MatrixPlan("mma", 1, 4, 2, 1, 1),
    ),
    "mma, a ring of three buffers": ("a100", lambda: matmul(72, 88, 104), MatrixPlan("mma", 1, 2, 2, 1, 1, 3)),
    "mma, a ring of four, turned": (
        "h200", lambda: matmul(72, 88, 104, transpose_b=True), MatrixPlan("mma", 2, 2, 1, 2, 1, 4),
    ),
    "tf32": ("a100", lambda: matmul(*ODD, "float32"), MatrixPlan("mma_tf32", 1, 2, 2, 1, 2)),
    "int8": ("h200", lambda: matmul(*ODD, "int8"), MatrixPlan("mma_s8", 1, 2, 2, 1, 1, 2)),
    "float8_e4m3fn": ("rtx4090", lambda: product(*ODD, "float8_e4m3fn", turned=False), MatrixPlan("mma_e4m3", 1, 2, 2, 1, 1, 2)),
    "float8_e5m2": ("l4", lambda: product(72, 96, 104, "float8_e5m2"), MatrixPlan("mma_e5m2", 1, 4, 2, 1, 1, 3)),
    "bfloat16": ("a100", lambda: matmul(48, 32, 32, "bfloat16"), MatrixPlan("mma_bf16", 1, 2, 2, 1, 1)),
    "float64": ("a100", lambda: matmul(*ODD, "float64"), MatrixPlan("mma_f64", 1, 2, 2, 1, 2)),
    "float64, a ring": ("h200", lambda: matmul(72, 88, 104, "float64"), MatrixPlan("mma_f64", 2, 4, 1, 2, 4, 3)),
    "float64, both turned": (
        "h200", lambda: matmul(72, 44, 104, "float64", transpose_a=True, transpose_b=True),
        MatrixPlan("mma_f64", 2, 1, 2, 2, 1, 2),
    ),
    "float64, gated": ("a100", lambda: gated(*ODD, "float64"), MatrixPlan("mma_f64", 1, 3, 2, 1, 2)),
    "wmma, gated": ("v100", lambda: gated(*ODD), MatrixPlan("wmma", 1, 2, 2, 1, 1)),
    "wmma, gated, two buffers": (
        "v100", lambda: gated(72, 88, 104, transpose_b=True), MatrixPlan("wmma", 2, 1, 1, 2, 2, 2),
    ),
    "mma, gated": ("a100", lambda: gated(*ODD), MatrixPlan("mma", 1, 2, 2, 1, 1)),
    "mma, gated, a ring of three buffers": ("h200", lambda: gated(72, 88, 104), MatrixPlan("mma", 2, 2, 1, 2, 1, 3)),
    "mma, gated by common weights": (
        "a100", lambda: gated(*WHOLE, names=("A", "B", "C", "B")), MatrixPlan("mma", 2, 1, 1, 2, 1),
    ),
    "tf32, gated": ("a100", lambda: gated(*ODD, "float32"), MatrixPlan("mma_tf32", 1, 2, 2, 1, 2)),
    "mma, one block of k": ("a100", lambda: matmul(40, 16, 40), MatrixPlan("mma", 1, 2, 1, 1, 1)),
}  # fmt: skip


@lru_cache(maxsize=32)
def program(name: str) -> tuple[object, RProgram, object]:
    """(expression, program, device) of a case; the program meets every invariant."""
    device_name, expression, plan = CASES[name]
    device, made = load_device(device_name), expression()
    return made, planned(made, device, plan), device


def planned(expression, device, plan: MatrixPlan) -> RProgram:
    graph = canonicalize(expression)
    (op,) = graph.tensor_ops
    stage = matrix_stage(op, next(contraction_roles(op)), plan, device)
    made = RProgram(device.name, graph.inputs, graph.outputs, (stage,), graph.temporaries)
    check(made, device)
    return made
