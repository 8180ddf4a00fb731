"""Attention of few queries over many keys: keys in chunks that blocks of their own take, put together by a second kernel.
The text, the interpreter and the definition agree, with tails, masks and hostile scores; seeded faults are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.lone_rows import with_rows
from rollergen.construct.options import BuildOptions
from rollergen.construct.reductions import combine_stage
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.chain_splitting import BEHIND, split_chain
from rollergen.expr.one_stage import RowLimits
from rollergen.expr.values import Load, transform
from rollergen.hal.load import load_device
from rollergen.lower.ir import For, walk
from rollergen.lower.stage import lower
from rollergen.program.assemble.chain import matrix_chain_stage
from rollergen.program.chains import chain_roles
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.matrix_chains import MatrixChainTile, fits_instruction
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json
from rollergen.tile.exact_traffic import traffic
from rollergen.tile.rules import AlignmentRules, CodeShapes
from tests.agreement.chains import SCORES
from tests.cuda.attention import CUDA, HOSTILE, T, arrays_of, by_hand, operands, single
from tests.cuda.beside import on_host
from tests.cuda.host import REVERSE, HostError, seeded
from tests.cuda.test_programs import executed

DEVICE = load_device("a100")
LONE = RowLimits(chains=True, lone_rows=True)


def split(expr, tile, chunk, instruction="mma", device=DEVICE):
    """The program of two stages, keys in chunks of so many."""
    graph = canonicalize(expr, None, LONE)
    op = with_rows(graph.tensor_ops[0])
    roles, one = chain_roles(op), device.instruction(instruction)
    first, second = split_chain(op, roles.key, roles.column, chunk)
    own = chain_roles(first)
    assert own is not None and fits_instruction(first, own, one)
    stages = (matrix_chain_stage(first, own, tile, one, device), combine_stage(second, device, AlignmentRules()))
    made = RProgram(device.name, graph.inputs, graph.outputs, stages, (first.output,))
    check(made, device)
    return made


def agree(expr, made, arrays, *, bits=10, mode=0, source=None, device=DEVICE):
    """The executed text, the interpreter and the definition; the interpreter's bytes beside the closed forms."""
    (name,) = [b.name for b in made.outputs]
    want = single(expr.evaluate(*[arrays[b.name] for b in made.inputs]))
    found = interpret(made, arrays, device)
    got = executed(made, source or emit(made, device, "cuda"), arrays, mode)[name]
    size = np.nanmax(np.abs(single(arrays["v"])))
    for one in (single(got), single(found.outputs[name])):
        assert np.array_equal(np.isnan(one), np.isnan(want))
        np.testing.assert_allclose(one, want, rtol=0, atol=2.0**-bits * size)
    counted = [(one.tensor, one.tiles, one.transactions) for one in found.traffic]
    closed = [one for stage in made.stages for one in traffic(stage, device.backing.transaction_bytes)]
    assert counted == [(one.tensor, one.tiles, one.transactions) for one in closed]
    assert from_json(to_json(made)) == made
    assert 0 < predict(made, device).seconds < 1


def tile(keys=32, depth=2, *, held=True, groups=1):
    return MatrixChainTile(groups, 1, keys, depth, held)


CASES = {
    "one query": (lambda: rg.ops.attention(*operands(3, 1, 256)), tile(), 128),
    "one query, a short last chunk": (lambda: rg.ops.attention(*operands(2, 1, 300, 64, 32)), tile(), 128),
    "chunks that no block of keys divides": (lambda: rg.ops.attention(*operands(2, 1, 301)), tile(), 80),
    "one query that sees one key": (lambda: rg.ops.attention(*operands(2, 1, 200), is_causal=True), tile(), 64),
    "one query, a mask": (
        lambda: rg.ops.attention(*operands(2, 1, 200, 32, 32), T("m", (2, 1, 200), "bool")), tile(), 64,
    ),
    "one buffer": (lambda: rg.ops.attention(*operands(1, 4, 190, 32, 64)), tile(64, 1, held=False), 64),
    "rows of two blocks": (lambda: rg.ops.attention(*operands(1, 20, 190)), tile(), 64),
    "heads that share keys": (
        lambda: rg.ops.attention(*operands(8, 1, 200, shared=4), enable_gqa=True), tile(), 64,
    ),
    "causal": (lambda: rg.ops.attention(*operands(1, 40, 200, 32, 32), is_causal=True), tile(), 64),
    "a mask of true and false": (
        lambda: rg.ops.attention(*operands(2, 4, 200, 32, 32), T("m", (4, 200), "bool")), tile(), 64,
    ),
    "a mask that is added": (
        lambda: rg.ops.attention(*operands(2, 4, 200, 32, 32), T("m", (1, 200), "float16")), tile(), 80,
    ),
    **{
        f"{name}, by hand": (lambda name=name: by_hand(*operands(2, 8, 150, 32, 32), SCORES[name]), tile(), 64)
        for name in ("softcap", "ALiBi", "window", "causal from the last row")
    },
}  # fmt: skip


@on_host
@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(7)
def test_the_texts_compute_the_definition_and_the_interpreter_their_traffic(name):
    expression, own, chunk = CASES[name]
    expr = expression()
    made = split(expr, own, chunk)
    arrays = arrays_of(made)
    if name == "a mask of true and false":
        arrays["m"][1] = False
    agree(expr, made, arrays, mode=REVERSE * (len(name) % 2))


