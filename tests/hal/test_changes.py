"""A device with other figures: by path, by name, or refused."""

import numpy as np
import pytest

from rollergen.hal.changes import changed, figures, paths, replaced
from rollergen.hal.errors import SpecError
from rollergen.hal.load import device_hash, device_names, load_device

V100 = load_device("v100")


def test_figures_are_replaced_by_name():
    device = replaced(V100, dram_gb_s=800, units=120, fma_per_clock=128, limits_threads_per_block=512)
    assert (device.layer("dram").bandwidth_gb_s, device.units) == (800, 120)
    assert (device.instruction("fma").per_clock, device.limits.threads_per_block) == (128, 512)
    assert device.layer("l2") == V100.layer("l2")
    assert device_hash(device) != device_hash(V100)


def test_nothing_replaced_is_the_same_device():
    assert replaced(V100, ) == V100


@pytest.mark.parametrize("name", device_names())
def test_every_figure_can_be_set_to_what_it_is(name):
    device = load_device(name)
    values = figures(device)
    assert list(values) == list(paths(device))
    same = changed(device, {path: int(value) if value.is_integer() else value for path, value in values.items() if value})
    assert figures(same) == values


def test_what_was_changed_says_so():
    origins = dict(replaced(V100, units=120).provenance)
    assert origins["units"] == ("assumed", "changed by hand")
    assert origins["clock_mhz"] == dict(V100.provenance)["clock_mhz"]


def test_a_bandwidth_above_its_nominal_one_raises_that_too():
    dram = replaced(V100, dram_gb_s=1500).layer("dram")
    assert (dram.bandwidth_gb_s, dram.bandwidth_nominal_gb_s) == (1500, 1500)


@pytest.mark.parametrize(
    ("figure", "value", "text"),
    [
        ("dram.bandwith_gb_s", 1, "did you mean dram.bandwidth_gb_s"),
        ("nonsense", 1, "expected one such as units"),
        ("sm_clock", 1, "did you mean clock_mhz"),
        ("shared", 1, "did you mean shared.capacity_bytes or shared.transaction_bytes or shared.bytes_per_clock?"),
        ('a"\n' * 1000, 1, "v100 has no figure"),
        ("units", 0, "units is 0; expected an integer of at least 1"),
        ("units", 1.5, "units is 1.5"),
        ("units", float("nan"), "units is nan; expected a finite number"),
        ("limits.threads_per_block", 4096, "limits.threads_per_block is 4096; expected at most threads_per_unit"),
    ],
)
def test_what_cannot_be_is_refused(figure, value, text):
    with pytest.raises(SpecError) as caught:
        changed(V100, {figure: value})
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", 'is "x"; expected a number of at least 0'),
        ("1500", 'is "1500"; expected a number of at least 0'),
        (None, 'is null; expected a number of at least 0'),
        (True, "is true; expected a number of at least 0"),
        ([1500], 'is "[1500]"; expected a number of at least 0'),
        (1j, 'is "1j"; expected a number of at least 0'),
        (-1, "is -1; expected a number of at least 0"),
        (10**400, "is inf; expected a finite number"),
    ],
)
def test_what_is_no_number_is_refused_with_field_value_and_what_is_expected(value, text):
    with pytest.raises(SpecError) as caught:
        replaced(V100, dram_gb_s=value)
    assert str(caught.value) == f"v100 with dram.bandwidth_gb_s: memory_layers[4].bandwidth_gb_s {text}"


def test_numbers_of_numpy_are_numbers():
    assert replaced(V100, dram_gb_s=np.float32(800), units=np.int64(120)) == replaced(V100, dram_gb_s=800, units=120)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean dram_gb_s"):
        replaced(V100, dram_gbs=1500)


@pytest.mark.parametrize("path", ["wmma.m", "wmma.n", "wmma.k"])
def test_fragments_that_wmma_does_not_have_are_refused(path):
    with pytest.raises(SpecError, match=r"in opaque fragments; expected one of 16 x 16 x 16, 32 x 8 x 16, 8 x 32 x 16"):
        changed(load_device("v100"), {path: 12})


def test_lanes_of_threads_that_share_an_instruction_are_refused():
    """They made a vector machine of a GPU: 541 us were 16 ms."""
    with pytest.raises(SpecError, match=r"instructions\[\d\]\.lanes is 2; expected 1 where 32 threads share an instruction"):
        changed(load_device("a100"), {"hfma2.lanes": 2})
    assert changed(load_device("ipu"), {"fma.lanes": 4}).instruction("fma").lanes == 4
