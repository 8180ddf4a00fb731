"""Rows whose values are kept until their result is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import ProgramError
from rollergen.expr.canonical import canonicalize
from rollergen.program.check import check
from tests.program.hand_devices import AVX512


def softmax_program(dtype="float32"):
    graph = canonicalize(rg.ops.softmax(rg.tensor("X", (64, 300), dtype)))
    return construct(graph, AVX512, top_k=1)[0].program


def test_exponentials_wait_in_the_output():
    (stage,) = softmax_program().stages
    assert [resident.layer for resident in stage.residents] == [AVX512.backing.name]


def test_a_narrower_output_keeps_nothing():
    (stage,) = softmax_program("float16").stages
    assert all(resident.layer != AVX512.backing.name for resident in stage.residents)


def test_two_values_cannot_wait_in_one_output():
    program = softmax_program()
    (stage,) = program.stages
    first = stage.residents[0]
    both = (first, replace(first, name="another"))
    with pytest.raises(ProgramError, match="the output's"):
        check(replace(program, stages=(replace(stage, residents=both),)), AVX512)
