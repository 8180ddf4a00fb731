"""The oracle: the expression's float64 definition at chosen points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rollergen.expr.empties import without_empties
from rollergen.expr.language import Tensor
from rollergen.expr.puts import InPlace
from rollergen.expr.reads import given_tensors
from rollergen.expr.reference import evaluate_at
from rollergen.expr.values import Buffer
from rollergen.gate.comparison import Oracle, Points
from rollergen.gate.differences import differences
from rollergen.gate.narrowing import program_accuracies
from rollergen.gate.perturbed import within_rounding
from rollergen.gate.points import sample_points
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True, slots=True)
class ExpressionOracle:
    """The computed tensors by the names under which programs know them; plain data, so that processes can share it."""

    tensors: Mapping[str, Tensor]

    def __call__(self, arrays: Mapping[str, np.ndarray], output: str, points: Points) -> np.ndarray:
        tensor = self.tensors[output]
        needed = {given.buffer.name: arrays[given.buffer.name] for given in given_tensors((tensor,))}
        return evaluate_at(tensor, needed, self._own(output, points))

    def within_rounding(
        self, arrays: Mapping[str, np.ndarray], output: str, points: Points, got: np.ndarray, want: np.ndarray
    ) -> np.ndarray:
        """See `perturbed.within_rounding`."""
        return within_rounding(self.tensors[output], arrays, self._own(output, points), got, want)

    def _own(self, output: str, points: Points) -> Points:
        """The points in the shape of the tensor: of a block, programs know their numbers (`blocks_of`)."""
        shape = self.tensors[output].shape
        return np.unravel_index(points[0], shape) if len(points) == 1 and len(shape) != 1 else points


def expression_oracle(tensors: Sequence[Tensor], outputs: Sequence[Buffer]) -> Oracle:
    """The oracle of the computed `tensors`, known as `outputs` (same order) to the programs."""
    some = zip(outputs, without_empties(tensors), strict=True)
    return ExpressionOracle(
        {buffer.name: tensor.block if isinstance(tensor, InPlace) else tensor for buffer, tensor in some}
    )


def compare(
    program: RProgram, inputs: Mapping[str, np.ndarray], results: Sequence[np.ndarray], oracle: Oracle
) -> tuple[int, str]:
    """(elements compared, what is wrong with the results on these inputs: "" if nothing).

    The elements are those the gate would sample for `program`, the tolerance is the gate's too.
    """
    points = sample_points(program, 0)
    accuracy = program_accuracies(program)
    compared, problems = 0, []
    for buffer, result in zip(program.outputs, results, strict=True):
        where = points[buffer.name]
        want = np.asarray(oracle(inputs, buffer.name, where), dtype=np.float64)
        known = accuracy[buffer.name]
        wrong = differences(np.asarray(result[where]), want, known.variance, buffer.dtype, False, known.absolute)
        compared += wrong.size
        if wrong.any():
            problems.append(f"{int(wrong.sum())} of {wrong.size} compared elements of {buffer.name} are wrong")
    return compared, "; ".join(problems)
