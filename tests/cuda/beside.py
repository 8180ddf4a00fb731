"""What tests of products that run beside the program (wgmma) share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ProgramError
from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.lower.ir import Barrier, For, If
from rollergen.lower.products import check_products
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.interpreter import interpret
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import COPIES_AT_ONCE, NEWEST_FIRST, PRODUCTS_LATE, REVERSE, HostError, compiler
from tests.cuda.test_programs import executed
from tests.matrices import T, matmul

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
H200 = load_device("h200")
NAMES = {"float16": "wgmma", "bfloat16": "wgmma_bf16", "float32": "wgmma_tf32", "int8": "wgmma_s8",
         "float8_e4m3fn": "wgmma_e4m3", "float8_e5m2": "wgmma_e5m2"}  # fmt: skip
MODES = (0, PRODUCTS_LATE | NEWEST_FIRST, COPIES_AT_ONCE | PRODUCTS_LATE | REVERSE, PRODUCTS_LATE | REVERSE)
"""Copies late, both late, products late."""
_ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def drawn(number: int, largest=(400, 700, 400), box_stores: bool = False):
    """(expression, plan) of a random product, sizes (m, k, n) below about ``largest``: shapes with remainders, dtypes,
    layouts, batches, tiles, buffers; ``box_stores``: with room for results that leave in boxes."""
    random = np.random.default_rng(number)
    dtype = ("float16", "bfloat16", "float32", "int8")[number % 4 if number % 8 < 4 else number % 2]
    size = {"int8": 1, "float32": 4}.get(dtype, 2)
    m, k, n = (int(random.integers(1, most // 16)) * 16 // size for most in largest)
    k += 128 // size  # more than one tile
    turned = {"transpose_a": bool(random.integers(2)), "transpose_b": bool(random.integers(2))}
    if dtype in ("float32", "int8"):
        turned = {"transpose_a": False, "transpose_b": True}
    fm, fn, gm, gn, depth = (int(random.choice(some)) for some in ((1, 2), (8, 16, 24), (1, 2), (1, 2), (3, 4)))
    results = 2 * 64 * gm * gn * box_stores
    if ((64 * fm * gm + 8 * fn * gn) * depth + results) * 128 > H200.limits.block_memory_bytes - 64:
        fm, gn = 1, 1
    if number % 5 == 0 and dtype == "float16":
        batch = int(random.integers(2, 4))
        expression = rg.ops.batch_matmul(T("A", (batch, m, k), dtype), T("B", (batch, k, n), dtype))
    else:
        expression = matmul(m, k, n, dtype, **turned)
    plan = MatrixPlan(NAMES[dtype], fm, fn, gm, gn, 4, depth, boxes=True, producer=number % 3 > 0)
    return expression, replace(plan, box_stores=box_stores)


def assert_agree(expression, made, source, modes):
    """The text, run in each of the modes of lateness, gives what the interpreter gives, and that is the definition."""
    arrays = small_integers(made)
    wanted = interpret(made, arrays, H200).outputs
    for mode in modes:
        got = executed(made, source, arrays, mode)
        assert all(np.array_equal(got[key], wanted[key]) for key in wanted), mode
    assert_values(expression, made, got, arrays, None, _ROUNDED.get(made.outputs[0].dtype, 0.0))


def wrong(made, source, modes):
    """Whether some mode finds the text of a plain product wrong."""
    arrays = small_integers(made)
    wanted = arrays["A"].astype(np.float32) @ arrays["B"].astype(np.float32)
    for mode in modes:
        try:
            got = executed(made, source, arrays, mode)["out"]
        except HostError:
            return True
        if not np.array_equal(got.astype(np.float32), wanted.astype(got.dtype).astype(np.float32)):
            return True
    return False


def without(body, dropped):
    """The statements, inside loops and conditions too, but for those of which ``dropped`` is true."""
    for one in body:
        if isinstance(one, (For, If)):
            one = replace(one, body=tuple(without(one.body, dropped)))
        if not dropped(one):
            yield one


def not_shown(body):
    """The statements with barriers that do not show what was written."""
    for one in body:
        if isinstance(one, (For, If)):
            one = replace(one, body=tuple(not_shown(one.body)))
        yield replace(one, products=False) if isinstance(one, Barrier) else one


def assert_refused_without(node, kernel):
    """A kernel with asynchronous products is right, and refused without its statements of this type."""
    check_products(kernel)
    with pytest.raises(ProgramError, match="expected"):
        bare = not_shown(kernel.body) if node is Barrier else without(kernel.body, lambda one: isinstance(one, node))
        check_products(replace(kernel, body=tuple(bare)))
