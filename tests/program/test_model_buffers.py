"""Stages that differ in how many buffers their tiles have are priced each by itself."""

from dataclasses import fields, replace

import pytest

from rollergen.hal.load import load_device
from rollergen.program.model import predict_stage
from rollergen.program.model.facts import facts_of
from tests.programs import gpu_matmul

V100, K80 = load_device("v100"), load_device("k80")
SHALLOW = gpu_matmul(96, 64, 128).stages[0]


def deeper(stage, depth=2):
    copies = [replace(copy, depth=depth if copy.to_layer == "shared" else 1) for copy in stage.copies]
    return replace(stage, copies=tuple(copies))


def figures(said):
    return [getattr(said, field.name) for field in fields(said) if field.name != "limiters"] + [
        (one.name, one.seconds) for one in said.limiters
    ]


def alone(stage, device):
    """What the model says where it knows of no other stage."""
    facts_of.cache_clear()
    return figures(predict_stage(stage, device))


STAGES = {
    "shallow": SHALLOW,
    "deep": deeper(SHALLOW),
    "wider tiles": replace(SHALLOW, copies=tuple(replace(copy, padding=copy.padding + 4) for copy in SHALLOW.copies)),
    "swizzled": replace(SHALLOW, block_order=replace(SHALLOW.block_order, group_rows=SHALLOW.block_order.group_rows + 2)),
}


@pytest.mark.parametrize("first", STAGES)
@pytest.mark.parametrize("then", STAGES)
@pytest.mark.parametrize("device", (V100, K80), ids=lambda device: device.name)
def test_a_stage_is_priced_the_same_after_another(first, then, device):
    expected = alone(STAGES[then], device)
    facts_of.cache_clear()
    predict_stage(STAGES[first], V100)
    assert figures(predict_stage(STAGES[then], device)) == expected


def test_depth_is_not_priced_away():
    assert predict_stage(SHALLOW, V100).shared_bytes < predict_stage(deeper(SHALLOW), V100).shared_bytes
