"""Reductions in parts of which the last is short, executed from their CUDA text and compiled by NVIDIA's compiler."""

from __future__ import annotations

import pytest

from rollergen.emit import emit
from rollergen.hal.compilers.nvrtc import is_installed
from rollergen.measure.compile_report import compile_report
from tests.agreement.readers import assert_values, device
from tests.agreement.test_uneven_parts import TOLERANCE, inputs_of, uneven
from tests.cuda.host import compiler
from tests.cuda.test_programs import executed

CASES = [
    ("sum of rows", "v100", False), ("argmax of columns", "h200", False), ("spread", "v100", False),
    ("matmul and more", "a100", False), ("conv 3x3", "v100", False), ("float16 matmul", "v100", True),
    ("float16 matmul", "h200", True), ("float16 vectors", "h200", True), ("float16 vectors", "v100", True),
]  # fmt: skip
"""Name, device, whether by matrix instructions."""


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("name", "on", "matrix"), CASES)
@pytest.mark.every(11)
def test_the_cuda_text_computes_the_definition(name, on, matrix):
    expression, program = uneven(name, on, matrix=matrix)
    arrays = inputs_of(name, program)
    got = executed(program, emit(program, device(on), "cuda"), arrays, reverse=on == "h200")
    assert_values(expression, program, got, arrays, None, TOLERANCE.get(name, 0.0))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["matmul", "sum of rows"])
def test_the_cuda_text_that_adds_parts_up_computes_the_definition(name):
    expression, program = uneven(name, adds=True)
    arrays = inputs_of(name, program)
    got = executed(program, emit(program, device("v100"), "cuda"), arrays, reverse=True)
    assert_values(expression, program, got, arrays, None, 0.0)


@pytest.mark.skipif(not is_installed(), reason="rollergen[nvrtc] is not installed")
@pytest.mark.parametrize(("name", "on", "matrix"), CASES)
@pytest.mark.every(3)
def test_the_cuda_text_compiles_without_local_memory(name, on, matrix):
    _, program = uneven(name, on, matrix=matrix)
    for one in compile_report(program, device(on), instructions=False).kernels:
        assert one.stack_bytes == one.spill_bytes == 0
        assert one.shared_bytes == one.predicted_shared_bytes
