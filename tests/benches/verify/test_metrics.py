"""Figures of an order, against what their definitions give by enumeration."""

from itertools import combinations
from statistics import mean

import numpy as np
import pytest

from benches.verify import metrics

TIMES = np.array([3.0, 1.0, 2.0, 8.0, np.inf])


def test_top_k_is_the_best_of_all_over_the_best_of_the_first():
    order = [3, 2, 0, 1, 4]
    assert [metrics.top_k(TIMES, order, k) for k in (1, 2, 4)] == [1 / 8, 1 / 2, 1.0]
    assert metrics.top_k(TIMES, [4, 0, 1, 2, 3], 1) == 0.0


def test_best_k_takes_the_kth_fastest_of_a_set():
    assert metrics.best_k(TIMES, [0, 2, 3], 1) == 1 / 2 and metrics.best_k(TIMES, [0, 2, 3], 2) == 1 / 3


def test_pruners_top_k_sums_before_it_divides():
    pairs = [(np.array([1.0, 2.0]), [1, 0]), (np.array([10.0, 30.0]), [0, 1])]
    assert metrics.weighted_top_k(pairs, 1) == pytest.approx(11 / 12)


def test_pruners_best_k_sums_the_kth_fastest_of_each_set():
    pairs = [(np.array([1.0, 2.0, 9.0]), [1, 2, 0]), (np.array([10.0, 30.0, 20.0]), [2, 0, 1])]
    assert metrics.weighted_best_k(pairs, 2, 1) == pytest.approx(11 / 12)
    assert metrics.weighted_best_k(pairs, 2, 2) == pytest.approx(11 / 29)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_random_expectation_is_that_of_all_draws(k):
    finite = TIMES[:4]
    expected = mean(min(finite[list(draw)]) for draw in combinations(range(4), k))
    assert metrics.random_top_k(TIMES, k) == pytest.approx(1.0 / expected)


def test_pairs_count_ties_half_and_leave_out_what_noise_decides():
    assert metrics.pairwise_accuracy(TIMES, -TIMES) == 1.0
    assert metrics.pairwise_accuracy(TIMES, TIMES) == 0.0
    assert metrics.pairwise_accuracy(TIMES, np.zeros(5)) == 0.5
    close = np.array([1.0, 1.01, 2.0])
    assert metrics.pairwise_accuracy(close, np.array([2.0, 3.0, 1.0]), margin=0.05) == 1.0
    assert metrics.tau(TIMES, -TIMES) == 1.0


def test_gain_is_one_for_the_best_order_and_less_for_others():
    best = list(np.argsort(TIMES))
    assert metrics.ndcg(TIMES, best) == pytest.approx(1.0)
    assert metrics.ndcg(TIMES, best[::-1]) < 0.8


def test_trials_count_until_one_is_within_two_percent():
    times = np.array([1.019, 1.0, 1.03, 5.0])
    assert metrics.trials_to(times, [3, 2, 0, 1]) == 3 and metrics.trials_to(times, [3, 2, 1, 0]) == 3
