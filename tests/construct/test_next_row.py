"""The next row is fetched while one is computed: where that helps, what is asked for, and what it costs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
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
from rollergen.program.rprogram import LANE, SERIAL
from rollergen.program.serial import from_text, to_text
from tests.agreement import readers
from tests.lower.harness import random_inputs
from tests.program.hand_devices import AVX512

X = rg.tensor("X", (96, 1000))


def program(expression, device=AVX512):
    return construct(canonicalize(expression), device, top_k=1)[0].program


def with_loop(stage, position):
    return replace(program(rg.ops.softmax(X)), stages=(replace(stage, prefetch=position),))


@pytest.mark.parametrize("operator", [rg.ops.softmax, rg.ops.log_softmax])
def test_exponentials_of_a_row_are_computed_while_the_next_one_arrives(operator):
    made = program(operator(X))
    (stage,) = made.stages
    loop = stage.loops[stage.prefetch]
    assert (loop.kind, loop.axis) == (SERIAL, stage.op.of_role("spatial")[-1].name)
    text = emit(made, AVX512).text
    asked = re.findall(r"__builtin_prefetch\(\(const void \*\)\(size_t\)\((\w+ \+ .*?) \+ (\d+)\), 0, 2\)", text)
    assert asked
    for here, further in asked:
        assert (int(further) - 1000) % 16 == 0
        assert f"({here}" in text.replace("__builtin_prefetch", ""), "what is asked for is what is read, a row on"


@pytest.mark.parametrize(
    "expression",
    [
        rg.ops.layer_norm(X, (1000,)),
        rg.ops.softmax(rg.tensor("X", (64, 9000))),
        rg.ops.sum(X, 1),
    ],
    ids=["little is computed", "the next row does not fit", "nothing is read again"],
)
def test_elsewhere_nothing_is_asked_for(expression):
    assert all(stage.prefetch == -1 for stage in program(expression).stages)


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_gpus_have_other_blocks_in_the_meantime(name):
    made = program(rg.ops.softmax(X), readers.device(name))
    assert all(stage.prefetch == -1 for stage in made.stages)


def test_values_do_not_change_and_the_program_is_read_back_with_the_loop():
    made = program(rg.ops.softmax(X))
    (stage,) = made.stages
    inputs = random_inputs(made)
    without = with_loop(stage, -1)
    one, other = (interpret(p, inputs, AVX512).outputs["out"] for p in (made, without))
    assert one.tobytes() == other.tobytes()
    assert from_text(to_text(made)) == made != without


def test_each_vector_of_the_last_reduction_costs_an_instruction():
    (stage,) = program(rg.ops.softmax(X)).stages
    counts = []
    for one in (stage, replace(stage, prefetch=-1)):
        nest = nest_of(one, facts_of(one.op, one.kept_rows), AVX512)
        costs = costs_of(AVX512)
        counts.append(instructions_of(nest, AVX512, costs, work_of(nest, AVX512, costs)))
    inside = [loop.extent for loop in stage.loops if loop.kind not in ("grid", LANE)]
    vectors = 1
    for extent in inside:
        vectors *= extent
    rows = stage.loops[stage.prefetch].extent
    assert counts[0] - counts[1] == pytest.approx(rows * -(-1000 // 16), rel=0.05)
    assert counts[0] - counts[1] <= vectors


def test_a_loop_that_walks_no_rows_is_refused():
    (stage,) = program(rg.ops.softmax(X)).stages
    for position in (99, -2, len(stage.loops) - 1):
        with pytest.raises(ProgramError, match=f"prefetch is {position}; expected -1, or the position"):
            check(with_loop(stage, position), AVX512)


def test_a_stage_that_reads_its_rows_once_is_refused():
    made = program(rg.ops.sum(rg.tensor("X", (4096, 1024)), 1))
    (stage,) = made.stages
    rows = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL and loop.axis == stage.loops[0].axis]
    with pytest.raises(ProgramError, match="1 reductions; expected 1 and at least 2"):
        check(replace(made, stages=(replace(stage, prefetch=rows[0]),)), AVX512)
