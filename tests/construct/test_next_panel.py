"""The next panel of a contraction, prefetched while one is computed."""

import re
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.choose import program_of
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import exact, made_of
from rollergen.construct.serial_structures import structures
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.spec import Instruction
from rollergen.program.assemble.contraction import sharing_panels
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.loops import panel_part
from rollergen.program.model import predict_stage, price_batch, price_stages
from rollergen.program.rprogram import SERIAL, UNROLL
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import run_opencl, small_integers
from tests.lower.devices import DEVICES
from tests.program.hand_devices import AVX512

RULES = AlignmentRules()
BYTES = replace(AVX512, instructions=(*AVX512.instructions, Instruction("vpdpbusd", "int8", "int32", 1, 16, 4, 16, 2, 5)))
QUANTIZED = rg.BuildOptions(quantize_activations=True)
M, N, K = 40, 200, 24
EXPRESSION = rg.ops.matmul(rg.tensor("A", (M, K)), rg.tensor("B", (K, N)), name="C")


def program(order="ji", asks=True, expression=EXPRESSION):
    """8 rows of 2 vectors, five register tiles a panel; the panel's next one is prefetched."""
    (op,) = canonicalize(expression).tensor_ops
    made = [one for variant in variants(op, AVX512) for one in structures(variant, AVX512, RULES)]
    plain = [one for one in made if not one.staged and not one.packed and one.vectors == 2]
    structure = next(one for one in plain if one.order == order)
    stage = structure.stage(structure.plan(8, 12, 5, 3), AVX512, RULES)
    (panels,) = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL and loop.axis == "j"]
    stage = replace(stage, prefetch=panels if asks else -1)
    return replace(rg.construct(expression, AVX512, top_k=1)[0], stages=(stage,), temporaries=())


def channels_last(side):
    """A 3 x 3 convolution of 32 channels to 64."""
    x, w = rg.tensor("x", (1, side, side, 32)), rg.tensor("w", (64, 32, 3, 3), constant=True)
    image = rg.compute((1, 32, side, side), lambda n, c, h, v: x[n, h, v, c])
    sums = rg.ops.conv2d(image, w, padding=1)
    return rg.compute((1, side, side, 64), lambda n, h, v, f: sums[n, f, h, v])


def of_lines(side):
    """Such a convolution by its taps, all lines of the image within each panel."""
    last = channels_last(side)
    made = rg.construct(last, AVX512, top_k=40, options=rg.BuildOptions(winograd=0))
    is_one = lambda stage: stage.op.of_role("reduce")[1:] and panel_part(replace(stage, prefetch=0)) is not None
    program = next(one for one in made if is_one(one.stages[-1]))
    return replace(program, stages=(*program.stages[:-1], replace(program.stages[-1], prefetch=0)))


def test_each_register_tile_asks_for_one_vector_at_each_step():
    made = program()
    check(made, AVX512)
    text = emit(made, DEVICES["cpu"]).text
    assert len(re.findall("__builtin_prefetch", text)) == 2  # one where the panel is whole, one in its tail
    assert re.search(r"\(i\d? % 2\)\*16", text)


def test_what_changes_inside_a_step_is_not_asked_for():
    """Its address is not known where the step begins."""
    a, b, g = rg.tensor("A", (M, K)), rg.tensor("B", (K, N)), rg.tensor("G", (M, N))
    k = rg.reduce_axis("k", K)
    capped = rg.compute((M, N), lambda i, j: rg.sum(rg.minimum(a[i, k] * b[k, j], g[i, j]), axis=k), name="C")
    text = emit(program(expression=capped), DEVICES["cpu"]).text
    asked = re.findall(r"__builtin_prefetch\(.*?(\w+?)_at", text)
    assert set(asked) == {"B"}


def test_together_they_ask_for_all_vectors_of_the_next_panel():
    stage = program().stages[0]
    part = panel_part(stage)
    (vectors,) = part.vectors
    asked = {tile % stage.loops[vectors].extent for tile in range(stage.loops[part.inner].extent)}
    assert asked == set(range(stage.loops[vectors].extent))


@pytest.mark.parametrize("side", [3, 7, 14])
def test_lines_of_an_image_ask_for_all_taps_of_the_next_panel(side):
    made = of_lines(side)
    check(made, AVX512)
    stage = made.stages[-1]
    part = panel_part(stage)
    assert stage.loops[part.inner].axis == "h" and len(part.vectors) == 2
    panel = 32 * 9 * 32
    assert asked_of_weights(made) >= set(range(panel, 2 * panel, 16))


