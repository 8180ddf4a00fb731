"""Times of a busy machine are taken again when it may be calmer; what stays noisy is marked, told, and taken anew."""

import warnings

import pytest

import rollergen as rg
from rollergen.errors import MeasurementWarning
from rollergen.measure import noise
from rollergen.measure.noise import FAR, PAUSES_S, SCATTER, disturbed, time_calmly
from rollergen.measure.outcome import Outcome
from rollergen.measure.timing import Timed
from rollergen.store import admin
from rollergen.store.collection import stored
from rollergen.store.location import store_path
from tests.measure.faulty import RIGHT
from tests.measure.test_timing import Clock


@pytest.fixture(autouse=True)
def told(monkeypatch):
    monkeypatch.setattr(noise, "SCATTER", SCATTER)
    monkeypatch.setattr(noise, "FAR", FAR)


def calmly(*takes, predicted=1.0):
    """(candidates, pauses): timed on a machine where a run of candidate n takes ``takes[n](moment, number)`` seconds;
    the moment is how often somebody waited."""
    waited = []
    clock = Clock(*(lambda number, take=take: take(len(waited), number) for take in takes))
    found = [Timed(Outcome(rank, RIGHT, None, predicted)) for rank in range(len(takes))]
    time_calmly(found, clock, lambda *_: None, waited.append)
    return [one.finished(lambda outcome, seconds: "") for one in found], waited


def jumping(base):
    return lambda moment, number: base * (1 + number * 7919 % 13 / 6)


def test_steady_times_near_the_prediction_are_taken_once():
    (one,), waited = calmly(lambda moment, number: 1.5)
    assert (one.wall_s, one.noisy, waited) == (1.5, "", [])


def test_times_far_from_the_prediction_are_taken_again_and_the_calm_ones_stay():
    (one,), waited = calmly(lambda moment, number: 51.8 if moment == 0 else 1.1)
    assert (one.wall_s, one.noisy, waited) == (1.1, "", [PAUSES_S[0]]) and set(one.times_s) == {1.1}


def test_a_program_that_the_model_knows_badly_is_not_noisy_where_two_moments_agree():
    (one,), waited = calmly(lambda moment, number: 8.0 + moment * 0.1)
    assert one.wall_s in (8.0, 8.1) and one.noisy == "" and len(waited) == 1


def test_times_that_scatter_are_taken_again():
    calm = lambda moment, number: jumping(1.0)(moment, number) if moment < 2 else 1.0
    (one,), waited = calmly(calm)
    assert (one.wall_s, one.noisy, waited) == (1.0, "", list(PAUSES_S))


def test_what_never_calms_down_is_marked_and_the_least_stays():
    (one, other), waited = calmly(lambda moment, number: 50.0 / (1 + moment), lambda moment, number: 90.0)
    assert len(waited) == len(PAUSES_S) and one.wall_s == 50.0 / 3 and one.state == "passed"
    assert one.noisy == other.noisy == "its median is 16.7 times the predicted time, and no two measurements agree"
    (one,), _ = calmly(jumping(1.0))
    assert "the quartiles of its times are" in one.noisy


def test_waking_threads_are_no_noise():
    assert disturbed([3e-6, 4e-6, 9e-6, 3e-6], 2e-6) == disturbed([50e-6] * 5, 2e-6) == ""


def test_a_candidate_that_is_lost_meanwhile_is_timed_no_more():
    (one, lost), _ = calmly(lambda moment, number: 50.0 / (1 + moment), lambda moment, number: 20.0 if moment < 1 else None)
    assert lost.ended == "time" and lost.wall_s is None and one.wall_s == 50.0 / 3


def test_noisy_times_are_told_kept_as_such_and_taken_again_by_the_next_build(monkeypatch):
    monkeypatch.setattr(noise, "FAR", 0.0)
    monkeypatch.setattr(noise, "LEAST_S", -1.0)
    monkeypatch.setattr(noise, "SCATTER", 0.0)
    monkeypatch.setattr(noise, "PAUSES_S", ())
    build = lambda: rg.build(rg.ops.relu(rg.tensor("x", (64,))), "cpu", top_k=1)
    with pytest.warns(MeasurementWarning, match="times were taken on a busy machine: candidate 1 took .* kept as noisy"):
        first = build()
    assert first.candidates[0].noisy and "noisy: " in first.explain()
    assert stored(store_path()).records[0]["result"]["noisy"] == first.candidates[0].noisy
    made = admin.listing(store_path())["kernels"][0]["made_at"]
    monkeypatch.setattr(noise, "FAR", float("inf"))
    monkeypatch.setattr(noise, "SCATTER", float("inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = build()
        found = build()
    assert again.candidates[0].noisy == "" and found.candidates[0] == again.candidates[0]
    (kernel,) = admin.listing(store_path())["kernels"]
    assert kernel["made_at"] > made
