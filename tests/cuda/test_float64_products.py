"""Products of float64 by matrix instructions: the text computes the definition, and the machine code has them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError, SpecError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.changes import changed
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.model import predict
from rollergen.tile.rules import CodeShapes
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import compiler, seeded
from tests.cuda.test_one_row import assert_right
from tests.cuda.test_programs import executed
from tests.matrices import T, matmul, nhwc_convolution, planned, program

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
LAYOUTS = {"": {}, "a turned": {"transpose_a": True}, "b turned": {"transpose_b": True}}


@lru_cache(maxsize=8)
def first(name, layout=""):
    made = matmul(4096, 4096, 4096, "float64", **LAYOUTS[layout])
    return construct(canonicalize(made), load_device(name), top_k=1)[0].program


@on_host
@pytest.mark.every(7)
@pytest.mark.parametrize("seed", range(16))
def test_random_shapes_agree(seed):
    random = np.random.default_rng(seed)
    device = load_device(("a100", "h200")[seed % 2])
    m, k, n = (int(size) for size in random.integers(1, 160, 3))
    sizes = (1, 2), (1, 2, 3, 5), (1, 2), (1, 2), (1, 2, 4), (1, 2, 3, 4)
    plan = MatrixPlan("mma_f64", *(int(random.choice(some)) for some in sizes))
    expression = matmul(m, k, n, "float64", transpose_a=bool(random.integers(2)), transpose_b=bool(random.integers(2)))
    made = planned(expression, device, plan)
    assert_right(expression, made, device, "float64")


CONSTRUCTED = {
    "bias, relu": lambda: rg.ops.relu(
        rg.ops.bias_add(matmul(137, 36, 100, "float64"), T("bias", (100,), "float64"), axis=-1)
    ),
    "batched": lambda: rg.ops.batch_matmul(T("A", (3, 45, 37), "float64"), T("B", (3, 37, 51), "float64")),
    "convolution, NCHW": lambda: rg.ops.conv2d(
        T("X", (2, 7, 15, 13), "float64"), T("W", (37, 7, 3, 3), "float64"), padding=1
    ),
    "convolution, NHWC": lambda: nhwc_convolution(2, 9, 7, 5, 37, 3, "float64"),
    "split sum": lambda: matmul(33, 4100, 40, "float64"),
}


@on_host
@pytest.mark.parametrize("name", CONSTRUCTED)
@pytest.mark.every(7)
def test_constructed_programs_compute_the_definition(name):
    device, expression = load_device("a100" if len(name) % 2 else "h200"), CONSTRUCTED[name]()
    ranked = construct(canonicalize(expression), device, top_k=10)
    made = next(one.program for one in ranked if any(s.compute.instruction == "mma_f64" for s in one.program.stages))
    arrays = small_integers(made)
    assert_values(expression, made, executed(made, emit(made, device, "cuda"), arrays, reverse=True), arrays)


@on_host
def test_all_bits_of_each_factor_are_multiplied():
    _, made, device = program("float64")
    random = np.random.default_rng(0)
    arrays = {b.name: random.standard_normal(b.shape) for b in made.inputs}
    got = executed(made, emit(made, device, "cuda"), arrays)[made.outputs[0].name]
    exact = arrays["A"].astype(np.longdouble) @ arrays["B"]
    size = np.abs(arrays["A"]) @ np.abs(arrays["B"])
    assert (np.abs(got - exact) / size).max() < 2.0**-50


FAULTS = {
    "operands of a step too early": (r"\+ k1\*4", "+ k1*0"),
    "rows of the sum too near": (r"(load_a_row\w+\(a\S*, [^;]*), 20\)", r"\1, 19)"),
    "a thread's own place along the sum": (r"(B_shared_at_2 = B_shared \+ \(thread) % 4", r"\1 % 2"),
    "rows of two tiles exchanged": (r"multiply_m16n8k4_float64\(acc\[i2\]", "multiply_m16n8k4_float64(acc[1 - i2]"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_found(fault):
    expression, made, device = program("float64, a ring")
    arrays, source = small_integers(made), emit(made, device, "cuda")
    assert_values(expression, made, executed(made, source, arrays), arrays)
    broken = seeded(source, *FAULTS[fault], count=0)
    with pytest.raises(AssertionError):
        assert_values(expression, made, executed(made, broken, arrays), arrays)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name, least", [("a100", 1.8), ("h200", 1.7)])
def test_the_model_prefers_matrix_instructions(name, least, layout):
    device = load_device(name)
    assert first(name, layout).stages[-1].compute.instruction == "mma_f64"
    made = canonicalize(matmul(4096, 4096, 4096, "float64", **LAYOUTS[layout]))
    plain = BuildOptions(shapes=CodeShapes(matrix_instructions=False))
    best = construct(made, device, plain, top_k=1)[0].program
    assert predict(best, device).seconds > least * predict(first(name, layout), device).seconds


@compiled
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["a100", "h200"])
def test_machine_code_multiplies_by_matrix_instructions_without_spills(name, layout):
    device, made = load_device(name), first(name, layout)
    done = nvrtc.compile_cuda(emit(made, device, "cuda").text, device.targets[0].arch)
    (used,) = done.kernels
    assert used.stack_bytes == used.spill_store_bytes == used.spill_load_bytes == 0
    loops = main_loops(done.code, ("DMMA",))
    if loops is None:
        pytest.skip("no disassembler")
    loop = loops["contraction"]
    instruction = device.instruction("mma_f64")
    assert loop["DMMA"] >= 32 and loop["DMMA"] % instruction.issued == 0 and "DFMA" not in loop
    assert loop["DMMA"] > 0.35 * sum(count for what, count in loop.items() if "." not in what)


def test_rows_of_other_pitches_are_refused():
    _, made, device = program("float64")
    (stage,) = made.stages
    first_copy, *others = stage.copies
    odd = replace(stage, copies=(replace(first_copy, padding=1), *others))
    with pytest.raises(ProgramError, match=r"rows are .* bytes apart; expected a multiple of 16"):
        check(replace(made, stages=(odd,)), device)


def test_other_steps_along_the_sum_are_refused_in_a_spec():
    with pytest.raises(SpecError, match=r"16 x 8 x 2 float64 in quads; expected 16 x 8, k of 32 bytes \(PTX\)"):
        changed(load_device("a100"), {"mma_f64.k": 2})
