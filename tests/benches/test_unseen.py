"""Operators drawn at random that no bench lists."""

from __future__ import annotations

import pytest

import rollergen as rg
from benches.operator_cases import CASES
from benches.unseen import FAMILIES, unseen


@pytest.mark.parametrize("seed", range(3))
def test_operators_are_distinct_and_none_is_listed(seed):
    names = [case.name for case in unseen(60, seed)]
    assert len(set(names)) == 60 and not {case.name for case in CASES} & set(names)


def test_a_seed_draws_the_same_operators_again_and_another_seed_others():
    draw = lambda seed: [case.name for case in unseen(20, seed)]
    assert draw(0) == draw(0) and not set(draw(0)) & set(draw(1))


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_an_operator_of_every_family_is_constructed(number):
    case = unseen(len(FAMILIES), 7)[number]
    (first,) = rg.construct(case.make(), "v100", 1)
    assert rg.predict(first, "v100").seconds > 0
