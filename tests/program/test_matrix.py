"""Programs with matrix instructions: what they must be, what the model makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollergen.construct.roles import contraction_roles
from rollergen.errors import ProgramError
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan, matrix_stage
from rollergen.program.check import check
from rollergen.program.matrix import matrix_instruction
from rollergen.program.model import predict_stage
from rollergen.program.model.roofline import roofline_seconds
from rollergen.program.rprogram import SERIAL, Compute
from tests.matrices import CASES, gated, matmul, planned, program

WMMA = "wmma, whole tiles"


def changed(**fields):
    """The program of whole tiles with fields of its stage changed."""
    _, made, device = program(WMMA)
    return replace(made, stages=(replace(made.stages[0], **fields),)), device


def with_loop(position: int, **fields):
    loops = list(program(WMMA)[1].stages[0].loops)
    loops[position] = replace(loops[position], **fields)
    return tuple(loops)


def with_copy(number: int, **fields):
    copies = list(program(WMMA)[1].stages[0].copies)
    copies[number] = replace(copies[number], **fields)
    return tuple(copies)


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"loops": with_loop(-1, kind=SERIAL)}, r"loops of k with strides below 16 are \(\('serial', 16\),\)"),
        ({"copies": with_copy(0, padding=4, vector=4)}, "rows are 72 bytes apart; expected a multiple of 16"),
        ({"copies": with_copy(1, swizzle=2)}, "swizzle 2; expected j and k, none"),
        ({"copies": with_copy(0)[:1]}, "0 copies of load 1; expected one, into the layer that a block shares"),
    ],
)
def test_what_the_instruction_cannot_take_is_refused(fields, says):
    made, device = changed(**fields)
    with pytest.raises(ProgramError, match=says):
        check(made, device)


def test_only_sums_of_products_of_the_instruction_s_dtypes_are_its_own():
    with pytest.raises(ProgramError, match=r"wmma along .*of products of two float16 loads"):
        planned(matmul(64, 64, 64, "float32"), load_device("v100"), MatrixPlan("wmma", 1, 1, 1, 1, 1))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_faster_than_the_matrix_units_and_the_memory_allow(name):
    _, made, device = program(name)
    assert predict_stage(made.stages[0], device).seconds >= roofline_seconds(made.stages[0], device)


def test_the_model_counts_instructions_by_warps_and_steps():
    # 4096^3 in tiles of 16 x 16 x 16, on 80 units of 8 x 64 multiply-adds a clock
    device = load_device("v100")
    made = planned(matmul(4096, 4096, 4096), device, MatrixPlan("wmma", 4, 4, 2, 2, 2, 2))
    clocks = {one.name: one.clocks for one in predict_stage(made.stages[0], device).limiters}
    blocks = -(-(4096 // 128) ** 2 // 80)
    products = blocks * 4 * 4 * 4 * (4096 // 16)
    assert clocks["multiply-adds"] == pytest.approx(products * 16**3 / 512, rel=0.01)


def test_the_model_counts_instructions_and_accesses_of_every_component():
    device, plan = load_device("v100"), MatrixPlan("wmma", 2, 2, 2, 2, 2, 2)
    both, one = (
        {each.name: each.clocks for each in predict_stage(planned(made, device, plan).stages[0], device).limiters}
        for made in (gated(4096, 4096, 4096), matmul(4096, 4096, 4096))
    )
    assert both["multiply-adds"] == pytest.approx(2 * one["multiply-adds"], rel=0.01)
    # three factors instead of two are staged and read
    assert both["shared path"] == pytest.approx(1.5 * one["shared path"], rel=0.05)


def test_a_batch_of_plans_is_priced_as_each_of_them():
    device = load_device("v100")
    sizes = [(1, 2, 2, 2), (4, 2, 2, 4), (2, 4, 1, 2), (4, 4, 2, 2)]
    batch = MatrixPlan("wmma", *np.array(sizes).T, 2, 2)
    one = planned(matmul(1024, 512, 768), device, MatrixPlan("wmma", *sizes[0], 2, 2)).stages[0]
    roles = next(contraction_roles(one.op))
    together = predict_stage(matrix_stage(one.op, roles, batch, device), device)
    for at, size in enumerate(sizes):
        alone = predict_stage(matrix_stage(one.op, roles, MatrixPlan("wmma", *size, 2, 2), device), device)
        assert together.seconds[at] == pytest.approx(alone.seconds, rel=1e-9)
        assert (together.registers[at], together.shared_bytes[at]) == (alone.registers, alone.shared_bytes)


def test_only_stages_that_name_one_have_a_matrix_instruction():
    _, made, device = program(WMMA)
    assert matrix_instruction(made.stages[0], device).name == "wmma"
    assert matrix_instruction(replace(made.stages[0], compute=Compute("fma")), device) is None
