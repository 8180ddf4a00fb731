"""What it takes to gather tiles of images between the products of matrix instructions, beside what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import pytest

import rollergen as rg
from benches.results import RESULTS
from rollergen.construct import construct
from rollergen.construct.ledger import Ledger
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.variants import variants
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.model import predict_stage
from rollergen.program.model.bounds import place_divisions
from rollergen.program.model.costs import costs_of
from rollergen.program.model.limiters.gathering import gathering_clocks
from rollergen.program.model.price import worked
from rollergen.program.model.tiles import groups_of_a_thread
from rollergen.tile.rules import AlignmentRules

T = rg.tensor
SQUARES = [(64, 56), (128, 28), (256, 28), (256, 14)]
"""Channels and side of 3 x 3 convolutions in blocks of ResNet."""


def convolution(dtype, channels, side, images=32, stride=1):
    image, weights = T("X", (images, channels, side, side), dtype), T("W", (channels, channels, 3, 3), dtype)
    return rg.ops.conv2d(image, weights, padding=1, stride=stride)


@lru_cache(maxsize=8)
def stages(on, name, dtype, channels, side, count=12):
    """Of the best programs of a variant by matrix instructions."""
    device, op = load_device(on), canonicalize(convolution(dtype, channels, side)).tensor_ops[0]
    (variant,) = [one for one in variants(op, device) if one.name == name]
    return [one.stages[-1] for one in matrix_candidates(variant, device, AlignmentRules(), count, Ledger())]


@pytest.mark.parametrize("on", ["v100", "a100", "h200"])
def test_gathering_adds_to_products_what_it_takes_from_issue_and_paths(on):
    device = load_device(on)
    for stage in stages(on, "implicit GEMM", "float16", 128, 28)[:4]:
        found = {one.name: one for one in predict_stage(stage, device).limiters}
        assert found["gathering"].how == "adds"
        nest, work = worked(stage, device)
        instructions, clocks = gathering_clocks(nest, device, costs_of(device), work)
        rate = costs_of(device).integer_per_clock
        faster = replace(device, costs=tuple({**dict(device.costs), "integer_per_clock": 2 * rate}.items()))
        saved = clocks - gathering_clocks(nest, faster, costs_of(faster), work)[1]
        assert saved == pytest.approx(nest.warps * instructions / (2 * rate))


@pytest.mark.parametrize("channels", [64, 96, 128, 256])
def test_divisions_that_a_tile_shares_are_of_a_step_and_not_of_each_of_its_vectors(channels):
    device = load_device("v100")
    made = [one for one in stages("v100", "channels last", "float16", channels, 28) if one.copies]
    assert made
    for stage in made:
        image = next(n for n, load in enumerate(stage.op.body_loads()) if load.guard)
        (copy,) = [one for one in stage.copies if one.load == image]
        sums = stage.op.of_role("reduce")[0].name
        (step,) = [loop.stride for _, loop in stage.of_kind("serial") if loop.axis == sums]
        nest, work = worked(stage, device)
        (filled,) = [one for one in work.accesses if one.load == copy.load and one.role == "fill_read"]
        lines = channels % 64 == 0 and channels > 64
        shared = (64 if lines else 3 * channels) % step == 0
        divisions = place_divisions(nest, nest.facts.loads[image])
        each = divisions / groups_of_a_thread(nest, copy) if shared else divisions
        assert filled.decoded == pytest.approx(each)


@pytest.mark.parametrize("on", ["a100", "h200"])
def test_tiles_that_come_past_the_registers_are_not_gathered(on):
    product = rg.ops.matmul(T("A", (512, 512), "float16"), T("B", (512, 512), "float16"))
    last = construct(canonicalize(convolution("float16", 64, 56)), load_device(on), top_k=1)[0].program.stages[-1]
    for stage in (construct(canonicalize(product), load_device(on), top_k=1)[0].program.stages[-1], last):
        assert all(one.name != "gathering" or not one.seconds for one in predict_stage(stage, load_device(on)).limiters)


@pytest.mark.parametrize("on", ["v100", "a100", "h200"])
@pytest.mark.parametrize("channels, side", SQUARES)
@pytest.mark.every(5)
def test_images_of_halves_are_turned_to_channels_last_before_matrix_instructions(on, channels, side):
    first = construct(canonicalize(convolution("float16", channels, side)), load_device(on), top_k=1)[0]
    assert "channels last" in first.variants[0]


@pytest.mark.parametrize("on", ["a100", "h200"])
@pytest.mark.parametrize("channels, side", SQUARES)
@pytest.mark.every(3)
def test_images_of_bytes_are_too(on, channels, side):
    first = construct(canonicalize(convolution("int8", channels, side)), load_device(on), top_k=1)[0]
    assert "channels last" in first.variants[0]


def measured(on, name):
    """(blocks, threads, us) of the programs of one launch that were timed."""
    rows = json.loads((RESULTS / f"gpu_candidates_{on}.json").read_text())["rows"]
    programs = next(row for row in rows if row["id"] == name)["programs"]
    return [(*one["launches"][0][:2], one["warm"]) for one in programs if len(one["launches"]) == 1]


@pytest.mark.parametrize("on", ["h100", "h200"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_gathered_products_take_about_what_was_measured(on, dtype):
    device = load_device(on)
    timed = measured(on, f"conv_nchw 32x56x56x64x64x3x1 {dtype}")
    made = {(one.blocks, one.threads): one for one in reversed(stages(on, "implicit GEMM", dtype, 64, 56, 40))}
    ratios = [us / (1e6 * predict_stage(made[b, t], device).seconds) for b, t, us in timed if (b, t) in made]
    assert len(ratios) >= 5 and all(0.85 < ratio < 1.6 for ratio in ratios), ratios