@pytest.mark.parametrize("blocks", [2, 4])
def test_the_last_panel_of_a_block_of_channels_asks_for_the_first_one_of_the_next_block(blocks):
    """Weights of 512 channels, of which a cache does not hold two panels, are read by such blocks."""
    expression = channels_last(7)
    by_taps = next(one for one in variants(canonicalize(expression).tensor_ops[0], AVX512) if one.roles.taps)
    orders = [one for one in structures(by_taps, AVX512, RULES) if one.order == "jbi" and one.packed]
    structure = next(one for one in orders if one.vectors == 2)
    one = exact(structure, structure.plan(7, 32 // blocks, 1, 2), AVX512, RULES)
    stage = replace(one.own[0], prefetch=1)
    assert [(loop.axis, loop.extent) for loop in stage.loops[:3]] == [("c", blocks), ("f", 2), ("h", 7)]
    made = program_of(canonicalize(expression), AVX512, (replace(one, own=(stage,)),)).program
    check(made, AVX512)
    panel, block = 32 * 9 * 32, 32 * 9 * 32 // blocks
    assert set(range(0, 2 * panel, 16)) - asked_of_weights(made) == set(range(0, block, 16))


def test_few_rows_of_words_are_built_in_tiles_that_the_model_takes_for_their_panels_alone():
    """Of tiles that ask for nothing it takes smaller ones: their steps wait less for the translation of addresses."""
    rows = {}
    for prefetch in (True, False):
        options = replace(QUANTIZED, shapes=rg.CodeShapes(prefetch=prefetch))
        (made,) = rg.construct(words_of_weights(8), BYTES, top_k=1, options=options)
        stage = made.stages[-1]
        rows[prefetch] = prod(loop.extent for loop in stage.loops if loop.axis == "i0" and loop.kind == UNROLL)
        assert (panel_part(stage) is not None) == prefetch
        check(made, BYTES)
    assert rows[True] > rows[False]


@pytest.mark.parametrize("rows", [2, 20, 42])
def test_drafts_that_ask_for_panels_are_priced_as_they_are_built(rows):
    (made,) = rg.construct(words_of_weights(rows), BYTES, top_k=1, options=QUANTIZED)
    every = [one for variant in variants(made.stages[-1].op, BYTES) for one in structures(variant, BYTES, RULES)]
    ahead = [one.asking_for_panels() for one in every if one.shares_words_of_few_rows]
    drafts = made_of(ahead, 4, 20, BYTES, RULES, Ledger())
    assert drafts
    for _, one in drafts:
        assert panel_part(one.own[0]) is not None and one.variant.endswith("next panel prefetched")
        assert one.seconds == pytest.approx(price_stages(list(one.own), BYTES).seconds[0], rel=1e-5)


def words_of_weights(rows):
    q, s = rg.tensor("q", (4096, 4096), "int8", constant=True), rg.tensor("s", (4096, 128), constant=True)
    return rg.ops.linear(rg.tensor("x", (rows, 4096)), rg.ops.dequantize(q, s, 0, axis=1, block_size=32))


def test_steps_that_are_written_out_ask_for_all_of_the_next_panel_of_each_factor():
    """Two sums share eight steps, which have no loop: the tiles ask for the vectors of all eight."""
    x, g, u = rg.tensor("x", (20, 64)), *(rg.tensor(name, (64, 96), constant=True) for name in "gu")
    gated = rg.ops.mul(rg.ops.silu(rg.ops.matmul(x, g)), rg.ops.matmul(x, u))
    graph = canonicalize(gated, seconds=lambda graph, at_most: len(graph.tensor_ops))
    (op,) = graph.tensor_ops
    every = [one for variant in variants(op, AVX512) for one in structures(variant, AVX512, RULES)]
    structure = next(one for one in every if one.order == "ji" and one.vectors == 2 and len(one.packed) == 2)
    one = exact(structure, structure.plan(4, 64, 5, 3), AVX512, RULES)
    made = program_of(graph, AVX512, (replace(one, own=(replace(one.own[0], prefetch=0),)),)).program
    check(made, AVX512)
    panel = 64 * 32
    for name in ("g_packed", "u_packed"):
        assert asked_of_weights(made, name) >= set(range(panel, 3 * panel, 16))
    plain = replace(made, stages=(*made.stages[:-1], replace(made.stages[-1], prefetch=-1)))
    arrays = small_integers(made)
    got, want = (run_opencl(one, arrays, DEVICES["cpu"])["out"] for one in (made, plain))
    assert (got == want).all()
    assert interpret(made, arrays, AVX512).traffic == interpret(plain, arrays, AVX512).traffic


def asked_of_weights(made, name="w_packed"):
    """Offsets within the packed weights that the program asks for, into the first cache, in elements."""
    text = emit(made, DEVICES["cpu"]).text
    begins = dict(reversed(re.findall(rf"const float \*({name}\w*) = {name} \+ (.*?);", text)))
    asked = re.findall(rf"__builtin_prefetch\(.*?\(({name}\w*) \+ (.*)\), 0, 3\);", text)
    offsets = [f"({begins.get(pointer, 0)}) + ({offset})" for pointer, offset in asked]
    loops = {name: int(extent) for name, extent in re.findall(r"for \(int (\w+) = 0; \1 < (\d+);", text)}
    names = sorted(set(re.findall(r"\b[a-z]+\d+(?:_\d*)?", " ".join(offsets))))
    places = [dict(zip(names, at, strict=True)) for at in product(*(range(loops[name]) for name in names))]
    return {eval(one.replace("/", "//"), {}, at) for at in places for one in offsets}


@pytest.mark.parametrize(("images", "groups"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_lines_and_images_share_a_panel_and_groups_which_have_weights_of_their_own_do_not(images, groups):
    x, w = rg.tensor("x", (images, 7, 7, 64)), rg.tensor("w", (64, 64 // groups, 3, 3), constant=True)
    sums = rg.ops.conv2d(rg.ops.permute(x, (0, 3, 1, 2)), w, padding=1, groups=groups)
    (op,) = canonicalize(rg.ops.permute(sums, (0, 2, 3, 1))).tensor_ops
    by_taps = next(one for one in variants(op, AVX512) if one.roles.taps)
    extents = [by_taps.op.axis(axis).extent for axis in sharing_panels(by_taps.op, by_taps.roles)]
    assert extents == ([images, 7] if images > 1 else [7])
    assert groups == 1 or groups in [by_taps.op.axis(axis).extent for axis in by_taps.roles.batch]


def test_taps_cost_in_a_batch_what_they_cost_alone():
    stage = of_lines(7).stages[-1]
    several = tuple(replace(loop, extent=np.full(2, loop.extent)) for loop in stage.loops)
    alone = price_stages([stage], AVX512).seconds.tolist()
    assert price_batch(replace(stage, loops=several), AVX512).seconds.tolist() == alone * 2


def test_values_are_the_same():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, size).astype(np.float32) for size in ((M, K), (K, N)))
    np.testing.assert_array_equal(interpret(program(), {"A": a, "B": b}, AVX512).outputs["C"], a @ b)


def test_an_instruction_for_each_step_of_a_register_tile():
    issue = lambda made: {x.name: x.clocks for x in predict_stage(made.stages[0], AVX512).limiters}["issue"]
    rate = dict(AVX512.costs)["issue_per_clock"]
    steps = 5 * 7 * K  # register tiles along i, panels along j
    asked, plain = predict_stage(program().stages[0], AVX512), predict_stage(program(asks=False).stages[0], AVX512)
    assert asked.blocks == plain.blocks
    assert (issue(program()) - issue(program(asks=False))) * rate == pytest.approx(steps * asked.waves / asked.blocks)


def test_what_is_asked_for_is_not_waited_for():
    slow = replace(AVX512, costs=(*AVX512.costs, ("walk_short_lines", 4)))
    walks = lambda made: {x.name: x.clocks for x in predict_stage(made.stages[0], slow).limiters}["column walks"]
    assert 0 < walks(program()) < walks(program(asks=False))  # the rows of A are left


def test_panels_within_rows_of_tiles_share_nothing_out():
    with pytest.raises(ProgramError, match="prefetch is"):
        check(program("ij"), AVX512)


def test_shared_panels_of_constants_are_asked_for_one_ahead():
    product = rg.ops.matmul(rg.tensor("x", (128, 768)), rg.tensor("w", (768, 768), constant=True))
    device = replace(AVX512, costs=(*AVX512.costs, ("walk_panel_clocks", 3)))
    stage = rg.construct(product, device, top_k=1)[0].stages[-1]
    assert panel_part(stage) is not None
    plain = replace(stage, prefetch=-1)
    walks = [
        sum(limiter.clocks for limiter in predict_stage(one, device).limiters if limiter.name == "column walks")
        for one in (stage, plain)
    ]
    assert walks[1] - walks[0] >= 3 * 768 * 768 * 4 / 64  # clocks a line
