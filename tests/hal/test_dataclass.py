"""Frozen classes behave as those of `dataclasses`, though their methods are written later."""

import copy
import dataclasses
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field
from threading import Barrier
from typing import ClassVar

import pytest

from rollergen.hal.dataclass import dataclass


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """A class of `dataclasses`."""

    a: int
    b: str = "b"
    c: list = field(default_factory=list, compare=False)
    d: object = field(default=None, repr=False)
    unit: ClassVar[str] = "s"


@dataclass(frozen=True, slots=True)
class Ours:
    """A class of ours."""

    a: int
    b: str = "b"
    c: list = field(default_factory=list, compare=False)
    d: object = field(default=None, repr=False)
    unit: ClassVar[str] = "s"


@dataclass(frozen=True, slots=True)
class Derived(Ours):
    e: int = 5


@dataclass(frozen=True)
class Checked:
    low: int
    high: int
    size: int = field(init=False)

    def __post_init__(self):
        if self.high < self.low:
            raise ValueError("high is below low")
        object.__setattr__(self, "size", self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName:
    a: int
    b: int = 2


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    a: int


@dataclass(frozen=True, slots=True)
class Own:
    a: int

    def __repr__(self):
        return "own"

    def __eq__(self, other):
        return True


MADE = [((1,), {}), ((1, "x"), {}), ((1, "x", [3], 4), {}), ((), {"a": 2, "d": 7}), ((1,), {"b": "y"})]


@pytest.mark.parametrize(("args", "named"), MADE)
def test_instances_have_the_values_and_the_text_of_a_dataclass(args, named):
    ours, theirs = Ours(*args, **named), Theirs(*args, **named)
    assert dataclasses.astuple(ours) == dataclasses.astuple(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert Ours.__match_args__ == Theirs.__match_args__ and Ours.__slots__ == Theirs.__slots__


@pytest.mark.parametrize("cls", [Ours, Derived, Checked, ByName])
def test_signatures_show_the_fields(cls):
    shown, made = inspect.signature(cls).parameters, [one for one in dataclasses.fields(cls) if one.init]
    assert [(one.name, one.annotation) for one in shown.values()] == [(one.name, one.type) for one in made]
    assert [one.kind == one.KEYWORD_ONLY for one in shown.values()] == [one.kw_only for one in made]
    assert {name for name, one in shown.items() if one.default is not one.empty} == set(shown) - {"a", "low", "high"}


def test_what_has_a_signature_of_its_own_shows_that():
    @dataclass(frozen=True, slots=True)
    class Called:
        a: int

        def __call__(self, x, y):
            return x

    class Sized(Checked):
        def __init__(self, size):
            super().__init__(0, size)

    assert list(inspect.signature(Called(1)).parameters) == ["x", "y"]
    assert list(inspect.signature(Sized).parameters) == ["size"]


def test_classes_of_dataclasses_derive_from_ours_and_ours_from_them_if_both_are_frozen():
    @dataclasses.dataclass(frozen=True)
    class TheirsOfOurs(Ours):
        e: int = 5

    @dataclass(frozen=True)
    class OursOfTheirs(Theirs):
        e: int = 5

    for cls in (TheirsOfOurs, OursOfTheirs):
        one = cls(1, e=6)
        assert one == cls(1, e=6) != cls(1) and one.b == "b"
        with pytest.raises(FrozenInstanceError):
            one.e = 7
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Mutable", (Ours,), {}))


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, "b", [], 2, 3), {}), ((1,), {"z": 1}), ((1,), {"a": 1})])
def test_wrong_arguments_are_refused_as_by_a_dataclass(args, named):
    with pytest.raises(TypeError) as theirs:
        Theirs(*args, **named)
    for _ in range(2):  # at the first instance, and later
        with pytest.raises(TypeError) as ours:
            Ours(*args, **named)
        assert str(ours.value) == str(theirs.value).replace("Theirs", "Ours")


def test_equality_and_hash_are_of_the_fields_that_are_compared():
    assert Ours(1, c=[1]) == Ours(1, c=[2]) != Ours(2) and hash(Ours(1, c=[1])) == hash(Ours(1, c=[2]))
    assert Ours(1) != Theirs(1) and Ours(1) != Derived(1) and Derived(1) == Derived(1, e=5) != Derived(1, e=6)
    one = Apart(1)
    assert one == one and one != Apart(1) and len({one, Apart(1)}) == 2
    nan = float("nan")
    assert Ours(nan) == Ours(nan)  # the same object, as in a tuple


def test_defaults_are_made_anew_for_each_instance():
    assert Ours(1).c is not Ours(1).c


def test_nothing_of_an_instance_can_be_changed_but_what_a_class_that_derives_adds():
    for change in (lambda one: setattr(one, "a", 2), lambda one: delattr(one, "a"), lambda one: setattr(one, "z", 2)):
        for one in (Ours(1), Derived(1)):
            with pytest.raises(FrozenInstanceError):
                change(one)

    class More(Checked):
        pass

    more = More(1, 3)
    more.added = 4
    assert more.added == 4 and more.size == 2
    with pytest.raises(FrozenInstanceError):
        more.low = 2


def test_post_init_is_called_and_fields_by_name_stay_so():
    assert Checked(2, 5).size == 3 and ByName(a=1) == ByName(a=1, b=2)
    with pytest.raises(ValueError, match="below low"):
        Checked(2, 1)
    with pytest.raises(TypeError):
        ByName(1)


def test_a_constructor_that_was_wrapped_before_the_first_instance_stays_so():
    @dataclass(frozen=True, slots=True)
    class Wrapped:
        a: int

    calls, inner = [], Wrapped.__init__
    Wrapped.__init__ = lambda self, *args: (calls.append(args), inner(self, *args))[1]
    assert Wrapped(1) == Wrapped(1) and calls == [(1,), (1,)]


def test_threads_may_make_the_first_instances_at_once():
    for _ in range(20):

        @dataclass(frozen=True, slots=True)
        class New:
            a: int

        start = Barrier(4)
        with ThreadPoolExecutor(4) as threads:
            made = list(threads.map(lambda a: (start.wait(), New(a), repr(New(a)))[1:], range(4)))  # noqa: B023
        assert made == [(New(a), repr(New(a))) for a in range(4)]


def test_what_a_class_defines_stays():
    assert repr(Own(1)) == "own" and Own(1) == Own(2) and hash(Own(1)) == hash(Own(1))


@pytest.mark.parametrize("one", [Ours(1, "x", [2]), Derived(1, e=3), Checked(1, 2), ByName(a=3)])
def test_instances_are_copied_replaced_and_pickled(one):
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), dataclasses.replace(one)):
        assert other == one and repr(other) == repr(one)


def test_classes_that_are_not_frozen_are_those_of_dataclasses():
    @dataclass(slots=True)
    class Mutable:
        a: int = 1

    one = Mutable()
    one.a = 2
    assert one == Mutable(2) and Mutable.__hash__ is None
