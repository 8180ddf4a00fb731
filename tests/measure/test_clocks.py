"""How the host's clock changed while candidates were timed is kept with them, where it is readable."""

import pytest

import rollergen as rg
from rollergen.hal.probes.host_facts import NOT_READABLE
from rollergen.measure import clocks


def states(monkeypatch, *found):
    answers = iter(found)
    monkeypatch.setattr(clocks, "clock_state", lambda: tuple(next(answers).items()))


def test_a_clock_that_fell_and_throttling_are_told_with_the_times(monkeypatch):
    before = {"governor": "powersave", "clock": "3000 MHz", "temperature": NOT_READABLE, "throttled": "4"}
    states(monkeypatch, before, before | {"clock": "2100 MHz", "throttled": "6"})
    kernel = rg.build(rg.ops.relu(rg.tensor("X", (64, 64))), "cpu", cache=False)
    told = "governor powersave, clock 3000 MHz before and 2100 MHz after, throttled 2 times meanwhile"
    assert {one.note for one in kernel.candidates if one.wall_s is not None} == {told}
    assert told in kernel.explain()


def test_nothing_is_said_of_what_is_not_readable():
    state = (("clock", NOT_READABLE), ("throttled", NOT_READABLE))
    assert clocks.changed(state, state) == ""
    assert clocks.changed((("throttled", "3"),), (("throttled", "3"),)) == "not throttled"


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_the_hosts_clock_is_not_told_of_other_devices(name, monkeypatch):
    states(monkeypatch)
    monkeypatch.setattr(clocks, "time_calmly", lambda *_: None)
    assert clocks.timed_on(rg.load_device(name), [], None, lambda *_: None) == ""
