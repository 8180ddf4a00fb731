"""Quickly made frozen dataclasses are what `dataclass` makes, in all but the time that it takes."""

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from rollergen.expr.index import FloorDiv, Index
from rollergen.expr.quick import quick, replaced


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


@quick
@dataclass(frozen=True, slots=True)
class Alone:
    only: int


def test_what_is_replaced_is_what_dataclasses_would_replace():
    record = Record(1, third=[3])
    for changes in ({}, {"second": "c"}, {"third": [], "first": 2}):
        assert replaced(record, **changes) == replace(record, **changes)
    assert replaced(Alone(1), only=2) == Alone(2)
    with pytest.raises(KeyError, match="fourth"):
        replaced(record, fourth=4)


def test_each_instance_has_a_default_of_its_own():
    assert Record(1).third is not Record(1).third


def test_a_record_stays_frozen_and_is_pickled():
    record = Record(1)
    with pytest.raises(FrozenInstanceError):
        record.first = 2
    assert pickle.loads(pickle.dumps(record)) == record


ASSIGNING = """
from dataclasses import FrozenInstanceError
from rollergen.expr.index import FloorDiv, Index
from rollergen.lower.expressions import Name
i = Index.axis("i")
assert FloorDiv(i, 4) == FloorDiv(index=i, divisor=4) and Index() == Index(const=0) != i * 2 + 1
for record, field in (i, "const"), (FloorDiv(i, 4), "divisor"), (Name("x", "int32"), "name"):
    try:
        setattr(record, field, 8)
    except FrozenInstanceError:
        continue
    raise AssertionError(f"{record} takes an assignment")
"""


@pytest.mark.parametrize(("record", "field"), [(Index.axis("i"), "const"), (FloorDiv(Index.axis("i"), 4), "divisor")])
def test_what_programs_hold_refuses_assignment_always(record, field):
    with pytest.raises(FrozenInstanceError):
        setattr(record, field, 8)


def test_records_inside_the_generator_are_frozen_in_development_mode():
    subprocess.run([sys.executable, "-X", "dev", "-c", ASSIGNING], check=True)


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


def test_what_is_found_later_is_none_until_then_and_not_copied():
    index = (Index.axis("i") * 5 + Index.axis("j")) // 4 + Index.axis("k") % 3
    assert index._names is None
    assert index.names() == ("i", "j", "k") and index._names == ("i", "j", "k")
    again = pickle.loads(pickle.dumps(index))
    atom, copied = index.terms[0][0], again.terms[0][0]
    assert hash(atom) == atom._hash and copied._hash is None and copied._text is None
    assert again == index and again._names is None and hash(again) == hash(index) and str(again) == str(index)


def test_atoms_are_in_the_order_of_their_texts():
    names = [Index.axis(name) for name in ("(i)//1", "(z", "a", "~")]
    atoms = [(Index.axis("i") * 3 + 1) // 7, (Index.axis("i") * 3 + 1) % 7, *names]
    total = atoms[5] + atoms[3] + atoms[0] + atoms[4] + atoms[2] + atoms[1]
    texts = [str(atom) for atom, _ in total.terms]
    assert texts == sorted(texts) and sum(isinstance(atom, FloorDiv) for atom, _ in total.terms) == 1
