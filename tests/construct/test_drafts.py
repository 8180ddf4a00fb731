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
from rollergen.program.model import least_seconds, predict_stage
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
        seconds = np.broadcast_to(space.exactly(space.plan, np.inf) + space.beside(), space.bounds.shape)
        nearer = space.nearer(space.plan)
        assert (space.bounds <= nearer).all() and (nearer + space.beside() <= seconds).all()
        found += [
            Drafted(rounded(float(seconds[at])), number, plans_at(space.plan, int(at))) for at in lowest(seconds, each)
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


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_price_of_a_draft_is_that_of_its_stages(name):
    (op,) = canonicalize(EXPRESSIONS[name]()).tensor_ops
    for variant in variants(op, CPU):
        for one in serial_candidates(variant, CPU, AlignmentRules(), 3, Ledger()):
            assert one.seconds == price(one.stages, CPU)


def test_ties_fall_by_theplans_at_text_then_by_the_structure():
    sizes, ones = np.arange(1, 5), lambda one: np.ones(np.shape(one.rm))
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    flat = Draftable(plan, np.zeros(4), ones, lambda one, limit: ones(one), lambda: 0.0)
    first, second, third = drafted([flat, flat], 2, 3)
    assert [(one.plan.rm, one.structure) for one in (first, second, third)] == [(1, 0), (1, 1), (2, 0)]
    assert isinstance(first.plan.rm, int)


def test_many_points_are_priced_in_two_rounds():
    sizes = np.arange(1, 2001)
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    asked = []

    def exactly(one, limit):
        asked.append(len(one.rm))
        return one.rm * 1.0

    (best,) = drafted([Draftable(plan, sizes * 0.9, lambda one: one.rm * 0.9, exactly, lambda: 0.0)], 1, 1)
    assert (best.plan.rm, best.seconds) == (1, 1.0)
    assert sum(asked) < 300


def test_of_many_points_the_nearer_bounds_say_what_is_priced_first():
    sizes = np.arange(1, 4001)
    plan = ContractionPlan(rm=sizes, kc=sizes, pm=sizes, pn=sizes)
    asked = []

    def exactly(one, limit):
        asked.append(one.rm.tolist())
        return 5000.0 - one.rm

    space = Draftable(plan, np.ones(4000), lambda one: 4999.0 - one.rm, exactly, lambda: 0.0)
    (best,) = drafted([space], 1, 1)
    assert (best.plan.rm, best.seconds) == (4000, 1000.0)
    assert asked[0] == list(range(3745, 4001)) and sum(map(len, asked)) < 300


@pytest.mark.parametrize("kind", STAGES)
def test_nothing_takes_less_than_the_cheap_part_of_its_price(kind):
    device = TURING if kind in ("gpu", "transpose") else AVX512
    for stage in STAGES[kind]:
        seconds = predict_stage(stage, device).seconds
        assert 0 < least_seconds(stage, device) <= least_seconds(stage, device, nearest=1) <= seconds
