"""Figures read in turns until both halves of the time reached the same."""

from itertools import cycle

import pytest

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.probes.meters import Meter, Patience, in_turns
from rollergen.hal.probes.microbench import Figure
from rollergen.hal.probes.opencl_probe import _Findings, _keep_steady, _steady

HASTY = Patience(readings=1, near=0.05, least_rounds=4, least_s=0.0, most_s=0.05)


def meter(*values, less=False):
    found = cycle(values)
    return Meter(lambda: next(found), less)


def test_a_figure_is_what_both_halves_reached():
    found = in_turns({"rate": meter(70, 98, 100, 50), "time": meter(9, 5, 7, 5.1, less=True)}, HASTY)
    assert not found.unsettled
    assert found.figures["rate"] == Figure(98, pytest.approx(98 / 84 - 1))
    assert found.figures["time"].value == 5.1


def test_what_is_reached_once_is_not_believed_and_read_on():
    rates, calm = iter([200, 50, 51, 50, *[100] * 10]), 0

    def count():
        nonlocal calm
        calm += 1
        return 1.0

    meters = {"lucky": Meter(lambda: next(rates, 100)), "calm": Meter(count)}
    found = in_turns(meters, Patience(readings=1, least_rounds=4, least_s=0.0, most_s=0.02))
    assert found.unsettled == {"lucky": pytest.approx(1.0)} and found.figures["lucky"].value == 100
    assert calm == 4  # what has settled is not read again


def test_a_rate_that_does_not_settle_is_named_with_what_to_do():
    found = in_turns({("read", "dram", 4): meter(*range(1, 999))}, Patience(readings=1, least_rounds=2, least_s=0.0, most_s=0.0))
    with pytest.raises(
        RuntimeUnavailableError, match=r"the rate of reads of 16 bytes from dram .* 100% apart; the machine is busy.*probe again"
    ):
        _steady(found, ("read", "dram", 4))


def test_arithmetic_that_was_slow_half_of_the_time_is_not_believed_to_be_of_an_idle_machine():
    """Beside a busy core of two: 2.8 a clock at best, 1.4 mostly, and 1.4 always of what met no idle round."""
    key = ("peak", "fma", 0)
    settled = in_turns({key: meter(2.82, 1.43, 1.43)}, Patience(readings=1, least_rounds=6, least_s=0.0, most_s=0.0))
    with pytest.raises(RuntimeUnavailableError, match=r"half of the readings of the rate of fma are 97% off the best; .* is busy"):
        _steady(settled, key)
    calm = in_turns({key: meter(2.82, 2.75)}, Patience(readings=1, least_rounds=6, least_s=0.0, most_s=0.0))
    assert _steady(calm, key).value == 2.82


def test_a_copy_that_does_not_settle_is_told_as_not_measured_and_ends_no_probe():
    hasty = Patience(readings=1, least_rounds=2, least_s=0.0, most_s=0.0)
    settled = in_turns({("copy", "to", 0): meter(*range(1, 999)), ("copy", "back", 0): meter(7)}, hasty)
    found = _Findings()
    for way in ("to", "back"):
        _keep_steady(found, settled, ("copy", way, 0), f"copy_{way}_gb_s", "copies")
    assert found.values == {"copy_back_gb_s": 7.0}
    assert found.missing["copy_to_gb_s"].startswith("not steady: ") and "100% apart" in found.missing["copy_to_gb_s"]


def test_each_meter_is_read_in_every_round_before_any_is_read_again():
    seen = []
    note = lambda name: Meter(lambda: float(bool(seen.append(name))) + 1)
    in_turns({"a": note("a"), "b": note("b")}, HASTY)
    assert seen[:4] == ["a", "b", "a", "b"]


def test_what_few_of_the_rounds_reach_is_no_figure_that_a_share_of_them_must_reach():
    rates = [30, 41, 29, 28, 27, 26, 30, 29]
    often = Meter(meter(*rates, *rates).read, share=0.25)
    found = in_turns({"rate": often}, Patience(readings=1, least_rounds=16, least_s=0.0))
    assert found.figures["rate"].value == 30
