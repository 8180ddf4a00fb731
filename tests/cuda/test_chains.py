"""Attention as one kernel of matrix instructions: found by structure, its CUDA text right when a CPU executes it, as the
interpreter has it and beside the definition, also with tails, masks and hostile scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.program.blocks import grid_positions
from rollergen.program.check import check
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix_chains import MatrixChainTile, tile_of_matrix_chain
from rollergen.program.model import predict
from tests.agreement.chains import SCORES
from tests.cuda.attention import HOSTILE, agree, arrays_of, by_hand, operands, program, turned
from tests.cuda.host import REVERSE, HostError, compiler, seeded

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
T = rg.tensor


CASES = {
    "whole tiles, a ring": (lambda: rg.ops.attention(*operands()), MatrixChainTile(2, 2, 32, 2, True)),
    "one buffer, queries read again": (lambda: rg.ops.attention(*operands()), MatrixChainTile(1, 2, 32, 1, False)),
    "tails of rows and keys": (
        lambda: rg.ops.attention(*operands(1, 75, 77, 32, 48)), MatrixChainTile(2, 1, 32, 1, True),
    ),
    "three rows of queries": (lambda: rg.ops.attention(*operands(2, 3, 129)), MatrixChainTile(1, 1, 64, 2, False)),
    "causal, grouped heads": (
        lambda: rg.ops.attention(*operands(4, 75, 75, 32, 32, 2), is_causal=True, enable_gqa=True),
        MatrixChainTile(2, 1, 32, 2, False),
    ),
    "causal, fewer keys than rows": (
        lambda: rg.ops.attention(*operands(1, 100, 40), is_causal=True), MatrixChainTile(1, 1, 32, 1, True),
    ),
    "a mask of true and false": (
        lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (40, 72), "bool")), MatrixChainTile(2, 1, 32, 1, False),
    ),
    "a mask that is added": (
        lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (1, 72), "float16")), MatrixChainTile(1, 2, 64, 2, True),
    ),
    "by hand, scores rounded": (
        lambda: rg.ops.softmax(rg.ops.matmul(*turned(*operands()[:2])) * 0.125) @ operands()[2],
        MatrixChainTile(2, 1, 64, 2, True),
    ),
    "head size 128": (lambda: rg.ops.attention(*operands(1, 32, 64, 128, 128)), MatrixChainTile(1, 2, 32, 2, False)),
    "sigmoids": (
        lambda: rg.ops.sigmoid(rg.ops.matmul(*turned(*operands(1, 40, 72)[:2])) * 0.125) @ operands(1, 40, 72)[2],
        MatrixChainTile(1, 1, 32, 1, True),
    ),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(7)
def test_the_text_computes_the_definition_and_the_interpreter_its_traffic(name):
    expression, tile = CASES[name]
    expr = expression()
    made, device = program(expr, tile)
    arrays = arrays_of(made)
    if name == "a mask of true and false":
        arrays["m"][5] = False
    agree(expr, made, device, arrays, bits=8 if name == "sigmoids" else 10, modes=(len(name) % 2,))


@on_host
@pytest.mark.parametrize("name", ["softcap", "ALiBi", "window", "causal from the last row"])
@pytest.mark.every(5)
def test_scores_of_ones_own_are_recognised(name):
    q, k, v = operands(2, 75, 75, 32, 32)
    expr = by_hand(q, k, v, SCORES[name])
    made, device = program(expr, MatrixChainTile(2, 1, 32, 2, True))
    agree(expr, made, device, arrays_of(made))


@on_host
def test_bfloat16_has_its_own_instruction_and_masks():
    mask = T("m", (40, 72), "bfloat16")
    expr = rg.ops.attention(*operands(1, 40, 72, dtype="bfloat16"), mask, is_causal=True)
    made, device = program(expr, MatrixChainTile(1, 1, 32, 2, True), "h200", "mma_bf16")
    agree(expr, made, device, arrays_of(made), bits=7)


@on_host
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scores(name):
    expr = rg.ops.attention(*operands(1, 20, 72, 32, 32))
    made, device = program(expr, MatrixChainTile(1, 2, 32, 1, False))
    arrays = arrays_of(made)
    HOSTILE[name](arrays["q"], arrays["k"])
    agree(expr, made, device, arrays)


FAULTS = {
    "no barrier before keys are replaced": (r"(\n *wait_copies<0>\(\);\n *__syncthreads\(\);)(?=\n *if)", "", 0),
    "quads in another order": (r"weight\[(row_tile)\]\[1\] = pack", r"weight[\1][2] = pack", 1),
    "no exchange of the largest": (r"fmaxf\((largest\S+), other_2\)", r"fmaxf(\1, \1)", 0),
    "sums that do not shrink": (r"= (sums\S+)\*shrink[^;]*;", r"= \1;", 0),
    "values untransposed": ("load_matrices_transposed", "load_matrices", 0),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(5)
def test_a_fault_in_the_text_is_found(fault):
    expr = rg.ops.attention(*operands(1, 32, 96, 32, 32))
    made, device = program(expr, MatrixChainTile(2, 1, 32, 1, True))
    pattern, replacement, count = FAULTS[fault]
    broken = seeded(emit(made, device, "cuda"), pattern, replacement, count=count)
    arrays = arrays_of(made, scale=2.0)
    with pytest.raises((AssertionError, HostError)):
        agree(expr, made, device, arrays, source=broken)
        agree(expr, made, device, arrays, source=broken, modes=(REVERSE,))


@compiled
@pytest.mark.parametrize("name, depth, causal", [("a100", 64, False), ("a100", 128, True), ("h200", 64, True)])
def test_the_chosen_kernel_compiles_and_holds_what_the_model_says(name, depth, causal):
    expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth), is_causal=causal)
    device = load_device(name)
    (made,) = rg.construct(expr, name, top_k=1)
    (stage,), predicted = made.stages, predict(made, device).stages[0]
    used = nvrtc.compile_cuda(emit(made, device, "cuda").text, device.targets[0].arch).kernels[0]
    assert managed_bytes(stage, device)["shared"] == predicted.shared_bytes
    assert used.shared_bytes in (0, predicted.shared_bytes)  # 0: declared at the launch
    assert used.spill_store_bytes <= (0 if depth == 64 else 8)
    assert abs(used.registers - predicted.registers) <= 24


@compiled
@pytest.mark.parametrize("name", ["a100", "h200"])
def test_places_of_rows_with_twelve_pieces_are_not_kept(name):
    """Each piece of a tile has a quotient for its row: of all that a thread copies 48 of each factor."""
    device = load_device(name)
    (made,) = rg.construct(rg.ops.attention(*operands(4, 512, 512, 96, 96)), name, top_k=1)
    used = nvrtc.compile_cuda(emit(made, device, "cuda").text, device.targets[0].arch).kernels[0]
    assert used.spill_store_bytes == 0


def steps_of_blocks(stage):
    """Of each block in the order in which they start: keys that its last row sees, in blocks of keys."""
    rows, key = tile_of_matrix_chain(stage)[0].rows, tile_of_matrix_chain(stage)[1].keys
    (at,) = (p for p, loop in enumerate(stage.loops) if loop.axis == rows and loop.kind == "grid")
    last = (grid_positions(stage, np.arange(stage.blocks))[at] + 1) * stage.loops[at].stride
    return -(-last // key)


def test_blocks_with_more_keys_come_first_in_all_heads_whose_keys_half_the_cache_holds():
    def stage(batch, causal):
        operands = (T(name, (batch, 32, 2048, 128), "float16") for name in "qkv")
        made, device = program(rg.ops.attention(*operands, is_causal=causal), MatrixChainTile(2, 2, 64, 2, False), "h200")
        assert device.layer("l2").capacity_bytes / 2 < 32 * 2 * 2 * 2048 * 128  # of keys and values of so many heads
        return made.stages[0]

    for batch in (1, 4):
        steps = steps_of_blocks(stage(batch, True)).reshape(2 * batch, -1)
        assert stage(batch, True).block_order.descending == 16 and (np.diff(steps) <= 0).all() and (steps == steps[0]).all()
    assert not stage(1, False).block_order.descending
    units = np.zeros(2 * 132)  # of two blocks each, every one takes the next block when it is free
    for step in steps_of_blocks(stage(4, True)):
        units[units.argmin()] += step
    assert units.max() <= 1.1 * units.mean()


def test_the_device_gets_each_operand_once_and_a_causal_mask_saves_time():
    device = load_device("a100")
    times = {}
    for causal in (False, True):
        expr = rg.ops.attention(*operands(64, 2048, 2048, 128, 128), is_causal=causal)
        (made,) = rg.construct(expr, "a100", top_k=1)
        assert len(made.stages) == 1 and not made.temporaries
        found = predict(made, device)
        times[causal] = found.seconds
        assert dict(found.stages[0].traffic_bytes)["dram"] == 4 * 64 * 2048 * 128 * 2
    assert times[False] / times[True] > 1.7


def test_blocks_that_run_alone_on_their_units_rank_as_an_h200_measured_them():
    """64 blocks of one warp on 132 units, 4 rows of queries over 4,096 keys: no other block hides what one waits for
    (`benches/results/gpu_candidates_h200.json`, rows/26: 154, 120 and 94 us)."""
    expr, times = rg.ops.attention(*operands(64, 4, 4096, 128, 128)), []
    for keys, depth in ((32, 1), (64, 1), (32, 2)):
        made, device = program(expr, MatrixChainTile(1, 1, keys, depth, True), "h200")
        times.append(predict(made, device).seconds)
    assert times == sorted(times, reverse=True) and times[0] > 1.3 * times[-1]


def test_a_chain_is_explained():
    said = rg.build(rg.ops.attention(*operands(), is_causal=True), "a100", profile=False).explain()
    assert "which become weights in its registers" in said
    assert "blocks of keys that no row of theirs sees are left out" in said


def test_single_precision_and_devices_without_such_instructions_keep_several_kernels():
    wide = rg.ops.attention(*operands(dtype="float32"))
    assert len(rg.construct(wide, "a100", top_k=1)[0].stages) > 1
    assert len(rg.construct(rg.ops.attention(*operands()), "t4", top_k=1)[0].stages) > 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: replace(s, copies=s.copies[::-1]), "copies are not those of its tile"),
        (lambda s: replace(s, compute=replace(s.compute, instruction="fma")), "expected a matrix instruction"),
        (lambda s: replace(s, loops=(*s.loops[:-1], replace(s.loops[-1], extent=8))), "loops are not those"),
        (lambda s: replace(s, store=replace(s.store, vector=4)), "accumulators"),
    ],
)
def test_programs_that_are_no_such_chains_are_refused(change, problem):
    made, device = program(rg.ops.attention(*operands()), MatrixChainTile(2, 1, 32, 2, True))
    with pytest.raises(ProgramError, match=problem):
        check(replace(made, stages=(change(made.stages[0]),)), device)