@on_host
@pytest.mark.parametrize("number", range(16))
@pytest.mark.every(11)
def test_random_shapes_agree(number):
    random = np.random.default_rng(number)
    heads, shared = ((1, 1), (2, 1), (6, 3))[random.integers(3)]
    rows, keys = int(random.integers(1, 20)), int(random.integers(130, 500))
    depth, columns = (int(random.choice((16, 32, 64, 80))) for _ in range(2))
    dtype = ("float16", "bfloat16")[number % 2]
    expr = rg.ops.attention(*operands(heads, rows, keys, depth, columns, shared, dtype), enable_gqa=True)
    own = tile(int(random.choice((32, 64))), int(random.choice((1, 2))), held=bool(random.integers(2)))
    made = split(expr, own, int(random.choice((48, 64, 128))), "mma" if dtype == "float16" else "mma_bf16")
    agree(expr, made, arrays_of(made), bits=10 if dtype == "float16" else 7)


@on_host
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.every(7)
def test_hostile_scores(name):
    expr = rg.ops.attention(*operands(1, 2, 72, 32, 32))
    made = split(expr, tile(), 32)
    arrays = arrays_of(made)
    HOSTILE[name](arrays["q"], arrays["k"])
    agree(expr, made, arrays)


@on_host
@pytest.mark.parametrize("component", range(3))
def test_parts_that_are_combined_otherwise_are_found(component):
    """Largest scores, sums of weights and sums in each other's place."""
    expr = rg.ops.attention(*operands(1, 2, 200, 32, 32))
    made = split(expr, tile(), 64)
    first, second = made.stages
    (reduction,) = second.op.reductions
    bodies = list(reduction.bodies)
    bodies[component], bodies[component - 1] = bodies[component - 1], bodies[component]
    changed = replace(second, op=replace(second.op, reductions=(replace(reduction, bodies=tuple(bodies)),)))
    with pytest.raises(AssertionError):
        agree(expr, replace(made, stages=(first, changed)), arrays_of(made, scale=2.0))


@on_host
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"< 200 \?", "< 256 ?"),  # weights of keys that do not exist
        (r"(copy_async_16\(v_shared.*) < 200u", r"\1 < 232u"),  # what lies behind the values: a product of 0 and NaN
        (r"wait_copies<0>\(\);", ""),
    ],
)
def test_a_fault_in_the_text_is_found(pattern, replacement):
    expr = rg.ops.attention(*operands(1, 2, 200, 32, 32))
    made = split(expr, tile(), 64)
    broken = seeded(emit(made, DEVICE, "cuda"), pattern, replacement, count=0)
    with pytest.raises((AssertionError, HostError)):
        agree(expr, made, arrays_of(made, scale=0.5), source=broken)


def test_columns_behind_those_of_the_values_are_neither_copied_nor_multiplied():
    made = split(rg.ops.attention(*operands(1, 2, 192)), tile(), 64)
    kernel, _ = lower(made, DEVICE, CUDA)
    multiplied = [one for one in walk(kernel.body) if isinstance(one, For) and one.variable.startswith("pair")]
    assert sorted({one.stop for one in multiplied}) == [32 // 16, 64 // 16]  # tiles of keys, and of values, two at once


def test_chunks_hold_what_their_columns_say():
    op = with_rows(canonicalize(rg.ops.attention(*operands(2, 1, 300)), None, LONE).tensor_ops[0])
    roles = chain_roles(op)
    first, second = split_chain(op, roles.key, roles.column, 128)
    assert first.output.shape == (3, 1, 2, 64 + BEHIND) and first.output.dtype == "float32"
    assert second.output == op.output and len(second.reductions[0].bodies) == 3
    assert split_chain(op, roles.key, roles.column, 300) is None  # one chunk


@pytest.mark.every(5)
@pytest.mark.parametrize("device", ["v100", "a100", "h200"])
@pytest.mark.parametrize("heads, rows, shared", [(64, 1, 1), (16, 4, 1), (32, 1, 8)])
def test_decoding_is_two_kernels_that_read_keys_and_values_once(device, heads, rows, shared):
    expr = rg.ops.attention(*operands(heads, rows, 4096, 128, 128, shared), enable_gqa=True)
    device = load_device(device)
    (made,) = rg.construct(expr, device, top_k=1)
    assert [stage.inner is not None for stage in made.stages] == [True, False]
    found = predict(made, device)
    queries, keys = heads * rows * 128 * 2, 2 * heads // shared * 4096 * 128 * 2
    chunks = made.stages[0].op.output
    assert dict(found.stages[0].traffic_bytes)["dram"] == queries + keys + 4 * chunks.elements
    apart = BuildOptions(shapes=CodeShapes(chains=False))
    (other,) = rg.construct(expr, device, top_k=1, options=apart)
    assert found.seconds < predict(other, device).seconds
    whole = BuildOptions(shapes=CodeShapes(split_reductions=False))
    assert found.seconds < predict(rg.construct(expr, device, top_k=1, options=whole)[0], device).seconds


def test_a_chain_whose_last_chunk_reads_beyond_its_keys_is_refused():
    made = split(rg.ops.attention(*operands(1, 2, 200)), tile(), 64)
    first, second = made.stages
    bare = lambda node: replace(node, guard=()) if isinstance(node, Load) else None
    reductions = [replace(r, bodies=tuple(transform(body, bare) for body in r.bodies)) for r in first.op.reductions]
    unguarded = replace(first, op=replace(first.op, reductions=tuple(reductions)))
    with pytest.raises(ProgramError, match="leaves"):
        interpret(replace(made, stages=(unguarded, second)), arrays_of(made), DEVICE)
