"""The candidate that others are compared with in full, and that itself is compared with the oracle on whole tiles."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import numpy as np

from rollergen.expr.values import Buffer
from rollergen.gate.comparison import Comparison, said
from rollergen.gate.facts import Facts
from rollergen.gate.memory import Array, Memory
from rollergen.gate.tiles import Tiling, tilings
from rollergen.gate.trials import Trial

SMALL = 2**20
"""Points of all tensor ops up to which every element is compared whatever it takes: tens of milliseconds."""

Kept = Mapping[tuple[str, str], Array]
"""Copies of outputs by the trial's title and the output's name."""


class Reference:
    """A candidate that passed, its facts and outputs.

    ``number``: which; ``confirmed``: whether another that passed was compared with it in full.
    """

    def __init__(
        self, number: int, facts: Facts, outputs: Kept, trial: Trial, comparison: Comparison, seed: int, memory: Memory
    ) -> None:
        self.number, self.outputs, self.confirmed = number, outputs, False
        self.compared = 0
        self.facts, self._trial, self._comparison, self._memory = facts, trial, comparison, memory
        self._small = sum(math.prod(axis.extent for axis in d.axes) for d in facts.tensor_ops) <= SMALL
        self._left = self._boxes(np.random.default_rng(seed))

    def known(self, trial: Trial, buffer: Buffer) -> Array | None:
        return self.outputs.get((trial.title, buffer.name))

    def examine(self, seconds: float, *, sample: bool) -> str:
        """What is wrong in whole tiles, "" if nothing: those that were not looked at before, for so many seconds, and
        (``sample``) all those of every edge class and a tenth of the others (`tiles.tilings`)."""
        until = time.perf_counter() + seconds
        for needed, buffer, tiling, number in self._left:
            if not self._small and time.perf_counter() > until and not (sample and needed):
                break
            where = tiling.points(number, buffer.shape)
            got = self._memory.gather(self.outputs[self._trial.title, buffer.name], where)
            want = self._comparison.wanted(self._trial.pristine, buffer, where)
            wrong = self._comparison.wrong(self.facts, self._trial, buffer, where, got, want)
            self.compared += wrong.size
            if wrong.any():
                return f"{self._trial.title}: {said(buffer.name, where, got, want, wrong)}"
        return ""

    def _boxes(self, rng: np.random.Generator) -> Iterator[tuple[bool, Buffer, Tiling, int]]:
        """Those of all outputs that must be compared, then the others."""
        program = self.facts.program
        made = [(buffer, tiling) for buffer in program.outputs for tiling in tilings(program, buffer.name, rng)]
        for needed in (True, False):
            for buffer, tiling in made:
                for number in tiling.order[: tiling.needed] if needed else tiling.order[tiling.needed :]:
                    yield needed, buffer, tiling, int(number)
