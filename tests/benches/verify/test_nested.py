"""An objective chosen by nested folds is chosen without what it is told of."""

import numpy as np
import pytest

from benches.verify import evaluate, nested
from benches.verify.rankers import Analytical
from benches.verify.unfinished import Unfinished
from rollergen.verify.dataset import from_records
from tests.verify.records import recorded

QUIET = lambda *_: None


@pytest.fixture(scope="module")
def data():
    return from_records([recorded(10)])


class Knowing:
    """Knows the times; notes what it is fitted and asked on."""

    def __init__(self, seen, right=True):
        self.seen, self.sign = seen, 1 if right else -1

    def fit(self, data, seed):
        self.seen.append(set(data.operator.tolist()))

    def scores(self, data):
        self.seen.append(set(data.operator.tolist()))
        return -self.sign * data.ms


def test_the_better_ranker_is_chosen_and_held_out_operators_have_no_say(data):
    seen = []
    makers = {"wrong": lambda: Knowing(seen, False), "right": lambda: Knowing(seen)}
    for train, test in evaluate.folds(data, 3, 0):
        seen.clear()
        assert nested.best_of(data.of(train), makers, 0) in makers
        assert seen and not set().union(*seen) & set(data.operator[test].tolist())
    names = nested.choices(data, makers, 0, 3, Unfinished(), QUIET)
    assert len(names) == 3 and "right" in names


def test_too_few_structures_for_folds_take_the_first(data):
    alone = data.of(data.structure == data.structure[0])
    refusing = {"first": Analytical, "second": lambda: pytest.fail("nothing is to be trained")}
    assert nested.best_of(alone, refusing, 0) == "first"


def test_figures_are_those_of_the_ranker_that_was_chosen_for_the_operators_fold(data, monkeypatch):
    makers = {"wrong": lambda: Knowing([], False), "right": lambda: Knowing([])}
    runs = evaluate.judge_all(data, makers, [0, 1], 3, QUIET, Unfinished())
    turns = {0: ["wrong", "right", "right"], 1: ["right", "right", "wrong"]}
    monkeypatch.setattr(nested, "choices", lambda data, makers, seed, *_: turns[seed])
    found, often = nested.chosen_runs(data, makers, runs, [0, 1], 3, Unfinished(), QUIET)
    assert often == {"wrong": 2, "right": 4}
    for seed, run in enumerate(found):
        assert [one.operator for one in run] == sorted(set(data.operator.tolist()))
        for (_, test), name in zip(evaluate.folds(data, 3, seed), turns[seed], strict=True):
            held = set(np.unique(data.operator[test]).tolist())
            own = {one.operator: one.figures for one in runs[name][seed]}
            assert all(one.figures == own[one.operator] for one in run if one.operator in held)
