"""Rows of the benches of a GPU: kept as they come, made anew where what decides them has changed."""

from __future__ import annotations

import json

import pytest

from benches.gpu import predict
from benches.gpu.rows import BEGUN, COMPLETE, LOST, UNFINISHED, Budget, Rows

KEYS = [("gpu", str(number)) for number in range(3)]


def rows_in(file, stamp=lambda key: "one"):
    return Rows(file, {"gpu": "none"}, len, stamp)


def test_rows_go_on_where_time_ran_out(tmp_path):
    made, file = [], tmp_path / "rows.json"

    def make(key):
        made.append(key)
        return {"state": "wrong" if key == KEYS[1] else "right"}

    assert rows_in(file).fill(KEYS, make, Budget(-1.0)) == UNFINISHED and made == []
    assert rows_in(file).fill(KEYS[:2], make, Budget(60.0)) == COMPLETE and made == KEYS[:2]
    assert rows_in(file).fill(KEYS, make, Budget(60.0)) == COMPLETE and made == KEYS
    assert rows_in(file).fill(KEYS, make, Budget(60.0), retry=True) == COMPLETE and made == [*KEYS, KEYS[1]]
    kept = json.loads(file.read_text())
    assert kept["summary"] == 3 and kept["gpu"] == "none" and kept["machine"] and kept["commit"] is not None
    assert [(row["suite"], row["id"]) for row in kept["rows"]] == KEYS and all(row["date"] for row in kept["rows"])


def test_rows_of_other_code_are_made_anew(tmp_path, capsys):
    file, made = tmp_path / "rows.json", []
    make = lambda key: made.append(key) or {"state": "right"}
    assert rows_in(file).fill(KEYS[:2], make, Budget(60.0)) == COMPLETE
    other = lambda key: "another" if key == KEYS[0] else "one"
    assert len(rows_in(file, other).all()) == 1 and "1 of 2 rows are of other code" in capsys.readouterr().err
    assert rows_in(file, other).fill(KEYS[:2], make, Budget(60.0)) == COMPLETE and made == [*KEYS[:2], KEYS[0]]


def test_a_run_that_is_cut_loses_one_row_and_an_operator_that_ends_its_process_is_tried_twice(tmp_path):
    file, made = tmp_path / "rows.json", []

    def make(key):
        made.append(key)
        if key == KEYS[0]:
            raise KeyboardInterrupt
        return {"state": "right"}

    for tried in ([KEYS[0]], [KEYS[1], KEYS[2], KEYS[0]]):
        with pytest.raises(KeyboardInterrupt):
            rows_in(file).fill(KEYS, make, Budget(60.0))
        assert made == tried and next(row for row in rows_in(file).all() if row["id"] == "0")["state"] == BEGUN
        made.clear()
    assert rows_in(file).fill(KEYS, make, Budget(60.0)) == COMPLETE and made == []


def test_what_an_operator_raises_is_its_failure_and_a_gpu_that_is_lost_ends_the_process(tmp_path):
    file = tmp_path / "rows.json"

    def make(key):
        raise RuntimeError(f"illegal address\nin {key}")

    assert rows_in(file).fill(KEYS, make, Budget(60.0), alive=lambda: False) == LOST
    assert [row["state"] for row in rows_in(file).all()] == ["failed: RuntimeError: illegal address"]
    assert rows_in(file).fill(KEYS, make, Budget(60.0)) == COMPLETE and len(rows_in(file).all()) == 3


def test_measured_rows_stand_as_long_as_the_same_programs_are_the_candidates():
    key, row = ("gpu", "a"), {"programs": [["x", 1.0], ["y", 2.0]]}
    stamp = lambda programs: predict.stamps({key: {"programs": programs}})(key)
    assert stamp([["x", 9.0], ["y", 8.0]]) == predict.stamps({key: row})(key) != stamp([["y", 2.0], ["x", 1.0]])
