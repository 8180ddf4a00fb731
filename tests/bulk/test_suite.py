"""A sample of ROLLER's operators, interpreted across all tiles; benches/bench_bulk.py runs all of them, larger."""

import pytest

from benches.bench_bulk import run_entry
from rollergen.bench.suites import suite
from rollergen.hal.load import load_device

SAMPLE = ("M1", "M3", "M4", "C25", "C28", "D5", "D21", "E2", "P6", "P10", "R1", "R2")
"""Of every class, those that a batch of one leaves smallest."""

WORK = 4_000_000


@pytest.mark.every(11)
@pytest.mark.parametrize("id", SAMPLE)
def test_an_operator_is_right_on_every_tile(id):
    """Results, bytes of every tile and superstep, and memory; `run_entry` asserts each."""
    row = run_entry(suite("roller").entry(id), load_device("ipu"), WORK)
    assert row["state"] == "right" and row["compared"] > 0 and sum(row["tiles"]) > 64
