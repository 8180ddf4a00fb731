"""Attention whose two products run beside the program (wgmma), weights as a factor in registers: the text, run here in
each mode of lateness, agrees with the interpreter and the definition; seeded faults are found; NVIDIA's compiler makes
of it what the model says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.hal.compilers import nvrtc
from rollergen.hal.compilers.sass import main_loops
from rollergen.hal.load import load_device
from rollergen.lower.ir import Barrier
from rollergen.lower.matrix_ir import BeginProducts, EndProducts, WaitProducts
from rollergen.lower.stage import lower
from rollergen.program.check import check
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix_chains import MatrixChainTile, tile_of_matrix_chain
from rollergen.program.model import predict
from rollergen.tile.rules import CodeShapes
from tests.agreement.chains import SCORES
from tests.cuda.attention import CUDA, HOSTILE, T, agree, arrays_of, by_hand, operands, program, turned
from tests.cuda.beside import H200, assert_refused_without, compiled, on_host
from tests.cuda.host import COPIES_AT_ONCE, PRODUCTS_LATE, REVERSE, HostError, seeded

MODES = (0, PRODUCTS_LATE, COPIES_AT_ONCE | PRODUCTS_LATE | REVERSE)
"""Copies late, both late, products late."""
NAMES = {"float16": "wgmma", "bfloat16": "wgmma_bf16"}


def beside(groups, tiles, keys, depth):
    return MatrixChainTile(groups, tiles, keys, depth, False, 64)


def made_of(expr, tile, dtype="float16"):
    return program(expr, tile, "h200", NAMES[dtype])


CASES = {
    "whole tiles": (lambda: rg.ops.attention(*operands()), beside(1, 1, 64, 1)),
    "a ring": (lambda: rg.ops.attention(*operands(1, 64, 192)), beside(1, 1, 64, 2)),
    "head size 128, tails of rows and keys": (
        lambda: rg.ops.attention(*operands(1, 150, 200, 128, 128)), beside(2, 1, 128, 2),
    ),
    "columns unlike the head size": (lambda: rg.ops.attention(*operands(1, 70, 77, 64, 192)), beside(1, 1, 64, 1)),
    "head size 80": (lambda: rg.ops.attention(*operands(1, 70, 77, 80, 80)), beside(1, 1, 64, 1)),
    "half a panel, and a panel and a half": (
        lambda: rg.ops.attention(*operands(2, 75, 75, 32, 96), is_causal=True), beside(1, 2, 64, 2),
    ),
    "two row tiles a warpgroup": (lambda: rg.ops.attention(*operands(1, 140, 100)), beside(1, 2, 64, 1)),
    "three rows of queries": (lambda: rg.ops.attention(*operands(2, 3, 129)), beside(1, 1, 128, 2)),
    "causal, grouped heads": (
        lambda: rg.ops.attention(*operands(4, 75, 75, shared=2), is_causal=True, enable_gqa=True), beside(1, 1, 64, 2),
    ),
    "causal, fewer keys than rows": (
        lambda: rg.ops.attention(*operands(1, 200, 40), is_causal=True), beside(1, 1, 64, 1),
    ),
    "a mask of true and false": (
        lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (40, 72), "bool")), beside(1, 1, 64, 1),
    ),
    "a mask that is added": (
        lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (1, 72), "float16")), beside(1, 1, 64, 2),
    ),
    "scores rounded": (
        lambda: rg.ops.softmax(rg.ops.matmul(*turned(*operands()[:2])) * 0.125) @ operands()[2], beside(1, 1, 64, 2),
    ),
    "sigmoids": (
        lambda: rg.ops.sigmoid(rg.ops.matmul(*turned(*operands(1, 40, 72)[:2])) * 0.125) @ operands(1, 40, 72)[2],
        beside(1, 1, 64, 1),
    ),
    **{
        f"{name}, by hand": (lambda name=name: by_hand(*operands(2, 75, 75), SCORES[name]), beside(1, 1, 64, 2))
        for name in ("softcap", "ALiBi", "window", "causal from the last row")
    },
}  # fmt: skip


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(7)
def test_the_text_computes_the_definition_in_every_mode_and_the_interpreter_its_traffic(name):
    expression, tile = CASES[name]
    expr = expression()
    made, device = made_of(expr, tile)
    arrays = arrays_of(made)
    if name == "a mask of true and false":
        arrays["m"][5] = False
    agree(expr, made, device, arrays, bits=8 if name == "sigmoids" else 10, modes=MODES)


def drawn(number):
    """(expression, tile, dtype) of random shapes and sizes."""
    random = np.random.default_rng(number)
    dtype = ("float16", "bfloat16")[number % 2]
    heads, shared = ((1, 1), (2, 1), (4, 2))[random.integers(3)]
    rows, keys = (int(random.integers(2, most)) for most in (200, 300))
    depth, columns = (int(random.choice((64, 128) if number % 3 else (32, 80, 96, 112))) for _ in range(2))
    tile = beside(*(int(random.choice(some)) for some in ((1, 2, 3), (1, 2), (64, 128), (1, 2))))
    given = operands(heads, rows, keys, depth, columns, shared, dtype)
    return rg.ops.attention(*given, is_causal=bool(random.integers(2)), enable_gqa=True), tile, dtype


@on_host
@pytest.mark.parametrize("number", range(24))
@pytest.mark.every(17)
def test_random_shapes_agree(number):
    expr, tile, dtype = drawn(number)
    made, device = made_of(expr, tile, dtype)
    agree(expr, made, device, arrays_of(made), bits=10 if dtype == "float16" else 7, modes=(MODES[number % 3],))


@on_host
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.every(7)
def test_hostile_scores(name):
    expr = rg.ops.attention(*operands(1, 20, 72))
    made, device = made_of(expr, beside(1, 1, 64, 1))
    arrays = arrays_of(made)
    HOSTILE[name](arrays["q"], arrays["k"])
    agree(expr, made, device, arrays)


def ring():
    """Two warpgroups, more blocks of keys than buffers, the last one ragged."""
    return made_of(rg.ops.attention(*operands(1, 128, 200)), beside(2, 1, 64, 2))


FAULTS = {
    "no wait for copies": r"wait_copies<0>\(\);",
    "no barrier": r"__syncthreads\(\);",
    "copies not shown to products": r"show_to_products\(\);",
    "a wait for scores too weak": (
        r"end_products<0>\(\);\s+wait_products<32>\(\(float \*\)scores\);", "end_products<1>();",
    ),
    "no wait for sums": r"end_products<0>\(\);\s+wait_products<32>\(\(float \*\)sums\);",
    "products not begun": r"begin_products\(\);",
    "sums that do not shrink": (r"= (sums\S+)\*shrink[^;]*;", r"= \1;"),
    "quads in another order": (r"weight(\S*)\[1\] = pack", r"weight\1[2] = pack"),
    "the other warpgroup's rows": (r"(q_shared_at = .*q_shared \+ )(\w+)\*4096", r"\1(1 - \2)*4096"),
    "values along the keys": (r"operand_at<8192>\(v_shared", "operand_at<8192>(k_shared"),
    "the first step of keys again": (r"(multiply_rn.*)key_step\S*\*1024", r"\g<1>0"),
}


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(7)
def test_a_fault_in_the_text_is_found(fault):
    pattern, replacement = FAULTS[fault] if isinstance(FAULTS[fault], tuple) else (FAULTS[fault], "")
    made, device = ring()
    broken = seeded(emit(made, device, "cuda"), pattern, replacement, count=0)
    arrays = arrays_of(made, scale=2.0)
    expr = rg.ops.attention(*operands(1, 128, 200))
    with pytest.raises((AssertionError, HostError)):
        agree(expr, made, device, arrays, source=broken, modes=MODES)


@pytest.mark.parametrize("node", [BeginProducts, EndProducts, WaitProducts, Barrier])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_kernel_without_a_fence_is_refused(node, depth):
    made, device = made_of(rg.ops.attention(*operands(1, 64, 200)), beside(1, 1, 64, depth))
    (kernel,) = lower(made, device, CUDA)
    assert_refused_without(node, kernel)


@pytest.mark.parametrize(
    ("tile", "says"),
    [
        (beside(1, 1, 32, 1), "blocks of 32 keys in 1 buffers; expected whole 64 up to 256"),
        (beside(1, 1, 320, 1), "blocks of 320 keys"),
        (beside(1, 1, 64, 3), "in 3 buffers"),
        (MatrixChainTile(1, 1, 64, 1, True, 64), "queries held; expected"),
    ],
)
def test_tiles_that_no_instruction_multiplies_are_refused(tile, says):
    with pytest.raises(ProgramError, match=says):
        made_of(rg.ops.attention(*operands(1, 64, 640)), tile)


@pytest.mark.parametrize("fields", [{"panel": 0}, {"swizzle": 4}, {"panel": 32}])
def test_copies_that_no_descriptor_describes_are_refused(fields):
    made, device = ring()
    (stage,) = made.stages
    changed = replace(stage, copies=(replace(stage.copies[0], **fields), *stage.copies[1:]))
    with pytest.raises(ProgramError, match="copies are not those of its tile"):
        check(replace(made, stages=(changed,)), device)


@compiled
@pytest.mark.parametrize("depth", [80, 96, 112, 256])
@pytest.mark.every(3)
def test_head_sizes_that_are_no_whole_panels_multiply_the_columns_of_the_last_one(depth):
    expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth))
    own, other = (
        rg.construct(expr, "h200", top_k=1, options=BuildOptions(shapes=CodeShapes(asynchronous_products=one)))[0]
        for one in (True, False)
    )
    (stage,) = own.stages
    assert stage.compute.instruction == "wgmma"
    assert predict(own, H200).seconds < predict(other, H200).seconds
    assert dict(predict(own, H200).stages[0].traffic_bytes)["dram"] == 4 * 64 * 2048 * depth * 2
    source, (_, tile) = emit(own, H200, "cuda"), tile_of_matrix_chain(stage)
    assert f"m64n{-(-depth // 64) * 64}k16" in source.text
    done = nvrtc.compile_cuda(source.text, H200.targets[0].arch)
    assert done.kernels[0].spill_store_bytes <= 48
    loops = main_loops(done.code)
    if loops is not None:
        (loop,) = loops.values()
        assert loop["HGMMA"] == tile.tiles * (depth + tile.keys) // 16


def test_sizes_that_are_no_whole_steps_keep_to_several_kernels():
    (made,) = rg.construct(rg.ops.attention(*operands(8, 512, 512, 72, 72)), "h200", top_k=1)
    assert made.stages[0].inner is None


SIZES = [(depth, causal) for depth in (64, 128) for causal in (False, True)]


@compiled
@pytest.mark.parametrize("depth, causal", SIZES)
def test_the_chosen_kernel_compiles_and_holds_what_the_model_says(depth, causal):
    expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth), is_causal=causal)
    (made,) = rg.construct(expr, "h200", top_k=1)
    (stage,), predicted = made.stages, predict(made, H200).stages[0]
    assert stage.compute.instruction == "wgmma"
    done = nvrtc.compile_cuda(emit(made, H200, "cuda").text, H200.targets[0].arch)
    (used,) = done.kernels
    assert managed_bytes(stage, H200)["shared"] == predicted.shared_bytes
    assert used.shared_bytes in (0, predicted.shared_bytes)  # 0: declared at the launch
    assert used.spill_store_bytes <= (0 if depth == 64 else 8)
    assert abs(used.registers - predicted.registers) <= 24
    loops, (_, tile) = main_loops(done.code), tile_of_matrix_chain(stage)
    if loops is not None:
        (loop,) = loops.values()
        assert loop["HGMMA"] == tile.tiles * (depth + tile.keys) // 16  # steps of 16 of either product
        assert loop["WARPGROUP"] <= 8 and "STL" not in loop and "LDL" not in loop  # else they run one by one


def test_they_are_faster_in_the_model_and_can_be_left_out():
    apart = BuildOptions(shapes=CodeShapes(asynchronous_products=False))
    for depth, causal in SIZES:
        expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth), is_causal=causal)
        own, other = (rg.construct(expr, "h200", top_k=1, options=one)[0] for one in (BuildOptions(), apart))
        assert other.stages[0].compute.instruction == "mma"
        assert predict(own, H200).seconds < predict(other, H200).seconds


def test_the_device_gets_each_operand_once_and_a_causal_mask_saves_time():
    times = {}
    for causal in (False, True):
        expr = rg.ops.attention(*operands(64, 2048, 2048, 128, 128), is_causal=causal)
        (made,) = rg.construct(expr, "h200", top_k=1)
        found = predict(made, H200)
        times[causal] = found.seconds
        assert dict(found.stages[0].traffic_bytes)["dram"] == 4 * 64 * 2048 * 128 * 2
    assert times[False] / times[True] > 1.7
    assert 4 * 64 * 2048**2 * 128 / times[False] > 500e12


def test_programs_to_measure_are_of_both_kinds_of_products():
    """No GPU has run these yet."""
    expr = rg.ops.attention(*operands(64, 2048, 2048, 128, 128))
    names = {one.stages[0].compute.instruction for one in rg.construct(expr, "h200", top_k=10)}
    assert names == {"wgmma", "mma"}


def test_a_chain_of_several_execution_widths_is_explained():
    said = rg.build(rg.ops.attention(*operands(64, 2048, 2048), is_causal=True), "h200", profile=False).explain()
    assert "wgmma makes scores, which become weights in its registers" in said
    assert load_device("h200").instruction("wgmma").lanes == 128 and "groups of 4 execution widths" in said
