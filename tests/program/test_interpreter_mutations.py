"""The comparison with definitions is worth something: each seeded fault of the interpreter makes it fail.

A fault replaces one small function; it is found if an output differs from the definition, an
element stays unwritten, or the interpreter refuses with ProgramError.  Counted traffic has its own
faults, found by figures worked out by hand.
"""

from dataclasses import replace

import numpy as np
import pytest

from rollergen.errors import ProgramError
from rollergen.program import (
    blocks,
    interpret_copies,
    interpret_loads,
    interpret_plan,
    interpret_points,
    interpret_reduce,
    interpreter,
    traffic,
)
from rollergen.program.interpreter import execute
from rollergen.program.rprogram import Accumulator, Compute, Copy, Loop
from tests.definitions import evaluate_program, small_integers
from tests.program.hand_devices import AVX512, TURING
from tests.programs import ALL, gpu_matmul, row_sum


def device_of(program):
    return AVX512 if program.device == "cpu" else TURING


def found(program) -> bool:
    """Whether comparing `program` with its definitions shows that something is wrong."""
    arrays = small_integers(program)
    expected = evaluate_program(program, arrays)
    try:
        result = execute(program, arrays, device_of(program))
    except ProgramError:
        return True
    tolerance = 1e-6 if program.stages[-1].residents else 0.0  # exp in float32
    return any(
        not result.written[b.name].all()
        or not np.allclose(result.outputs[b.name], expected[b.name].reshape(b.shape), rtol=tolerance, atol=0)
        for b in program.outputs
    )


@pytest.mark.parametrize("name", ALL)
def test_without_a_fault_nothing_is_found(name):
    assert not found(ALL[name])


def shifted(original):
    """Cells one further on, the last one first."""

    def function(copy, shape, cell):
        rows = shape[:-1] or (1,)
        return (original(copy, shape, cell) + 1) % (int(np.prod(rows)) * (shape[-1] + copy.padding))

    return function


def unpadded(original):
    """As if the rows had no padding."""

    def function(copy, shape, cell):
        row = original(copy, shape, cell) // (shape[-1] + copy.padding)
        return original(copy, shape, cell) - row * copy.padding

    return function


def unswizzled(original):
    """Columns where they would be without the swizzle."""

    def function(copy, shape, cell):
        row = original(copy, shape, cell) // (shape[-1] + copy.padding)
        return row * (shape[-1] + copy.padding) + cell[-1]

    return function


def without_last(original):
    def function(combiner, parts, dimension):
        kept = range(parts[0].shape[dimension] - 1)
        return original(combiner, tuple(np.take(part, kept, dimension) for part in parts), dimension)

    return function


def upper_half_dropped(combiner, parts, dimension):
    return tuple(np.take(part, [0], axis=dimension) for part in parts)


def store_elsewhere(original):
    def function(run, points):
        at, chosen = original(run, points)
        return (at + 1) % run.stage.definition.output.elements, chosen

    return function


def one_iteration_less(original):
    return lambda stage, box, position: max(0, original(stage, box, position) - 1)


def other_identity(original):
    return lambda combiner, shape: tuple(part + part.dtype.type(1) for part in original(combiner, shape))


def zero_for_masked(combiner, bodies, executed):
    return bodies if executed is True else tuple(np.where(executed, body, body.dtype.type(0)) for body in bodies)


def transposed_blocks(original):
    def function(stage, number):
        positions = original(stage, number)
        return dict(zip(positions, reversed(list(positions.values())), strict=True))

    return function


def exchanged(residents):
    """The residents' names, each with another one's value."""
    values = [r.value for r in residents][::-1]
    return tuple(replace(r, value=value) for r, value in zip(residents, values, strict=True))


def reversed_decode(original):
    """Variables of every loop run backwards."""

    def function(digits, number):
        return {p: dict(digits)[p] - 1 - at for p, at in original(digits, number).items()}

    return function


