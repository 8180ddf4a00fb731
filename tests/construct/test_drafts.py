"""Branch and bound over a serial space finds what pricing every point finds."""

from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct import serial_space
from rollergen.construct.candidate import lowest, price, rounded
from rollergen.construct.drafts import Draftable, Drafted, drafted, plans_at
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model import Price, least_seconds, predict_stage
from rollergen.program.model.together import price_cache
from rollergen.tile.rules import AlignmentRules
from tests.program.batches import random_stages
from tests.program.hand_devices import AVX512, TURING

CPU = load_device(str(Path(__file__).parents[2] / "benches" / "devices" / "cpu_avx512_2mb.json"))
t = rg.tensor
EXPRESSIONS = {
    "matmul": lambda: rg.ops.matmul(t("A", (500, 300)), t("B", (300, 700))),
    "conv": lambda: rg.ops.conv2d(t("X", (2, 24, 28, 28)), t("W", (40, 24, 3, 3)), padding=1),
    "depthwise": lambda: rg.ops.depthwise_conv2d(t("X", (4, 48, 30, 30)), t("W", (48, 1, 3, 3)), padding=1),
}
STAGES = random_stages(count=20)


def of_every_point(spaces, each, count):
    found = []
    for number, space in enumerate(spaces):
        price = space.exactly(space.plan, np.inf)
        seconds = price.seconds + space.beside()
        assert (space.bounds + space.beside() <= seconds).all()
        found += [
            Drafted(rounded(float(seconds[at])), number, plans_at(space.plan, int(at)), price.of([at]))
            for at in lowest(seconds, each)
        ]
    return sorted(found, key=lambda one: (one.seconds, repr(one.plan)))[:count]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_never_priced_is_never_among_the_best(name, monkeypatch):
    seen = []

    def both(spaces, each, count):
        found = drafted(spaces, each, count)
        assert found == of_every_point(spaces, each, count)
        seen.append(len(found))
        return found

    monkeypatch.setattr(serial_space, "drafted", both)
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    for variant in variants(op, CPU):
        assert list(serial_candidates(variant, CPU, AlignmentRules(), 10, Ledger()))
    assert max(seen) == 30


def priced(seconds):
    """Prices with these seconds."""
    return Price(np.asarray(seconds, float), *[np.zeros(np.shape(seconds))] * (len(Price._fields) - 1))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_price_of_a_draft_is_that_of_its_stages(name):
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    for variant in variants(op, CPU):
        found = list(serial_candidates(variant, CPU, AlignmentRules(), 3, Ledger()))
        kept = [kept_price(stage) for one in found for stage in one.own]
        price_cache.clear()
        assert [one.seconds for one in found] == [price(one.stages, CPU) for one in found]
        # What was found in batches is kept, so that launches are not priced again.
        assert kept == [kept_price(stage) for one in found for stage in one.own]


def kept_price(stage):
    """The price in the memo, seconds rounded as those of drafts: powers of many numbers and of one may differ in the
    last place."""
    found = price_cache.get((stage, CPU))
    return found and found._replace(seconds=rounded(float(found.seconds[0])))


def test_ties_fall_by_theplans_at_text_then_by_the_structure():
    sizes, ones = np.arange(1, 5), lambda one, limit: priced(np.ones(np.shape(one.rm)))
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    flat = Draftable(plan, np.zeros(4), ones, lambda: 0.0)
    first, second, third = drafted([flat, flat], 2, 3)
    assert [(one.plan.rm, one.structure) for one in (first, second, third)] == [(1, 0), (1, 1), (2, 0)]
    assert isinstance(first.plan.rm, int)


def test_of_many_points_those_of_the_least_bounds_are_priced_first():
    sizes = np.arange(1, 5001)
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    asked = []

    def exactly(one, limit):
        asked.append(sorted(one.rm.tolist()))
        return priced(6000.0 - one.rm)

    (best,) = drafted([Draftable(plan, 5999.0 - sizes, exactly, lambda: 0.5)], 1, 1)
    assert (best.plan.rm, best.seconds, best.price.seconds) == (5000, 1000.5, [1000.0])
    assert asked[0] == list(range(3977, 5001)) and sum(map(len, asked)) < 1100


@pytest.mark.parametrize("count", [1023, 1500, 2500])
def test_more_drafts_can_be_asked_for_than_are_priced_first(count):
    sizes = np.arange(1, 5001)
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    space = Draftable(plan, sizes * 0.9, lambda one, limit: priced(one.rm * 1.0), lambda: 0.0)
    assert [one.plan.rm for one in drafted([space], count, count)] == list(range(1, count + 1))


def test_with_a_limit_all_points_below_it_are_priced_at_once():
    sizes = np.arange(1, 5001)
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    asked = []

    def exactly(one, limit):
        asked.append(len(one.rm))
        return priced(one.rm * 1.0)

    known = Draftable(plans_at(plan, slice(4000, 4001)), np.zeros(1), lambda one, limit: priced([4001.0]), lambda: 0.0)
    drafted([known, Draftable(plan, sizes * 0.9, exactly, lambda: 0.0)], 1, 1)
    assert asked == [4445]  # 4445 * .9 is the last below 4001


@pytest.mark.parametrize("kind", STAGES)
def test_nothing_takes_less_than_the_cheap_part_of_its_price(kind):
    device = TURING if kind in ("gpu", "transpose") else AVX512
    for stage in STAGES[kind]:
        seconds = predict_stage(stage, device).seconds
        assert 0 < least_seconds(stage, device) <= seconds
