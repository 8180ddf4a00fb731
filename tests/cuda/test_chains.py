"""Attention as one kernel of matrix instructions: found by structure, its CUDA text right when a CPU executes it, as the
interpreter has it and beside the definition, also with tails, masks and hostile scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.compilers import nvrtc
from rollergen.hal.load import load_device
from rollergen.program.assemble.chain import matrix_chain_stage
from rollergen.program.chains import chain_roles
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.layers import managed_bytes
from rollergen.program.matrix_chains import MatrixChainTile, fits_instruction
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.tile.exact_traffic import traffic
from tests.agreement.chains import SCORES, chained
from tests.cuda.host import HostError, compiler, seeded
from tests.cuda.test_programs import executed

on_host = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
compiled = pytest.mark.skipif(not nvrtc.is_installed(), reason="no NVRTC")
T = rg.tensor


def operands(heads=2, rows=64, keys=64, depth=64, columns=64, shared=1, dtype="float16"):
    shapes = (heads, rows, depth), (heads // shared, keys, depth), (heads // shared, keys, columns)
    return tuple(T(name, shape, dtype) for name, shape in zip("qkv", shapes, strict=True))


def program(expr, tile, device="a100", instruction="mma"):
    device, graph = load_device(device), chained(expr)
    (op,) = graph.tensor_ops
    roles, one = chain_roles(op), device.instruction(instruction)
    assert fits_instruction(op, roles, one)
    made = RProgram(device.name, graph.inputs, graph.outputs, (matrix_chain_stage(op, roles, tile, one, device),))
    check(made, device)
    return made, device


def arrays_of(made, scale=1.0):
    random = np.random.default_rng(0)
    draw = lambda b: random.random(b.shape) < 0.7 if b.dtype == "bool" else random.standard_normal(b.shape) * scale
    return {b.name: draw(b).astype(numpy_dtype(b.dtype)) for b in made.inputs}


def single(array):
    return np.asarray(array, np.float32)


def agree(expr, made, device, arrays, *, bits=10, reverse=False, source=None):
    """The executed text, the interpreter and the definition; the interpreter's bytes beside the closed forms.

    Weights are rounded before they are summed: each errs by half a unit of the dtype's ``bits``, of the sum's size."""
    (name,) = [b.name for b in made.outputs]
    want = single(expr.evaluate(*[arrays[b.name] for b in made.inputs]))
    found = interpret(made, arrays, device)
    got = executed(made, source or emit(made, device, "cuda"), arrays, reverse)[name]
    size = np.nanmax(np.abs(single(arrays["v"])))
    for one in (single(got), single(found.outputs[name])):
        assert np.array_equal(np.isnan(one), np.isnan(want))
        np.testing.assert_allclose(one, want, rtol=0, atol=2.0**-bits * size)
    counted = [(one.tensor, one.tiles, one.transactions) for one in found.traffic]
    (stage,) = made.stages
    assert counted == [(t.tensor, t.tiles, t.transactions) for t in traffic(stage, device.backing.transaction_bytes)]
    assert from_json(to_json(made)) == made
    assert 0 < predict(made, device).seconds < 1


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
        lambda: rg.ops.softmax(rg.ops.matmul(*_turned(*operands()[:2])) * 0.125) @ operands()[2],
        MatrixChainTile(2, 1, 64, 2, True),
    ),
    "head size 128": (lambda: rg.ops.attention(*operands(1, 32, 64, 128, 128)), MatrixChainTile(1, 2, 32, 2, False)),
    "sigmoids": (
        lambda: rg.ops.sigmoid(rg.ops.matmul(*_turned(*operands(1, 40, 72)[:2])) * 0.125) @ operands(1, 40, 72)[2],
        MatrixChainTile(1, 1, 32, 1, True),
    ),
}  # fmt: skip


def _turned(q, k):
    return q, rg.ops.transpose(k, -1, -2)


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(3)
def test_the_text_computes_the_definition_and_the_interpreter_its_traffic(name):
    expression, tile = CASES[name]
    expr = expression()
    made, device = program(expr, tile)
    arrays = arrays_of(made)
    if name == "a mask of true and false":
        arrays["m"][5] = False
    agree(expr, made, device, arrays, bits=8 if name == "sigmoids" else 10, reverse=len(name) % 2 == 1)


@on_host
@pytest.mark.parametrize("name", ["softcap", "ALiBi", "window", "causal from the last row"])
@pytest.mark.every(2)
def test_scores_of_ones_own_are_recognised(name):
    q, k, v = operands(2, 75, 75, 32, 32)
    expr = _by_hand(q, k, v, SCORES[name])
    made, device = program(expr, MatrixChainTile(2, 1, 32, 2, True))
    agree(expr, made, device, arrays_of(made))


def _by_hand(q, k, v, score):
    """Attention whose weights are rounded to the operands' dtype."""
    (heads, rows, depth), keys, columns = q.shape, k.shape[1], v.shape[2]
    d, j = rg.reduce_axis("d", depth), rg.reduce_axis("j", keys)
    product = lambda h, i, c: rg.sum(q[h, i, d] * k[h, c, d], axis=d, dtype="float32")
    weights = rg.ops.softmax(rg.compute((heads, rows, keys), lambda h, i, c: score(product(h, i, c), h, i, c)))
    narrow = rg.compute(weights.shape, lambda *i: rg.cast(weights[i], q.dtype))
    return rg.compute((heads, rows, columns), lambda h, i, e: rg.sum(narrow[h, i, j] * v[h, j, e], axis=j))


