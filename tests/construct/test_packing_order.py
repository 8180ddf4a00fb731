"""Packing copies of operands beyond the caches: squares along the rows that are read, written past the caches."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.construct.copies import copy_stage
from rollergen.expr.canonical import canonicalize
from rollergen.expr.packing import pack_operand
from rollergen.hal.load import load_device
from rollergen.program.assemble.elementwise import elementwise_stage
from rollergen.program.interpreter import interpret
from rollergen.program.model import predict
from rollergen.program.rprogram import SERIAL, RProgram
from rollergen.space.elementwise import elementwise_plans
from rollergen.space.engine import Tally
from rollergen.tile.rules import AlignmentRules
from tests.agreement.readers import assert_traffic, run_opencl, small_integers
from tests.lower.devices import AVX512

SMALL = replace(
    AVX512, layers=tuple([replace(one, capacity_bytes=min(one.capacity_bytes, 1 << 16)) for one in AVX512.layers[:-1]])
    + AVX512.layers[-1:]
)  # fmt: skip


def packed(n, k, width):
    """The copy of n rows of k weights into panels of so many rows."""
    (op,) = canonicalize(rg.ops.linear(rg.tensor("X", (16, k)), rg.tensor("W", (n, k)))).tensor_ops
    (load,) = [one for one in op.body_loads() if one.buffer.name == "W"]
    axis = next(axis.name for axis in op.of_role("spatial") if axis.name in load.axes())
    return pack_operand(op, load, axis, width)[0]


def streaming(op, device):
    """Programs of the copy alone that write past the caches."""
    plans = [plan for plan in elementwise_plans(op, device, AlignmentRules(), Tally()) if plan.streaming]
    whole = replace(op, output=replace(op.output, kind="output"))
    inputs = tuple(load.buffer for load in op.loads())
    stages = [elementwise_stage(whole, plan, device) for plan in plans]
    return [RProgram(device.name, inputs, (whole.output,), (stage,)) for stage in stages]


@pytest.mark.parametrize(("n", "k", "width"), [(96, 64, 48), (96, 70, 32)])
def test_readers_of_panels_written_past_the_caches_agree(n, k, width):
    programs = streaming(packed(n, k, width), SMALL)
    assert programs
    for program in programs[:3]:
        arrays = small_integers(program)
        found = interpret(program, arrays, SMALL)
        assert_traffic(program, found.traffic, SMALL, {})
        (panels,), (by_device,) = found.outputs.values(), run_opencl(program, arrays, SMALL).values()
        assert (panels == by_device).all()
        (weights,) = arrays.values()
        for row in (0, width + 3, n - 1):
            assert (panels[row // width, :, row % width] == weights[row]).all()
        assert predict(program, SMALL).seconds > 0


def test_panels_beyond_the_caches_are_written_past_them_along_the_rows_that_are_read():
    zen = load_device("cpu")
    far, near = (copy_stage(packed(n, 1024, 48), zen) for n in (8064, 192))
    assert far.store.streaming and not near.store.streaming  # 32 MB, and what the second cache holds
    *_, last = [loop.axis for loop in far.loops if loop.kind == SERIAL]
    assert last == far.op.axes[1].name  # along k
