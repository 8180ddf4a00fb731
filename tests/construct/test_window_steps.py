"""Steps of an implicit GEMM that hold a whole number of windows: taps are constants, bounds are tested before the loop."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model.access import fill_accesses
from rollergen.program.model.facts import facts_of
from rollergen.program.model.nest import nest_of
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import device

T = rg.tensor


def conv(channels=256, pixels=14):
    return rg.ops.conv2d(T("X", (128, channels, pixels, pixels)), T("W", (256, channels, 3, 3)), padding=1)


def stage(on, step, tm=8, tn=16):
    """16 tm x 8 tn outputs of a block, `step` elements of the reduction at a time."""
    (variant, *_) = variants(canonicalize(conv()).tensor_ops[0], on)
    plan = ContractionPlan(16, 8, 1, tm, tn, 1, 1, 1, 1, step, 4, 4, unroll=step, staged=(0, 1), depth=2)
    return contraction_stage(variant.op, variant.roles, plan, on, AlignmentRules(), "conv")


def test_a_step_of_two_windows_is_chosen_where_copies_go_through_registers():
    program = construct(canonicalize(conv()), device("v100"), top_k=1)[0].program
    steps = [loop for loop in program.stages[-1].loops if loop.axis == "c" and loop.kind == "unroll"]
    assert steps[0].extent == 18


@pytest.mark.parametrize(
    ("step", "tm", "tn", "tested"),
    [(18, 8, 16, 0), (9, 8, 16, 0), (16, 8, 16, 2), (18, 4, 32, 2)],
    ids=["two windows", "a window", "no whole window", "two pixels of each thread"],
)
def test_bounds_are_tested_once_where_a_step_holds_whole_windows(step, tm, tn, tested):
    on = device("v100")
    made = stage(on, step, tm, tn)
    pixels = next(c for c in made.copies if c.to_layer == "shared" and c.along == "n")
    assert made.threads == 128 and access(made, on, pixels).tested == tested


def test_rows_that_threads_do_not_divide_cost_the_model_divisions():
    """128 threads deal 16 weights of a filter evenly in fours, 18 in pairs not."""
    on = device("v100")
    for step, costs in ((16, False), (18, True)):
        weights = next(c for c in stage(on, step).copies if c.to_layer == "shared" and c.along == "c")
        assert (128 % (step // weights.vector) != 0) == costs
        assert access(stage(on, step), on, weights).decoded == (2 if costs else 0)


def access(stage, on, copy):
    nest = nest_of(stage, facts_of(stage.op, stage.kept_rows), on)
    return fill_accesses(nest, on, copy)[0]


@pytest.mark.parametrize(("filters", "channels"), [(33, 17), (64, 17)])
def test_windows_that_filters_share_unroll_no_channels(filters, channels):
    """Fewer filters than the lines of 45, too."""
    x, w = rg.tensor("X", (1, channels, 45, 45)), rg.tensor("W", (filters, channels, 3, 3), constant=True)
    op = canonicalize(rg.ops.conv2d(x, w, padding=1)).tensor_ops[-1]
    assert "padded lines" not in [one.name for one in variants(op, device("cpu"), AlignmentRules())]
