"""Benches of cases: chosen by a part of their names, kept whole, judged."""

from types import SimpleNamespace

import pytest

from benches import by_case
from benches.aims import Aim

CASES = [SimpleNamespace(name="matmul of bytes"), SimpleNamespace(name="convolution")]


@pytest.fixture
def ran(monkeypatch):
    kept = []
    monkeypatch.setattr(by_case, "keep", lambda name, content: kept.append((name, content)) or "a file")

    def run(*words, least=1.0):
        monkeypatch.setattr("sys.argv", ["bench", *words])
        measure = lambda case, seconds: {"case": case.name, "ratios": {"NumPy": 1.5}, "ours_seconds": 2e-6}
        aims = lambda found: [Aim("ratio", f"{found[0]['ratios']['NumPy']}", f"at least {least}", least <= 1.5)]
        return by_case.run("A bench.", "bench", CASES, measure, lambda row: "as said", aims), kept

    return run


def test_all_cases_are_kept_and_judged(ran, capsys):
    status, kept = ran()
    assert status == 0 and [one["case"] for one in kept[0][1]["cases"]] == [case.name for case in CASES]
    assert kept[0][1]["headlines"] == [{"what": "ratio", "figure": "1.5", "aim": "at least 1.0", "met": True}]
    assert "convolution: 2 us, as said; NumPy 1.50" in capsys.readouterr().out


def test_a_missed_aim_is_the_exit_status(ran):
    assert ran(least=2.0)[0] == 1


def test_some_cases_are_not_kept(ran, capsys):
    assert ran("--case", "conv") == (0, [])
    assert "matmul" not in capsys.readouterr().out


def test_a_name_that_no_case_has_is_said(ran):
    with pytest.raises(SystemExit, match="no case has 'pool' in its name"):
        ran("--case", "pool")
