"""Candidates are timed in alternation until their order is settled; impossible times are not believed."""

from dataclasses import replace
from itertools import pairwise, permutations

import pytest

import rollergen as rg
from rollergen.errors import MeasurementWarning
from rollergen.hal.load import load_device
from rollergen.measure.bench import Lost
from rollergen.measure.bounds import bandwidth_gb_s, doubt, least_seconds, residence
from rollergen.measure.outcome import Outcome
from rollergen.measure.profiler import fastest, measure_on
from rollergen.measure.timing import (
    CHANCE,
    LEAST_ROUNDS,
    LONG_S,
    ROUNDS,
    SHORT_S,
    WARM_UPS,
    WORTH,
    Timed,
    chance,
    quickest,
    rivals,
    time_all,
)  # fmt: skip
from tests import programs
from tests.measure.faulty import CPU, RIGHT, sources


class Clock:
    """A bench whose candidates take what they are told: ``takes[rank](number of the run)`` seconds, of its own clock."""

    def __init__(self, *takes):
        self.takes, self.runs, self.now = takes, [], 0.0

    def check(self, candidate, sparing=False):
        return candidate

    def time(self, candidate):
        number = self.runs.count(candidate.rank)
        self.runs.append(candidate.rank)
        seconds = self.takes[candidate.rank](number)
        if seconds is None:
            raise Lost("ended after 1 s while running", "time")
        self.now += seconds
        return seconds, seconds / 2

    def revoked(self):
        return {}

    def close(self):
        pass


def timed(*takes, predicted_s=1e-6):
    bench = Clock(*takes)
    found = [Timed(Outcome(rank, RIGHT, None, predicted_s)) for rank in range(len(takes))]
    time_all(found, bench, lambda *_: None, now=lambda: bench.now)
    return found, bench


def noisy(base, spread):
    return lambda number: base * (1 + spread * (number * 7919 % 13) / 13)


def test_a_clear_order_is_settled_in_the_least_rounds():
    found, _ = timed(noisy(0.01, 0.01), noisy(0.011, 0.01))
    assert [len(one.walls) for one in found] == [LEAST_ROUNDS, LEAST_ROUNDS] and quickest(found) is found[0]


def test_candidates_that_chance_cannot_tell_apart_are_timed_to_the_end():
    found, _ = timed(lambda n: 0.01 + n * 5 % 13 * 3e-4, lambda n: 0.01 + (n * 8 + 6) % 13 * 3e-4)
    assert [len(one.walls) for one in found] == [ROUNDS, ROUNDS] and len(rivals(found)) == 2


def test_candidates_as_quick_as_each_other_are_told_apart_no_further():
    found, _ = timed(lambda n: 0.01 + n % 2 * 5e-5, lambda n: 0.01005 - n % 2 * 5e-5)
    assert [len(one.walls) for one in found] == [LEAST_ROUNDS, LEAST_ROUNDS]


def test_a_rival_that_was_quicker_gets_more_rounds_until_it_is_the_best_or_given_up():
    """Its first timed run is slow, the others are not."""
    found, _ = timed(lambda n: 0.01, lambda n: 0.011 if n < 3 else 0.009, lambda n: 0.012)
    assert len(found[1].walls) > LEAST_ROUNDS == len(found[2].walls) and quickest(found) is found[1]


def test_those_that_were_given_up_are_not_chosen_for_a_median_of_calmer_rounds():
    times = [(1.0, 3), (1.1, 9), (1.2, 9)]
    outcomes = [replace(Outcome(rank, RIGHT, None, 1.0), wall_s=wall, rounds=rounds)
                for rank, (wall, rounds) in enumerate(times)]  # fmt: skip
    found = [Timed(outcome, [wall] * rounds) for outcome, (wall, rounds) in zip(outcomes, times, strict=True)]
    assert fastest(outcomes) is outcomes[1] and quickest(found) is found[1]


def test_a_hopeless_candidate_is_timed_twice():
    found, _ = timed(lambda n: 0.02, lambda n: 0.04)
    assert [len(one.walls) for one in found] == [LEAST_ROUNDS, 2]


def test_short_runs_are_all_timed_in_as_many_rounds_as_cost_nothing():
    found, bench = timed(lambda n: 1e-6, lambda n: 2e-6)
    assert [len(one.walls) for one in found] == [ROUNDS, ROUNDS] and bench.now < SHORT_S


def test_a_drift_hits_all_candidates_alike():
    drift = lambda factor: lambda number: factor * (1 + 0.3 * number)
    found, _ = timed(drift(0.01), drift(0.0102))
    assert rivals(found) == found[:1] and len(found[1].walls) == LEAST_ROUNDS


def test_runs_alternate_and_their_order_turns():
    _, bench = timed(lambda n: 1e-6, lambda n: 1e-6, lambda n: 1e-6)
    runs = "".join(map(str, bench.runs))
    assert runs.startswith("001122" + "012210" * 2)


def test_runs_of_the_warm_up_are_not_counted():
    found, bench = timed(lambda number: max(1e-4, 1e-3 - 4e-4 * number), lambda number: 2e-4)
    assert max(found[0].walls) == 1e-4 and bench.runs[:5] == [0] * 5


def test_one_long_run_warms_up():
    _, bench = timed(lambda number: 2 * LONG_S if number else 3 * LONG_S, lambda number: 2 * LONG_S)
    assert bench.runs == [0, 1, 0, 1, 1, 0, 0, 1]


def test_the_first_run_warms_up_what_the_model_says_takes_long():
    _, bench = timed(lambda number: 2 * LONG_S, lambda number: 2 * LONG_S, predicted_s=LONG_S)
    assert bench.runs == [0, 0, 1, 1, 0, 0, 1]


