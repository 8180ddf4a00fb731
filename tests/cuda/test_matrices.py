"""Matrix instructions, executed from the CUDA text on a host: equal to the definition and to the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rollergen.emit import emit
from rollergen.errors import DeviceError
from rollergen.hal import nvrtc
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.model import predict_stage
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import HostError, compiler, seeded
from tests.cuda.test_programs import executed
from tests.matrices import CASES, program

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")


@on_host
@pytest.mark.parametrize("name", CASES)
def test_cuda_text_computes_what_the_interpreter_computes(name):
    expression, made, device = program(name)
    arrays = small_integers(made)
    reverse = list(CASES).index(name) % 2 == 1
    got = executed(made, emit(made, device, "cuda"), arrays, reverse)
    assert_values(expression, made, got, arrays)
    wanted = interpret(made, arrays, device).outputs
    assert all(np.array_equal(got[key], wanted[key]) for key in wanted)


@compiled
@pytest.mark.parametrize("name", CASES)
def test_it_compiles_without_spills_and_holds_what_the_model_says(name):
    _, made, device = program(name)
    stage = made.stages[0]
    used = nvrtc.compile_cuda(emit(made, device, "cuda").text, device.targets[0].arch).kernels[0]
    assert used.shared_bytes == managed_bytes(stage, device)["shared"]
    assert managed_bytes(stage, device)["shared"] == predict_stage(stage, device).shared_bytes
    assert used.stack_bytes == used.spill_store_bytes == used.spill_load_bytes == 0


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
@pytest.mark.parametrize("fault", ["load_matrices_turned(b", "load_matrices(a"])
def test_a_matrix_turned_the_wrong_way_is_found(fault):
    expression, made, device = program("mma, whole tiles")
    arrays = small_integers(made)
    other = fault.replace("_turned", "") if "turned" in fault else fault.replace("matrices", "matrices_turned")
    source = emit(made, device, "cuda")
    both = "\n".join(re.findall(r"#ifdef __CUDACC__.*?#endif", source.text, re.S))
    assert "load_matrices_turned" in both and fault in source.text
    broken = seeded(source, re.escape(fault), other, count=0)
    with pytest.raises(AssertionError):
        assert_values(expression, made, executed(made, broken, arrays), arrays)


def test_opencl_c_has_no_matrix_instructions_and_says_so():
    _, made, device = program("wmma, whole tiles")
    with pytest.raises(DeviceError, match="opencl has no spelling for LoadMatrix; expected a CUDA target"):
        emit(made, device, "opencl")
