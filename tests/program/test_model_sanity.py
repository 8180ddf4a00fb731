"""What must hold of any prediction for a GPU, whoever measures it."""

from functools import lru_cache
from math import prod

import pytest

import rollergen as rg
from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.program.model import predict, predict_stage
from rollergen.program.model.roofline import multiply_add_seconds

T = rg.tensor
SAMPLE = ("M0", "C22", "D5", "E1", "P2", "R1")


@lru_cache(maxsize=1)
def entries():
    return {entry.id: entry for entry in suite("roller").entries}


def product(n):
    return canonicalize(rg.ops.matmul(T("A", (n, n)), T("B", (n, n))))


def read_elements(op, load):
    """Elements that a load certainly reads: all points of its axes, where each dimension's index is one of them."""
    axes = [index.terms[0] for index in load.indices if len(index.terms) == 1 and not index.const]
    plain = len(axes) == len(load.indices) and all(isinstance(a, str) and c == 1 for a, c in axes) and not load.guard
    return prod(op.axis(axis).extent for axis, _ in axes) if plain else 0


def bound_s(stage, device):
    """Every multiply-add at the nominal rate, or what is written, and surely read, at the nominal bandwidth.

    (`roofline_seconds` counts every element that is read one by one, which for images of this size takes minutes.)"""
    op = stage.op
    moved = {op.output.name: op.output.elements * ITEMSIZE[op.output.dtype]}
    for load in op.loads():
        bytes_ = read_elements(op, load) * ITEMSIZE[load.dtype]
        moved[load.buffer.name] = max(bytes_, moved.get(load.buffer.name, 0))
    nominal = device.backing.bandwidth_nominal_gb_s * 1e9
    return max(multiply_add_seconds(stage, device), sum(moved.values()) / nominal)


@pytest.mark.parametrize("device", ["v100", "a100", "h200"])
@pytest.mark.parametrize("operator", SAMPLE)
def test_no_candidate_is_predicted_below_the_roofline(operator, device):
    device = rg.load_device(device)
    for ranked in construct(canonicalize(entries()[operator].make()), device, top_k=10):
        for stage in ranked.program.stages:
            assert predict_stage(stage, device).seconds >= bound_s(stage, device) > 0


@pytest.mark.parametrize("device", ["v100", "a100", "h200"])
def test_a_large_product_is_predicted_near_the_peak_of_the_multiply_adds(device):
    device = rg.load_device(device)
    (ranked,) = construct(product(4096), device, top_k=1)
    instruction = device.instruction("fma")
    peak_s = 4096**3 / (device.units * instruction.per_clock * device.clock_mhz * 1e6)
    assert 0.75 <= peak_s / ranked.seconds <= 1.0


@pytest.mark.parametrize("operator", ["C22", "D13"])
def test_registers_predicted_are_what_the_resident_blocks_leave(operator):
    device = rg.load_device("v100")
    for ranked in construct(canonicalize(entries()[operator].make()), device, top_k=10):
        for stage in predict(ranked.program, device).stages:
            threads = -(-stage.threads // 32) * 32
            assert stage.registers * threads * stage.resident_blocks <= device.limits.registers_per_unit
            assert stage.spilled == 0


MACHINE_CODE = {("M3", "h200"): 255, ("M3", "v100"): 229}
"""Registers of first choices by NVIDIA's compiler, which reads fragments ahead."""


@pytest.mark.parametrize("case", MACHINE_CODE)
def test_registers_that_a_compiler_takes_because_they_are_free_are_predicted(case):
    operator, name = case
    device = rg.load_device(name)
    (ranked,) = construct(canonicalize(entries()[operator].make()), device, top_k=1)
    (stage,) = predict(ranked.program, device).stages
    assert stage.registers <= device.limits.registers_per_thread and stage.spilled == 0
    assert 0.85 * stage.registers <= MACHINE_CODE[case] <= 1.05 * stage.registers
