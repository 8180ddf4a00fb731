"""Every seeded fault of the printers and the launches is caught by the gate, and one of each class of those planted into
kernels written by hand; those of the lowering by its own tests, and all of them by ``python benches/check_gate.py``."""

from collections import Counter

import pytest

from tests.gate.mutants import Bench, mutants
from tests.gate.planted import Planted

MUTANTS = mutants()
SEEDED = [one for one in MUTANTS if one.part in ("printer", "launch")]
PLANTED = {one.part: one for one in MUTANTS if isinstance(one, Planted)}
"""The last of each class."""
LATER = [*SEEDED, *PLANTED.values()]


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    yield bench
    bench.close()


@pytest.mark.parametrize("mutant", LATER, ids=[one.name for one in LATER])
@pytest.mark.every(13)
def test_a_seeded_fault_is_caught_by_the_gate(mutant, bench):
    assert bench.caught(mutant), f"{mutant.name} went unnoticed"


@pytest.mark.parametrize("name", ["no_barriers", "zero_as_identity", "dropped_tail_iteration", "wrong_stride"])
def test_faults_of_the_lowering_are_caught_as_well(name, bench):
    assert bench.caught(next(one for one in MUTANTS if one.name == name))


def test_there_are_different_faults_of_every_part():
    parts = Counter(one.part for one in MUTANTS)
    assert sum(parts[part] for part in PLANTED) >= 40
    assert parts["lowering"] >= 25 and parts["printer"] >= 15 and parts["launch"] >= 4
    assert len({(one.name, one.program) for one in MUTANTS}) == len(MUTANTS)
