"""Products of floats by dot products of pairs with sums in float32: all readers agree, and the gate is as strict."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.facts import Facts
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.compilers import amd_clang
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.spec import Instruction
from rollergen.tile.rules import CodeShapes
from tests.agreement import test_dot_products as dot_products
from tests.agreement.readers import device, interpreted, run_opencl, small_integers
from tests.agreement.test_dot_products import BYTES, programs
from tests.program.hand_devices import AVX512

T = rg.tensor
PAIRS = Instruction("vdpbf16ps", "bfloat16", "float32", 1, 16, 2, 16, 2, 6)
CPU = replace(AVX512, instructions=(*AVX512.instructions, BYTES, PAIRS))
DEVICES = {"bfloat16": CPU, "float16": device("mi50")}
INSTRUCTIONS = {"bfloat16": "vdpbf16ps", "float16": "dot2"}
SPREAD = {"bfloat16": 30, "float16": 7}
"""Powers of two by which numbers may differ from 1, so that no sum of products overflows."""
PLAIN = BuildOptions(shapes=CodeShapes(dot_products=False))
of_each_float = pytest.mark.parametrize("dtype", DEVICES)


def matmul(dtype, m=19, k=64, n=50, **more):
    return rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype, **more))


def batched(dtype):
    return rg.ops.matmul(T("A", (3, 10, 21), dtype), T("B", (3, 21, 17), dtype))


def weights_by_rows(dtype, k=48):
    return rg.ops.matmul(T("A", (6, k), dtype), T("W", (40, k), dtype), transpose_b=True)


def convolution(dtype, channels=8, size=3, **more):
    x, w = T("X", (2, channels, 9, 11), dtype), T("W", (12, channels, size, size), dtype)
    return rg.ops.conv2d(x, w, **more)


CASES = {
    "matmul": matmul, "an odd sum": lambda dtype: matmul(dtype, 9, 31, 33),
    "constant weights": lambda dtype: matmul(dtype, 20, 40, 70, constant=True),
    "batches": batched, "weights by rows": weights_by_rows, "odd rows": lambda dtype: weights_by_rows(dtype, 47),
    "a result in float32": lambda dtype: rg.einsum("mk,kn->mn", T("A", (9, 32), dtype), T("B", (32, 20), dtype),
                                                   dtype="float32"),
    "padded": lambda dtype: convolution(dtype, padding=1),
    "strided": lambda dtype: convolution(dtype, 3, stride=2, padding=1),
    "pixel by pixel": lambda dtype: convolution(dtype, size=1),
}  # fmt: skip


def require_agreement(expression, program, of):
    """On whole numbers, whose sums are exact."""
    dot_products.require_agreement(expression, program, of, small_integers(program))


@pytest.mark.every(7)
@of_each_float
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_all_readers_agree_on_dot_products_of_floats(make, dtype):
    expression = make(dtype)
    found = programs(expression, DEVICES[dtype])
    assert found and all(one.stages[-1].compute.instruction == INSTRUCTIONS[dtype] for one in found)
    for program in found:
        require_agreement(expression, program, DEVICES[dtype])


@pytest.mark.every(7)
@of_each_float
@pytest.mark.parametrize("seed", range(8))
def test_all_readers_agree_on_random_shapes(seed, dtype):
    random = np.random.default_rng(seed)
    m, k, n = (int(size) for size in random.integers(2, 60, 3))
    if seed % 2:
        expression = matmul(dtype, m, k, n, constant=bool(random.integers(2)))
    else:
        size, stride, padding = (int(random.integers(*ends)) for ends in ((1, 4), (1, 3), (0, 2)))
        expression = convolution(dtype, k, size, stride=stride, padding=padding)
    found = programs(expression, DEVICES[dtype])
    require_agreement(expression, found[int(random.integers(len(found)))], DEVICES[dtype])


@of_each_float
def test_readers_add_up_all_of_what_floats_hold(dtype):
    """Numbers of any size, of which products are exact in float32, infinities and NaN."""
    expression, random, most, of = matmul(dtype, 9, 31, 33), np.random.default_rng(0), SPREAD[dtype], DEVICES[dtype]
    number = lambda shape: random.standard_normal(shape) * 2.0 ** random.integers(-most, most, shape)
    arrays = {"A": number((9, 31)).astype(numpy_dtype(dtype)), "B": number((31, 33)).astype(numpy_dtype(dtype))}
    arrays["A"][1, 30], arrays["A"][2, 3], arrays["B"][4, 5], arrays["B"][30, 6] = np.inf, np.nan, -np.inf, np.nan
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    with np.errstate(invalid="ignore"):
        want, size = wide["A"] @ wide["B"], np.abs(wide["A"]) @ np.abs(wide["B"])
    rounded = 2.0 ** -DTYPES[dtype].significant
    for program in programs(expression, of):
        result, _ = interpreted(program, arrays, of, most_blocks=10_000)
        for got in (result.outputs["out"], run_opencl(program, arrays, of)["out"]):
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite].astype(np.float64), want[~finite])
            error = np.abs(got[finite].astype(np.float64) - want[finite])
            assert (error <= rounded * np.abs(want)[finite] + 31 * 2.0**-24 * size[finite]).all()


def test_the_model_prefers_dot_products_of_floats_where_there_are_some():
    product = canonicalize(matmul("bfloat16", 512, 512, 512))
    (best,) = construct(product, CPU, top_k=1)
    assert best.variants[0].startswith("dot products") and best.program.stages[-1].compute.instruction == "vdpbf16ps"
    for of, options in ((CPU, PLAIN), (replace(AVX512, instructions=(*AVX512.instructions, BYTES)), BuildOptions())):
        (other,) = construct(product, of, options, top_k=1)
        assert not any(stage.op.has_dot_products for stage in other.program.stages)
        assert best.seconds < 0.7 * other.seconds


def test_the_model_prefers_dot_products_of_float16_to_products_in_float32():
    seconds = {}
    for dtype, instruction in (("float16", "dot2"), ("float32", "fma")):
        (best,) = construct(canonicalize(matmul(dtype, 4096, 4096, 4096)), device("mi50"), top_k=1)
        assert best.program.stages[-1].compute.instruction == instruction
        seconds[dtype] = best.seconds
    assert seconds["float32"] > 1.6 * seconds["float16"]


@pytest.mark.skipif(not amd_clang.is_installed(), reason=f"needs {amd_clang.INSTALL}")
def test_words_of_float16_are_copied_as_bits_on_an_mi50():
    (best,) = construct(canonicalize(matmul("float16", 512, 512, 512)), device("mi50"), top_k=1)
    source = emit(best.program, device("mi50"), "opencl")
    assembly = amd_clang.compile_opencl(source.text, "gfx906").assembly
    *copies, product = [
        assembly[assembly.index(f"\n{launch.entry}:") :].split("s_endpgm")[0] for launch in source.launches
    ]
    assert copies and not any("v_cvt_f" in text for text in copies)
    assert "v_dot2_f32_f16" in product and "v_cvt_f32_f16" not in product


@pytest.mark.parametrize("a, b", [("float16", "float16"), ("bfloat16", "float16"), ("bfloat16", "float32")])
def test_other_floats_and_pairs_of_two_kinds_have_none(a, b):
    A, B = T("A", (20, 40), a), T("B", (40, 70), b)
    term = lambda i, j, k: rg.cast(A[i, k], "float32") * rg.cast(B[k, j], "float32")
    k = rg.reduce_axis("k", 40)
    assert not programs(rg.compute((20, 70), lambda i, j: rg.sum(term(i, j, k), axis=k)), CPU)


@of_each_float
def test_the_gate_knows_of_dot_products_what_it_knows_of_products(dtype):
    (plain,) = construct(canonicalize(matmul(dtype)), DEVICES[dtype], PLAIN, top_k=1)
    one = Facts(plain.program)
    for program in programs(matmul(dtype), DEVICES[dtype]):
        other = Facts(program)
        for fact in ("magnitude", "ramp", "order_decides", "orderless", "absolute", "narrowed", "signed"):
            assert getattr(other, fact) == getattr(one, fact), fact
        ratio = other.accuracies["out"].variance / one.accuracies["out"].variance
        assert 0.1 < ratio < 10


@of_each_float
@pytest.mark.parametrize("fault", ["", "swapped", "lower", "upper"])
def test_the_gate_refuses_sums_of_half_of_the_products(fault, dtype):
    expression = matmul(dtype)
    program = programs(expression, DEVICES[dtype])[0]
    gate = Gate(program, expression_oracle([expression], program.outputs))

    def run(arrays):
        a, b = (arrays[name].astype(np.float64) for name in "AB")
        if fault == "swapped":
            b = b.reshape(-1, 2, b.shape[1])[:, ::-1].reshape(b.shape)
        if fault in ("lower", "upper"):
            a = a * np.resize([fault == "lower", fault == "upper"], a.shape[1])
        with np.errstate(all="ignore"):
            arrays["out"][...] = (a @ b).astype(numpy_dtype(dtype))

    assert gate.check(program, run).passed == (not fault)


@pytest.mark.parametrize(("equation", "shared"), [("mk,kn->mn", "a"), ("mk,kn->nm", "b")])
def test_the_factor_that_all_lanes_share_stands_last(equation, shared):
    """Compilers have an instruction broadcast no other as it reads it."""
    expression = rg.einsum(equation, T("A", (48, 64), "bfloat16"), T("B", (64, 48), "bfloat16"))
    program = programs(expression, CPU)[0]
    calls = re.findall(r"= dot_bfloat16_product\d+\(.+, (\w+)", emit(program, CPU).text)
    assert calls and {last[0] for last in calls} == {shared}
