"""What the interpreter refuses by name: programs that break an invariant, and arrays and blocks that do not fit."""

from dataclasses import replace

import numpy as np
import pytest

from rollergen.errors import ArgumentError, ProgramError
from rollergen.expr.index import Index
from rollergen.program.interpreter.execute import execute, interpret
from tests.program.hand_devices import AVX512, TURING
from tests.programs import cpu_matmul, gpu_matmul, relu
from tests.tensor_ops import small_integers

ix = Index.axis


def broken(program, **changes):
    return replace(program, stages=(*program.stages[:-1], replace(program.stages[-1], **changes)))


def test_a_program_that_breaks_an_invariant_is_refused_before_it_runs():
    program = broken(gpu_matmul(), guards=())
    with pytest.raises(ProgramError, match=r"stage matmul.*axis i"):
        interpret(program, small_integers(program), TURING)


def test_reading_beyond_a_tensor_is_an_error_even_if_nobody_checked_the_program():
    program = broken(cpu_matmul(70, 64, pack=False, guard="mask"), guards=())
    with pytest.raises(ProgramError, match=r"load 0 of A: index 0 \(i\) leaves 0 <= index < 70"):
        execute(program, small_integers(program), AVX512)


def test_more_bytes_than_a_managed_layer_holds_are_refused_with_both_figures():
    program, small = gpu_matmul(depth=2), replace(TURING, limits=replace(TURING.limits, block_memory_bytes=8192))
    # Two buffers each: A 8 rows of 64 + 4 floats, B 8 rows of 64 floats.
    used = 2 * 4 * (8 * (64 + 4) + 8 * 64)
    with pytest.raises(ProgramError, match=f"{used} bytes of shared.*8192"):
        execute(program, small_integers(program), small)


def test_two_elements_at_one_address_are_refused():
    program = gpu_matmul(64, 64, 40, swizzle=4, padding=0)
    copies = list(program.stages[0].copies)
    copies[1] = replace(copies[1], vector=32)  # 3 * 32 moves columns out of their row of 64
    with pytest.raises(ProgramError, match=r"copy 1 of B into shared: (two elements|addresses)"):
        execute(broken(program, copies=tuple(copies)), small_integers(program), TURING)


def test_reading_what_an_earlier_stage_did_not_write_is_an_error():
    program = cpu_matmul()
    with pytest.raises(ProgramError, match="stage matmul: load 1 of B_packed reads elements of B_packed that no stage"):
        interpret(program, small_integers(program), AVX512, {"pack_B": [0, 1]})


def test_storing_an_element_twice_is_an_error():
    program = relu(512)
    twice = broken(program, op=replace(program.stages[0].op, target=(ix("i") % 256,)))
    with pytest.raises(ProgramError, match="stage relu stores an element of Y twice"):
        execute(twice, small_integers(twice), AVX512)


@pytest.mark.parametrize("change, message", [
    (lambda a: a.pop("B"), "arrays are .'A'.; expected one for each of .'A', 'B'."),
    (lambda a: a.update(Z=a["A"]), "arrays are .'A', 'B', 'Z'."),
    (lambda a: a.update(A=a["A"].T), r"the array for A is float32 of shape \(32, 128\); expected float32 of shape"),
    (lambda a: a.update(A=a["A"].astype(np.float64)), "the array for A is float64"),
])  # fmt: skip
def test_wrong_arrays_are_refused_by_name(change, message):
    program = gpu_matmul(128, 64, 32)
    arrays = small_integers(program)
    change(arrays)
    with pytest.raises(ArgumentError, match=message):
        interpret(program, arrays, TURING)


@pytest.mark.parametrize("blocks, message", [
    ({"nothing": [0]}, "stage 'nothing'; the program has .'matmul'."),
    ({"matmul": [2]}, "expected distinct numbers from 0 to 1"),
    ({"matmul": [-1]}, "expected distinct numbers from 0 to 1"),
    ({"matmul": [0, 0]}, "expected distinct numbers from 0 to 1"),
])  # fmt: skip
def test_wrong_block_numbers_are_refused(blocks, message):
    program = gpu_matmul(128, 64, 32)
    with pytest.raises(ArgumentError, match=message):
        interpret(program, small_integers(program), TURING, blocks)
