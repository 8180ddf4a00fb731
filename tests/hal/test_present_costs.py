"""Specs that were written down when the model's constants were others."""

from dataclasses import replace

import pytest

from rollergen.hal.changes import with_present_costs
from rollergen.hal.load import load_device


def with_costs(device, **costs):
    return replace(device, costs=tuple(sorted({**dict(device.costs), **costs}.items())))


@pytest.mark.parametrize("name", ["v100", "mi50"])
def test_a_built_in_device_has_the_constants_of_today_and_the_figures_of_its_day(name):
    today = load_device(name)
    first = today.costs[0][0]
    then = replace(with_costs(today, **{first: 12.5, "of_old": 1.0}), clock_mhz=today.clock_mhz * 2)
    assert with_present_costs(then) == replace(today, clock_mhz=today.clock_mhz * 2)


def test_a_constant_that_was_not_there_is_there_today():
    today = load_device("v100")
    then = replace(today, costs=today.costs[1:])
    assert today.costs[0][0] in dict(with_present_costs(then).costs)


def test_a_device_of_its_own_name_keeps_its_constants():
    own = replace(with_costs(load_device("v100"), loop_instructions=99.0), name="mine")
    assert with_present_costs(own) is own
