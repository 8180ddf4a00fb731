"""Attention as one kernel on Volta, whose threads exchange weights before they multiply again: the text, run here, agrees
with the interpreter and the definition; seeded faults are found; NVIDIA's compiler makes of it what the model says."""

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
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix import accumulators_of
from rollergen.program.matrix_chains import MatrixChainTile
from rollergen.program.model import predict
from rollergen.program.model.costs import costs_of
from rollergen.program.model.matrix_chains import instructions_of_chain
from rollergen.tile.rules import CodeShapes
from tests.agreement.chains import SCORES
from tests.cuda import test_split_chains as split_chains
from tests.cuda.attention import HOSTILE, T, agree, arrays_of, by_hand, operands, program, turned
from tests.cuda.beside import compiled, on_host
from tests.cuda.host import REVERSE, HostError, seeded

V100 = load_device("v100")


def tile(groups=1, tiles=1, keys=32, *, held=True):
    return MatrixChainTile(groups, tiles, keys, 1, held)


def made_of(expr, own):
    return program(expr, own, "v100", "mma")


CASES = {
    "whole tiles": (lambda: rg.ops.attention(*operands()), tile(2, 2)),
    "queries read again": (lambda: rg.ops.attention(*operands()), tile(1, 2, 64, held=False)),
    "tails of rows and keys": (lambda: rg.ops.attention(*operands(1, 75, 77, 32, 48)), tile(2)),
    "three rows of queries": (lambda: rg.ops.attention(*operands(2, 3, 129)), tile(keys=16)),
    "sizes that no swizzle has": (lambda: rg.ops.attention(*operands(1, 40, 72, 80, 112)), tile(2, held=False)),
    "head size 128": (lambda: rg.ops.attention(*operands(1, 32, 64, 128, 128)), tile(1, 2, held=False)),
    "causal, grouped heads": (
        lambda: rg.ops.attention(*operands(4, 75, 75, 32, 32, 2), is_causal=True, enable_gqa=True), tile(2, held=False),
    ),
    "causal, fewer keys than rows": (lambda: rg.ops.attention(*operands(1, 100, 40), is_causal=True), tile()),
    "a mask of true and false": (lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (40, 72), "bool")), tile(2)),
    "a mask that is added": (
        lambda: rg.ops.attention(*operands(1, 40, 72), T("m", (1, 72), "float16")), tile(1, 2, 64),
    ),
    "scores rounded": (
        lambda: rg.ops.softmax(rg.ops.matmul(*turned(*operands()[:2])) * 0.125) @ operands()[2], tile(2, 1, 64),
    ),
    "sigmoids": (
        lambda: rg.ops.sigmoid(rg.ops.matmul(*turned(*operands(1, 40, 72)[:2])) * 0.125) @ operands(1, 40, 72)[2],
        tile(),
    ),
    **{
        f"{name}, by hand": (lambda name=name: by_hand(*operands(2, 75, 75, 32, 32), SCORES[name]), tile(2))
        for name in ("softcap", "ALiBi", "window", "causal from the last row")
    },
}  # fmt: skip


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(7)
def test_the_text_computes_the_definition_and_the_interpreter_its_traffic(name):
    expression, own = CASES[name]
    expr = expression()
    made, device = made_of(expr, own)
    arrays = arrays_of(made)
    if name == "a mask of true and false":
        arrays["m"][5] = False
    agree(expr, made, device, arrays, bits=8 if name == "sigmoids" else 10, modes=(REVERSE * (len(name) % 2),))


def drawn(number):
    """(expression, tile) of random shapes and sizes."""
    random = np.random.default_rng(number)
    heads, shared = ((1, 1), (2, 1), (4, 2))[random.integers(3)]
    rows, keys = (int(random.integers(2, most)) for most in (150, 200))
    depth, columns = (int(random.choice((16, 32, 64, 80, 96, 128))) for _ in range(2))
    own = tile(*(int(random.choice(some)) for some in ((1, 2, 4), (1, 2), (16, 32, 64))), held=bool(random.integers(2)))
    given = operands(heads, rows, keys, depth, columns, shared)
    return rg.ops.attention(*given, is_causal=bool(random.integers(2)), enable_gqa=True), own


