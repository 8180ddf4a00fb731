"""Searches measure every program once, learn from what they measured, and are replayed on what was collected."""

from dataclasses import replace

import numpy as np
import pytest

from benches.verify.genetic import Genetic
from benches.verify.metrics import trials_to
from benches.verify.pool import Pool, decisions_of
from benches.verify.rankers import Analytical, Random, columns_of
from benches.verify.replay import measured_order, measurements_saved
from benches.verify.search import SEARCHES, Annealed, Diverse, Greedy, Ordered, annealed, diverse
from rollergen.verify.dataset import from_records
from tests.verify.records import recorded

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def data():
    return from_records([recorded()])


@pytest.fixture(scope="module")
def pool(data):
    return Pool.of(data.of(data.operators()[4]))


def swift():
    """AutoTVM with less annealing than published."""
    return Annealed(chains=16, steps=30)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_measures_programs_once_until_it_has_the_best(data, pool, name):
    search = SEARCHES[name]()
    search.fit(data.of(data.operator != pool.data.operator[0]), 0)
    order = measured_order(search, pool, 3, batch=7)
    assert len(set(order)) == len(order) and int(pool.data.ms.argmin()) in order[-7:]
    assert order == measured_order(search, pool, 3, batch=7)
    assert len(measured_order(search, pool, 3, batch=7, most=3)) == 3


def test_neighbours_differ_in_the_fewest_decisions(pool):
    assert all(n not in near for n, near in enumerate(pool.near))
    x = pool.data.x
    differ = lambda a, b: int((x[a] != x[b]).sum())
    nearest = np.mean([differ(n, near[0]) for n, near in enumerate(pool.near)])
    assert nearest < np.mean([differ(a, b) for a in range(len(x)) for b in range(len(x)) if a != b])


def test_a_search_reads_no_time_that_it_did_not_measure(data, pool):
    hidden = pool.data.of(np.arange(len(pool.data)))
    first = swift().next(pool, [], 8, np.random.default_rng(0))
    unseen = np.setdiff1d(np.arange(len(hidden)), first)
    hidden.ms[unseen] = hidden.ms[unseen][::-1] * 7
    plans = [swift().next(one, first, 8, np.random.default_rng(1)) for one in (pool, Pool(hidden, pool.near))]
    assert plans[0] == plans[1] and not set(plans[0]) & set(first)


def test_trees_of_an_operators_own_measurements_find_its_best_sooner_than_chance(data):
    trials = {"annealed": [], "random": []}
    for rows in data.operators():
        pool = Pool.of(data.of(rows))
        for name, search in (("annealed", swift()), ("random", Ordered(Random()))):
            search.fit(pool.data, 1)
            trials[name].append(trials_to(pool.data.ms, measured_order(search, pool, 1, batch=6)))
    assert np.mean(trials["annealed"]) < 0.8 * np.mean(trials["random"])


def test_failed_programs_take_a_slot_and_teach_nothing():
    pool = Pool.of(from_records([recorded(10, failing=2)]))
    first = [int(n) for n in np.flatnonzero(~pool.data.right)[:4]]
    plan = swift().next(pool, first, 8, np.random.default_rng(0))
    assert len(plan) == 8 and not set(plan) & set(first)


def test_annealing_ends_near_the_best_of_a_smooth_space():
    scores = -np.abs(np.arange(200) - 150.0)
    near = np.array([[max(0, n - 1), min(199, n + 1)] for n in range(200)])
    assert annealed(scores, near, 4, 4000, np.random.default_rng(0))[150]
    assert annealed(scores, near, 4, 5, np.random.default_rng(0)).sum() <= 24


def test_epsilon_is_the_share_of_random_picks(pool):
    analytical = Ordered(Analytical())
    plan = analytical.next(pool, [], 10, np.random.default_rng(0))
    for epsilon, least, most in ((0.0, 0, 0), (0.3, 1, 6), (1.0, 10, 10)):
        greedy = Greedy(analytical, epsilon).next(pool, [], 10, np.random.default_rng(0))
        assert least <= sum(a != b for a, b in zip(plan, greedy, strict=True)) <= most


