"""An evaluation that was interrupted goes on where it ended, and with the same figures."""

import json

import numpy as np
import pytest

from benches.verify import evaluate, replay
from benches.verify.rankers import RANKERS, chosen
from benches.verify.search import SEARCHES
from benches.verify.unfinished import Unfinished
from rollergen.verify.dataset import from_records
from tests.verify.records import recorded


@pytest.fixture(scope="module")
def data():
    return from_records([recorded(10)])


def refusing():
    raise AssertionError("what is kept is not computed again")


NAMES = ("random", "analytical", "draft")


def test_what_an_interrupted_evaluation_has_judged_is_not_judged_again(data, tmp_path):
    path = tmp_path / "report" / "unfinished.jsonl"
    rankers = {name: RANKERS[name] for name in NAMES}
    whole = evaluate.compare(data, rankers, seeds=[0, 1], count=3)
    evaluate.compare(data, rankers, seeds=[0], count=3, kept=Unfinished.at(path, data))
    again = evaluate.compare(data, rankers, seeds=[0, 1], count=3, kept=Unfinished.at(path, data))
    assert again == whole
    kept = Unfinished.at(path, data)
    assert evaluate.compare(data, dict.fromkeys(NAMES, refusing), seeds=[0, 1], count=3, kept=kept) == whole
    kept.done()
    assert not path.exists()


def test_searches_go_on_too(data, tmp_path):
    path, searches = tmp_path / "unfinished.jsonl", {name: SEARCHES[name] for name in ("random", "analytical")}
    first = replay.measurements_saved(data, searches, seeds=[0], count=3, kept=Unfinished.at(path, data))
    kept = Unfinished.at(path, data)
    assert replay.measurements_saved(data, dict.fromkeys(searches, refusing), seeds=[0], count=3, kept=kept) == first


def test_parts_of_other_records_and_lines_that_were_cut_off_are_not_taken(data, tmp_path):
    path = tmp_path / "unfinished.jsonl"
    Unfinished.at(path, data).part("a", lambda: [1.5, float("inf")])
    assert Unfinished.at(path, data).part("a", refusing) == [1.5, float("inf")]
    slower = data.of(np.arange(len(data)))
    slower.ms[:] *= 2
    assert Unfinished.at(path, slower).part("a", lambda: 2) == 2
    lines = path.read_text().splitlines()
    path.write_text(json.dumps([1]) + "\n" + lines[0] + "\n" + lines[0].replace('"a"', '"b"')[:-3])
    assert Unfinished.at(path, data).parts.keys() == {"a"}


def test_a_few_operators_are_spread_over_the_structures(data):
    few = data.spread(4)
    assert len(few.operators()) == 4 and len(set(few.structure.tolist())) == 3
    assert len(data.spread(1000)) == len(data)


def test_rankers_are_chosen_by_name_and_those_whose_package_is_missing_are_told(monkeypatch):
    from benches.verify import rankers
    from rollergen.errors import ArgumentError, DeviceError

    assert list(chosen(("draft", "random"))[0]) == ["draft", "random"]
    with pytest.raises(ArgumentError, match="there is no ranker 'best'; expected one of random, analytical, "):
        chosen(("best",))

    def without_torch(module, extra):
        if module == "torch":
            raise DeviceError("torch is missing")

    monkeypatch.setattr(rankers, "optional", without_torch)
    found, left_out = chosen()
    assert set(RANKERS) - set(found) == {"pacm"} and left_out == {"pacm": "torch is missing"}
    with pytest.raises(DeviceError, match="torch is missing"):
        chosen(("pacm",))
