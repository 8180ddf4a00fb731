"""Rankers trained on one set of rows and corrected by a few of another."""

import numpy as np
import pytest

from benches.verify import metrics
from benches.verify.transfer import METHODS, Rescaled, drawn
from benches.verify.transfer_curve import LOCAL, SPLITS, Online, curve
from benches.verify.transfer_curve import METHODS as CURVES
from rollergen.verify.dataset import from_records, joined
from rollergen.verify.rankers import LEAST_LOCAL, Boosted
from tests.verify.records import recorded

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def parts():
    """Source and target rows: the target's operators are those of even numbers, slower by a rule of their own."""
    data = from_records([recorded()])
    target = data.operator % 2 == 0
    moved = data.of(np.flatnonzero(target))
    moved.ms[:] = moved.predicted_ms * (1 + np.linspace(0, 3, len(moved)) % 1)
    return data.of(np.flatnonzero(~target)), moved


def right(data, scores):
    return np.mean([metrics.pairwise_accuracy(data.ms[rows], scores[rows]) for rows in data.operators()])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_ranks_with_and_without_local_rows(parts, name):
    source, target = parts
    for count in (0, 8):
        local = drawn(target, count, 0)
        scores = METHODS[name](source, target.of(local), 0).scores(target.of(~local))
        assert scores.shape == ((~local).sum(),) and np.isfinite(scores).all()


def test_an_update_learns_what_the_source_does_not_know(parts):
    source, _ = parts
    target = source.of(np.arange(len(source)))
    target.ms[:] = target.predicted_ms * (source.ms / source.predicted_ms) ** -3.0  # the rule, turned around
    local = drawn(target, 10, 1)
    held = target.of(~local)
    ranker = Boosted("residual", trees=100)
    ranker.fit(source, 0)
    before = right(held, ranker.scores(held))
    ranker.update(target.of(local), 0)
    assert right(held, ranker.scores(held)) > before + 0.1
    assert ranker.boosters[0].num_trees() > 100


def test_too_few_local_rows_change_nothing(parts):
    source, target = parts
    ranker = Boosted("residual", trees=20)
    ranker.fit(source, 0)
    before = ranker.scores(target)
    ranker.update(target.of(np.arange(LEAST_LOCAL - 1)), 0)
    assert (ranker.scores(target) == before).all()


def test_rescaling_mends_times_and_keeps_the_order(parts):
    source, _ = parts
    times = source.of(np.arange(40))
    times.ms[:] = 3 * times.predicted_ms**0.8
    ranker = Rescaled()
    ranker.fit(times, 0)
    np.testing.assert_allclose(np.exp(-ranker.scores(times)), times.ms, rtol=1e-6)
    assert (np.argsort(ranker.scores(times)) == np.argsort(-times.predicted_ms)).all()


def test_drawn_rows_are_at_most_half_of_each_operator(parts):
    _, target = parts
    chosen = drawn(target, 5, 3)
    assert all(chosen[rows].sum() == min(5, len(rows) // 2) for rows in target.operators())
    assert not (drawn(target, 5, 4) == chosen).all()
    assert len(joined(target.of(chosen), target.of(~chosen))) == len(target)


@pytest.mark.parametrize("split", SPLITS)
def test_what_a_curve_transfers_to_was_not_trained_on(split):
    data = from_records([recorded()])
    seen = np.zeros(len(data), dtype=int)
    for train, test in SPLITS[split](data, 2):
        assert (train != test).all() and not set(data.operator[train]) & set(data.operator[test])
        shared = set(data.structure[train]) & set(data.structure[test])
        assert bool(shared) == (split == "shapes")
        seen += test
    assert seen.max() == 1 and (split == "shapes" or seen.min() == 1)


def test_a_curve_has_every_method_and_count_on_the_same_rows():
    data = from_records([recorded(20)])
    small = data.of(np.isin(data.operator, np.unique(data.operator)[::2]))
    found = curve(small, "cautious", [0], "classes")
    assert list(found) == list(CURVES) and all(list(line) == [str(n) for n in LOCAL] for line in found.values())
    assert len({line["top-1"] for line in found["analytical"].values()}) == 1
    assert found["source"]["0"] == found["continued"]["0"] == found["online"]["0"]
    assert all(0 < line["top-1"] <= 1 for by_count in found.values() for line in by_count.values())


def test_online_scores_follow_what_was_measured_of_the_operator(parts):
    source, _ = parts
    target = source.of(np.arange(len(source)))
    target.ms[:] = target.predicted_ms**2 / source.ms  # the rule, turned around
    local = drawn(target, 12, 1)
    base = Boosted("cautious")
    base.fit(source, 0)
    held = target.of(~local)
    assert right(held, Online(base, target.of(local)).scores(held)) > right(held, base.scores(held)) + 0.05
    assert (Online(base, target.of(local & ~local)).scores(held) == base.scores(held)).all()
