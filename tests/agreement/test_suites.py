"""Operators of the suites are right on sampled blocks at full size, and through PoCL in both program shapes;
benches/bench_full_size.py --suite runs all of them."""

import pytest

from rollergen.bench.suites import suite
from tests.agreement.cutting import cut
from tests.agreement.readers import device
from tests.agreement.suite_cases import BYTES, POINTS, READERS, run_entry

QUICK = {
    "cpu": ("C25", "D14", "E19", "P11", "R3"),
    "v100": ("M0", "C11", "D15", "E19", "P4", "R2"),
    "mi50": ("C35", "D18", "R3"),
    "ipu": ("C25", "P6", "R2"),
}
"""Entries of every class, with paddings that differ at both ends and strides: a second or two each."""


SLOW = {("cpu", "C25", "interpreter"), ("cpu", "D14", "interpreter")}
"""A CPU's block is a core's share of the whole: the bench has the time."""

RUNS = [
    (name, id, reader)
    for name, ids in QUICK.items()
    for id in ids
    for reader in READERS
    if (name, id, reader) not in SLOW
]


@pytest.mark.parametrize(("device_name", "id", "reader"), RUNS)
@pytest.mark.every(13)
def test_an_operator_of_the_suite_is_right(device_name, id, reader):
    state = run_entry(suite("roller").entry(id), device(device_name), reader)["state"]
    assert state.startswith(("right", "does not fit")), state


@pytest.mark.parametrize("entry", suite("roller").entries[::5], ids=lambda e: e.id)
def test_what_is_cut_is_odd_and_small_and_the_same_operator(entry):
    fields = cut(entry, POINTS, BYTES)
    made, whole = entry.build(fields), entry.make()
    assert made.ndim == whole.ndim and all(a <= b for a, b in zip(made.shape, whole.shape, strict=True))
    for part, full in zip(fields["inputs"], entry.fields["inputs"], strict=True):
        shorter = [(a, b) for a, b in zip(part["shape"], full["shape"], strict=True) if a != b]
        assert all(a % 2 for a, _ in shorter)
