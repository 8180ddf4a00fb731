"""The model ranks 660 measured CPU programs that it never ran, with the spec of the core that ran them."""

import sys
from pathlib import Path

import pytest

from rollergen.hal.load import load_device

BENCHES = Path(__file__).resolve().parents[2] / "benches"

BARS = {  # least tau, most top-10 regret, most top-1 regret
    "1024x1024x1024": (0.70, 1.05, 1.15),
    "997x997x997": (0.70, 1.05, 1.15),
    "512x512x2048": (0.70, 1.05, 1.15),
    "128x4096x4096": (0.55, 1.05, 1.8),
    "8x4096x4096": (0.55, 1.05, 1.8),
    "1x4096x4096": (0.50, 1.05, 1.8),
}


@pytest.fixture(scope="module")
def spaces():
    sys.path.insert(0, str(BENCHES))
    try:
        import measured_spaces
    finally:
        sys.path.remove(str(BENCHES))
    return measured_spaces


@pytest.fixture(scope="module")
def device():
    return load_device(str(BENCHES / "devices" / "cpu_avx512_2mb.json"))


@pytest.fixture(scope="module")
def rows(spaces):
    return spaces.read_rows(BENCHES / "data" / "cpu_gemm_avx512.csv.gz")


@pytest.fixture(scope="module")
def rankings(spaces, rows, device):
    return spaces.report([row for row in rows if row["set"] == "main"], device)


@pytest.mark.parametrize("shape", BARS)
def test_measured_programs_are_ranked(rankings, shape):
    tau, top10, top1 = BARS[shape]
    found = rankings[shape]
    assert found.tau >= tau
    assert found.top10 <= top10
    assert found.top1 <= top1
    assert found.ordered >= 0.8


def test_no_two_programs_tie(spaces, rows, device):
    own = spaces.by_shape(row for row in rows if row["set"] == "main")["1024x1024x1024"]
    assert len(set(spaces.predictions(own, device))) > 0.97 * len(own)  # some rows are the same program


def test_spilled_registers_are_those_of_the_disassembly(spaces, rows, device):
    assert spaces.spill_misses(rows, device) == []


def test_ties_are_no_skill(spaces):
    from_ranking = spaces.rank([1.0] * 5 + [2.0] * 5, [5, 4, 3, 2, 1, 10, 9, 8, 7, 6])
    assert from_ranking.top1 == pytest.approx(3.0)  # any of the first five, at random
    assert from_ranking.ordered < 1
    assert spaces.rank([1, 2, 3, 4], [1, 2, 3, 4]).tau == 1
    assert spaces.rank([4, 3, 2, 1], [1, 2, 3, 4]).tau == -1
