"""The row of the output is prefetched before it is written: where that helps, what is prefetched, and what it costs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.serial_structures import structures
from rollergen.construct.variants import variants
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model.costs import costs_of
from rollergen.program.model.facts import facts_of
from rollergen.program.model.limiters.issue import instructions_of
from rollergen.program.model.nest import nest_of
from rollergen.program.model.work import work_of
from rollergen.program.serial import from_text, to_text
from rollergen.tile.rules import AlignmentRules
from tests.agreement import readers
from tests.lower.harness import random_inputs
from tests.program.hand_devices import AVX512

RULES = AlignmentRules()
X = rg.tensor("X", (96, 1000))
NORM = rg.ops.layer_norm(X, (1000,))


def program(expression, device=AVX512):
    return construct(canonicalize(expression), device, top_k=1)[0].program


def asking(made, prefetch_distance):
    (stage,) = made.stages
    return replace(made, stages=(replace(stage, store=replace(stage.store, prefetch_distance=prefetch_distance)),))


@pytest.mark.parametrize(
    "expression", [NORM, rg.ops.log_softmax(X), rg.ops.layer_norm(rg.tensor("X", (96, 1003)), (1003,))]
)
def test_what_the_last_reduction_asks_for_is_what_is_written(expression):
    text = emit(program(expression), AVX512).text
    asked = set(re.findall(r"__builtin_prefetch\(\(const void \*\)\(size_t\)\((out_at[^)]*)\), 1, 3\)", text))
    written = set(re.findall(r"global float16u \*\)\((out_at[^)]*)\) =", text))
    assert asked and asked <= written  # what is masked at the row's end has other names
    assert text.rindex("__builtin_prefetch") < text.index("(global float16u *)(out_at"), "all before the first store"


@pytest.mark.parametrize(
    "expression",
    [
        rg.ops.softmax(X),
        rg.ops.rms_norm(X, (1000,)),
        rg.ops.layer_norm(rg.tensor("X", (64, 9000)), (9000,)),
        rg.ops.var(X, 1),
    ],
    ids=["the output holds exponentials", "the one reduction waits for memory", "long rows", "no rows are written"],
)
def test_elsewhere_nothing_is_asked_for(expression):
    assert all(stage.store.prefetch_distance == 0 for stage in program(expression).stages)


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_gpus_have_other_blocks_in_the_meantime(name):
    assert all(stage.store.prefetch_distance == 0 for stage in program(NORM, readers.device(name)).stages)


def test_values_and_bytes_do_not_change_and_the_program_is_read_back():
    made = program(NORM)
    inputs, without = random_inputs(made), asking(made, 0)
    one, other = (interpret(p, inputs, AVX512) for p in (made, without))
    assert one.outputs["out"].tobytes() == other.outputs["out"].tobytes() and one.traffic == other.traffic
    assert from_text(to_text(made)) == made != without


def test_each_vector_of_the_result_costs_an_instruction():
    made, counts = program(NORM), []
    for (stage,) in (made.stages, asking(made, 0).stages):
        nest, costs = nest_of(stage, facts_of(stage.op, stage.kept_rows), AVX512), costs_of(AVX512)
        counts.append(instructions_of(nest, AVX512, costs, work_of(nest, AVX512, costs)))
    rows = 96 / made.stages[0].blocks
    assert counts[0] - counts[1] == pytest.approx(rows * -(-1000 // 16), rel=0.05)


@pytest.mark.parametrize("expression, prefetch_distance", [(NORM, 2), (rg.ops.softmax(X), 1), (rg.ops.rms_norm(X, (1000,)), 1)])
def test_where_no_reduction_can_prefetch_it_is_refused(expression, prefetch_distance):
    with pytest.raises(ProgramError, match=rf"store\.prefetch_distance is {prefetch_distance}; expected 0"):
        check(asking(program(expression), prefetch_distance), AVX512)


def test_rows_without_a_serial_loop_ask_for_nothing():
    """The row of five is unrolled whole."""
    x = rg.tensor("x", (1, 5), "int64")
    k, n = rg.reduce_axis("k", 5), rg.reduce_axis("n", 5)
    least = rg.compute((1,), lambda i: rg.min(rg.cast(1, "int64"), axis=n))
    total = rg.compute((1,), lambda i: rg.sum(x[i, k], axis=k))
    rows = rg.compute((1, 5), lambda i, j: least[i] - total[i], name="y")
    for device in (AVX512, rg.load_device("cortex-a53")):
        for one in construct(canonicalize(rows), device, top_k=10):
            check(one.program, device)


PRODUCT = rg.ops.matmul(rg.tensor("x", (128, 512)), rg.tensor("w", (512, 256)))


def tiled(rows=128, depth=512, steps=512, device=AVX512):
    """8 rows of 2 vectors a register tile; so many steps before its sums are written."""
    x, w = rg.tensor("x", (rows, depth)), rg.tensor("w", (depth, 256))
    graph = canonicalize(rg.ops.matmul(x, w))
    (op,) = graph.tensor_ops
    made = (one for variant in variants(op, device) for one in structures(variant, device, RULES))
    structure = next(one for one in made if not one.staged and not one.packed and (one.vectors, one.order) == (2, "ji"))
    stage = structure.stage(structure.plan(8, min(steps, depth), 2, 2), device, RULES)
    return replace(construct(graph, device, top_k=1)[0].program, stages=(stage,), temporaries=())


def places(text, what):
    """(position, terms of the place in the output) of what is prefetched or stored there."""
    begins = dict(re.findall(r"global float \*(out_at\w*) = (.*);", text))
    terms = lambda place: frozenset(begins.get(place.split(" + ")[0], "").split(" + ")) | set(place.split(" + ")[1:])
    return [(found.start(), terms(found[1])) for found in re.finditer(what, text)]


def test_a_register_tile_asks_for_all_that_it_writes_when_its_last_block_begins():
    made = tiled()
    blocks = made.stages[-1].loops[made.stages[-1].accumulator.flush[0] - 1].extent
    text = emit(made, AVX512).text
    asked = places(text, r"__builtin_prefetch\(\(const void \*\)\(size_t\)\((out_at[^)]*)\), 0, 3\)")
    stored = places(text, r"\*\(global float16u \*\)\((out_at[^)]*)\) =")
    assert asked and {terms for _, terms in asked} == {terms for _, terms in stored}
    last = re.search(rf"if \(k\d >= {blocks - 1}\) \{{", text)
    assert blocks > 1 and last and last.start() < asked[0][0] < stored[0][0]


def test_asking_changes_no_value_where_tiles_reach_beyond_an_axis():
    made = tiled(61, 300)
    inputs = random_inputs(made)
    assert made.stages[-1].store.prefetch_distance == 1
    check(made, AVX512)
    got = interpret(made, inputs, AVX512).outputs["out"]
    np.testing.assert_array_equal(got, interpret(asking_tiles(made, 0), inputs, AVX512).outputs["out"])


def asking_tiles(made, prefetch_distance):
    *before, last = made.stages
    last = replace(last, store=replace(last.store, prefetch_distance=prefetch_distance))
    return replace(made, stages=(*before, last))


@pytest.mark.parametrize(
    "rows, depth, asks", [(8, 512, 0), (128, 128, 0), (128, 512, 1)], ids=["in the first cache", "one block", "beyond"]
)
def test_results_of_several_blocks_beyond_the_first_cache_are_asked_for(rows, depth, asks):
    (stage,) = tiled(rows, depth).stages
    assert stage.store.prefetch_distance == asks


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_tiles_of_threads_ask_for_nothing(name):
    made = program(PRODUCT, readers.device(name))
    assert all(stage.store.prefetch_distance == 0 for stage in made.stages)


def test_sums_that_wait_in_the_output_are_not_asked_for():
    (stage,) = tiled(steps=128).stages
    assert stage.accumulator.carry and stage.store.prefetch_distance == 0


def test_each_vector_of_a_tile_costs_an_instruction():
    made = tiled()
    stage, counts = made.stages[-1], []
    for one in (stage, asking_tiles(made, 0).stages[-1]):
        nest, costs = nest_of(one, facts_of(one.op, one.kept_rows), AVX512), costs_of(AVX512)
        counts.append(instructions_of(nest, AVX512, costs, work_of(nest, AVX512, costs)))
    asked = 128 * 256 / 16 / stage.blocks
    assert counts[0] - counts[1] == pytest.approx(asked, rel=0.05)