FAULTS = {
    # loops
    "serial loops stop one iteration early": (interpret_points, "trip_count", one_iteration_less, "cpu_matmul"),
    "serial loops never stop": (interpret_points, "reached", lambda f: lambda *_: True, "cpu_matmul_masked"),
    "clips inside arrays are one off": (
        interpret_points, "within_extent", lambda f: lambda value, extent: f(value, extent - 1), "cpu_row_sum",
    ),
    "masks are dropped": (interpret_points, "executed", lambda f: lambda points, name: True, "cpu_row_sum"),
    "digits are weighted the other way round": (
        interpret_copies, "encode", lambda f: lambda digits, variables: f(digits[::-1], variables), "transpose",
    ),
    "the order of blocks is transposed": (blocks, "banded", lambda f: lambda n, p, q, w: f(n, p, q, 1), None),
    "a block computes what another should": (interpreter, "grid_positions", transposed_blocks, "gpu_conv"),
    # reductions
    "accumulators start at one": (interpret_reduce, "identities", other_identity, "gpu_matmul"),
    "masked points contribute zero to a maximum": (interpret_reduce, "masked", lambda f: zero_for_masked, None),
    "partial sums in the output are ignored": (
        interpreter, "carry_in", lambda f: lambda run, visit, accumulators: None, "cpu_matmul_masked",
    ),
    "every visit is the first": (interpreter, "is_first", lambda f: lambda *_: True, "cpu_matmul"),
    "no visit is the first": (interpreter, "is_first", lambda f: lambda *_: False, "cpu_matmul"),
    "every visit is the last": (interpreter, "is_last", lambda f: lambda *_: True, "cpu_matmul_bias"),
    "no visit is the last": (
        interpreter, "is_last", lambda f: lambda stage, *_: not stage.accumulator.carry, "cpu_matmul_bias",
    ),
    "the last separate accumulator is dropped": (interpret_reduce, "in_order", without_last, "cpu_row_sum"),
    "separate accumulators are not combined": (
        interpret_reduce, "combined_in_order", lambda f: lambda stage: f(stage)[1:], "cpu_row_sum",
    ),
    "all threads but one are dropped": (interpret_reduce, "halved", lambda f: upper_half_dropped, "gpu_row_sum"),
    "residents are taken for each other": (
        interpret_plan, "with_residents",
        lambda f: lambda value, residents: f(value, exchanged(residents)), "gpu_softmax",
    ),
    # tiles
    "tiles are filled one cell further on": (interpret_copies, "store_address", shifted, "transpose"),
    "tiles are read one cell further on": (interpret_copies, "fetch_address", shifted, "gpu_matmul"),
    "padding on the filling side only": (interpret_copies, "fetch_address", unpadded, "transpose"),
    "padding on the reading side only": (interpret_copies, "store_address", unpadded, "gpu_matmul"),
    "swizzle on the filling side only": (interpret_copies, "fetch_address", unswizzled, "gpu_matmul_swizzle"),
    "swizzle on the reading side only": (interpret_copies, "store_address", unswizzled, "gpu_matmul_swizzle"),
    "cells are filled with loops run backwards": (interpret_copies, "decode", reversed_decode, "gpu_matmul"),
    # loads and stores
    "guards of loads are ignored": (interpret_loads, "guarded", lambda f: lambda load, points: True, "gpu_conv"),
    "what is out of range is filled from elsewhere": (
        interpret_loads, "fillable", lambda f: lambda load, points: True, "gpu_conv",
    ),
    "results are stored one element further on": (interpreter, "store_points", store_elsewhere, "transpose"),
}  # fmt: skip


def negative(program):
    """Inputs below zero, so that a zero is the largest."""
    arrays = small_integers(program)
    return {name: -1 - np.abs(array) for name, array in arrays.items()}


@pytest.mark.parametrize("fault", [f for f, (*_, name) in FAULTS.items() if name])
def test_a_fault_of_the_interpreter_is_found(fault, monkeypatch):
    module, attribute, change, name = FAULTS[fault]
    monkeypatch.setattr(module, attribute, change(getattr(module, attribute)))
    assert found(ALL[name])


