"""Matrix instructions, executed from the CUDA text on a host: equal to the definition and to the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import DeviceError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model import predict_stage
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import HostError, compiler, seeded
from tests.cuda.test_programs import executed
from tests.matrices import CASES, T, matmul, nhwc_convolution, program

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(11)
def test_cuda_text_computes_what_the_interpreter_computes(name):
    expression, made, device = program(name)
    arrays = small_integers(made)
    reverse = list(CASES).index(name) % 2 == 1
    got = executed(made, emit(made, device, "cuda"), arrays, reverse)
    rounded = 2.0**-8 if made.outputs[0].dtype == "bfloat16" else 0.0
    assert_values(expression, made, got, arrays, None, rounded)
    wanted = interpret(made, arrays, device).outputs
    assert all(np.array_equal(got[key], wanted[key]) for key in wanted)


@on_host
def test_tf32_looks_at_11_bits_of_each_factor():
    _, made, device = program("tf32")
    random = np.random.default_rng(0)
    arrays = {b.name: random.standard_normal(b.shape).astype(np.float32) for b in made.inputs}
    got = executed(made, emit(made, device, "cuda"), arrays)[made.outputs[0].name]
    wanted = interpret(made, arrays, device).outputs[made.outputs[0].name]
    exact = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)
    size = np.abs(arrays["A"]).astype(np.float64) @ np.abs(arrays["B"])
    assert np.abs(got - wanted).max() < 2.0**-20 * size.max()  # they add in different orders
    assert 2.0**-13 < (np.abs(wanted - exact) / size).max() < 2.0**-9


@compiled
@pytest.mark.parametrize("name", CASES)
def test_it_compiles_without_spills_and_holds_what_the_model_says(name):
    _, made, device = program(name)
    stage = made.stages[0]
    used = nvrtc.compile_cuda(emit(made, device, "cuda").text, device.targets[0].arch).kernels[0]
    assert used.shared_bytes == managed_bytes(stage, device)["shared"]
    assert managed_bytes(stage, device)["shared"] == predict_stage(stage, device).shared_bytes
    assert used.stack_bytes == used.spill_store_bytes == used.spill_load_bytes == 0


# First choices with remainders on every axis and several tiles along each.
CONSTRUCTED = {
    "matmul": lambda d: matmul(141, 67, 203, d),
    "bias, relu": lambda d: rg.ops.relu(
        rg.ops.bias_add(matmul(137, 36, 100, d), T("bias", (100,), d), axis=-1)
    ),
    "batched": lambda d: rg.ops.batch_matmul(T("A", (3, 45, 37), d), T("B", (3, 37, 51), d)),
    "convolution, NCHW": lambda d: rg.ops.conv2d(T("X", (2, 7, 15, 13), d), T("W", (37, 7, 3, 3), d), padding=1),
    "convolution, NHWC": lambda d: nhwc_convolution(2, 9, 7, 5, 37, 3, d),
    "split sum": lambda d: matmul(33, 4100, 40, d),
}
DTYPES = [("v100", "float16"), ("a100", "float16"), ("a100", "bfloat16"), ("a100", "int8")]
RUNS = [(name, *DTYPES[(at + turn) % 4]) for at, name in enumerate(CONSTRUCTED) for turn in (0, 1)]


@on_host
@pytest.mark.parametrize("name, device_name, dtype", [run for run in RUNS if run[::2] != ("bias, relu", "int8")])
@pytest.mark.every(11)
def test_constructed_programs_compute_the_definition(name, device_name, dtype):
    device, expression = load_device(device_name), CONSTRUCTED[name](dtype)
    graph = canonicalize(expression)
    ranked = construct(graph, device, top_k=10)
    made = next(
        one.program for one in ranked if any(matrix_instruction(stage, device) for stage in one.program.stages)
    )
    arrays = small_integers(made)
    # Sums of small integers are exact; the output's dtype may round them.
    tolerance = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(made.outputs[0].dtype, 0.0)
    got = executed(made, emit(made, device, "cuda"), arrays, reverse=device_name == "a100")
    assert_values(expression, made, got, arrays, None, tolerance)


# Each fault in text that is right, and how it shows.
FAULTS = {
    "operands exchanged": (r"(multiply_\w+)\((acc\S*), (a\S*), (b\S*)\)", r"\1(\2, \4, \3)", AssertionError),
    "k is not advanced": (r"\+ k1\*16", "+ k1*0", AssertionError),
    "a row too far": (r"(load_a_row\S*\(a\S*, [^;]*), 40\)", r"\1 + 40, 40)", (AssertionError, HostError)),
    "a corner off its place": (r"(load_a_row\S*\(a\S*, )", r"\g<1>1 + ", HostError),
    "no wait before results are taken": (r"__syncwarp\(\);\n(\s+const float4)", r"\1", AssertionError),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_found(fault):
    pattern, replacement, found = FAULTS[fault]
    expression, made, device = program("wmma, whole tiles")
    arrays = small_integers(made)
    broken = seeded(emit(made, device, "cuda"), pattern, replacement, count=0)
    with pytest.raises(found):
        assert_values(expression, made, executed(made, broken, arrays), arrays)


@on_host
@pytest.mark.parametrize("fault", ["load_matrices_transposed(b", "load_matrices(a"])
def test_a_matrix_transposed_the_wrong_way_is_found(fault):
    expression, made, device = program("mma, whole tiles")
    arrays = small_integers(made)
    other = fault.replace("_transposed", "") if "transposed" in fault else fault.replace("matrices", "matrices_transposed")
    source = emit(made, device, "cuda")
    both = "\n".join(re.findall(r"#ifdef __CUDACC__.*?#endif", source.text, re.S))
    assert "load_matrices_transposed" in both and fault in source.text
    broken = seeded(source, re.escape(fault), other, count=0)
    with pytest.raises(AssertionError):
        assert_values(expression, made, executed(made, broken, arrays), arrays)


def test_opencl_c_has_no_matrix_instructions_and_says_so():
    _, made, device = program("wmma, whole tiles")
    with pytest.raises(DeviceError, match="opencl has no spelling for LoadMatrix; expected a CUDA target"):
        emit(made, device, "opencl")
