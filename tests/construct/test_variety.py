"""Where a few programs are measured, they are not all of one kind."""

import doctest
from types import SimpleNamespace

import pytest

from rollergen.construct import construct, variety
from rollergen.construct.variety import FARTHEST, varied
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import device


def drafts(*pairs):
    return [SimpleNamespace(forms=(form,), seconds=seconds) for form, seconds in pairs]


def test_the_example_holds():
    assert doctest.testmod(variety).failed == 0


def test_the_first_is_always_measured_and_the_order_stays():
    ranked = drafts(("a", 1.0), ("b", 1.1), ("b", 1.2), ("c", 1.3), ("a", 1.4))
    for count in range(1, 6):
        chosen = varied(ranked, count)
        assert len(chosen) == count and chosen[0] is ranked[0]
        assert [one.seconds for one in chosen] == sorted(one.seconds for one in chosen)


def test_leaders_of_other_forms_take_at_most_half_of_the_places():
    ranked = drafts(("a", 1.0), ("a", 1.1), ("a", 1.2), ("b", 1.3), ("c", 1.4), ("d", 1.5))
    assert [one.forms[0] for one in varied(ranked, 4)] == ["a", "a", "b", "c"]


def test_a_form_far_behind_is_left_out():
    ranked = drafts(("a", 1.0), ("a", 1.1), ("b", 1.1 * FARTHEST))
    assert [one.forms[0] for one in varied(ranked, 2)] == ["a", "a"]


@pytest.mark.parametrize("count", [2, 4])
def test_a_depthwise_convolution_is_measured_in_several_forms(count):
    import rollergen as rg

    x, w = rg.tensor("X", (1, 32, 7, 7)), rg.tensor("W", (32, 1, 3, 3))
    ranked = construct(canonicalize(rg.ops.conv2d(x, w, padding=1, groups=32)), device("cpu"), top_k=16)
    forms = {one.forms for one in varied(ranked, count)}
    assert len(forms) == min(1 + count // 2, len({r.forms for r in ranked if r.seconds <= 2 * ranked[0].seconds}))
