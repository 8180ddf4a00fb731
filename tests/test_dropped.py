"""Candidates that fail are dropped one by one, told of, and end nothing while another stands."""

import numpy as np
import pytest

from rollergen.dropped import (
    MOST_HALVED,
    as_far_as_possible,
    at_once,
    collected_drops,
    drop_notes,
    drops_text,
    every_drop_raises,
    in_pieces,
    none_stands,
    plan_text,
    standing,
    tell,
)
from rollergen.errors import DeviceError, DropWarning, ProgramError
from rollergen.program.assemble.plan import ContractionPlan


def odd(number):
    if number % 2 == 0:
        raise KeyError(number)
    return 10 * number


def all_odd(numbers):
    return [odd(number) for number in numbers]


def part(batch, which):
    return batch[which]


def test_those_that_fail_are_dropped_with_their_error_and_the_others_stand(drops_allowed):
    with collected_drops() as drops:
        assert standing([1, 2, 3], odd, lambda one: f"number {one}") == [(1, 10), (3, 30)]
    assert [one.text for one in drops] == ["number 2: KeyError: 2"]


def test_in_a_batch_only_what_fails_alone_is_dropped(drops_allowed):
    with collected_drops() as drops:
        assert at_once([1, 2, 3], all_odd, str) == [(1, 10), (3, 30)]
    assert [one.text for one in drops] == ["2: KeyError: 2"]


def test_a_batch_that_fails_though_each_of_it_is_right_is_told_of(drops_allowed):
    def alone(numbers):
        if len(numbers) > 1:
            raise ValueError("truth of an array")
        return numbers

    with collected_drops() as drops:
        assert at_once([1, 2], alone) == [(1, 1), (2, 2)]
    assert [one.text for one in drops] == ["2 at once, each of which is right alone: ValueError: truth of an array"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_one_point_of_a_batch_that_fails_leaves_all_others(size, drops_allowed):
    points, wrong = np.arange(size), size // 3

    def priced(some):
        if wrong in some:
            raise ProgramError("broken")
        return some.sum()

    with collected_drops() as drops:
        found = in_pieces(points, priced, len, part, lambda some: f"{len(some)} points from {some[0]}")
    assert sorted(point for piece, _ in found for point in piece) == [n for n in range(size) if n != wrong]
    assert [(one.candidate, one.count) for one in drops] == [(f"1 points from {wrong}", 1)]


def test_a_batch_of_which_nothing_stands_is_given_up_soon(drops_allowed):
    tried = []

    def priced(some):
        tried.append(len(some))
        raise ProgramError("broken")

    with collected_drops() as drops:
        assert in_pieces(np.arange(100_000), priced, len, part) == []
    assert sum(one.count for one in drops) == 100_000 and len(tried) <= 2 * MOST_HALVED


def test_a_batch_whose_points_stand_alone_only_gives_some_of_them(drops_allowed):
    def priced(some):
        if len(some) > 1:
            raise ValueError("truth of an array")
        return some

    with collected_drops():
        assert len(in_pieces(np.arange(4000), priced, len, part)) > 10


def test_of_a_space_that_fails_midway_what_came_before_stands(drops_allowed):
    with collected_drops() as drops:
        assert list(as_far_as_possible(map(odd, (1, 3, 4, 5)), "the space")) == [10, 30]
    assert [one.text for one in drops] == ["the rest of the space: KeyError: 4"]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit])
def test_running_out_of_memory_and_interrupts_pass_through(error, drops_allowed):
    def make(item):
        raise error

    with collected_drops(), pytest.raises(error):
        standing([1], make)


def test_where_nobody_collects_errors_are_raised(drops_allowed):
    with pytest.raises(KeyError):
        standing([2], odd)


def test_in_tests_every_drop_raises():
    with collected_drops(), pytest.raises(KeyError):
        standing([2], odd)
    with every_drop_raises(False), collected_drops() as drops:
        standing([2], odd)
    assert len(drops) == 1


def test_what_was_dropped_before_is_told_to_who_collects_or_warned_of(drops_allowed):
    with collected_drops() as inner:
        standing([2, 4], odd, str)
    with collected_drops() as outer:
        tell(inner)
    assert outer == inner and drops_text(inner) == "2 candidates dropped: 2: KeyError: 2"
    with pytest.warns(DropWarning, match="2 candidates dropped: 2: KeyError: 2; the others stand"):
        tell(inner)


def test_where_none_stands_the_first_ones_error_is_named_with_the_number_of_the_others(drops_allowed):
    def refused(item):
        raise DeviceError("no words for it")

    with collected_drops() as drops:
        standing("ab", refused, lambda one: f"variant {one}")
        standing([2], odd)
    error = none_stands(drops, "v100")
    assert type(error) is DeviceError
    assert str(error) == "v100: no candidate stands: variant a: DeviceError: no words for it; 2 others failed, too"
    assert type(none_stands(drops[2:], "v100")) is ProgramError  # a KeyError is no error that users are told with


def test_notes_name_each_drop_once_and_the_first_few(drops_allowed):
    with collected_drops() as drops:
        standing([2, 2, *range(4, 30, 2)], odd, str)
    notes = drop_notes(drops)
    assert notes[0] == "dropped: 2: KeyError: 2" and notes[-1] == "dropped: 4 more" and len(notes) == 11
    assert drop_notes([]) == ()


def test_plans_are_told_by_what_is_not_their_default():
    assert plan_text(ContractionPlan(rm=4, lanes=16, staged=(0, 1))) == "ContractionPlan: rm 4, lanes 16, staged (0, 1)"
    batch = ContractionPlan(rm=np.array([4, 1, 8]), depth=2)
    assert plan_text(batch) == "ContractionPlan: rm 1 to 8, depth 2"