def test_a_maximum_that_counts_masked_points_as_zero_is_found(monkeypatch):
    program = ALL["cpu_softmax"]
    arrays = negative(program)
    right = execute(program, arrays, AVX512).outputs["Y"]
    monkeypatch.setattr(interpret_reduce, "masked", zero_for_masked)
    assert not np.array_equal(execute(program, arrays, AVX512).outputs["Y"], right)


def test_blocks_in_another_order_are_found_by_a_sample(monkeypatch):
    """All blocks together hide their order; three of six do not."""
    program = gpu_matmul(130, 100, 8)  # 3 x 2 blocks in bands of 2: 0, 2 / 1, 3 / 4, 5
    arrays = small_integers(program)
    sample = {"matmul": [0, 1]}
    right = execute(program, arrays, TURING, sample).written["C"]
    assert right[:128, :64].all() and right.sum() == 128 * 64  # bands run down the column first
    monkeypatch.setattr(blocks, "banded", FAULTS["the order of blocks is transposed"][2](blocks.banded))
    assert not np.array_equal(execute(program, arrays, TURING, sample).written["C"], right)


# Counting --------------------------------------------------------------------------------------


def counted(program):
    result = execute(program, small_integers(program), device_of(program))
    return {(one.tensor, one.role): one.transactions for one in result.traffic}


def sums_of_vectors():
    """Sums of 5 rows of 60 floats, in registers of 4 filled once for each step of 4."""
    program = row_sum(5, 60)
    loops = (Loop("i", 5, 1, "grid"), Loop("k", 15, 4, "serial"), Loop("k", 4, 1, "unroll"))
    stage = replace(
        program.stages[0],
        loops=loops,
        compute=Compute("fma"),
        accumulator=Accumulator(1, "float32"),
        copies=(Copy(0, "dram", "registers", 2, ("k",), "k", vector=4),),
        guards=(),
    )
    return replace(program, stages=(stage,))


PRODUCT = gpu_matmul(62, 60, 12)
"""One block of 64 x 64 in 2 steps of 8; transactions of 32 bytes are 8 floats."""

# A has rows of 48 bytes: a step's 8 floats of an even row are one transaction, of an odd row (16 bytes
# further) two; the second step has 4 floats, of an even row in one and of an odd row in one.
PRODUCT_A = 31 * 1 + 31 * 2 + 62 * 1
# The 8 and then 4 whole rows of B that a step takes lie one after the other.
PRODUCT_B = 8 * 60 // 8 + 4 * 60 // 8
PRODUCT_C = -(-62 * 60 // 8)  # all of C, which has no gaps


def test_traffic_of_a_product_is_what_arithmetic_says():
    assert counted(PRODUCT) == {("A", "load"): PRODUCT_A, ("B", "load"): PRODUCT_B, ("C", "store"): PRODUCT_C}


def test_traffic_of_sums_is_what_arithmetic_says():
    """15 fillings of a row, of 16 bytes each, which never cross a transaction; 5 blocks store 4 bytes each."""
    assert counted(sums_of_vectors()) == {("X", "load"): 5 * 15, ("S", "store"): 5}


COUNTING_FAULTS = {
    "every element counts": (traffic, "distinct", lambda f: lambda numbers, limit: numbers, PRODUCT),
    "elements are taken for bytes": (traffic, "ITEMSIZE", lambda f: dict.fromkeys(f, 1), PRODUCT),
    "all fillings are one visit": (
        interpret_copies, "filling_number", lambda f: lambda layout, box, points: 0, sums_of_vectors(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", COUNTING_FAULTS)
def test_a_fault_in_counting_is_found(fault, monkeypatch):
    module, attribute, change, program = COUNTING_FAULTS[fault]
    right = counted(program)
    monkeypatch.setattr(module, attribute, change(getattr(module, attribute)))
    assert counted(program) != right
