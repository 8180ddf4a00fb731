"""A pairwise sample of `benches/bench_sweep.py`: what the language accepts builds everywhere, no candidate dropped."""

from itertools import product

import pytest

import rollergen as rg
from benches.sweep_cases import DTYPES, OPERATORS, SIZES, Case, cases, pairwise, refusals, wrong
from rollergen.errors import RollergenError
from tests.unalike import UNALIKE

SAMPLE = list(pairwise(UNALIKE))


@pytest.mark.parametrize("operator", sorted({case.operator for case, _ in SAMPLE}))
@pytest.mark.every(13)
def test_an_operator_builds_on_every_device(operator):
    assert {case.name: text for case, device in SAMPLE if case.operator == operator and (text := wrong(case, device))} == {}


def test_the_sample_has_every_pair():
    accepted = {(case.operator, case.dtype) for case in cases() if not refusals(case)}
    operators = {operator for operator, _ in accepted}
    pairs = lambda of: {of(case, device) for case, device in SAMPLE}
    size = lambda case: (case.rows, case.columns)
    assert pairs(lambda case, device: (case.operator, device)) == set(product(operators, UNALIKE))
    assert pairs(lambda case, device: (case.operator, case.dtype)) == accepted
    assert pairs(lambda case, device: (case.operator, size(case))) == set(product(operators, SIZES))
    assert pairs(lambda case, device: (case.dtype, device)) == set(product(DTYPES, UNALIKE))
    assert pairs(lambda case, device: (size(case), device)) == set(product(SIZES, UNALIKE))
    assert pairs(lambda case, device: (case.dtype, size(case))) == set(product(DTYPES, SIZES))


def test_the_cases_are_of_every_operator():
    assert set(OPERATORS) == set(rg.ops.__all__)


def test_what_is_refused_is_in_the_list_with_its_words():
    for case in cases():
        if (case.rows, case.columns) == SIZES[0]:
            try:
                case.expression()
                text = ""
            except RollergenError as error:
                text = str(error)
            expected = refusals(case)
            assert any(part in text for part in expected) if expected else not text, case.name


def test_a_kernel_that_cannot_be_built_is_wrong(monkeypatch):
    monkeypatch.setattr(rg, "build", lambda *given, **named: [][0])
    assert wrong(Case("relu", "", "float32", 4, 8), "v100") == "IndexError: list index out of range"
    assert wrong(Case("relu", "", "bool", 4, 8), "v100") == ""