@on_host
def test_bfloat16_has_its_own_instruction():
    expr = rg.ops.attention(*operands(1, 40, 72, dtype="bfloat16"), is_causal=True)
    made, device = program(expr, MatrixChainTile(1, 1, 32, 2, True), "h200", "mma_bf16")
    agree(expr, made, device, arrays_of(made), bits=7)


HOSTILE = {
    "all equal": lambda q, k: (q.fill(1), k.fill(1)),
    "large": lambda q, k: (q.fill(100), k.fill(0), k.__setitem__((slice(None), 11), 100)),
    "infinite": lambda q, k: k.__setitem__((0, 7, 3), np.inf),
    "minus infinite": lambda q, k: (np.abs(q, out=q), k.__setitem__((0, slice(None), 3), -np.inf)),
    "not a number": lambda q, k: k.__setitem__((0, 49, 0), np.nan),
    "rising": lambda q, k: (q.fill(1), k.__setitem__(slice(None), np.arange(72, dtype=np.float16)[:, None])),
    "falling": lambda q, k: (q.fill(1), k.__setitem__(slice(None), -np.arange(72, dtype=np.float16)[:, None])),
}


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
@pytest.mark.every(2)
def test_a_fault_in_the_text_is_found(fault):
    expr = rg.ops.attention(*operands(1, 32, 96, 32, 32))
    made, device = program(expr, MatrixChainTile(2, 1, 32, 1, True))
    pattern, replacement, count = FAULTS[fault]
    broken = seeded(emit(made, device, "cuda"), pattern, replacement, count=count)
    arrays = arrays_of(made, scale=2.0)
    with pytest.raises((AssertionError, HostError)):
        agree(expr, made, device, arrays, source=broken)
        agree(expr, made, device, arrays, source=broken, reverse=True)


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


def test_a_chain_is_explained():
    said = rg.build(rg.ops.attention(*operands(), is_causal=True), "a100", profile=False).explain()
    assert "which become weights in its registers" in said
    assert "blocks of keys that no row of theirs sees are left out" in said


def test_single_precision_and_devices_without_such_instructions_keep_several_kernels():
    wide = rg.ops.attention(*operands(dtype="float32"))
    assert len(rg.construct(wide, "a100", top_k=1)[0].stages) > 1
    assert len(rg.construct(rg.ops.attention(*operands()), "v100", top_k=1)[0].stages) > 1


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

