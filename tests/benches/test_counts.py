"""Building costs no more calls, and yields no fewer candidates and no more bytes, than the committed baseline says."""

import copy
import json

import pytest

from benches.counts import BASELINE, BOUNDS, Calls, counted_anew, regressions, versions

BASE = json.loads(BASELINE.read_text())


def test_no_count_is_worse_than_its_baseline():
    if BASE["versions"]["python"] != versions()["python"]:
        pytest.skip(f"the baseline is of Python {BASE['versions']['python']}")
    worse = regressions(BASE, counted_anew())
    assert not worse, "\n".join([*worse, "python benches/bench_counts.py --rebase accepts them"])


@pytest.mark.parametrize("name", BOUNDS)
def test_a_worse_count_is_told(name):
    now = copy.deepcopy(BASE)
    case = next(iter(BASE["counts"]))
    old = BASE["counts"][case][name]
    now["counts"][case][name] = old - 1 if name == "candidates" else old * (1 + BOUNDS[name].margin) + 1
    (told,) = regressions(BASE, now)
    assert told.startswith(f"{case}: ") and "before" in told


def test_better_counts_and_those_within_the_margin_pass():
    now = copy.deepcopy(BASE)
    for counts in now["counts"].values():
        counts["further calls"] *= 0.5
        counts["bytes"] *= 1.01
    assert regressions(BASE, now) == []


def test_a_case_that_is_gone_is_told():
    now = copy.deepcopy(BASE)
    gone = next(iter(now["counts"]))
    del now["counts"][gone]
    assert regressions(BASE, now) == [f"{gone}: it is not counted any more"]


def test_calls_of_the_package_are_counted_and_others_are_not():
    from rollergen.tile.rules import padding_waste

    with Calls() as calls:
        padding_waste(10, 4)
        json.dumps({})
    assert (calls.own, calls.sympy) == (1, 0)
