"""Turns: the call behind the others' is told apart from those that follow it, which are what is compared."""

from __future__ import annotations

import itertools

import pytest

from benches import timing


class Clock:
    """Time that passes only while something is called."""

    def __init__(self) -> None:
        self.now, self.last = 0.0, ""

    def call(self, name: str, first: float, again: float):
        def run() -> None:
            self.now += first if self.last != name else again
            self.last = name

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return clock


def test_what_a_first_call_pays_is_not_in_the_time_of_those_that_follow(clock: Clock):
    calls = {"ours": clock.call("ours", 9e-4, 2e-4), "theirs": clock.call("theirs", 5e-4, 4e-4)}
    calls["a third"] = clock.call("a third", 1e-3, 1e-3)
    turns = timing.in_turns(calls, seconds=0.0)
    assert turns["ours"].first == pytest.approx([9e-4] * timing.LEAST_ROUNDS)
    assert turns["ours"].again == pytest.approx([2e-4] * timing.LEAST_ROUNDS)
    assert turns["theirs"].again == pytest.approx([4e-4] * timing.LEAST_ROUNDS)


def test_who_follows_whom_changes_and_nobody_follows_itself():
    names = list("abcd")
    told = list(itertools.chain.from_iterable(itertools.islice(timing._orders(names), 200)))
    assert all(sorted(told[n : n + 4]) == names for n in range(0, 800, 4))
    pairs = set(itertools.pairwise(told))
    assert pairs == set(itertools.permutations(names, 2))
    assert next(timing._orders(["alone"])) == ["alone"]


def test_a_turn_warms_up_and_repeats_short_calls_for_milliseconds_and_long_ones_once(clock: Clock):
    counts = dict.fromkeys(("short", "long"), 0)

    def counted(name: str, takes: float):
        def run() -> None:
            counts[name] += 1
            clock.now += takes

        return run

    timing.in_turns({"short": counted("short", 1e-4), "long": counted("long", 1.0)}, seconds=0.0)
    repeats = round((timing.WARM_S + timing.TURN_S) / 1e-4)
    assert counts["short"] in range(2 + 15 * repeats, 2 + 15 * (repeats + 2) + 1)
    assert counts["long"] == 2 + 15 * 3


def test_the_second_call_is_not_compared_either(clock: Clock):
    seen = iter([9.0, 9.0, *([3.0, 2.0, 1.0] * timing.LEAST_ROUNDS)])

    def run() -> None:
        clock.now += next(seen)

    turns = timing.in_turns({"one": run}, seconds=0.0)
    assert (set(turns["one"].first), set(turns["one"].again)) == ({3.0}, {1.0})


def test_turns_in_which_cores_are_shared_are_taken_again(clock: Clock):
    takes, shared = iter([1.0, 1.0] + [9.0] * 3 + [1.0] * 3 * timing.LEAST_ROUNDS), iter([False, True, False])

    def run() -> None:
        clock.now += next(takes)

    turns = timing.in_turns({"one": run}, seconds=0.0, whole=lambda: next(shared, True))
    assert set(turns["one"].again) == {1.0} and len(turns["one"].again) == timing.LEAST_ROUNDS


def test_cores_that_are_never_whole_end_the_run(clock: Clock):
    def never() -> bool:
        clock.now += 1.0
        return False

    with pytest.raises(SystemExit, match="not whole for 120 s"):
        timing.in_turns({"one": clock.call("one", 1.0, 1.0)}, seconds=0.0, whole=never)
