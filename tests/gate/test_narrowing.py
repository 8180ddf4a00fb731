"""Candidates that look at fewer bits of their factors: right where no more than these bits is missing."""

from __future__ import annotations

import numpy as np

from rollergen.gate.gate import Gate
from rollergen.gate.narrowing import computed, is_narrowed
from rollergen.gate.oracle import expression_oracle
from rollergen.gate.tolerance import accuracies
from tests.matrices import CASES, matmul, planned, program

EXPRESSION, TF32, DEVICE = program("tf32")
PLAIN = planned(matmul(75, 37, 107), DEVICE, CASES["mma"][2])


def cut(array, bits):
    """The float32 array without its lowest bits."""
    return (array.view(np.uint32) & np.uint32((0xFFFFFFFF << bits) & 0xFFFFFFFF)).view(np.float32)


def verdict(made, bits):
    gate = Gate(TF32, expression_oracle([EXPRESSION], TF32.outputs))

    def run(arrays):
        out = made.outputs[0].name
        arrays[out][...] = cut(arrays["A"], bits) @ cut(arrays["B"], bits)

    return gate.check(made, run)


def test_as_many_bits_as_tf32_has_are_enough_and_fewer_are_not():
    assert verdict(TF32, 13).passed and verdict(TF32, 0).passed
    assert not verdict(TF32, 19).passed


def test_only_programs_that_say_so_may_cut():
    assert is_narrowed(TF32) and not is_narrowed(PLAIN)
    assert computed(PLAIN) == tuple(stage.op for stage in PLAIN.stages)
    variance = lambda tensor_ops: accuracies(tensor_ops, TF32.inputs)[TF32.outputs[0].name].variance
    assert variance(computed(TF32)) > 1e4 * variance(stage.op for stage in TF32.stages)
