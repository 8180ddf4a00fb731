"""Quickly made frozen dataclasses are what `dataclass` makes, in all but the time that it takes."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from rollergen.expr.quick import quick


class Kept:
    __slots__ = ("_found",)


@quick
@dataclass(frozen=True, slots=True)
class Record(Kept):
    first: int
    second: str = "b"
    third: list = field(default_factory=list)


def test_fields_are_set_by_place_by_name_and_by_default():
    assert Record(1) == Record(first=1, second="b", third=[]) == replace(Record(2, "b"), first=1)
    assert repr(Record(1, third=[2])) == "Record(first=1, second='b', third=[2])"


def test_each_instance_has_a_default_of_its_own():
    assert Record(1).third is not Record(1).third


def test_a_record_stays_frozen_and_is_pickled():
    record = Record(1)
    with pytest.raises(FrozenInstanceError):
        record.first = 2
    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize(("arguments", "text"), [({}, "first"), ({"first": 1, "fourth": 2}, "fourth")])
def test_wrong_arguments_are_refused_as_ever(arguments, text):
    with pytest.raises(TypeError, match=text):
        Record(**arguments)


def test_a_class_without_slots_or_with_more_to_do_is_refused():
    @dataclass(frozen=True)
    class Open:
        first: int

    @dataclass(frozen=True, slots=True)
    class Busy:
        first: int

        def __post_init__(self):
            raise AssertionError

    for cls in (Open, Busy):
        with pytest.raises(TypeError, match=f"{cls.__name__}.first is no plain field with a slot"):
            quick(cls)
