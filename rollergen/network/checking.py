"""A layer's result beside the float64 definition of its expression, of the inputs that it had in the call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rollergen.gate.comparison import said
from rollergen.gate.differences import differences
from rollergen.gate.narrowing import program_accuracies
from rollergen.gate.oracle import ExpressionOracle
from rollergen.gate.points import sample_points
from rollergen.hal.dataclass import dataclass
from rollergen.kernel import Kernel
from rollergen.network.partition import Step


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """``compared`` elements of a step's result; ``problem``: which of them are wrong, "" if none is."""

    source: str
    compared: int
    problem: str


def layer_check(step: Step, kernel: Kernel, arrays: Mapping[str, np.ndarray], result: np.ndarray) -> LayerCheck:
    """`arrays`: what the step read, by the names of its values.

    Points, tolerance and what rounding may make of a result are those of the gate, so that errors of the layers before
    do not count.
    """
    assert step.expression is not None
    (buffer,), program = kernel.program.outputs, kernel.program
    oracle = ExpressionOracle({buffer.name: step.expression})
    named = {one.buffer.name: arrays[name] for one, name in zip(step.given, step.inputs, strict=True)}
    points = sample_points(program, 0)[buffer.name]
    want = np.asarray(oracle(named, buffer.name, points)).reshape(-1)
    got = result[points].reshape(-1)
    accuracy = program_accuracies(program)[buffer.name]
    wrong = differences(got, want, accuracy.variance, buffer.dtype, False, accuracy.absolute)
    if wrong.any():
        at = tuple(axis[wrong] for axis in points)
        wrong[wrong] = ~oracle.within_rounding(named, buffer.name, at, got[wrong], want[wrong])
    problem = said(step.outputs[0].name, points, got, want, wrong) if wrong.any() else ""
    return LayerCheck(step.source, wrong.size, problem)
