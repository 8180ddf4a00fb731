"""Timing against drift, on a clock of the test's own."""

from math import inf, isfinite
from statistics import median

import pytest

from rollergen.verify.protocol import Protocol, spread, time_all

PROTOCOL = Protocol(samples=5, seconds=0.2, control_every=4, again=0.25)


class Machine:
    """Programs that take given seconds, times the factor of the moment."""

    def __init__(self, seconds, factor=lambda calls: 1.0):
        self.calls, self.factor = 0, factor
        self.order = []
        self.runs = {key: self._run(key, time) for key, time in seconds.items()}

    def _run(self, key, seconds):
        def run(calls):
            taken = 0.0
            for _ in range(calls):
                self.calls += 1
                self.order.append(key)
                taken += seconds * self.factor(self.calls)
            return taken / calls

        return run

    def timed(self, protocol=PROTOCOL, seed=0):
        return time_all(self.runs, 0, protocol, seed)


def test_every_program_gets_its_samples_and_its_seconds():
    found = Machine({0: 0.01, 1: 0.03, 2: 0.005, 3: 0.04}).timed()
    for key, seconds in {0: 0.01, 1: 0.03, 2: 0.005, 3: 0.04}.items():
        assert len(found.times_s[key]) >= PROTOCOL.samples
        assert median(found.times_s[key]) == pytest.approx(seconds)
    assert found.drifted == 0 and max(found.repeatability) < 1e-9


def test_a_hopeless_program_is_called_once_once_a_better_one_is_known():
    machine = Machine({0: 0.001, **dict.fromkeys(range(1, 9), 0.001), 9: 1.0})
    found = machine.timed(seed=3)
    assert machine.order.index(9) > 0
    assert found.times_s[9] == (pytest.approx(1.0),) and machine.order.count(9) == 1


def test_the_order_is_random_and_the_seeds_own():
    machines = [Machine(dict.fromkeys(range(12), 0.01)) for _ in range(3)]
    for machine, seed in zip(machines, (1, 1, 2), strict=True):
        machine.timed(seed=seed)
    orders = [tuple(machine.order) for machine in machines]
    assert orders[0] == orders[1] != orders[2]


def test_programs_timed_while_the_machine_slowed_down_are_timed_again():
    slow = lambda calls: 3.0 if 60 < calls < 110 else 1.0
    steady, disturbed = Machine(dict.fromkeys(range(8), 0.01)), Machine(dict.fromkeys(range(8), 0.01), slow)
    steady.timed()
    found = disturbed.timed()
    assert disturbed.calls > steady.calls
    assert all(median(times) == pytest.approx(0.01) for times in found.times_s.values())


def test_a_machine_that_never_settles_is_reported():
    found = Machine(dict.fromkeys(range(8), 0.01), lambda calls: 1.0 + calls / 50).timed()
    assert found.drifted == 2 and max(found.repeatability) > 0.05


def test_a_program_that_is_lost_takes_for_ever_and_is_not_timed_twice():
    machine = Machine({0: 0.01, 1: 0.01})
    machine.runs[1] = lambda calls: inf
    found = machine.timed()
    assert found.times_s[1] == (inf,) * len(found.times_s[1]) and median(found.times_s[0]) == pytest.approx(0.01)
    assert all(isfinite(one) for one in found.repeatability)


def test_spread_is_the_mean_deviation_from_the_median():
    assert spread((1.0, 1.0, 1.3)) == pytest.approx(0.1)
