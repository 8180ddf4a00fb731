"""Neighbours that one access may move: proven from the index, checked here against every place it takes."""

from __future__ import annotations

import random
from itertools import product

import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.index import Index
from rollergen.expr.views import moved_at_once, side_by_side, step_within
from tests.matrices import nhwc_convolution

AT, J = Index.axis("i"), Index.axis("j")
EXTENTS = {"i": 48, "j": 5}


def places(index: Index, j: int) -> list[int]:
    return [int(index.evaluate({"i": i, "j": j})) for i in range(EXTENTS["i"])]


def holds(index: Index, vector: int) -> bool:
    """Whether every aligned group is adjacent and aligned, by looking at all of them."""
    for j in range(EXTENTS["j"]):
        found = places(index, j)
        for first in range(0, len(found), vector):
            if found[first] % vector or found[first : first + vector] != list(range(found[first], found[first] + vector)):
                return False
    return True


def drawn(seed: int) -> Index:
    draw = random.Random(seed)
    atoms = [AT, J, AT // draw.choice((3, 8, 12)), AT % draw.choice((4, 8, 12)), (AT + draw.choice((0, 1, 4))) % 16]
    atoms += [((AT % 24) // 8), (AT // 4 + J) % 6]
    total = Index.of(draw.choice((0, 0, 4, 3)))
    for _ in range(draw.choice((1, 2, 3))):
        total = total + draw.choice(atoms) * draw.choice((1, 1, 4, 8, 7))
    return total


def test_what_is_called_side_by_side_is_so_at_every_place():
    claimed = 0
    for seed, vector in product(range(400), (2, 4, 8)):
        if side_by_side(drawn(seed), "i", EXTENTS["i"], vector):
            claimed += 1
            assert holds(drawn(seed), vector), (seed, vector)
    assert claimed > 30


@pytest.mark.parametrize(
    ("index", "vector"),
    [(AT, 8), (AT % 16 + AT // 16 * 64, 8), (AT % 12 + J * 4, 4), ((AT // 8) * 8 + AT % 8, 8), (AT + J * 16 - 32, 16)],
)
def test_groups_that_no_division_cuts_are_found(index, vector):
    assert side_by_side(index, "i", EXTENTS["i"], vector) and holds(index, vector)


@pytest.mark.parametrize(
    "index", [(AT + 1) % 16, AT % 6 + J * 8, AT * 2, AT + J, AT // 2, AT % 16 + 3, AT // 16], ids=str
)
def test_groups_that_may_be_cut_or_lie_apart_are_not(index):
    assert not side_by_side(index, "i", EXTENTS["i"], 4)


def test_an_extent_that_is_no_multiple_leaves_a_group_that_is_cut():
    assert not side_by_side(AT, "i", 50, 4) and side_by_side(AT, "i", 48, 4)


def test_a_quotient_stays_as_it_is_within_a_group():
    assert step_within(AT // 8, "i", 8) == (0, False)
    assert step_within(AT // 8 * 8, "i", 8) == (0, True)
    assert step_within(AT // 4, "i", 8) is None


def image(channels: int):
    (op,) = canonicalize(nhwc_convolution(2, 9, 7, channels, 32, 3)).tensor_ops
    (load,) = (one for one in op.loads() if one.buffer.name == "X")
    return load, op.of_role("reduce")[-1]


def test_channels_of_a_padded_image_are_inside_it_or_not_together():
    load, axis = image(16)
    assert load.guard and [moved_at_once(load, axis.name, axis.extent, v) for v in (2, 8, 16, 32)] == [True] * 3 + [False]
    load, axis = image(12)
    assert [moved_at_once(load, axis.name, axis.extent, v) for v in (2, 4, 8)] == [True, True, False]


@pytest.mark.parametrize(("width", "guarded", "whole"), [(4, True, True), (4, False, False), (3, True, False)])
def test_a_bound_keeps_a_group_together_where_its_ends_lie_between_groups(width, guarded, whole):
    x = rg.tensor("x", (6, 32))
    (op,) = canonicalize(rg.ops.pad(x, (width, 8 - width))).tensor_ops
    (load,) = op.loads()
    last = op.axes[-1]
    assert any(last.name in bound.index.axes() for bound in load.guard)
    assert moved_at_once(load, last.name, last.extent, 4, guarded=guarded) == whole
