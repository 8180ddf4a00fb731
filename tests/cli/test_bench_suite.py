"""``rollergen bench suite``: the CPU's benches one after the other, resumed, each failure told."""

import json
import time

import pytest

from rollergen.bench import scripts, suite
from rollergen.cli.bench import _how
from rollergen.errors import ArgumentError


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout of three benches that count how often they ran."""
    (tmp_path / "benches" / "results").mkdir(parents=True)
    for name, end in (("good", "sys.exit(0)"), ("short", "sys.exit('an aim: 3 of 4')"), ("broken", "1 / 0")):
        lines = ["import sys", f"open({str(tmp_path / name)!r}, 'a').write('x')", end]
        (tmp_path / "benches" / f"bench_{name}.py").write_text("\n".join(lines))
    (tmp_path / "benches" / "bench_endless.py").write_text("import time\ntime.sleep(600)")
    listed = [{"bench": name, "minutes": 2} for name in ("good", "short", "broken")]
    (tmp_path / suite.LISTED).write_text(json.dumps(listed))
    monkeypatch.setattr(suite, "commit", lambda root: "abc")
    return tmp_path


def runs(root, name):
    return len((root / name).read_text())


def test_what_ended_is_not_run_again_and_what_failed_is(root):
    for _ in range(2):
        found = {step.bench: ended for step, ended in suite.run(root, suite.steps(root))}
    assert [runs(root, name) for name in ("good", "short", "broken")] == [1, 1, 2]
    assert found["good"].complete and not found["good"].fresh
    assert found["short"].complete and found["short"].status == 1 and found["short"].told == "an aim: 3 of 4"
    assert not found["broken"].complete and "ZeroDivisionError" in found["broken"].told


def test_another_commit_or_again_runs_everything_anew(root, monkeypatch):
    listed = suite.steps(root)[:1]
    list(suite.run(root, listed))
    list(suite.run(root, listed, again=True))
    monkeypatch.setattr(suite, "commit", lambda root: "def")
    list(suite.run(root, listed))
    assert runs(root, "good") == 3


def test_only_a_bench_that_goes_on_by_itself_is_told_to_begin_anew(root):
    (root / "benches" / "bench_told.py").write_text("import sys\nprint(*sys.argv[1:])")
    listed = [suite.Step("told", ("--all",), 2, resumes) for resumes in (True, False)]
    said = lambda again: [ended.told for _, ended in suite.run(root, listed, again=again)]
    assert said(True) == ["--all --again", "--all"]


def test_a_missed_aim_is_told_with_its_name():
    ended = suite.Ended("x", 1, 1.0, "abc", "log", "misses 1 of 4 aims: worst: 0.7 (at least 0.85)", False)
    assert _how(suite.Step("x", (), 1), ended) == "complete, misses 1 of 4 aims: worst: 0.7 (at least 0.85)"
    others = suite.Ended("x", 1, 1.0, "abc", "log", "3 of 4 caught", False)
    assert _how(suite.Step("x", (), 1), others) == "complete, misses an aim: 3 of 4 caught"


def test_a_damaged_note_of_what_ended_costs_a_run_only(root):
    listed = suite.steps(root)[:1]
    list(suite.run(root, listed))
    (root / suite.KEPT / "ended.json").write_text('[{"title": 1')
    assert [ended.complete for _, ended in suite.run(root, listed)] == [True] and runs(root, "good") == 2


def test_a_bench_that_does_not_end_is_ended_and_told(root):
    started = time.monotonic()
    ((_, ended),) = suite.run(root, [suite.Step("endless", (), 0.02)])
    assert ended.status is None and not ended.complete and time.monotonic() - started < 120


def test_a_bench_that_is_none_or_not_listed_is_refused(root):
    with pytest.raises(ArgumentError, match="did you mean good"):
        (root / suite.LISTED).write_text('[{"bench": "god", "minutes": 1}]')
        suite.steps(root)
    with pytest.raises(ArgumentError, match="no bench 'x'; expected one of y"):
        suite.chosen([suite.Step("y", (), 1)], ["x"])


def test_the_listed_suite_fits_its_hour_twice_over():
    """The limits are for machines that are busy; their sum is what a user may have to wait at most."""
    listed = suite.steps(scripts.checkout())
    assert {"operators", "seeds", "functions", "model_truth"} <= {one.bench for one in listed}
    assert sum(one.minutes for one in listed) <= 120
