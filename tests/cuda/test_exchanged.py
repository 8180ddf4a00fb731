"""Narrow results that the threads of a row, or of a column where rows are odd, exchange before they store them: all
readers agree, faults are found."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.hal.load import load_device
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict_stage
from rollergen.program.model.facts import facts_of
from rollergen.program.model.fragments import exchanged_results, share_across_rows
from rollergen.program.model.moved import in_one_row
from rollergen.program.model.nest import nest_of
from rollergen.program.model.services import thread_transactions
from tests.agreement.readers import assert_values, small_integers
from tests.cuda.host import HostError, compiler, seeded
from tests.cuda.test_programs import executed
from tests.matrices import T, gated, matmul, planned

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def with_bias_and_residual(dtype, columns=64):
    product = rg.ops.bias_add(matmul(72, 48, columns, dtype), T("bias", (columns,), dtype), axis=-1)
    return rg.ops.relu(rg.ops.add(product, T("R", (72, columns), dtype)))


CASES = {
    "mma, float16": ("a100", matmul(75, 37, 64), MatrixPlan("mma", 1, 4, 2, 1, 2)),
    "mma, two groups of tiles": ("a100", matmul(40, 64, 128), MatrixPlan("mma", 2, 8, 1, 2, 2, 2)),
    "mma, bfloat16": ("h200", matmul(75, 37, 64, "bfloat16"), MatrixPlan("mma_bf16", 1, 4, 2, 1, 2)),
    "mma, columns beyond the end": ("a100", matmul(40, 64, 72), MatrixPlan("mma", 2, 4, 1, 1, 2, 2)),
    "mma, int8 results": (
        "a100", rg.ops.cast(matmul(75, 32, 64, "int8"), "int8"), MatrixPlan("mma_s8", 1, 4, 2, 1, 1),
    ),
    "mma, gated": ("a100", gated(40, 48, 64), MatrixPlan("mma", 1, 4, 1, 1, 2)),
    "mma, bias and residual": ("a100", with_bias_and_residual("float16"), MatrixPlan("mma", 1, 4, 1, 2, 2)),
    "wgmma": ("h200", matmul(136, 64, 136), MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3)),
    "wgmma, bias and residual": ("h200", with_bias_and_residual("bfloat16"), MatrixPlan("wgmma_bf16", 1, 8, 1, 1, 4, 3)),
}  # fmt: skip
ODD_ROWS = {
    "mma, odd": ("a100", matmul(75, 37, 71), MatrixPlan("mma", 1, 8, 2, 1, 2)),
    "mma, pairs": ("a100", matmul(40, 64, 130), MatrixPlan("mma", 2, 8, 1, 2, 2, 2)),
    "mma, two groups of tiles": ("a100", matmul(40, 64, 129), MatrixPlan("mma", 2, 16, 1, 1, 2, 2)),
    "mma, bfloat16": ("h200", matmul(33, 48, 127, "bfloat16"), MatrixPlan("mma_bf16", 2, 8, 1, 2, 2)),
    "mma, int8 results": (
        "a100", rg.ops.cast(matmul(75, 32, 67, "int8"), "int8"), MatrixPlan("mma_s8", 1, 8, 2, 1, 1),
    ),
    "mma, gated": ("a100", gated(40, 48, 67), MatrixPlan("mma", 1, 8, 1, 1, 2)),
    "mma, bias and residual": ("a100", with_bias_and_residual("float16", 65), MatrixPlan("mma", 1, 8, 1, 2, 2)),
    "wgmma": ("h200", matmul(136, 64, 137), MatrixPlan("wgmma", 1, 8, 2, 1, 4, 3)),
    "mma, half a group of tiles": ("a100", matmul(75, 37, 71), MatrixPlan("mma", 1, 4, 2, 1, 2)),
    "mma, tiles left over": ("a100", matmul(75, 37, 143), MatrixPlan("mma", 1, 9, 2, 1, 2)),
    "mma, pairs, tiles left over": ("a100", matmul(40, 64, 130), MatrixPlan("mma", 1, 10, 1, 1, 2)),
    "wmma, tiles left over": ("v100", matmul(40, 64, 47), MatrixPlan("wmma", 2, 3, 1, 1, 2)),
    "wmma": ("v100", matmul(75, 37, 71), MatrixPlan("wmma", 1, 2, 2, 1, 2)),
    "wmma, pairs": ("v100", matmul(40, 64, 130), MatrixPlan("wmma", 2, 4, 1, 2, 2, 2)),
    "wmma, two groups of tiles, bias": ("v100", with_bias_and_residual("float16", 65), MatrixPlan("wmma", 1, 4, 1, 1, 2)),
    "wmma, float32 results": (
        "v100", rg.ops.matmul(T("A", (40, 48), "float16"), T("B", (48, 35), "float16"), dtype="float32"),
        MatrixPlan("wmma", 1, 2, 1, 1, 2),
    ),
}  # fmt: skip


@pytest.mark.every(7)
@on_host
@pytest.mark.parametrize("name", CASES)
def test_cuda_text_computes_what_the_interpreter_computes(name):
    made, source = agreed(*CASES[name])
    assert made.stages[0].store.vector == 8 and "exchange_results(" in source.text


@pytest.mark.every(7)
@on_host
@pytest.mark.parametrize("name", ODD_ROWS)
def test_results_in_odd_rows_are_exchanged_across_rows(name):
    made, source = agreed(*ODD_ROWS[name])
    store = made.stages[0].store
    assert store.across_rows and store.vector == (2 if "pairs" in name else 1) and "exchange_rows(" in source.text


@on_host
@pytest.mark.parametrize("seed", range(3))
def test_results_of_random_shapes_are_exchanged_across_rows(seed):
    draw = random.Random(seed)
    m, n, k = (draw.randint(1, 150) for _ in range(3))
    n += n % 8 == 0
    instruction, dtype = draw.choice((("mma", "float16"), ("mma_bf16", "bfloat16")))
    tiles = draw.choice((1, 2)), draw.choice((8, 16)), draw.choice((1, 2)), draw.choice((1, 2))
    made, source = agreed("a100", matmul(m, k, n, dtype), MatrixPlan(instruction, *tiles, 2))
    assert made.stages[0].store.across_rows and "exchange_rows(" in source.text


def agreed(device_name, expression, plan):
    """The program and its text, which compute what the interpreter and the definition do."""
    device = load_device(device_name)
    made = planned(expression, device, plan)
    check(made, device)
    arrays, source = small_integers(made), emit(made, device, "cuda")
    got = executed(made, source, arrays)
    wanted = interpret(made, arrays, device).outputs
    assert all(np.array_equal(got[key], wanted[key]) for key in wanted)
    rounded = {"float16": 2.0**-11, "bfloat16": 2.0**-7}.get(made.outputs[0].dtype, 0.0)
    assert_values(expression, made, got, arrays, None, rounded)
    return made, source


FAULTS = {
    "other neighbours": (r"\*at\[0\], \*at\[1\], 1", "*at[0], *at[1], 2"),
    "the given one kept": (r"upper \? one : other", "upper ? other : one"),
    "no second step": (r"exchange_with\(\*at\[0\], \*at\[2\], 2\);", ""),
    "vectors too near": (r"(out_at = .*)\*8;", r"\1*2;"),
}
FAULTS_ACROSS_ROWS = {
    "neighbours of a row": (r"\*at\[t \+ 1\], 4\)", "*at[t + 1], 1)"),
    "the given one kept": FAULTS["the given one kept"],
    "no third step": (r"exchange_with\(\*at\[t\], \*at\[t \+ 4\], 16\);", ";"),
    "tiles of the second step": (r"\*at\[t \+ t / 2 \* 2 \+ 2\], 8", "*at[t + t / 2 * 2 + 1], 8"),
    "rows too near": (r"row\*71", "row*70"),
    "one row tested": (r"i3\*8 \+ row < 75", "i3*8 < 75"),
}


@on_host
@pytest.mark.parametrize(
    "case, faults, fault",
    [("mma, float16", FAULTS, one) for one in FAULTS]
    + [("mma, odd", FAULTS_ACROSS_ROWS, one) for one in FAULTS_ACROSS_ROWS],
)
@pytest.mark.every(3)
def test_a_seeded_fault_is_found(case, faults, fault):
    device_name, expression, plan = (CASES | ODD_ROWS)[case]
    device = load_device(device_name)
    made = planned(expression, device, plan)
    source, arrays = emit(made, device, "cuda"), small_integers(made)
    changed = seeded(source, *faults[fault])
    wanted = interpret(made, arrays, device).outputs
    try:
        got = executed(made, changed, arrays)
    except (HostError, AssertionError):  # of an access that is not aligned, or beyond an array
        return
    assert not all(np.array_equal(got[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("tiles, dtype", [(2, "float16"), (4, "float32")])
def test_few_tiles_and_wide_results_stay_where_they_are(tiles, dtype):
    device = load_device("a100")
    expression = matmul(64, 64, 64) if dtype == "float16" else rg.ops.matmul(
        T("A", (64, 64), "float16"), T("B", (64, 64), "float16"), dtype="float32"
    )  # fmt: skip
    made = planned(expression, device, MatrixPlan("mma", 1, tiles, 1, 1, 2))
    assert made.outputs[0].dtype == dtype and made.stages[0].store.vector == 2
    assert "exchange_results" not in emit(made, device, "cuda").text


def test_a_vector_of_more_than_whole_tiles_is_refused():
    device = load_device("a100")
    made = planned(matmul(64, 64, 64), device, MatrixPlan("mma", 1, 2, 1, 1, 2))
    (stage,) = made.stages
    wide = replace(made, stages=(replace(stage, store=replace(stage.store, vector=8)),))
    with pytest.raises(ProgramError, match=re.escape("store.vector is 8; expected 2 at most, or 8 where the tiles")):
        check(wide, device)


@pytest.mark.parametrize("tiles, vector", [(2, 1), (8, 8)])
def test_an_exchange_across_rows_of_other_than_whole_groups_of_tiles_or_of_vectors_is_refused(tiles, vector):
    device = load_device("a100")
    made = planned(matmul(64, 64, 64 if vector > 1 else 65), device, MatrixPlan("mma", 1, tiles, 1, 1, 2))
    (stage,) = made.stages
    assert not stage.store.across_rows
    across = replace(made, stages=(replace(stage, store=replace(stage.store, vector=vector, across_rows=True)),))
    with pytest.raises(ProgramError, match=re.escape(f"store.across_rows with instruction mma and vectors of {vector}")):
        check(across, device)


def test_stores_of_odd_rows_are_predicted_to_write_fewer_wavefronts():
    device = load_device("h200")
    made = planned(matmul(4096, 64, 4097), device, MatrixPlan("mma", 4, 8, 2, 2, 2, 3))
    (stage,) = made.stages
    apart = replace(stage, store=replace(stage.store, across_rows=False))
    clocks = [
        {limit.name: limit.seconds for limit in predict_stage(one, device).limiters} for one in (stage, apart)
    ]  # fmt: skip
    assert clocks[0]["shared path"] < clocks[1]["shared path"] and clocks[0]["issue"] > clocks[1]["issue"]
    assert clocks[0]["l2 bandwidth"] < clocks[1]["l2 bandwidth"]


@pytest.mark.parametrize("columns, tiles, vector", [(4097, 4, 1), (4098, 8, 2)])
def test_threads_that_have_exchanged_results_across_rows_touch_the_sectors_of_one_row(columns, tiles, vector):
    device = load_device("h200")
    (stage,) = planned(matmul(4096, 64, columns), device, MatrixPlan("mma", 4, tiles, 2, 2, 2, 3)).stages
    assert stage.store.across_rows and stage.store.vector == vector
    nest = nest_of(stage, facts_of(stage.op), device)
    touched = [thread_transactions(one, nest.facts.store, 32) for one in (in_one_row(nest, device), nest)]
    apart = {2 * (row * columns + 2 * thread) // 32 for row in range(8) for thread in range(4)}
    assert touched == [32 * vector * 2 / 32, len(apart)]  # 32 threads, 2 bytes a result, sectors of 32 bytes


@pytest.mark.parametrize("tiles, columns, share", [(8, 143, 1), (9, 143, 8 / 9), (10, 130, 8 / 10), (3, 143, 0)])
def test_tiles_left_over_are_predicted_to_stay(tiles, columns, share):
    device = load_device("a100")
    (stage,) = planned(matmul(75, 37, columns), device, MatrixPlan("mma", 1, tiles, 2, 1, 2)).stages
    nest = nest_of(stage, facts_of(stage.op), device)
    each = 4 * tiles  # results of a thread
    assert share_across_rows(nest, device) == share
    assert exchanged_results(nest, device) == pytest.approx(1.5 * each * share)


def test_it_is_predicted_to_write_fewer_wavefronts_and_to_take_instructions():
    device = load_device("h200")
    made = planned(matmul(4096, 64, 4096), device, MatrixPlan("mma", 4, 8, 2, 2, 2, 3))
    (stage,) = made.stages
    apart = replace(stage, store=replace(stage.store, vector=2))
    clocks = [
        {limit.name: limit.seconds for limit in predict_stage(one, device).limiters} for one in (stage, apart)
    ]  # fmt: skip
    assert clocks[0]["shared path"] < clocks[1]["shared path"] and clocks[0]["issue"] > clocks[1]["issue"]
