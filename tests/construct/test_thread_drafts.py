"""Drafts of a GPU's tiles: one for each block tile, the plan that was priced, and its depths without another assembly."""

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct.forms import forms
from rollergen.construct.ledger import Ledger
from rollergen.construct.thread_drafts import best_of_each_tile, drafts_of, priced_batches
from rollergen.construct.thread_space import _structures
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.assemble.contraction import contraction_stage, in_buffers
from rollergen.tile.rules import AlignmentRules

V100, RULES = load_device("v100"), AlignmentRules()


PRODUCT = canonicalize(rg.einsum("mk,kn->mn", rg.tensor("A", (96, 200)), rg.tensor("B", (200, 320)))).definitions[0]
FORM = next(forms(PRODUCT, V100))
SHAPED = FORM.definition, FORM.roles


def batches():
    return list(_structures(*SHAPED, V100, RULES, Ledger()))


def drafts(count):
    return [draft for batch in batches() for draft in drafts_of(priced(batch), count)]


def priced(batch):
    return priced_batches(*SHAPED, [batch], V100, RULES, Ledger())


def block_tile(plan):
    return plan.rm * plan.tm * plan.pm, plan.rn * plan.tn * plan.pn


def test_a_draft_names_the_block_tile_of_its_plan():
    for draft in drafts(10):
        assert block_tile(draft.plan(*SHAPED, V100, RULES)) == divmod(draft.tile, 1 << 32)


def test_a_batch_gives_the_cheapest_draft_of_each_tile_and_no_more_than_asked_for():
    for batch in batches():
        several = drafts_of(priced(batch), 5)
        every = drafts_of(priced(batch), 10_000)
        tiles = {divmod(tile, 1 << 32) for tile in (draft.tile for draft in every)}
        sizes = zip((batch.rm * batch.tm).tolist(), (batch.rn * batch.tn).tolist(), strict=True)
        assert tiles == set(sizes) and len(every) == len(tiles)
        assert several == every[:5] and [draft.seconds for draft in every] == sorted(draft.seconds for draft in every)


def test_of_all_batches_the_cheapest_draft_of_a_tile_is_left():
    found = best_of_each_tile(drafts(10), *SHAPED, V100, RULES)
    assert [draft.seconds for draft in found] == sorted(draft.seconds for draft in found)
    for draft in found:
        assert draft.seconds == min(other.seconds for other in drafts(10) if other.tile == draft.tile)


@pytest.mark.parametrize("depth", (1, 2))
def test_a_stage_in_more_buffers_is_what_its_plan_says(depth):
    plan = best_of_each_tile(drafts(10), *SHAPED, V100, RULES)[0].plan(*SHAPED, V100, RULES)
    made = lambda plan: contraction_stage(*SHAPED, plan, V100, RULES)
    assert in_buffers(made(plan), depth) == made(replace(plan, depth=depth))
    assert max(copy.depth for copy in in_buffers(made(plan), depth).copies) == depth
