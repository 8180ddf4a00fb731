"""``rollergen verify``: evaluations as files, stamped, with tables that follow from them alone."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benches.verify import ablate
from benches.verify.tables import RENDERED
from rollergen.__main__ import main
from rollergen.bench import scripts
from rollergen.bench.origin import origin
from rollergen.cli import verify as command_line
from rollergen.store.record_files import append
from rollergen.verify.objectives import DEFAULT_OBJECTIVE
from tests.verify.records import recorded

NAMES = ("analytical", "draft", "random")


@pytest.fixture
def file(tmp_path):
    records = recorded(10)
    path = tmp_path / "made.jsonl"
    (device,) = records.devices.values()
    append(path, device, records.records)
    return path


def run(*words):
    return CliRunner().invoke(main, ["verify", *map(str, words)])


def rankers(file, *more):
    return run("evaluate", file, "--part", "rankers", "--seeds", 1, *(w for n in NAMES for w in ("--ranker", n)), *more)


def test_an_evaluation_says_when_where_and_on_what_it_was_made(file):
    result = rankers(file, "--json", "--operators", 6)
    assert result.exit_code == 0, result.output
    content = json.loads(result.output)
    assert content["date"][:2] == "20" and content["machine"]["cpu"] and "lightgbm" in content["versions"]
    assert {"commit", "uncommitted_changes"} <= set(content)
    protocol = content["protocol"]
    assert (protocol["operators"], protocol["structures"], protocol["seeds"]) == (6, 3, [0])
    assert protocol["constants"] == "present" and protocol["files"] == ["made.jsonl"]
    assert list(content["rankers"]) == list(NAMES) and content["release"] == {}


def test_reports_hold_figures_and_tables_and_the_tables_follow_from_the_figures(file, tmp_path):
    pytest.importorskip("matplotlib")
    directory = tmp_path / "report"
    result = rankers(file, "--report", directory)
    assert result.exit_code == 0, result.output
    assert {path.name for path in directory.iterdir()} == {"evaluation.json", "rankers.svg", "TABLES.md"}
    kept = (directory / "TABLES.md").read_text()
    content = json.loads((directory / "evaluation.json").read_text())
    mean = content["rankers"]["draft"]["top-3"]["mean"]
    assert "| draft " in kept and f"{mean:.3f} (" in kept and content["date"][:10] in kept
    assert all(name in result.output for name in NAMES)
    content["rankers"]["draft"]["top-3"]["mean"] = 0.12345
    (directory / "evaluation.json").write_text(json.dumps(content))
    assert run("tables", directory).exit_code == 0
    assert "0.123 (" in (directory / "TABLES.md").read_text() and "0.123 (" not in kept


def test_an_ablation_is_told_with_what_the_records_do_not_allow(file, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    line = {"top-1": 0.9, "top-3": 0.95, "pairs": 0.7, "top-1 low": 0.8, "top-1 high": 0.97}
    found = {
        "groups": {"all": line}, "learning curve": [{"records": 9.0, **line}, {"records": 90.0, **line}],
        "transfer": {"operators": {"analytical": {"0": line, "5": line}}},
    }  # fmt: skip
    monkeypatch.setattr(ablate, "whole", lambda *_: (found, {"abstention": "one class"}))
    result = run("ablate", file, "--report", tmp_path / "report", "--seeds", 1)
    assert result.exit_code == 0, result.output
    assert "left out: abstention: one class" in result.output
    text = (tmp_path / "report" / "TABLES.md").read_text()
    plain = " ".join(text.split())
    assert f"objective {DEFAULT_OBJECTIVE}" in plain and "abstention was left out: one class" in plain
    assert "| all | 0.900 (0.800-0.970) | 0.950 | 0.700 |" in plain


def test_an_entry_that_a_suite_does_not_have_is_refused_before_anything_is_measured(tmp_path):
    told = run("collect", "--only", "matmul 499x499x49", tmp_path / "out.jsonl")
    text = " ".join(told.output.split())
    assert told.exit_code == 2 and "no entry of suite collection 'matmul 499x499x49'; did you mean matmul 499x499x499?" in text
    assert not list(tmp_path.iterdir())


def test_too_few_records_are_told_with_what_is_missing(tmp_path):
    records = recorded(10)
    path, group = tmp_path / "one.jsonl", records.records[0]["group"]
    (device,) = records.devices.values()
    append(path, device, [one for one in records.records if one["group"] == group])
    for words in (("evaluate", path, "--ranker", "analytical"), ("ablate", path)):
        result = run(*words)
        assert result.exit_code == 2 and "10 of 1 operators, in 1 parts by canonical structure" in result.output
        assert "Traceback" not in result.output


def test_records_of_which_none_passed_are_told(tmp_path):
    records = recorded(2, failing=2)
    (device,) = records.devices.values()
    append(tmp_path / "failed.jsonl", device, records.records)
    result = run("evaluate", tmp_path / "failed.jsonl", "--ranker", "analytical")
    assert result.exit_code == 2 and "0 that passed their check are left to train on" in " ".join(result.output.split())


def test_a_directory_without_figures_or_with_others_has_no_tables(tmp_path):
    result = run("tables", tmp_path)
    assert result.exit_code == 2 and "evaluation.json" in result.output and not list(tmp_path.iterdir())
    (tmp_path / "searches.json").write_text(json.dumps({"searches": []}))
    result = run("tables", tmp_path)
    assert result.exit_code == 2 and "searches.json is not of this version" in " ".join(result.output.split())
    (tmp_path / "costs.json").write_text(json.dumps({**origin(), "training s": 0.4}))
    assert run("tables", tmp_path).exit_code == 0
    text = (tmp_path / "TABLES.md").read_text()
    assert "| training s | 0.4 |" in text and "searches.json is not of this version: " in text


def test_every_kind_of_figures_has_tables():
    table = {"mean": 0.5, "low": 0.4, "high": np.float64(0.6)}
    line = {f"within {share}": table for share in ("2%", "5%", "10%")} | {"speed after": [0.5] * 30}
    line["saved against analytical"] = {"mean": -1.0, "low": -2.5, "high": 0.5}
    near, far, speed = RENDERED["searches"]({"searches": {"random": line}, "protocol": {"batch": 8}})
    assert near.rows == (("random", "0.5 (0.4-0.6)", "-1.0 (-2.5 to 0.5)"),)
    assert far.rows == (("random", *["0.5 (0.4-0.6)"] * 2),) and speed.rows == (("random", *["0.500"] * 3),)
    figures = {"top-1": 0.9, "top-3": 0.95, "pairs": 0.7, "top-1 low": 0.8, "top-1 high": 0.97}
    told = {"stream": {"pacm, momentum": {**figures, "first third": 0.5, "last third": 0.75}}, "protocol": {"measured": 10}}
    whole, thirds = RENDERED["stream"](told)
    assert whole.rows == (("pacm, momentum", "0.900 (0.800-0.970)", "0.950", "0.700"),)
    assert thirds.columns == ("ranker", "first third", "last third") and thirds.rows == (("pacm, momentum", "0.500", "0.750"),)
    pair = {
        "transfer": {"analytical": {"0": {"tau": 0.8}}, "both": {"0": {"tau": 0.7}, "30": {"tau": 0.9}}},
        "measurements to within 2%": {"random": {"mean": 17.4, "never": 1}, "model": {"mean": 3.0, "never": 0}},
    }  # fmt: skip
    first, second = RENDERED["spaces"]({"A -> B": pair, "batch": 16, "seeds": 3})
    assert first.rows == (("analytical", "0.80", ""), ("both", "0.70", "0.90"))
    assert second.rows == (("random", "17 (1)"), ("model", "3")) and "1: A -> B" in second.title
    (one,) = RENDERED["costs"]({"date": "x", "machine": {}, "training s": 0.4, "records": 5000})
    assert one.rows == (("training s", "0.4"), ("records", "5000"))


def test_where_a_collection_cannot_be_written_nothing_is_measured(tmp_path):
    words = ["collect", str(tmp_path / "absent" / "out.jsonl"), "--only", "gelu 2048x1024"]
    told = run(*words)
    assert told.exit_code == 2 and "cannot be written" in " ".join(told.output.split())


@pytest.mark.parametrize("words", [["--count", "0"], ["--drafted", "51"], ["--seconds", "0"], ["--seconds", "nan"]])
def test_a_collection_of_nothing_is_refused(tmp_path, words):
    assert run("collect", str(tmp_path / "out.jsonl"), *words).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_records_exported_as_a_table_train(file, tmp_path):
    pytest.importorskip("pyarrow")
    from rollergen.store.record_files import read
    from rollergen.store.record_tables import write_table
    from rollergen.verify.dataset import load

    write_table(tmp_path / "out.parquet", read(file))
    one, other = load([file]), load([tmp_path / "out.parquet"])
    assert (one.x == other.x).all() and (one.ms == other.ms).all() and one.titles == other.titles


@pytest.mark.parametrize("name", ["evaluate", "ablate", "tables"])
def test_outside_a_checkout_comparisons_are_refused_and_not_listed(monkeypatch, name):
    monkeypatch.setattr(scripts, "has_benches", lambda: False)
    monkeypatch.setattr(command_line, "has_benches", lambda: False)
    told = run(name, "--help")
    assert told.exit_code == 2 and "they come with a checkout of the repository" in " ".join(told.output.split())
    assert name not in run("--help").output.replace("evaluate it", "")
