"""Chains of two contractions: found by structure, equal in every reader, right beside float64, also on hostile scores."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit.writing import emit
from rollergen.errors import ProgramError
from rollergen.expr.ruled_out import ruled_out
from rollergen.hal.load import load_device
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import KeptRow
from rollergen.program.serial import from_json, to_json
from rollergen.tile.exact_traffic import traffic
from tests.agreement.chains import SCORES, arrays_of, attention, chained, program
from tests.agreement.readers import device, run_opencl
from tests.program.hand_devices import AVX512

T = rg.tensor
TILES = ((2, 32, 8, 8), (1, 16, 4, 6), (3, 48, 3, 5))
"""(vectors, keys, keys side by side, columns side by side)"""


def operands(heads=4, rows=37, keys=50, depth=20, columns=13, shared=2):
    return T("q", (heads, rows, depth)), T("k", (heads // shared, keys, depth)), T("v", (heads // shared, keys, columns))


def agree(expr, made, arrays, tolerance=2e-5):
    """The interpreter and the emitted source, beside the definition; the interpreter's bytes beside the closed forms."""
    cpu = device("cpu")
    want = expr.evaluate(*[arrays[b.name] for b in made.inputs])
    found = interpret(made, arrays, cpu)
    (name,) = found.outputs
    for got in (found.outputs[name], run_opencl(made, arrays, cpu)[name]):
        assert np.array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.nanmax(np.abs(want), initial=1e-3))
    counted = [(one.tensor, one.tiles, one.transactions) for one in found.traffic]
    (stage,) = made.stages
    assert counted == [(t.tensor, t.tiles, t.transactions) for t in traffic(stage, cpu.backing.transaction_bytes)]
    assert from_json(to_json(made)) == made
    assert 0 < predict(made, cpu).seconds < 1


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.every(3)
def test_scores_of_ones_own_are_one_stage_in_every_reader(name):
    expr = attention(*operands(), SCORES[name])
    for tile in TILES[: 1 + (name in ("causal", "window"))]:
        made = program(expr, device("cpu"), tile)
        agree(expr, made, arrays_of(made))


@pytest.mark.parametrize("shape", [(16, 16, 8, 8), (1, 40, 16, 16), (33, 1, 24, 2), (5, 129, 32, 40), (64, 64, 128, 3)])
@pytest.mark.parametrize("name", ["scaled", "causal"])
def test_tails_of_every_size_agree(shape, name):
    rows, keys, depth, columns = shape
    if 1 in (rows, keys):
        rows, keys = max(rows, 2), max(keys, 2)
    expr = attention(*operands(2, rows, keys, depth, columns, 1), SCORES[name])
    made = program(expr, device("cpu"), TILES[0])
    agree(expr, made, arrays_of(made))


@pytest.mark.parametrize("name", ["cpu", "cortex-a53"])
@pytest.mark.parametrize("mask", [None, "bool", "float32"])
def test_vectors_of_8_and_of_4_lanes_agree(name, mask):
    spec = load_device(name)
    q, k, v = operands(2, 21, 30, 12, 10, 1)
    masks = [T("m", (21, 30), mask)] if mask else []
    expr = rg.ops.scaled_dot_product_attention(q, k, v, *masks, is_causal=True, enable_gqa=True)
    made = program(expr, spec, (2, 16, 4, 4))
    arrays = arrays_of(made)
    assert made.stages[0].compute.lanes in (4, 8)
    (out,) = [one.name for one in made.outputs]
    for got in (interpret(made, arrays, spec).outputs[out], run_opencl(made, arrays, spec)[out]):
        np.testing.assert_allclose(got, expr.evaluate(*[arrays[b.name] for b in made.inputs]), rtol=1e-5, atol=1e-5)


def test_rows_that_see_no_key_are_not_a_number_as_the_definition_has_them():
    for keys, tile in ((2, (1, 32, 4, 4)), (20, (1, 16, 4, 4))):
        expr = attention(*operands(2, 80, keys, 8, 8, 1), SCORES["window"])
        made = program(expr, device("cpu"), tile)
        agree(expr, made, arrays_of(made))
    assert np.isnan(interpret(made, arrays_of(made), device("cpu")).outputs["out"][:, 40:]).all()


def test_weights_without_a_row_are_a_chain_without_a_pair():
    expr = attention(*operands(), SCORES["scaled"], plain=True)
    made = program(expr, device("cpu"), TILES[0])
    assert [one.name for one in made.stages[0].op.reductions] == ["r0", "r2"]
    agree(expr, made, arrays_of(made))