@on_host
@pytest.mark.parametrize("number", range(24))
@pytest.mark.every(17)
def test_random_shapes_agree(number):
    expr, own = drawn(number)
    made, device = made_of(expr, own)
    agree(expr, made, device, arrays_of(made), modes=(REVERSE * (number % 2),))


@on_host
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.every(7)
def test_hostile_scores(name):
    expr = rg.ops.attention(*operands(1, 20, 72, 32, 32))
    made, device = made_of(expr, tile())
    arrays = arrays_of(made)
    HOSTILE[name](arrays["q"], arrays["k"])
    agree(expr, made, device, arrays)


@on_host
@pytest.mark.parametrize(
    ("shape", "causal", "own", "chunk"),
    [
        ((3, 1, 256, 64, 64), False, tile(), 128),
        ((2, 1, 301, 64, 32), False, tile(held=False), 80),
        ((8, 1, 200, 32, 32, 4), False, tile(), 64),
        ((1, 40, 200, 32, 80), True, tile(keys=16), 64),
    ],
)
@pytest.mark.every(5)
def test_keys_in_chunks_agree(shape, causal, own, chunk):
    expr = rg.ops.attention(*operands(*shape), is_causal=causal, enable_gqa=True)
    made = split_chains.split(expr, own, chunk, device=V100)
    split_chains.agree(expr, made, arrays_of(made), device=V100)


def short():
    """Three blocks of keys, the last one ragged, by two execution widths."""
    expr = rg.ops.attention(*operands(1, 32, 88, 32, 32))
    return expr, *made_of(expr, tile(2))


FAULTS = {
    "no barrier before values are replaced": (r"(__syncthreads\(\);)(?=\n.*\n.*\n *\*\(ushort8 \*\)\(v_sh)", ""),
    "no barrier before keys are replaced": (r"(__syncthreads\(\);)(?=\n *if \(s_block \+ 1)", ""),
    "the neighbour's row": (r"weights\[0\]\[2\*i\] = upper \? got : kept", "weights[0][2*i] = upper ? kept : got"),
    "rows given that are kept": (r"given = upper \?", "given = !upper ?"),
    "no other quad pair": (r"(weights\[1\]\[i\] =) __shfl.*;", r"\1 weights[0][i];"),
    "its keys in the same order": (r"(load_half_piece\(value\[2\], v_shared_at)_2", r"\1"),
    "no exchange of the largest": (r"fmaxf\((largest\S+), other_2\)", r"fmaxf(\1, \1)"),
    "sums that do not shrink": (r"= (sums\S+)\*shrink[^;]*;", r"= \1;"),
    "values by columns": ("multiply_quad_pairs_row", "multiply_quad_pairs_turned"),
    "weights of keys that do not exist": (r"< 88 \?", "< 96 ?"),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.every(7)
def test_a_fault_in_the_text_is_found(fault):
    expr, made, device = short()
    pattern, replacement = FAULTS[fault]
    broken = seeded(emit(made, device, "cuda"), pattern, replacement, count=0)
    if fault == "values by columns":
        factors = "const unsigned (&a)[2][4], const unsigned (&b)[4][2]"
        wrong = f"inline void multiply_quad_pairs_turned(float (&c)[2][4], {factors})"
        body = "{ unsigned t[2][4]; memcpy(t, b, sizeof t); multiply_quad_pairs_col(c, a, t); }"
        broken = replace(broken, text=f"{wrong}\n{body}\n{broken.text}")
    arrays = arrays_of(made, scale=2.0)
    with pytest.raises((AssertionError, HostError)):
        agree(expr, made, device, arrays, source=broken, modes=(0, REVERSE))


def test_each_accumulator_of_a_tile_is_of_one_thread():
    """As PTX documents for m8n8k4, of four quad pairs: two rows 2 apart, and pairs of columns, by either quad."""
    spread = accumulators_of(V100.instruction("mma"))
    held = set()
    for lane in range(32):
        row = lane % 2 + lane // 4 % 2 * 4 + lane // 16 * 8
        column = lane // 2 % 2 * 2 + lane // 8 % 2 * 4
        held |= {(row + half * spread.row_step, column + place) for half in (0, 1) for place in spread.places}
    assert len(held) == 16 * 16 and spread.apart == (2, 8) and spread.neighbours == 2


@compiled
@pytest.mark.parametrize("depth, causal", [(64, False), (64, True), (128, False), (128, True)])
@pytest.mark.every(3)
def test_the_chosen_kernel_compiles_and_holds_what_the_model_says(depth, causal):
    expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth), is_causal=causal)
    (made,) = rg.construct(expr, "v100", top_k=1)
    (stage,), predicted = made.stages, predict(made, V100).stages[0]
    assert not made.temporaries and dict(predicted.traffic_bytes)["dram"] == 4 * 64 * 2048 * depth * 2
    done = nvrtc.compile_cuda(emit(made, V100, "cuda").text, V100.targets[0].arch)
    (used,) = done.kernels
    assert managed_bytes(stage, V100)["shared"] == predicted.shared_bytes
    assert used.shared_bytes in (0, predicted.shared_bytes)  # 0: declared at the launch
    assert used.spill_store_bytes <= (0 if depth == 64 else 8)
    assert abs(used.registers - predicted.registers) <= 24
    loops = main_loops(done.code)
    if loops is not None and not causal:
        (loop,) = loops.values()
        own = instructions_of_chain(stage, V100, costs_of(V100), 0)
        assert loop["HMMA"] == own.products
        assert abs(sum(loop.values()) / own.total - 1) < 0.1


