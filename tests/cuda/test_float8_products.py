"""Products of float8 by matrix instructions: the CUDA text, run here, and the interpreter agree; results are looked at with
the bits that such sums keep; without permission, factors become float16, which holds them."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import ArgumentError
from rollergen.expr.canonical import canonicalize
from rollergen.gate.gate import Gate
from rollergen.gate.narrowing import is_narrowed
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.compilers import nvrtc
from rollergen.hal.dtypes import FLOAT8
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.interpreter import interpret
from tests.agreement.readers import small_integers
from tests.cuda.beside import H200, MODES, NAMES, assert_agree, compiled, on_host
from tests.cuda.test_programs import executed
from tests.matrices import planned, product

PLAIN = rg.BuildOptions()
FAST = rg.BuildOptions(allow_fast_accumulation=True)


def drawn(number: int):
    """(expression, plan) of a random product with rows along the sum, in boxes or not."""
    random = np.random.default_rng(number)
    boxes = bool(random.integers(2))
    aligned = 16 if boxes else 1
    m, k, n = (int(random.integers(1, most // aligned + 1)) * aligned for most in (150, 330, 200))
    fm, fn, gm, gn, depth = (int(random.choice(some)) for some in ((1, 2), (8, 16), (1, 2), (1, 2), (3, 4)))
    plan = MatrixPlan(NAMES[FLOAT8[number % 2]], fm, fn, gm, gn, 4, depth, boxes=boxes, producer=boxes and number % 3 > 0)
    return product(m, k + 128, n, FLOAT8[number % 2]), plan


@on_host
@pytest.mark.parametrize("number", range(12))
@pytest.mark.every(13)
def test_random_products_are_those_of_the_interpreter_in_every_mode(number):
    expression, plan = drawn(number)
    made = planned(expression, H200, plan)
    assert made.stages[0].compute.factors == "float8"
    assert_agree(expression, made, emit(made, H200, "cuda"), MODES)


def first(expression, device, options=PLAIN):
    return construct(canonicalize(expression), load_device(device), options, 1)[0].program


def instructions(made):
    return {stage.compute.instruction for stage in made.stages}


@pytest.mark.parametrize("device, name", [("h200", "wgmma_e4m3"), ("l4", "mma_e4m3")])
def test_sums_of_fewer_bits_are_taken_only_where_the_user_allows_them(device, name):
    expression = product(4096, 4096, 4096, "float8_e4m3fn")  # of blocks enough, so that no sum is split
    assert name in instructions(first(expression, device, FAST))
    plain = first(expression, device)
    assert {"mma", "wgmma"} & instructions(plain) and not is_narrowed(plain)
    with pytest.raises(ArgumentError, match="allow_fast_accumulation is 1; expected True or False"):
        rg.BuildOptions(allow_fast_accumulation=1)


@on_host
@pytest.mark.every(5)
@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("device, sizes", [("v100", (512, 256, 512)), ("a100", (16, 256, 512)), ("h200", (512, 512, 256))])
def test_without_permission_factors_become_float16_and_results_are_exact(device, sizes, dtype):
    made = first(product(*sizes, dtype, turned=False), device)
    assert {"wmma", "mma", "wgmma"} & instructions(made) and not is_narrowed(made)
    arrays, on = small_integers(made), load_device(device)
    want = arrays["A"].astype(np.float32) @ arrays["B"].astype(np.float32)
    np.testing.assert_array_equal(interpret(made, arrays, on).outputs["out"], want)
    np.testing.assert_array_equal(executed(made, emit(made, on, "cuda"), arrays)["out"], want)


def cut(values, bits):
    """float32 numbers without all but so many leading bits."""
    return (values.view(np.uint32) & np.uint32(0xFFFFFFFF << 24 - bits & 0xFFFFFFFF)).view(np.float32)


def summed(a, b, bits):
    """The product, cut off to so many bits after each 32 terms."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for at in range(0, a.shape[1], 32):
        sums = cut(sums + a[:, at : at + 32].astype(np.float32) @ b[at : at + 32].astype(np.float32), bits)
    return sums


@pytest.mark.parametrize("bits, right", [(24, True), (14, True), (8, False)])
def test_the_gate_takes_sums_of_14_bits_and_refuses_those_of_fewer(bits, right):
    expression = product(40, 1024, 24, "float8_e4m3fn")
    made = planned(expression, load_device("rtx4090"), MatrixPlan("mma_e4m3", 1, 2, 2, 1, 1, 2))
    assert is_narrowed(made)

    def run(arrays):
        arrays["out"][...] = summed(arrays["A"], arrays["B"].T, bits)

    assert Gate(made, expression_oracle([expression], made.outputs)).check(made, run).passed == right


@compiled
@pytest.mark.every(11)
@pytest.mark.parametrize("device, options", [("h200", FAST), ("l4", FAST), ("a100", PLAIN), ("h200", PLAIN)])
@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("rows", [16, 4096])
def test_first_choices_spill_nothing(device, options, dtype, rows):
    made = first(product(rows, 4096, 4096, dtype), device, options)
    on = load_device(device)
    done = nvrtc.compile_cuda(emit(made, on, "cuda").text, on.targets[0].arch)
    assert not any(one.spill_store_bytes or one.stack_bytes for one in done.kernels)
