"""Products of bfloat16 by dot products of pairs with sums in float32: all readers agree, and the gate is as strict."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.facts import Facts
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.spec import Instruction
from rollergen.options import BuildOptions
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import assert_traffic, interpreted, run_opencl, small_integers
from tests.agreement.test_dot_products import BYTES, programs
from tests.program.hand_devices import AVX512

T = rg.tensor
PAIRS = Instruction("vdpbf16ps", "bfloat16", "float32", 1, 16, 2, 16, 2, 6)
CPU = replace(AVX512, instructions=(*AVX512.instructions, BYTES, PAIRS))
PLAIN = BuildOptions(shapes=CodeShapes(dot_products=False))


def matmul(m=19, k=64, n=50, **more):
    return rg.ops.matmul(T("A", (m, k), "bfloat16"), T("B", (k, n), "bfloat16", **more))


def batched():
    return rg.ops.matmul(T("A", (3, 10, 21), "bfloat16"), T("B", (3, 21, 17), "bfloat16"))


def weights_by_rows(k=48):
    return rg.ops.matmul(T("A", (6, k), "bfloat16"), T("W", (40, k), "bfloat16"), transpose_b=True)


def convolution(channels=8, size=3, **more):
    x, w = T("X", (2, channels, 9, 11), "bfloat16"), T("W", (12, channels, size, size), "bfloat16")
    return rg.ops.conv2d(x, w, **more)


CASES = {
    "matmul": matmul, "an odd sum": lambda: matmul(9, 31, 33),
    "constant weights": lambda: matmul(20, 40, 70, constant=True),
    "batches": batched, "weights by rows": weights_by_rows, "odd rows": lambda: weights_by_rows(47),
    "a result in float32": lambda: rg.einsum("mk,kn->mn", T("A", (9, 32), "bfloat16"), T("B", (32, 20), "bfloat16"),
                                             dtype="float32"),
    "padded": lambda: convolution(padding=1), "strided": lambda: convolution(3, stride=2, padding=1),
    "pixel by pixel": lambda: convolution(size=1),
}  # fmt: skip


def require_agreement(expression, program):
    """On whole numbers, whose sums are exact."""
    arrays = small_integers(program)
    want = expression.evaluate(*(arrays[buffer.name] for buffer in program.inputs))
    result, blocks = interpreted(program, arrays, CPU, most_blocks=10_000)
    out = program.outputs[0].name
    assert result.written[out].all()
    np.testing.assert_array_equal(result.outputs[out], want)
    assert_traffic(program, result.traffic, CPU, blocks)
    np.testing.assert_array_equal(run_opencl(program, arrays, CPU)[out], want)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_all_readers_agree_on_dot_products_of_floats(make):
    expression = make()
    found = programs(expression, CPU)
    assert found and all(one.stages[-1].compute.instruction == "vdpbf16ps" for one in found)
    for program in found:
        require_agreement(expression, program)


@pytest.mark.parametrize("seed", range(8))
def test_all_readers_agree_on_random_shapes(seed):
    random = np.random.default_rng(seed)
    m, k, n = (int(size) for size in random.integers(2, 60, 3))
    if seed % 2:
        expression = matmul(m, k, n, constant=bool(random.integers(2)))
    else:
        size, stride, padding = (int(random.integers(*ends)) for ends in ((1, 4), (1, 3), (0, 2)))
        expression = convolution(k, size, stride=stride, padding=padding)
    found = programs(expression, CPU)
    require_agreement(expression, found[int(random.integers(len(found)))])


def test_readers_add_up_all_of_what_bfloat16_holds():
    """Numbers of any size, of which products are exact in float32, infinities and NaN."""
    expression, random = matmul(9, 31, 33), np.random.default_rng(0)
    arrays = {name: (random.standard_normal(shape) * 2.0 ** random.integers(-30, 30, shape)).astype(ml_dtypes.bfloat16)
              for name, shape in (("A", (9, 31)), ("B", (31, 33)))}  # fmt: skip
    arrays["A"][1, 30], arrays["A"][2, 3], arrays["B"][4, 5], arrays["B"][30, 6] = np.inf, np.nan, -np.inf, np.nan
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    with np.errstate(invalid="ignore"):
        want, size = wide["A"] @ wide["B"], np.abs(wide["A"]) @ np.abs(wide["B"])
    for program in programs(expression, CPU):
        result, _ = interpreted(program, arrays, CPU, most_blocks=10_000)
        for got in (result.outputs["out"], run_opencl(program, arrays, CPU)["out"]):
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite].astype(np.float64), want[~finite])
            error = np.abs(got[finite].astype(np.float64) - want[finite])
            assert (error <= 2.0**-8 * np.abs(want)[finite] + 31 * 2.0**-24 * size[finite]).all()


def test_the_model_prefers_dot_products_of_floats_where_there_are_some():
    product = canonicalize(matmul(512, 512, 512))
    (best,) = construct(product, CPU, top_k=1)
    assert best.variants[0].startswith("dot products") and best.program.stages[-1].compute.instruction == "vdpbf16ps"
    for of, options in ((CPU, PLAIN), (replace(AVX512, instructions=(*AVX512.instructions, BYTES)), BuildOptions())):
        (other,) = construct(product, of, options, top_k=1)
        assert not any(stage.op.has_dot_products for stage in other.program.stages)
        assert best.seconds < 0.7 * other.seconds


@pytest.mark.parametrize("a, b", [("float16", "float16"), ("bfloat16", "float16"), ("bfloat16", "float32")])
def test_other_floats_and_pairs_of_two_kinds_have_none(a, b):
    A, B = T("A", (20, 40), a), T("B", (40, 70), b)
    term = lambda i, j, k: rg.cast(A[i, k], "float32") * rg.cast(B[k, j], "float32")
    k = rg.reduce_axis("k", 40)
    assert not programs(rg.compute((20, 70), lambda i, j: rg.sum(term(i, j, k), axis=k)), CPU)


def test_the_gate_knows_of_dot_products_what_it_knows_of_products():
    (plain,) = construct(canonicalize(matmul()), CPU, PLAIN, top_k=1)
    one = Facts(plain.program)
    for program in programs(matmul(), CPU):
        other = Facts(program)
        for fact in ("magnitude", "ramp", "order_decides", "orderless", "absolute", "narrowed", "signed"):
            assert getattr(other, fact) == getattr(one, fact), fact
        ratio = other.accuracies["out"].variance / one.accuracies["out"].variance
        assert 0.1 < ratio < 10


@pytest.mark.parametrize("fault", ["", "swapped", "lower", "upper"])
def test_the_gate_refuses_sums_of_half_of_the_products(fault):
    expression = matmul()
    program = programs(expression, CPU)[0]
    gate = Gate(program, expression_oracle([expression], program.outputs))

    def run(arrays):
        a, b = (arrays[name].astype(np.float64) for name in "AB")
        if fault == "swapped":
            b = b.reshape(-1, 2, b.shape[1])[:, ::-1].reshape(b.shape)
        if fault in ("lower", "upper"):
            a = a * np.resize([fault == "lower", fault == "upper"], a.shape[1])
        with np.errstate(all="ignore"):
            arrays["out"][...] = (a @ b).astype(numpy_dtype("bfloat16"))

    assert gate.check(program, run).passed == (not fault)