def test_a_warm_up_ends_even_where_times_fall_for_ever():
    _, bench = timed(lambda number: LONG_S * 0.5 ** (number + 1))
    assert bench.runs.count(0) <= WARM_UPS + ROUNDS


def test_a_candidate_lost_in_a_later_round_is_reported_and_the_others_go_on():
    found, _ = timed(lambda number: 1e-5, lambda number: None if number == 4 else 1e-5)
    assert found[1].outcome.problems == ("when timed: ended after 1 s while running",) and not found[0].outcome.problems
    assert len(found[0].walls) > len(found[1].walls)


@pytest.mark.parametrize(("gains", "expected"), [
    ((-1, -2, -3), 1 / 8),
    ((1, -2, -3), 2 / 8),  # or none
    ((1, -2, -3, -4), 2 / 16),
    ((-1, -2, -3, 4), 7 / 16),  # ranks of 0 to 4: of 1, 1, 1, 2 and 2 sets
    ((-1, -2, 3, -4, -5, -6), 5 / 64),  # ranks of 0 to 3: of 1, 1, 1 and 2 sets
])  # fmt: skip
def test_the_chance_is_that_of_the_signed_rank_test(gains, expected):
    assert chance(gains) == pytest.approx(expected)
    best = Timed(Outcome(0, RIGHT, None, 1.0), [1.0] * len(gains))
    rival = Timed(Outcome(1, RIGHT, None, 1.0), [(1.0 - gain / 10) / WORTH for gain in gains])
    assert (rival not in rivals([best, rival])) == (expected <= CHANCE)


def test_times_that_a_coarse_clock_cannot_tell_apart_are_in_favour_of_the_rival():
    in_any_order = {chance(gains) for gains in permutations((1, -1, -1, -1))}
    assert in_any_order == {7 / 16}  # its rank is 4, as of (-1, -2, -3, 4)
    assert chance((0.0, 0.0, 0.0)) == 1 and chance((0.0, -2.0, -3.0)) == 2 / 8


def test_a_rival_that_is_quicker_by_less_than_it_is_slower_is_given_up():
    found, _ = timed(lambda n: 0.01, lambda n: 0.0098 if n == 1 else 0.0104)
    assert len(found[1].walls) == LEAST_ROUNDS + 1 and quickest(found) is found[0]


def test_an_outcome_says_its_median_and_spread():
    outcome = Timed(Outcome(0, RIGHT, None, 1.0), [4.0, 1.0, 2.0, 3.0, 5.0], [1.0] * 5).finished(lambda *_: "")
    assert (outcome.wall_s, outcome.event_s, outcome.rounds, outcome.spread_s) == (3.0, 1.0, 5, 3.0)


def test_the_working_set_resides_in_the_first_layer_that_holds_it():
    assert residence(programs.relu(1000), CPU).name == "l1"
    assert residence(programs.relu(10**9), CPU) is CPU.layers[-1]
    bandwidths = [bandwidth_gb_s(layer, CPU) for layer in CPU.layers[1:]]
    assert all(inner >= outer > 0 for inner, outer in pairwise(bandwidths))


def test_the_least_time_is_that_of_writing_the_outputs_once_at_a_rate_that_is_printed():
    program, device = programs.relu(10**9), load_device("v100")
    *_, l2, dram = device.layers
    assert least_seconds(program, device) == pytest.approx(4 / dram.bandwidth_nominal_gb_s)
    bare = (*device.layers[:-1], replace(dram, bandwidth_nominal_gb_s=0.0))
    assert least_seconds(program, replace(device, layers=bare)) == pytest.approx(4 / bandwidth_gb_s(l2, device))


def test_a_bandwidth_read_on_a_busy_machine_makes_no_time_doubtful():
    """Read as 7 GB/s, of which a kernel then writes 10."""
    program, slow = programs.relu(10**9), replace(CPU.layers[-1], bandwidth_gb_s=7.0, bytes_per_clock=0.0)
    busy = replace(CPU, layers=(*CPU.layers[:-1], slow))
    assert doubt(program, busy, 0.4) == "" and "cpu's l3, nearer than dram" in doubt(program, busy, 1e-6)


def test_a_time_below_the_bound_is_told_with_the_figures_and_never_believed():
    bench, candidates = Clock(lambda n: 1e-12, lambda n: 1e-3), sources(None, None)
    with pytest.warns(MeasurementWarning, match=r"candidate 1: measured 1e-12 s, but writing .* of cpu's l1"):
        outcomes = measure_on(bench, candidates, device=CPU)
    assert [one.state for one in outcomes] == ["not believed", "passed"]
    assert fastest(outcomes) is outcomes[1] and outcomes[0].wall_s is None


def test_where_no_time_is_believed_the_models_first_choice_stands():
    with pytest.warns(MeasurementWarning):
        outcomes = measure_on(Clock(lambda n: 0.0, lambda n: 0.0), sources(None, None), device=CPU)
    assert fastest(outcomes) is outcomes[0]


@pytest.mark.parametrize("expression", [
    rg.ops.expand(rg.tensor("x", (4096,)), (2048, 4096)), rg.ops.relu(rg.tensor("x", (300, 1000))),
    rg.ops.matmul(rg.tensor("a", (64, 64)), rg.tensor("b", (64, 64))),
])  # fmt: skip
def test_real_times_on_this_machine_are_believed(expression, recwarn):
    kernel = rg.build(expression, "cpu", top_k=2, cache=False)
    assert kernel.measured_time > 0 and not [w for w in recwarn if issubclass(w.category, MeasurementWarning)]
    assert doubt(kernel.program, CPU, kernel.measured_time) == ""
    assert replace(kernel._chosen, wall_s=None).state == "not run"
