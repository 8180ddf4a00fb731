"""A bench that misses an aim exits with 1 and names it; one that is interrupted goes on."""

import json
import sys

import pytest

from benches import bench_profile_cost, bench_suites, results
from benches.aims import Aim, verdict
from benches.results import result_path, unfinished

MET, MISSED = Aim("speed", "1.3", "at least 1.2", True), Aim("worst", "x 0.7", "at least 0.85", False)


def test_a_missed_aim_is_named_in_the_last_line_and_met_ones_are_not(capsys):
    assert verdict([MET]) == 0 and capsys.readouterr().out == ""
    assert verdict([MET, MISSED]) == 1
    assert capsys.readouterr().out == "misses 1 of 2 aims: worst: x 0.7 (at least 0.85)\n"


def test_aims_of_construction_are_on_the_wall():
    line = {"suite": "roller", "device": "v100", "valid": 119, "mean ms": 20.0, "mean cpu ms": 19.0, "worst ms": 100.0}
    for name, value, met in (("mean ms", 20.0, True), ("mean ms", 20.1, False), ("worst ms", 100.1, False)):
        (aim,) = bench_suites.aims([{**line, name: value}])
        assert aim.met is met and f"{value} ms" in aim.figure
    assert bench_suites.aims([{**line, "device": "cpu"}]) == ()


def test_a_part_of_the_suite_is_not_judged():
    rows = {("roller", entry.id, "v100"): {} for entry in bench_suites.suite("roller").entries}
    assert bench_suites.is_judged(rows)
    rows.popitem()
    assert not bench_suites.is_judged(rows)


def test_profiled_builds_are_judged_state_by_state():
    of = {"operators": 119, "median_s": 1.0, "target_s": 0.5, "met": False}
    cold, warm = bench_profile_cost.aims({"cold": {**of, "met": True}, "compiled before": of})
    assert cold.met and not warm.met and warm.aim == "at most 0.5 s"


@pytest.fixture
def operators(tmp_path, monkeypatch):
    """`bench_operators` with two cases that are not measured; where they are asked for, and what they answer."""
    from benches import bench_operators

    asked = []

    def alone(script, name, seconds, *more):
        asked.append(name)
        if name == "stop":
            raise KeyboardInterrupt
        share = {"roofline_share": 0.9, "best_peer_share": 0.5, "bound": "bytes"}
        ratios = {"ratio": 1.4, "ratios": {"p": 1.4}, "first_ratio": 1.2, "led_ratio": 1.1}
        return {"kind": "k", "case": name, **ratios, "seconds": {"p": 1.3}, "ours_seconds": 1.0, **share}

    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(bench_operators, "alone", alone)
    monkeypatch.setattr(bench_operators, "reasons", lambda libraries: {})

    def run(cases, *words):
        listed = tuple(bench_operators.Case("k", name, None, None) for name in cases)
        monkeypatch.setattr(bench_operators, "CASES", listed)
        monkeypatch.setattr(sys, "argv", ["bench", *words])
        asked.clear()
        return bench_operators.main(), list(asked)

    return run


def test_an_interrupted_run_of_operators_goes_on_after_its_last_case(operators):
    with pytest.raises(KeyboardInterrupt):
        operators(["a", "b", "stop"])
    assert not result_path("operators").exists()
    assert operators(["a", "b", "c"]) == (0, ["c"])
    assert not unfinished("operators").exists()
    kept = json.loads(result_path("operators").read_text())
    assert [one["case"] for one in kept["cases"]] == ["a", "b", "c"]
    assert operators(["a", "b", "c"]) == (0, [])
    assert operators(["a", "b", "c"], "--again") == (0, ["a", "b", "c"])
    assert operators(["a", "b", "c"], "--seconds", "2") == (0, ["a", "b", "c"])
    assert operators(["a", "b", "c"], "--seconds", "2", "--case", "b") == (0, ["b"])


def test_operators_of_other_code_are_measured_again(operators, monkeypatch):
    operators(["a", "b"])
    monkeypatch.setattr(results, "code", lambda: {"product": "another"})
    assert operators(["a", "b"]) == (0, ["a", "b"])


def test_operators_below_their_aims_end_in_1(operators, monkeypatch, capsys):
    from benches import bench_operators

    monkeypatch.setattr(bench_operators, "LEAST_CASE", 1.5)
    assert operators(["a", "b"])[0] == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("misses 1 of 5 aims: The lowest case of them") and last.endswith("a 1.40 (at least 1.5)")
