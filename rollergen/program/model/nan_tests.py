"""Instructions by which a vector machine's maximum or minimum keeps a NaN of either side."""

from __future__ import annotations

from typing import NamedTuple

from rollergen.expr.rows import losing_nan
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, choose

IN_ONE_CHAIN = 3
"""Instructions beside that of a maximum by which it keeps a NaN of either side."""


class NanTests(NamedTuple):
    """Instructions beside the one of a maximum that keeps a NaN: those that the next one waits for, and all."""

    in_a_row: Number
    all: Number


def nan_tests(nest: Nest) -> NanTests:
    """Of each vector of a maximum or minimum: a comparison, what joins it with the test for the larger one, and a
    choice; of separate chains a comparison and what joins it, beside the chains.  (Rows of 81, a Zen 4: 1.4 us in two
    chains, 3.0 in one.)"""
    if not loses_nan(nest):
        return NanTests(0, 0)
    several = nest.extent(nest.stage.accumulator.separate) > 1
    return NanTests(choose(several, 0, IN_ONE_CHAIN - 1), choose(several, 1, IN_ONE_CHAIN))


def loses_nan(nest: Nest) -> bool:
    """Whether a vector machine's own instruction for one of the reductions may lose a NaN."""
    return nest.lockstep == 1 and any(losing_nan(one) for one in nest.facts.op.reductions)