def test_results_that_know_their_columns_are_finished_column_by_column():
    product = rg.ops.matmul(rg.ops.sigmoid(rg.ops.matmul(T("a", (13, 9)), T("b", (9, 33)))), T("c", (33, 16)))
    counted = rg.ops.add(product, rg.ops.arange(16, 0, -1))
    kernel = rg.build(counted, "cpu", profile=False, cache=False)
    assert kernel.program.stages[0].inner is not None
    arrays = [np.random.default_rng(n).random(one.shape, "float32") for n, one in enumerate(kernel.program.inputs)]
    np.testing.assert_allclose(kernel(*arrays), counted.evaluate(*arrays), rtol=1e-5)


def test_weights_that_are_divided_first_are_the_same_chain():
    ours, theirs = (attention(*operands(), SCORES["causal"], divided=one) for one in (True, False))
    assert chained(ours).tensor_ops[0].reductions == chained(theirs).tensor_ops[0].reductions


MASKS = {
    "none": lambda: None,
    "added": lambda: T("m", (37, 50)),
    "true and false": lambda: T("m", (37, 50), "bool"),
    "of keys": lambda: T("m", (1, 50), "bool"),
    "of heads": lambda: T("m", (4, 37, 50)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.every(3)
def test_the_operator_with_its_masks(mask, causal):
    q, k, v = operands()
    expr = rg.ops.scaled_dot_product_attention(q, k, v, MASKS[mask](), is_causal=causal, enable_gqa=True)
    made = program(expr, device("cpu"), TILES[0])
    arrays = arrays_of(made)
    if mask == "true and false":
        arrays["m"][5] = False  # a row that sees nothing is 0, as torch's
    if mask == "added":
        arrays["m"][5] = -math.inf
    agree(expr, made, arrays)
    if mask in ("true and false", "added"):
        assert not run_opencl(made, arrays, device("cpu"))[made.outputs[0].name][:, 5].any()


@pytest.mark.parametrize("scale", [1e-40, 1e30])
def test_queries_are_not_multiplied_by_numbers_that_leave_the_range_of_float32(scale):
    """A row that sees its keys at so small a scale was taken for one that sees none."""
    q, k, v = operands(heads=2, rows=16, keys=32, shared=1)
    made = program(rg.ops.attention(q, k, v, T("m", (16, 32), "bool"), scale=scale), device("cpu"), TILES[0])
    arrays = {**arrays_of(made), "m": np.arange(512).reshape(16, 32) % 7 > 2}
    arrays |= {"q": np.abs(arrays["q"]), "k": -np.abs(arrays["k"])}
    found, wanted = run_opencl(made, arrays, device("cpu"))["out"], interpret(made, arrays, device("cpu")).outputs["out"]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    assert np.isfinite(found).all() and found.any(-1).all()


HOSTILE = {
    "all equal": lambda q, k: (q.fill(1), k.fill(1)),
    "large": lambda q, k: (q.fill(100), np.multiply(k, 100, out=k)),
    "one hot": lambda q, k: (q.fill(1), k.fill(0), k.__setitem__((slice(None), 11), 1e4)),
    "infinite": lambda q, k: k.__setitem__((0, 7, 3), np.inf),
    "minus infinite": lambda q, k: (np.abs(q, out=q), k.__setitem__((0, slice(None), 3), -np.inf)),
    "not a number": lambda q, k: k.__setitem__((1, 49, 0), np.nan),
    "rising": lambda q, k: (q.fill(1), k.__setitem__(slice(None), np.arange(50, dtype=np.float32)[:, None] * 3)),
    "falling": lambda q, k: (q.fill(1), k.__setitem__(slice(None), np.arange(50, dtype=np.float32)[:, None] * -3)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scores(name):
    expr = attention(*operands(), SCORES["scaled"])
    made = program(expr, device("cpu"), TILES[0])
    arrays = arrays_of(made)
    HOSTILE[name](arrays["q"], arrays["k"])
    agree(expr, made, arrays, tolerance=2e-3 if name == "large" else 2e-5)  # exp of differences of numbers near 1e5


def test_keys_behind_the_last_that_a_row_sees_are_not_read_by_groups_side_by_side():
    made = program(attention(*operands(1, 64, 64, 16, 16, 1), SCORES["causal"]), AVX512, (1, 64, 4, 4))
    (read,) = [one.transactions for one in traffic(made.stages[0], 64) if one.tensor == "k"]
    assert read == 16 + 32 + 48 + 64  # a key is a transaction; 16 rows a block


def test_blocks_that_a_mask_rules_out_are_not_read():
    whole, causal = (attention(*operands(2, 64, 64, 16, 16, 1), SCORES[name]) for name in ("scaled", "causal"))
    read = lambda expr: {
        one.tensor: one.transactions for one in traffic(program(expr, AVX512, (1, 16, 4, 4)).stages[0], 64)
    }
    tiles = 64 // 16
    assert read(causal)["k"] / read(whole)["k"] == (tiles + 1) / (2 * tiles)
    assert read(causal)["q"] == read(whole)["q"]


def test_what_a_mask_rules_out_is_found_in_its_conditions():
    bounds = lambda name: [
        [str(one) for one in side] for side in ruled_out(chained(attention(*operands(), SCORES[name])).tensor_ops[0])
    ]
    assert bounds("causal") == bounds("causal, told the other way") == [[], ["i"]]
    assert bounds("causal from the last row") == [[], ["i + 7"]]
    assert bounds("window") == [["i - 15"], ["i"]]
    assert bounds("prefix") == bounds("softcap") == [[], []]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: replace(s, inner=None), "expected a first reduction over them, and its nest"),
        (lambda s: replace(s, loops=s.loops[:-1]), "the loops are not those of a chain"),
        (lambda s: replace(s, accumulator=replace(s.accumulator, at_loop=0)), "outside the blocks of keys"),
        (lambda s: replace(s, inner=replace(s.inner, first=s.inner.last)), "leaves out keys"),
        (lambda s: replace(s, guards=()), "expected a mask of i"),
        (lambda s: replace(s, kept_rows=(KeptRow("row", s.op.loads()[0], "registers", 0),)), "a chain has none of them"),
        (lambda s: replace(s, prefetch=0), "prefetch is 0; expected -1, or where rows have lanes the loop over blocks"),
    ],
)
def test_programs_that_are_no_chains_are_refused(change, problem):
    made = program(attention(*operands(), SCORES["causal"]), device("cpu"), TILES[0])
    check(made, device("cpu"))
    with pytest.raises(ProgramError, match=problem):
        check(replace(made, stages=(change(made.stages[0]),)), device("cpu"))


def asked(made):
    """What is asked for in the first loop over groups of keys, as it is written."""
    (source,) = [emit(made, AVX512).text]
    group = source.split("for (int group", 1)[1].split("float16 query", 1)[0]
    return re.findall(r"__builtin_prefetch\(.*?\((?:size_t)\)\((.*?)\), (\d), \d\)", group), group


def test_a_chain_asks_for_lines_of_the_next_queries_the_results_the_next_keys_and_what_these_weigh():
    made = program(attention(*operands(4, 64, 48, 32, 32), SCORES["scaled"]), AVX512, TILES[0])
    lines, group = asked(made)
    operands_asked = [(place.split("_at")[0], writes) for place, writes in lines]
    assert operands_asked == [("q", "0"), (made.outputs[0].name, "1"), ("k", "0"), ("v", "0")]
    assert [place.split(" + ", 1)[1] for place, _ in lines] == ["d*16 + 1024", "d*16", "d*8 + 256", "d*8"]
    assert "asking = group < 1 ? group : 1" in group  # 32 rows of 32 elements are 64 lines, of two groups of 32 steps


def test_rows_that_are_no_lines_are_not_asked_for():
    q, v = T("q", (4, 64, 32)), T("v", (4, 48, 32))
    turned = T("k", (4, 32, 48))
    k = rg.compute((4, 48, 32), lambda h, j, d: turned[h, d, j])
    lines, _ = asked(program(attention(q, k, v, SCORES["scaled"]), AVX512, TILES[0]))
    assert len(lines) == 3


def test_what_a_chain_asks_for_is_priced():
    spec = load_device("cpu")
    made = program(attention(*operands(4, 64, 48, 32, 32), SCORES["scaled"]), spec, TILES[0])
    (stage,), costs = made.stages, dict(spec.costs)
    predicted = lambda stage: predict(replace(made, stages=(stage,)), spec).stages[0]
    clocks = lambda stage: {one.name: one.clocks for one in predicted(stage).limiters}
    asking, silent = clocks(stage), clocks(replace(stage, prefetch=-1))
    lines = 4 * stage.blocks * 48 // 8 * 32  # one of each operand, at each term of a score of each group of keys
    assert asking["load ports"] - silent["load ports"] == pytest.approx(lines / costs["load_ports"])
    assert asking["issue"] - silent["issue"] == pytest.approx(lines / costs["issue_per_clock"])


def test_the_last_tile_computes_with_vectors_that_have_rows():
    spec = load_device("cpu")  # of 8 lanes
    expr = lambda rows: attention(*operands(2, rows, 48, 32, 32, 1), SCORES["scaled"])
    made = {rows: program(expr(rows), spec, TILES[0]) for rows in (40, 48)}
    narrow, whole = emit(made[40], spec).text.split("if (rows - 1 < 8) {", 1)[1].split("\n    } else {", 1)
    assert "dot[0][0] =" in narrow and "dot[0][1] =" not in narrow
    assert "dot[0][1] =" in whole and "rows" not in re.sub("square_rows", "", whole)
    assert "rows =" not in emit(made[48], spec).text
    clocks = lambda rows: {one.name: one.clocks for one in predict(made[rows], spec).stages[0].limiters}
    assert clocks(40)["multiply-adds"] == pytest.approx(clocks(48)["multiply-adds"] * 5 / 6)


def test_no_chain_where_a_result_reads_others_or_weights_know_their_columns():
    q, k, v = operands()
    plain = attention(q, k, v, SCORES["scaled"])
    more = rg.compute(plain.shape, lambda h, i, e: plain[h, i, e] + T("r", plain.shape)[h, i, e])
    assert [op.inner is None for op in chained(more).tensor_ops] == [False, True]
    assert len(chained(rg.ops.softmax(rg.ops.matmul(q, T("p", (4, 20, 50))))).tensor_ops) > 1


BORDERS = {
    "rows": lambda q, k, v: (rg.ops.pad(rg.ops.matmul(q, k.mT), (0, 0, 3, 2)), v),
    "keys": lambda q, k, v: (rg.ops.pad(rg.ops.sigmoid(rg.ops.matmul(q, k.mT)), (2, 3)), rg.ops.pad(v, (0, 0, 2, 3))),
}


@pytest.mark.parametrize("border", BORDERS)
def test_scores_inside_a_border_are_no_chain(border):
    """Nothing before or behind the operands is read: what lies there is no number."""
    scores, weighed = BORDERS[border](*(T(n, shape) for n, shape in (("q", (40, 32)), ("k", (70, 32)), ("v", (70, 24)))))
    product = rg.ops.matmul(scores, weighed)
    kernel = rg.build(product, "cpu", profile=False, cache=False)
    assert not any(stage.inner for stage in kernel.program.stages)
    room = [np.full((90, *one.shape[1:]), np.nan, "float32") for one in kernel.program.inputs]
    inner = [around[5 : 5 + one.shape[0]] for around, one in zip(room, kernel.program.inputs, strict=True)]
    for n, array in enumerate(inner):
        array[...] = np.random.default_rng(n).random(array.shape, "float32")
    np.testing.assert_allclose(kernel(*inner), product.evaluate(*inner), rtol=1e-5)


def test_a_convolution_of_one_tap_inside_padding_reads_no_pixel_before_the_image():
    first = rg.ops.conv1d(T("x", (1, 1, 2)), T("w", (2, 1, 2)), stride=2)
    assert all(op.inner is None for op in chained(rg.ops.conv1d(first, T("u", (2, 2, 1)), padding=2)).tensor_ops)


def test_construction_takes_a_chain_where_the_model_finds_it_faster():
    expr = rg.ops.scaled_dot_product_attention(*(T(n, (2, 256, 64)) for n in "qkv"), is_causal=True)
    fused, apart = (
        rg.construct(expr, "cpu", options=rg.BuildOptions(shapes=rg.CodeShapes(chains=one))) for one in (True, False)
    )
    assert len(fused[0].stages) == 1 and fused[0].stages[0].inner and not fused[0].temporaries
    assert len(apart[0].stages) > 2 and apart[0].temporaries
    assert predict(fused[0], device("cpu")).seconds < predict(apart[0], device("cpu")).seconds
    assert not any(stage.inner for one in rg.construct(expr, "v100", top_k=1) for stage in one.stages)


def test_a_chain_is_built_checked_and_explained():
    expr = rg.ops.scaled_dot_product_attention(*(T(n, (2, 40, 16)) for n in "qkv"), is_causal=True, name="O")
    kernel = rg.build(expr, "cpu", cache=False, top_k=1)
    said = kernel.explain()
    assert "blocks of keys that no row of theirs sees are left out" in said
    arrays = [np.random.default_rng(n).standard_normal((2, 40, 16)).astype(np.float32) for n in range(3)]
    np.testing.assert_allclose(kernel(*arrays), expr.evaluate(*arrays), rtol=1e-5, atol=1e-5)
