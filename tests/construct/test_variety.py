"""Where a few programs are measured, they are not all of one kind."""

from types import SimpleNamespace

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.variety import FARTHEST, varied
from rollergen.expr.canonical import canonicalize
from rollergen.program.rprogram import Loop
from tests.agreement.readers import device


def draft(variant, seconds, tile=8):
    stage = SimpleNamespace(loops=(Loop("k", 4, 1, "serial"), Loop("i", tile, 1, "unroll")))
    return SimpleNamespace(variants=(variant,), seconds=seconds, program=SimpleNamespace(stages=(stage,)))


def test_the_first_is_always_measured_and_the_order_stays():
    ranked = [draft(*pair) for pair in (("a", 1.0), ("b", 1.1), ("b", 1.2), ("c", 1.3), ("a", 1.4))]
    for count in range(1, 6):
        chosen = varied(ranked, count)
        assert len(chosen) == count and chosen[0] is ranked[0]
        assert [one.seconds for one in chosen] == sorted(one.seconds for one in chosen)


def test_leaders_of_other_variants_take_at_most_half_of_the_places():
    pairs = ("a", 1.0), ("a", 1.1), ("a", 1.2), ("b", 1.3), ("c", 1.4), ("d", 1.5)
    assert [one.variants[0] for one in varied([draft(*pair) for pair in pairs], 4)] == ["a", "a", "b", "c"]


def test_other_register_tiles_follow_where_there_are_no_more_variants():
    pairs = ("a", 1.0, 8), ("a", 1.1, 8), ("a", 1.2, 8), ("a", 1.3, 12), ("b", 1.4, 8)
    assert [one.seconds for one in varied([draft(*pair) for pair in pairs], 4)] == [1.0, 1.1, 1.3, 1.4]


def test_a_kind_far_behind_is_left_out():
    pairs = ("a", 1.0, 8), ("a", 1.1, 8), ("b", 1.1 * FARTHEST, 4)
    assert [one.variants[0] for one in varied([draft(*pair) for pair in pairs], 2)] == ["a", "a"]


def test_a_depthwise_convolution_is_measured_in_several_variants():
    x, w = rg.tensor("X", (1, 32, 7, 7)), rg.tensor("W", (32, 1, 3, 3))
    ranked = construct(canonicalize(rg.ops.conv2d(x, w, padding=1, groups=32)), device("cpu"), top_k=16)
    near = {one.variants for one in ranked if one.seconds <= FARTHEST * ranked[0].seconds}
    assert len({one.variants for one in varied(ranked, 4)}) == min(3, len(near))


@pytest.mark.parametrize("count", [1, 4])
def test_fewer_drafts_than_places_are_all_measured(count):
    ranked = [draft("a", 1.0)]
    assert varied(ranked, count) == tuple(ranked)
