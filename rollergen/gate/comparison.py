"""Wrong elements of an output: the oracle's values, the tolerance, and what rounding may make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.gate.differences import differences
from rollergen.gate.facts import Facts
from rollergen.gate.memory import Array, Memory, Points, Tolerance
from rollergen.gate.trials import Trial

Oracle = Callable[[Mapping[str, np.ndarray], str, Points], np.ndarray]
"""``oracle(arrays by input name, output name, coordinates)``: float64 values of the output there, or integers."""

_FIRST = 16
"""Of the elements that the tolerance refuses: whose computation is looked into before that of the others."""


@runtime_checkable
class TensorOp(Protocol):
    """An oracle that knows how its values come about, and takes coordinates that broadcast together."""

    def within_rounding(
        self, arrays: Mapping[str, np.ndarray], output: str, points: Points, got: np.ndarray, want: np.ndarray
    ) -> np.ndarray:
        """The mask of the elements of `got` that rounding may make of `want` (bool); it is expensive."""


class Comparison:
    """The oracle's view of outputs."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._op = oracle if isinstance(oracle, TensorOp) else None

    def wanted(self, arrays: Mapping[str, np.ndarray], buffer: Buffer, where: Points) -> np.ndarray:
        """The oracle's values: float64, or integers of 64 bits or bool, of one dimension."""
        points = where if self._op is not None else flat(where)
        want = np.asarray(self._oracle(arrays, buffer.name, points)).reshape(-1)
        return want.astype(np.float64) if is_float(buffer.dtype) else want

    def wrong(
        self, facts: Facts, trial: Trial, buffer: Buffer, where: Points, values: np.ndarray, want: np.ndarray
    ) -> np.ndarray:
        """The mask of `values`, at points that broadcast together, that are not `want` (bool, of one dimension, as both
        are)."""
        accuracy, judged = facts.accuracies[buffer.name], self._op is not None and not facts.narrow
        scale = None
        if trial.absolute:
            scale = self.wanted({name: np.abs(array) for name, array in trial.pristine.items()}, buffer, where)
        steps = accuracy.flushed if judged else accuracy.absolute
        wrong = differences(values, want, accuracy.variance, buffer.dtype, is_exact(trial, facts), steps, scale)
        if facts.signed and is_float(buffer.dtype):
            wrong |= (values == 0) & (want == 0) & (np.signbit(values) != np.signbit(want))
        if judged and wrong.any() and accuracy.variance and not trial.exact:
            wrong = self._refused(trial, buffer.name, flat(where), values, want, wrong)
        return wrong

    def _refused(
        self, trial: Trial, output: str, where: Points, got: np.ndarray, want: np.ndarray, wrong: np.ndarray
    ) -> np.ndarray:
        """Of the elements that seem wrong those that are, in view of how their values come about (`perturbed.py`).

        Few are tried first: a candidate that is wrong is mostly wrong in all of them.
        """
        assert self._op is not None
        refused, accused = wrong.copy(), np.flatnonzero(wrong)
        for some in (accused[:_FIRST], accused[_FIRST:]):
            if some.size:
                at = tuple(axis[some] for axis in where)
                refused[some] = ~self._op.within_rounding(trial.pristine, output, at, got[some], want[some])
            if refused[some].any():
                break
        return refused


def is_exact(trial: Trial, facts: Facts) -> bool:
    """Whether results on the trial's whole numbers have no tolerance: not of a candidate that cuts its factors."""
    return trial.exact and not facts.narrow


def disagreements(
    memory: Memory, facts: Facts, other_facts: Facts, trial: Trial, buffer: Buffer, got: Array, known: Array
) -> Points:
    """Elements where two candidates' outputs differ by more than both may err: some of all of them.

    Each lies within its own tolerance around the true value, so that they differ by no more than the sum of both.
    """
    errors = [math.sqrt(one.accuracies[buffer.name].variance) for one in (facts, other_facts)]
    exact = is_exact(trial, facts) and is_exact(trial, other_facts)
    return memory.unequal(got, known, Tolerance(sum(errors) ** 2, exact)).points(buffer.shape)


def flat(points: Points) -> Points:
    """Points that broadcast together as arrays of one dimension."""
    return tuple(axis.reshape(-1) for axis in np.broadcast_arrays(*points)) if points else ()


def said(name: str, where: Points, values: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    """A sentence: how many of the values at `where` are wrong, and the first of them."""
    at = int(np.argmax(wrong))
    place = tuple(int(axis[at]) for axis in flat(where))
    return (
        f"{int(np.sum(wrong))} of {wrong.size} compared elements of {name} are wrong, "
        f"such as {name}[{', '.join(map(str, place))}] = {values[at]}, expected {want[at]}"
    )