@pytest.mark.parametrize("depth", [64, 128])
def test_one_kernel_is_faster_than_three_and_a_causal_mask_saves_time(depth):
    times = []
    for causal in (False, True):
        expr = rg.ops.attention(*operands(64, 2048, 2048, depth, depth), is_causal=causal)
        apart = BuildOptions(shapes=CodeShapes(chains=False))
        own, other = (rg.construct(expr, "v100", top_k=1, options=one)[0] for one in (BuildOptions(), apart))
        assert (len(own.stages), len(other.stages)) == (1, 3)
        times.append(predict(own, V100).seconds)
        assert 2 * times[-1] < predict(other, V100).seconds
    assert times[0] / times[1] > 1.7


def test_the_device_reads_and_writes_each_operand_once():
    """Counted by the interpreter: all keys fit one block of rows."""
    expr = rg.ops.attention(*operands(2, 32, 64, 64, 64))
    made, device = made_of(expr, tile(2))
    found = interpret(made, arrays_of(made), device)
    assert sum(one.transactions for one in found.traffic) * device.backing.transaction_bytes == (
        2 * (32 + 64 + 64 + 32) * 64 * 2
    )


def test_products_that_are_not_asynchronous_are_explained():
    said = rg.build(rg.ops.attention(*operands(), is_causal=True), "v100", profile=False).explain()
    assert "mma makes scores, which become weights in its registers" in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: replace(s, copies=tuple(replace(c, asynchronous=True) for c in s.copies)), "copies"),
        (lambda s: replace(s, compute=replace(s.compute, instruction="wmma")), "expected a matrix instruction"),
        (lambda s: replace(s, store=replace(s.store, vector=4)), "accumulators"),
    ],
)
def test_programs_that_are_no_such_chains_are_refused(change, problem):
    _, made, device = short()
    with pytest.raises(ProgramError, match=problem):
        check(replace(made, stages=(change(made.stages[0]),)), device)


def test_a_ring_of_buffers_is_refused_where_copies_pass_through_registers():
    with pytest.raises(ProgramError, match="blocks of 32 keys in 2 buffers; expected whole 16 in 1"):
        made_of(rg.ops.attention(*operands()), MatrixChainTile(1, 1, 32, 2, False))


def test_plain_products_leave_the_instruction_to_chains():
    expr = rg.ops.matmul(T("A", (512, 512), "float16"), T("B", (512, 512), "float16"))
    (made,) = rg.construct(expr, "v100", top_k=1)
    (stage,) = made.stages
    assert stage.compute.instruction == "wmma"
    with pytest.raises(ProgramError, match="expected it in chains of two products alone"):
        check(replace(made, stages=(replace(stage, compute=replace(stage.compute, instruction="mma")),)), V100)
