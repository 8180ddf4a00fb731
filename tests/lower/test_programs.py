"""Every hand-written program, lowered, printed, compiled and run here, equals the oracle."""

from __future__ import annotations

import pytest

from tests import programs
from tests.lower.harness import difference

EXACT = sorted(name for name in programs.ALL if "softmax" not in name)


@pytest.mark.parametrize("name", EXACT)
def test_sums_of_small_integers_are_exact_and_nothing_else_is_touched(name):
    assert difference(programs.ALL[name]) is None


@pytest.mark.parametrize("name", sorted(set(programs.ALL) - set(EXACT)))
def test_softmax_is_right_to_a_few_units_in_the_last_place(name):
    assert difference(programs.ALL[name], tolerance=1e-6) is None