def test_diverse_batches_hold_more_distinct_decisions(pool):
    scores = Analytical().scores(pool.data)
    distinct = lambda plan: sum(len(set(column)) for column in pool.data.x[plan].T)
    best = [int(n) for n in np.argsort(-scores)]
    plans = [diverse(pool, best[:20], scores, 5, alpha) for alpha in (0.0, 100.0)]
    assert plans[0] == best[:5] and distinct(plans[1]) > distinct(plans[0])
    assert set(Diverse(Analytical()).next(pool, [], 5, np.random.default_rng(0))) <= set(best[:10])


def test_a_replay_tells_measurements_and_speed(data):
    chosen = {"analytical": SEARCHES["analytical"], "random": SEARCHES["random"]}
    table = measurements_saved(data, chosen, [0, 1], 3)
    for line in table.values():
        assert 1 <= line["within 10%"]["mean"] <= line["within 5%"]["mean"] <= line["within 2%"]["mean"]
        assert line["speed after"] == sorted(line["speed after"]) and line["speed after"][-1] == pytest.approx(1.0)
    assert table["analytical"]["saved against analytical"]["mean"] == 0
    rows = {int(data.operator[rows[0]]): data.of(rows) for rows in data.operators()}
    needed = [trials_to(one.ms, list(np.argsort(one.predicted_ms, kind="stable"))) for one in rows.values()]
    assert table["analytical"]["within 2%"]["mean"] == pytest.approx(np.mean(needed))


def test_a_search_that_plans_twice_the_same_is_refused(pool):
    class Stuck(Ordered):
        def next(self, pool, measured, count, rng):
            return [int(pool.data.ms.argmax())]

    with pytest.raises(ValueError, match="expected new ones"):
        measured_order(Stuck(Analytical()), pool, 0)


def test_children_take_their_genes_from_both_parents_and_mutations_from_any_program(pool):
    genes = decisions_of(pool.data)
    one, other = genes[0], genes[-1]
    rng = np.random.default_rng(0)
    for _ in range(50):
        child = Genetic(mutation=0.0)._child(one, other, genes, rng)
        assert any((child[:cut] == one[:cut]).all() and (child[cut:] == other[cut:]).all() for cut in range(len(one) + 1))
        mutated = Genetic(mutation=1.0)._child(one, other, genes, rng)
        assert all(value in genes[:, place] for place, value in enumerate(mutated))


def test_the_genetic_search_breeds_the_fast_ones():
    """Where each gene adds to the time, children of fast programs are faster than chance."""
    values = np.array([(a, b, c) for a in range(6) for b in range(6) for c in range(6)], dtype=float)
    data = from_records([recorded()])
    x = np.zeros((len(values), data.x.shape[1]))
    places = [int(n) for n in columns_of("C", "G")[:3]]
    x[:, places] = values
    rows = data.of(np.zeros(len(values), dtype=int))
    grid = Pool(replace(rows, x=x, ms=1 + values.sum(axis=1)), np.zeros((len(values), 1), dtype=int))
    needed = {name: [] for name in ("genetic", "random")}
    for seed in range(20):
        for name, search in (("genetic", Genetic()), ("random", Ordered(Random()))):
            search.fit(data, seed)
            needed[name].append(len(measured_order(search, grid, seed)))
    assert np.mean(needed["genetic"]) < 0.7 * np.mean(needed["random"]), needed


def test_a_program_that_failed_is_no_parent(pool):
    hidden = pool.data.of(np.arange(len(pool.data)))
    hidden.ms[::2] = np.inf
    measured = list(range(20))
    assert all(n % 2 for n in Genetic()._parents(hidden.ms, measured))
