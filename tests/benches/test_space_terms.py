"""What is left out of the model to see its worth changes predictions: nothing is told of a term that does nothing."""

import random
import sys
from pathlib import Path

import pytest

from rollergen.hal.load import load_device

BENCHES = Path(__file__).resolve().parents[2] / "benches"
sys.path.insert(0, str(BENCHES))
try:
    import measured_spaces as spaces
    import space_terms_cpu
finally:
    sys.path.remove(str(BENCHES))

ROWS = random.Random(0).sample(spaces.read_rows(BENCHES / "data" / "cpu_gemm_avx512.csv.gz"), 60)
DEVICE = load_device(str(BENCHES / "devices" / "cpu_avx512_2mb.json"))


@pytest.fixture(scope="module")
def predicted():
    programs = [spaces.program_of(row, DEVICE) for row in ROWS]
    return {"nothing": spaces.predictions(ROWS, DEVICE), **dict(space_terms_cpu.without(programs, DEVICE))}


@pytest.mark.parametrize("term", [*space_terms_cpu.DEVICES, "packing stages"])
def test_leaving_a_term_out_changes_predictions_of_the_cpu_space(predicted, term):
    assert len(predicted[term]) == len(ROWS) and predicted[term] != predicted["nothing"]


@pytest.mark.parametrize("term", ["spills", "load ports", "latency", "L2", "L3", "memory", "column walks"])
def test_without_a_cost_nothing_gets_slower(predicted, term):
    assert all(less <= whole * (1 + 1e-9) for less, whole in zip(predicted[term], predicted["nothing"], strict=True))


def test_each_shape_is_ranked_by_itself():
    """Two shapes, each in the right order and far apart: one that is predicted too slow does not count against it."""
    found = space_terms_cpu.ranked([1.0, 2.0, 30.0, 40.0], [30.0, 40.0, 1.0, 2.0], ["a", "a", "b", "b"])
    assert found.tau == 1.0 and found.programs == 4
    assert spaces.rank([1.0, 2.0, 30.0, 40.0], [30.0, 40.0, 1.0, 2.0]).tau < 0
