"""What `sample_blocks` promises: every edge class of every stage, and nothing read that was not written."""

import numpy as np
import pytest

from rollergen.expr.splitting import split_reduction
from rollergen.program.interpreter.execute import interpret
from rollergen.program.rprogram import Accumulator, BlockOrder, Compute, Loop, RProgram, Stage
from tests.program.hand_devices import AVX512, TURING
from tests.programs import ALL, F32, cpu_matmul, gpu_conv, matmul_op
from tests.sampling import blocks_writing, edge_blocks, edge_classes, sample_blocks
from tests.tensor_ops import evaluate_program, small_integers


def split_matmul(m=40, n=48, k=96, parts=4):
    """Partial products in blocks of 8 x 8 (swizzled), then their sums in blocks of 8 rows."""
    first, second = split_reduction(matmul_op(m, n, k), "k", parts)
    partial = Stage(
        "partial", first,
        (Loop("k_part", parts, 1, "grid"), Loop("i", -(-m // 8), 8, "grid"), Loop("j", -(-n // 8), 8, "grid"),
         Loop("i", 8, 1, "thread"), Loop("j", 8, 1, "thread"), Loop("k", k // parts, 1, "serial")),
        Compute("fma"), Accumulator(5, F32), block_order=BlockOrder(2),
    )  # fmt: skip
    combine = Stage(
        "combine", second,
        (Loop("i", m, 1, "grid"), Loop("j", -(-n // 16), 16, "grid"), Loop("j", 16, 1, "thread"),
         Loop("k_part", parts, 1, "serial")),
        Compute("fma"), Accumulator(3, F32),
    )  # fmt: skip
    inputs = tuple(load.buffer for load in first.loads())
    return RProgram("v100", inputs, (second.output,), (partial, combine), (first.output,))


PROGRAMS = {**ALL, "many panels": cpu_matmul(200, 600, 20), "split": split_matmul()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_sampled_program_runs_and_its_elements_are_right(name):
    program = PROGRAMS[name]
    arrays, output = small_integers(program), program.outputs[0].name
    device = AVX512 if program.device == "cpu" else TURING
    result = interpret(program, arrays, device, sample_blocks(program))
    written = result.written[output]
    expected = evaluate_program(program, arrays)[output]
    assert written.any()
    tolerance = 1e-6 if "softmax" in name else 0
    np.testing.assert_allclose(result.outputs[output][written], expected[written], rtol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_edge_class_of_every_stage_is_in_the_sample(name):
    chosen = sample_blocks(PROGRAMS[name])
    for stage in PROGRAMS[name].stages:
        assert set(edge_blocks(stage)) <= set(chosen[stage.name])
        assert len(chosen[stage.name]) >= edge_classes(stage)


def test_stages_behind_the_last_run_only_where_they_are_needed():
    program = split_matmul()
    chosen = sample_blocks(program)
    last = program.stages[1]
    assert chosen["combine"] == edge_blocks(last) and len(chosen["combine"]) == 3 * 3
    # Rows 0, one inside and 39 times columns 0-15, 16-31, 32-47: at most 3 of 5 rows of blocks, all 6 columns, 4 parts.
    assert len(chosen["partial"]) <= (3 * 6 + 9) * 4
    assert len(chosen["partial"]) < program.stages[0].blocks


def test_a_store_that_is_no_plain_axis_asks_for_the_whole_stage():
    stage = gpu_conv().stages[0]  # stored at p // width, p % width
    assert blocks_writing(stage, np.array([0])) == set(range(stage.blocks))


def test_an_element_tells_its_block_whatever_the_order_of_blocks():
    stage = split_matmul().stages[0]
    # Part 1, row 9, column 20: block row 1 and column 2, which groups of 2 rows x 6 columns number 2 * 2 + 1.
    element = np.ravel_multi_index((1, 9, 20), stage.op.output.shape)
    assert blocks_writing(stage, np.array([element])) == {1 * 5 * 6 + 2 * 2 + 1}
