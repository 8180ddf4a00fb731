"""Foreign tests: a row tells wrong values, refusals of unknown kind and processes that end apart; others go on."""

import json
import os

import numpy as np
import pytest

import rollergen as rg
from benches import results
from benches.foreign.cases import Rows, crash, examined, faulty, in_processes
from benches.foreign.refusals import RULES
from rollergen.importers.refusals import OPERATORS, REASONS, Refused, accepted_dtype

X = np.array([-1.0, 2.0], np.float32)


def relu():
    return rg.ops.relu(rg.tensor("x", (2,)))


def expects(values):
    return lambda _, made: np.testing.assert_array_equal(made[0], np.array(values, np.float32))


def test_a_right_case_is_right_by_definition_and_by_interpretation():
    row = examined([relu()], {"x": X}, expects([0, 2]), ("definition", "v100"))
    assert row["definition"] == row["v100"] == "right" and not faulty(row)


def test_wrong_values_and_exceptions_are_faults_of_their_stage():
    row = examined([relu()], {"x": X}, expects([0, 3]), ("definition",))
    assert row["definition"].startswith("wrong: Arrays are not equal") and faulty(row)
    row = examined([relu()], {}, expects([0, 2]), ("definition",))
    assert row["definition"].startswith("crash: KeyError: 'x'") and faulty(row)


def test_a_crash_names_the_line_of_rollergen():
    with pytest.raises(rg.errors.ShapeError) as caught:
        rg.ops.reshape(rg.tensor("x", (2,)), (3,))
    assert "ShapeError: reshape: x (2,) has 2 elements" in crash(caught.value)
    assert " at expr/operators/views.py:" in crash(caught.value)


def _square_or_end(name):
    if name == "3":
        os._exit(1)
    return {"name": name, "square": int(name) ** 2}


def test_a_case_that_ends_its_process_is_a_crash_and_the_others_go_on():
    rows = {row["name"]: row for row in in_processes(_square_or_end, ["1", "2", "3", "4", "5"], 2)}
    assert rows.pop("3") == {"name": "3", "import": "crash: the process ended"}
    assert {name: row["square"] for name, row in rows.items()} == {"1": 1, "2": 4, "4": 16, "5": 25}


def test_every_refusal_has_a_listed_reason():
    assert {reason for reason, _ in OPERATORS.values()} | {rule[3] for rule in RULES} <= set(REASONS)
    with pytest.raises(KeyError):
        Refused("because")
    with pytest.raises(Refused, match="a dtype that is none of rollergen's: complex64"):
        accepted_dtype(np.complex64)


def _op(name):
    wanted = {"right": [0, 2], "wrong": [1, 2]}.get(name)
    if wanted is None:
        return {"name": name, "refused": "dtype", "detail": name}
    return {"name": name, **examined([relu()], {"x": X}, expects(wanted), ("definition",))}


def test_an_interrupted_run_goes_on_and_a_whole_one_leaves_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    Rows.begun("foreign", True).examine(_op, ["right", "uint8"], 1, True)
    rows = Rows.begun("foreign", True)
    assert set(rows.known) == {"right", "uint8"}
    rows.examine(_op, ["wrong"], 1, True)
    assert rows.told(["right", "uint8", "wrong"], lambda row: "relu", True) == 1
    (path,) = tmp_path.iterdir()  # what was kept meanwhile is gone
    kept = json.loads(path.read_text())
    assert kept["table"] == [{"of": "relu", "cases": 3, "expressed": 2, "definition right": 1, "cpu right": 0,
                              "v100 right": 0, "wrong": 1, "crashes": 0}]  # fmt: skip
    assert kept["refused"] == {"a dtype that is none of rollergen's: uint8": ["uint8"]}
    assert [row["name"] for row in kept["faulty"]] == ["wrong"] and '"wrong": 1' in capsys.readouterr().out
