"""Operators one after another: learners are told of what was measured, once it was judged."""

import numpy as np
import pytest

from benches.verify import stream
from benches.verify.rankers import Analytical
from rollergen.verify.dataset import from_records
from rollergen.verify.rankers import Boosted
from tests.verify.records import recorded


@pytest.fixture(scope="module")
def data():
    return from_records([recorded(20)])


class Noting:
    """Orders as the model does; notes what it is asked and told of."""

    def __init__(self):
        self.asked, self.told = [], []

    def scores(self, data):
        self.asked.append((len(self.told), set(data.operator.tolist())))
        return Analytical().scores(data)

    def completed(self, measured, seed):
        self.told.append(measured)


def test_each_operator_is_judged_before_its_first_programs_are_told(data):
    noting = Noting()
    found = stream.followed(noting, data, 3)
    assert len(found) == len(noting.told) == len(data.operators())
    assert sorted({third for third, _ in found}) == [0, 1, 2]
    known = [set(), *(set(told.operator.tolist()) for told in noting.told)]
    for when, operators in noting.asked:
        assert len(operators) == 1 and not operators & known[when]
    last = noting.told[-1]
    for rows in last.operators():
        own = data.of(data.operator == last.operator[rows[0]])
        assert len(rows) == stream.MEASURED
        assert set(last.predicted_ms[rows]) == set(np.sort(own.predicted_ms)[: stream.MEASURED])


def test_trees_that_are_updated_follow_a_rule_that_turned_around(data):
    pytest.importorskip("lightgbm")
    base = Boosted("residual", trees=60)
    base.fit(data, 0)
    turned = data.of(np.arange(len(data)))
    turned.ms[:] = turned.predicted_ms**2 / turned.ms
    mean = lambda learner: np.mean([one[2]["pairs"] for _, one in stream.followed(learner, turned, 0)])
    assert mean(stream.Grown(base, base)) > mean(stream.Frozen(base)) + 0.05
    assert base.boosters[0].num_trees() == 60


def test_every_method_is_told_with_its_thirds_and_pacm_adapts_in_its_own_way(data, monkeypatch):
    pytest.importorskip("lightgbm")
    pytest.importorskip("torch")
    from benches.verify.pacm import Attentive

    monkeypatch.setattr(stream, "Attentive", lambda: Attentive(width=16, epochs=2))
    learners = stream._of_pacm(data, 0)
    before = {name: learner.ranker.target["score.weight"].clone() for name, learner in learners.items()}
    scores = {name: learner.scores(data) for name, learner in learners.items()}
    for learner in learners.values():
        learner.completed(data.of(np.arange(40)), 0)
    moved = {name: float((learner.ranker.target["score.weight"] - before[name]).abs().max()) for name, learner in learners.items()}
    assert moved["pacm"] == 0 < moved["pacm, momentum"] < 0.1 * moved["pacm, fine-tuned"]
    assert all(((scores[name] == learners[name].scores(data)).all()) == (name == "pacm") for name in learners)
    found, left_out = stream.streams(data, "cautious", [0])
    methods = ["analytical", "verifier", "verifier, updated", "pacm", "pacm, momentum", "pacm, fine-tuned"]
    assert list(found) == methods and not left_out
    assert all(set(stream.THIRDS) <= set(line) and 0 < line["top-1"] <= 1 for line in found.values())


def test_without_torch_pacm_is_left_out(data, monkeypatch):
    pytest.importorskip("lightgbm")
    from rollergen.errors import DeviceError

    def refused(module, extra):
        raise DeviceError(f"{module} is missing")

    monkeypatch.setattr(stream, "optional", refused)
    found, left_out = stream.streams(data, "cautious", [0])
    assert list(found) == ["analytical", "verifier", "verifier, updated"] and left_out == {"pacm": "torch is missing"}


def test_rankers_that_begin_with_another_source_are_judged_on_all_operators_in_one_stream(data, monkeypatch):
    begun, streamed = [], []
    monkeypatch.setattr(stream, "optional", lambda module, extra: None)
    for family in ("trees", "pacm"):
        monkeypatch.setattr(stream, f"_of_{family}", lambda train, *_, name=family: begun.append(train) or {name: Noting()})
    followed = stream.followed
    monkeypatch.setattr(stream, "followed", lambda *given: streamed.append(given[1]) or followed(*given))
    source = data.of(np.arange(50))
    with monkeypatch.context() as few:  # too few records for halves of them: none are made
        few.setattr(stream, "folds", None)
        found, _ = stream.streams(data, "cautious", [0], source=source)
    assert list(found) == ["analytical", "trees", "pacm"]
    assert all(one is source for one in begun) and all(one is data for one in streamed)
    begun.clear()
    stream.streams(data, "cautious", [0])
    assert len(begun) == 4 and not any(one is source for one in begun)
