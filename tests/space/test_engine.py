"""The engine gives the points that all rules admit, in the order of the digits, and counts what each rule rejects."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.rprogram import LANE, SERIAL, THREAD, UNROLL
from rollergen.space.engine import Digit, Facts, Points, Rule, Tally, TileSpace, limit, tiles
from rollergen.space.rules import ALIGNMENT, EXECUTION_UNIT, SWITCHES, TENSOR_SHAPE, TRANSACTION
from rollergen.tile.rules import AlignmentRules, padding_waste

V100, M, N = load_device("v100"), 90, 77
(PRODUCT,) = canonicalize(rg.einsum("mk,kn->mn", rg.tensor("A", (M, 64)), rg.tensor("B", (64, N)))).tensor_ops
DIGITS = (
    Digit("rows", "m", UNROLL, (1, 2, 3)),
    Digit("columns", "n", UNROLL, (1, 4)),
    Digit("tall", "m", THREAD, (1, 4, 8)),
    Digit("wide", "n", THREAD, (4, 8, 16)),
)
NAMES = tuple(digit.name for digit in DIGITS)


def space(digits=DIGITS, limits=(), rules=AlignmentRules(), **more):
    return TileSpace(PRODUCT, V100, rules, digits, tuple(limits), **more)


def rows_of(points, names=NAMES):
    return list(zip(*(points[name].tolist() for name in names), strict=True))


def every():
    return list(product(*(digit.choices for digit in DIGITS)))


def test_without_rules_there_is_every_point_and_the_first_digit_varies_slowest():
    assert rows_of(tiles(space(), (), Tally())) == every()


def test_a_rule_keeps_what_it_admits_wherever_its_digits_stand():
    few = limit("few", "rows wide", lambda rows, wide: rows * wide < 16)
    even = limit("even", "columns", lambda columns: columns % 2 == 0)
    want = [p for p in every() if p[0] * p[3] < 16 and p[1] % 2 == 0]
    assert rows_of(tiles(space(limits=(few, even)), (), Tally())) == want


def test_a_digit_may_depend_on_those_before_it():
    digits = (*DIGITS[:1], Digit("panels", "m", SERIAL, lambda rows: range(1, rows + 1), of=("rows",)))
    assert rows_of(tiles(space(digits), (), Tally()), ("rows", "panels")) == [
        (rows, panels) for rows in (1, 2, 3) for panels in range(1, rows + 1)
    ]


def test_a_rule_is_applied_as_soon_as_its_digits_are_there_and_counts_what_it_saw():
    tally = Tally()
    one = limit("one row", "rows", lambda rows: rows == 1)
    left = tiles(space(limits=(one,)), (EXECUTION_UNIT,), tally)
    assert tally.judged == {"one row": 3, "execution unit": 1 * 2 * 3 * 3}
    assert tally.rejected["one row"] == 2
    assert tally.considered == len(left) + sum(tally.rejected.values())


def test_a_rule_that_needs_none_of_a_spaces_digits_does_not_concern_it():
    tally = Tally()
    serial = (Digit("panels", "m", SERIAL, (1, 2)),)
    assert len(tiles(space(serial), (EXECUTION_UNIT, TRANSACTION, TENSOR_SHAPE), tally)) == 2
    assert tally.judged == {}


def test_a_rule_of_ones_own_applies_to_any_space():
    square = Rule("square", lambda space, digit: digit.axis != "", lambda points, facts: facts.tile("m") == facts.tile("n"))
    found = tiles(space(), (square,), Tally())
    assert len(found) and rows_of(found) == [p for p in every() if p[0] * p[2] == p[1] * p[3]]


def test_nothing_is_left_where_a_limit_admits_nothing():
    none = limit("none", "rows", lambda rows: rows < 0)
    assert len(tiles(space(limits=(none,), reach=0.5), (EXECUTION_UNIT, TENSOR_SHAPE), Tally())) == 0


def test_every_switch_of_the_alignment_rules_turns_a_rule_off():
    assert {field.name for field in fields(AlignmentRules) if field.default is True} == set(SWITCHES)


@pytest.mark.parametrize("rule", ALIGNMENT, ids=lambda rule: rule.switch)
def test_a_rule_that_is_switched_off_rejects_nothing(rule):
    off, tally = AlignmentRules(**{rule.switch: False}, epsilon=0.01), Tally()
    on = tiles(space(rules=AlignmentRules(epsilon=0.01), row_axis="n"), (rule,), Tally())
    assert len(tiles(space(rules=off, row_axis="n"), (rule,), tally)) == len(every()) > len(on)
    assert tally.rejected == tally.judged == {}


def test_blocks_are_whole_execution_widths():
    found = tiles(space(), (EXECUTION_UNIT,), Tally())
    assert rows_of(found) == [p for p in every() if p[2] * p[3] % V100.execution_width == 0]


def test_rows_of_a_block_are_whole_transactions_where_any_are():
    elements = V100.backing.transaction_bytes // 4
    found = tiles(space(row_axis="n"), (TRANSACTION,), Tally())
    assert rows_of(found) == [p for p in every() if p[1] * p[3] % elements == 0]
    short = (*DIGITS[:3], Digit("wide", "n", THREAD, (1,)))
    assert len(tiles(space(short, row_axis="n"), (TRANSACTION,), Tally())) == 3 * 2 * 3


def wasted(point):
    return max(padding_waste(M, point[0] * point[2]), padding_waste(N, point[1] * point[3]))


@pytest.mark.parametrize("epsilon", [0.04, 0.2, 1.0])
def test_a_users_limit_admits_exactly_the_tiles_within_it(epsilon):
    found = tiles(space(rules=AlignmentRules(epsilon=epsilon)), (TENSOR_SHAPE,), Tally())
    assert len(found) and rows_of(found) == [p for p in every() if wasted(p) <= epsilon]


def test_where_a_users_limit_admits_nothing_the_least_wasteful_tiles_say_by_how_much():
    found = tiles(space(rules=AlignmentRules(epsilon=0.0)), (TENSOR_SHAPE,), Tally())
    least = min(map(wasted, every()))
    assert least > 0 and rows_of(found) == [p for p in every() if wasted(p) == least]


def padded(point):
    return (1 + padding_waste(M, point[0] * point[2])) * (1 + padding_waste(N, point[1] * point[3]))


@pytest.mark.parametrize("reach", [0.0, 0.1, 0.75])
def test_tiles_within_reach_of_the_least_padded_work_are_left(reach):
    least = min(map(padded, every()))
    found = tiles(space(reach=reach), (TENSOR_SHAPE,), Tally())
    assert rows_of(found) == [p for p in every() if padded(p) <= least + reach]


@pytest.mark.parametrize("less, more", [(0.0, 0.04), (0.04, 0.2), (0.2, 1.0), (1.0, None)])
def test_a_larger_permission_admits_every_tile_of_a_smaller_one(less, more):
    admitted = lambda e: set(rows_of(tiles(space(rules=AlignmentRules(epsilon=e), reach=0.75), (TENSOR_SHAPE,), Tally())))
    assert admitted(less) <= admitted(more) or not any(wasted(p) <= less for p in every())


def test_serial_loops_pad_nothing_and_lanes_do():
    digits = (Digit("lanes", "n", LANE, (8,)), Digit("panels", "n", SERIAL, (1, 5)))
    points = tiles(space(digits), (), Tally())
    assert np.array_equal(Facts(space(digits), points).waste, [padding_waste(N, 8)] * 2)


def test_a_product_over_no_digit_is_one():
    assert Points((), np.empty((0, 1))).product(lambda digit: True) == 1
