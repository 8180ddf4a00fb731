"""Products that run beside the program (wgmma): the CUDA text, run here in each mode of lateness, and the interpreter
agree; each fault that is seeded into text or program is found; NVIDIA's compiler makes of it what is aimed at."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.lower.ir import Barrier
from rollergen.lower.matrix_ir import BeginProducts, EndProducts, WaitProducts
from rollergen.lower.stage import lower
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model import predict_stage
from rollergen.tile.rules import CodeShapes
from tests.cuda.beside import H200, NAMES, assert_agree, assert_refused_without, compiled, on_host, wrong
from tests.cuda.host import COPIES_AT_ONCE, PRODUCTS_LATE, REVERSE, seeded
from tests.matrices import gated, matmul, nhwc_convolution, planned

APART = BuildOptions(shapes=CodeShapes(asynchronous_products=False))
MODES = (0, PRODUCTS_LATE, COPIES_AT_ONCE | PRODUCTS_LATE | REVERSE)
"""Copies late, both late, products late."""


def drawn(number: int):
    """(expression, plan) of a random product: shapes with remainders, dtypes, layouts, tiles, buffers."""
    random = np.random.default_rng(number)
    dtype = ("float16", "bfloat16", "float32", "int8")[number % 4 if number % 8 < 4 else number % 2]
    aligned = 16 if number % 3 else 1  # else rows that no asynchronous copy moves
    m, k, n = (int(random.integers(1 if aligned > 1 else 3, most // aligned)) * aligned for most in (150, 330, 200))
    turned = {"transpose_a": bool(random.integers(2)), "transpose_b": bool(random.integers(2))}
    fm, fn, gm, gn, depth = (int(random.choice(some)) for some in ((1, 2), (8, 16), (1, 2), (1, 2), (1, 2, 3, 4)))
    return matmul(m, k, n, dtype, **turned), MatrixPlan(NAMES[dtype], fm, fn, gm, gn, 4, depth)


@on_host
@pytest.mark.parametrize("number", range(32))
@pytest.mark.every(17)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, plan = drawn(number)
    made = planned(expression, H200, plan)
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


@on_host
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gathered_factors_of_convolutions_go_through_them(dtype):
    expression = nhwc_convolution(2, 9, 7, 64, 64, 3, dtype)
    ranked = construct(canonicalize(expression), H200, top_k=10)
    made = next(one.program for one in ranked if "wgmma" in one.program.stages[-1].compute.instruction)
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


RING = MatrixPlan("wgmma", 1, 16, 2, 1, 4, 4)


def ring(dtype="float16"):
    """A product with more tiles than buffers, its last one ragged, and two panels a tile of B."""
    return planned(matmul(136, 456, 72, dtype), H200, replace(RING, instruction=NAMES[dtype]))


FAULTS = {
    "a wait for copies too weak": (r"wait_copies<1>", "wait_copies<2>"),
    "no wait for copies": (r"wait_copies<1>\(\);", ""),
    "a wait for products too weak": (r"end_products<1>", "end_products<2>"),
    "no group of products": (r"end_products<1>\(\);", ""),
    "no wait for the last products": (r"wait_products<64>\(\(float \*\)acc\);", ""),
    "products not begun": (r"begin_products\(\);", ""),
    "copies not shown to products": (r"show_to_products\(\);(\s+__syncthreads\(\);\s+if)", r"\1"),
    "no barrier": (r"__syncthreads\(\);(\s+if)", r"\1"),
    "a ring filled one iteration early": (r"\(\(k0 \+ 2\) % 4\)", "((k0 + 1) % 4)"),
    "panels too near": (r"operand_at<8192>", "operand_at<4096>"),
    "k not advanced": (r"k1\*16", "k1*0"),
    "a row too far": (r"k1\*1024", "k1*1088"),
    "operands exchanged": (r"(multiply_kn\w+)\(acc, (operand_at.*), (operand_at.*)\);", r"\1(acc, \3, \2);"),
    "B along k": (r"multiply_kn(\w+\(acc)", r"multiply_kk\1"),
    "the other warpgroup's rows": (r"i1\*4096", "(1 - i1)*4096"),
    "not swizzled": (r"\(thread % 8\) \^ \(\(thread/8\) % 8\)", "(thread % 8)"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(17)
def test_a_fault_in_the_text_is_found(fault):
    pattern, replacement = FAULTS[fault]
    made = ring()
    assert wrong(made, seeded(emit(made, H200, "cuda"), pattern, replacement, count=0), MODES)


@on_host
def test_the_text_without_faults_is_right():
    made = ring()
    assert not wrong(made, emit(made, H200, "cuda"), MODES)


@pytest.mark.parametrize("node", [BeginProducts, EndProducts, WaitProducts, Barrier])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_kernel_without_a_fence_is_refused(node, depth):
    made = planned(matmul(136, 456, 72), H200, replace(RING, depth=depth))
    (kernel,) = lower(made, H200)
    assert_refused_without(node, kernel)


def changed(made, **fields):
    stage = made.stages[0]
    copies = (replace(stage.copies[0], **fields), *stage.copies[1:])
    return replace(made, stages=(replace(stage, copies=copies),))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"swizzle": 4}, "swizzle 4; expected"),
        ({"panel": 0, "swizzle": 0}, "panels of 0, swizzle 0; expected"),
        ({"panel": 32}, "panels of 32 columns, swizzle 8, padding 0; expected"),
        ({"padding": 8}, "padding 8; expected"),
    ],
)
def test_tiles_that_no_descriptor_describes_are_refused(fields, says):
    with pytest.raises(ProgramError, match=says):
        check(changed(ring(), **fields), H200)


@compiled
@pytest.mark.parametrize("dtype, turned", [*product(("float16", "bfloat16"), (False, True)), ("int8", True)])
def test_first_choices_keep_products_beside_each_other_and_spill_nothing(dtype, turned):
    """Products that are not begun and ended once a tile would run one by one."""
    graph = canonicalize(matmul(4096, 4096, 4096, dtype, transpose_b=turned))
    made = construct(graph, H200, top_k=1)[0].program
    one = matrix_instruction(made.stages[0], H200)
    assert one is not None and one.is_asynchronous
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    assert done.kernels[0].stack_bytes == done.kernels[0].spill_store_bytes == 0
    loops = main_loops(done.code)
    if loops is not None:
        (loop,) = loops.values()
        products = loop.get("HGMMA", 0) + loop.get("IGMMA", 0)
        assert loop["WARPGROUP"] == 2 and products in (4, 8)
        assert sum(loop.values()) <= 120 * products / 4


@compiled
def test_what_a_block_holds_is_what_the_model_says():
    made = planned(gated(136, 264, 200), H200, replace(RING, depth=2))
    stage = made.stages[0]
    used = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch).kernels[0]
    assert used.shared_bytes in (0, managed_bytes(stage, H200)["shared"])
    assert managed_bytes(stage, H200)["shared"] == predict_stage(stage, H200).shared_bytes


def test_they_are_faster_in_the_model_and_can_be_left_out():
    graph = canonicalize(matmul(4096, 4096, 4096, "bfloat16"))
    own, other = (construct(graph, H200, top_k=1, options=one)[0].program for one in (BuildOptions(), APART))
    assert not matrix_instruction(other.stages[0], H200).is_asynchronous
    assert predict_stage(own.stages[0], H200).seconds < predict_stage(other.stages[0], H200).seconds

