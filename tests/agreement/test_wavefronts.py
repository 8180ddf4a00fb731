"""Products by AMD's MFMA: interpreter and text agree, lanes hold what the hardware's do, and clang makes them of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.cli.device_new import begun, nearest, without_what_it_lacks
from rollergen.construct import construct
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.options import BuildOptions
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.amd_clang import compile_opencl, is_installed
from rollergen.hal.load import parse_device
from rollergen.program.check import check
from rollergen.program.model import predict
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.readers import assert_traffic, assert_values, device, interpreted, run_opencl, small_integers

T = rg.tensor
DTYPES = ("float16", "bfloat16", "int8", "float32", "float64")
ROUNDED = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def product(dtype, m=70, n=100, k=50, **how):
    return rg.ops.matmul(T("A", (m, k), dtype), T("B", (n, k) if how.get("transpose_b") else (k, n), dtype), **how)


def with_an_epilogue(dtype):
    bias, residual = T("bias", (104,), dtype), T("R", (70, 104), dtype)
    return rg.ops.relu(product(dtype, n=104) + bias + residual)


def batched(dtype):
    return rg.ops.matmul(T("A", (3, 33, 40), dtype), T("B", (3, 40, 56), dtype))


def convolution(dtype):
    return rg.ops.conv2d(T("X", (2, 8, 5, 6), dtype), T("W", (24, 8, 3, 3), dtype), padding=1)


def programs(expression, on, count=2):
    """The best of each variant by matrix instructions."""
    graph, found = canonicalize(expression), []
    for variant in variants(graph.tensor_ops[0], on):
        for one in matrix_candidates(variant, on, AlignmentRules(), count, Ledger()):
            found.append(program_of(graph, on, (one,)).program)
    return found


def assert_right(expression, made, on, dtype, change=lambda text: text):
    check(made, on)
    arrays, margin = small_integers(made), ROUNDED.get(dtype, 0.0)
    result, blocks = interpreted(made, arrays, on, most_blocks=10_000)
    assert_values(expression, made, result.outputs, arrays, None, margin)
    assert_traffic(made, result.traffic, on, blocks)
    assert_values(expression, made, run_opencl(made, arrays, on, change=change), arrays, None, margin)


_EMULATED = """static inline long load_{name}(local const {stored} *at, const int pitch)
{{
    return {bits};
}}
static inline void emulated_{name}({sums} *sums, const long a, const long b, local long *all)
{{
    const int id = get_local_id(0), lane = id % 64;
    all[2 * id] = a; all[2 * id + 1] = b;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < {k}; k++) {{
            const long left = all[2 * (id - lane + {row} + 16 * (k / {own}))];
            const long right = all[2 * (id - lane + lane % 16 + 16 * (k / {own})) + 1];
            sums[i] += {number_left} * {number_right};
        }}
    barrier(CLK_LOCAL_MEM_FENCE);
}}
#define multiply_{name}(sums, a, b) emulated_{name}(sums, a, b, all)"""
_NUMBERS = {
    "float16": ("half", 2, "vload_half(k % OWN, (const half *)&SIDE)"),
    "bfloat16": ("ushort", 2, "as_float((uint)((const ushort *)&SIDE)[k % OWN] << 16)"),
    "float32": ("float", 4, "((const float *)&SIDE)[k % OWN]"),
    "float64": ("double", 8, "((const double *)&SIDE)[k % OWN]"),
    "int8": ("char", 1, "((const char *)&SIDE)[k % OWN]"),
}
"""By the dtype of factors: the type in memory, its bytes, a number of a fragment."""


def by_lanes(text):
    """The text with functions that pass fragments among lanes as the hardware does (AMD's matrix instruction
    calculator: A[i][k] and B[k][j] of lane i or j + 16 (k // own), D[i][j] of lane j + 16 (i // 4), of float64 of lane
    j + 16 (i % 4))."""
    pattern = r"__attribute__\(\(always_inline\)\) static inline \w+ (?:load|multiply)_16x16x(\d+)_(\w+)\(.*?\n}(?=\n)"
    made = []
    for k, dtype in dict.fromkeys((int(one[1]), one[2]) for one in re.finditer(pattern, text, re.S)):
        own, (stored, itemsize, number) = k // 4, _NUMBERS[dtype]
        left, right = (number.replace("SIDE", side).replace("OWN", str(own)) for side in ("left", "right"))
        bits = f"*(local const {'long' if own * itemsize == 8 else 'int'} *)at"
        name, sums = f"16x16x{k}_{dtype}", {"int8": "int", "float64": "double"}.get(dtype, "float")
        row = "lane / 16 + 4 * i" if dtype == "float64" else "4 * (lane / 16) + i"
        made.append(_EMULATED.format(name=name, stored=stored, k=k, own=own, sums=sums, bits=bits, row=row,
                                     number_left=left, number_right=right))  # fmt: skip
    assert made
    kernels = re.sub(pattern, "", text, flags=re.S)
    kernels = re.sub(r"(void contraction\([^{]*{\n)", r"\1    local long all[2048];\n", kernels)
    return "\n".join([*made, kernels])


