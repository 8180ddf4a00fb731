"""Tiles that end with their axis wherever that is, and lines that are prefetched before they are written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.check import check
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_text, to_text
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules
from tests.lower.test_lines import run_at
from tests.lower.test_shapes import QUICK
from tests.program.hand_devices import AVX512


def transposed(rows, columns, **sizes):
    """A program that writes X (rows, columns) transposed, in square tiles that overlap where they do not fit."""
    graph = canonicalize(rg.ops.permute(rg.tensor("X", (rows, columns)), (1, 0)))
    plan = ElementwisePlan(**{"lanes": 16, "staged": 0, "layer": "l1", "square": 16, "across": True} | sizes)
    return RProgram("cpu", graph.inputs, graph.outputs, (elementwise_stage(graph.tensor_ops[0], plan, AVX512),))


@QUICK
@given(
    rows=st.integers(16, 90), columns=st.integers(16, 90), behind=st.integers(0, 15),
    pm=st.integers(1, 3), pn=st.integers(1, 3), across=st.booleans(), prefetch_distance=st.integers(0, 2),
)  # fmt: skip
def test_every_element_is_written_whatever_the_sizes(rows, columns, behind, pm, pn, across, prefetch_distance):
    pm, pn = min(pm, -(-columns // 16)), min(pn, -(-rows // 16))
    program = transposed(rows, columns, pm=pm, pn=pn, across=across, prefetch_distance=prefetch_distance)
    check(program, AVX512)
    x = np.random.default_rng(0).random((rows, columns), dtype="float32")
    y, untouched = run_at(program, x, behind)
    assert untouched and (y == x.T).all()
    (expected,) = interpret(program, {program.inputs[0].name: x}, AVX512).outputs.values()
    assert (np.asarray(expected) == x.T).all()


def test_overlapping_programs_survive_being_kept():
    program = transposed(50, 37, pm=2, pn=2, prefetch_distance=2)
    assert from_text(to_text(program)) == program


def test_what_is_asked_for_ahead_moves_no_bytes():
    plain, asked = transposed(1009, 997, pm=2, pn=16), transposed(1009, 997, pm=2, pn=16, prefetch_distance=2)
    x = np.zeros((1009, 997), "float32")
    counts = [interpret(program, {"X": x}, AVX512).traffic for program in (plain, asked)]
    assert counts[0] == counts[1]
    seconds = [predict(program, AVX512).seconds for program in (plain, asked)]
    assert seconds[0] <= seconds[1] < 1.2 * seconds[0]
    assert "__builtin_prefetch" in emit(asked, AVX512).text and "prefetch" not in emit(plain, AVX512).text


def test_tiles_longer_than_their_axis_are_refused():
    with pytest.raises(ProgramError, match="at most its extent 12"):
        check(transposed(40, 12, pn=3), AVX512)


def test_copies_of_several_overlapping_tiles_are_refused():
    program = transposed(50, 37, pm=2, pn=2)
    stage = program.stages[0]
    copies = (replace(stage.copies[0], at_loop=stage.copies[0].at_loop - 1),)
    with pytest.raises(ProgramError, match="within one tile"):
        check(replace(program, stages=(replace(stage, copies=copies),)), AVX512)


def test_nothing_is_asked_for_ahead_of_streams():
    program = transposed(64, 64, pm=2, pn=2, prefetch_distance=2)
    stage = program.stages[0]
    with pytest.raises(ProgramError, match=r"store\.prefetch_distance is 2"):
        check(replace(program, stages=(replace(stage, store=replace(stage.store, streaming=True)),)), AVX512)


def test_construction_turns_matrices_of_any_size_in_registers():
    op = canonicalize(rg.ops.permute(rg.tensor("X", (1009, 997)), (1, 0))).tensor_ops[0]
    square = [plan for plan in elementwise_plans(op, AVX512, AlignmentRules(), Tally()) if plan.square]
    assert square and all(plan.across and plan.prefetch_distance for plan in square)