@pytest.mark.parametrize("name", ["mi210", "mi300x"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.every(3)
def test_all_readers_agree(name, dtype):
    expression, on = product(dtype), device(name)
    found = programs(expression, on)
    assert found
    for made in found:
        assert made.stages[-1].compute.instruction.startswith("mfma")
        assert_right(expression, made, on, dtype)


@pytest.mark.parametrize("name", ["mi210", "mi300x"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.every(3)
def test_each_lane_holds_what_the_instruction_takes_of_it(name, dtype):
    expression, on = product(dtype, transpose_b=True, k=64), device(name)
    made = programs(expression, on)[0]
    assert_right(expression, made, on, dtype, by_lanes)
    with pytest.raises(AssertionError):
        assert_right(expression, made, on, dtype, lambda text: by_lanes(text).replace("lane % 16 + 16", "lane % 15 + 16"))


@pytest.mark.every(7)
@pytest.mark.parametrize("make", [with_an_epilogue, batched, convolution], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_epilogues_batches_and_windows_agree(make, dtype):
    expression, on = make(dtype), device("mi210")
    found = programs(expression, on)
    assert found
    for made in found:
        assert_right(expression, made, on, dtype)


@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes_agree(seed):
    random = np.random.default_rng(seed)
    m, n, k = (int(size) for size in random.integers(5, 150, 3))
    dtype, on = str(random.choice(DTYPES)), device(str(random.choice(["mi210", "mi300x"])))
    expression = product(dtype, m, n, k, transpose_b=bool(random.integers(2)))
    for made in programs(expression, on):
        assert_right(expression, made, on, dtype)


def test_results_of_a_thread_are_neighbours_that_it_stores_at_once():
    made = programs(product("float16", n=128), device("mi210"))[0]
    assert made.stages[-1].store.vector == 4


def test_rows_across_the_sum_are_refused():
    on = device("mi210")
    made = programs(product("float16", k=64), on)[0]
    (first, *others) = made.stages[-1].copies
    turned = replace(made.stages[-1], copies=(replace(first, order=first.order[::-1]), *others))
    turned = replace(made, stages=(*made.stages[:-1], turned))
    with pytest.raises(ProgramError, match=r"order is .*; expected k last"):
        check(turned, on)


def of_the_first_generation():
    """A card of gfx908, as `devices new` begins it: bfloat16 in steps of 8, no float64."""
    parent = without_what_it_lacks(nearest({}, "gfx908"), "gfx908", None)
    document = begun(parent, "mi100", "MI100", "its datasheet", {"units": 120.0, "clock_mhz": 1502.0}, "gfx908")
    document["targets"] = [{"language": "opencl", "arch": "gfx908", "dialect": {"unrolled_steps": "4"}}]
    return parse_device(json.dumps(document).encode(), "mi100.json")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "float32"])  # the first has words of its own there
@pytest.mark.every(2)
def test_readers_and_lanes_agree_on_the_first_generation(dtype):
    expression, on = product(dtype, transpose_b=True, k=64), of_the_first_generation()
    made = programs(expression, on)[0]
    assert made.stages[-1].compute.instruction.startswith("mfma")
    assert_right(expression, made, on, dtype)
    assert_right(expression, made, on, dtype, by_lanes)


@pytest.mark.skipif(not is_installed(), reason="no clang with ROCm's device libraries")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32"])
def test_clang_makes_the_instruction_of_the_first_generation(dtype):
    assert_compiled(of_the_first_generation(), dtype)


@pytest.mark.skipif(not is_installed(), reason="no clang with ROCm's device libraries")
@pytest.mark.parametrize("name", ["mi210", "mi300x"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_clang_makes_the_instruction_of_it_without_scratch(name, dtype):
    assert_compiled(device(name), dtype)


def assert_compiled(on, dtype):
    best = construct(canonicalize(product(dtype, 4096, 4096, 4096)), on, top_k=1)[0].program
    instruction = on.instruction(best.stages[-1].compute.instruction)
    compiled = compile_opencl(emit(best, on, "opencl").text, on.targets[0].arch)
    sums = {"int8": "i32", "float64": "f64"}.get(dtype, "f32")
    assert re.search(rf"v_mfma_{sums}_16x16x{instruction.k}_?[a-z]+", compiled.assembly)
    assert compiled.assembly.count("v_mfma") >= 32
    kernel = compiled.kernel("contraction")
    assert kernel.private_bytes == 0 and kernel.vgpr_spills == 0


@pytest.mark.parametrize("name", ["mi210", "mi300x"])
def test_the_model_prefers_matrix_instructions(name):
    on, seconds = device(name), {}
    for shapes in (CodeShapes(), CodeShapes(matrix_instructions=False)):
        best = construct(canonicalize(product("float16", 4096, 4096, 4096)), on, BuildOptions(shapes=shapes), top_k=1)[0]
        seconds[shapes.matrix_instructions] = predict(best.program, on).seconds
        assert best.program.stages[-1].compute.instruction.startswith("mfma") == shapes.matrix_instructions
    assert seconds[False] > 8 * seconds[True]
