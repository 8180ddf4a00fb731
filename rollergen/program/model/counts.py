"""Programs that differ in how many rows they have, side by side: one batch of the model for each structure.

A program at another count of rows has the same tensor op with a longer axis, longer tensors and more trips of the
axis' outermost loop.  These become arrays with an entry for each count, as sizes of loops do for programs of one op.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model.facts import Facts, Operand, facts_of
from rollergen.program.model.price import price_batch
from rollergen.program.model.together import side_by_side
from rollergen.program.rprogram import Stage


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A stage at several counts.

    ``stage``: as it is at the count ``most``, its loop at position ``outermost`` being that of the ``axis`` which runs
    as often as there are tiles; ``buffers``: names of the tensors whose first dimension is a multiple of the count.
    """

    stage: Stage
    axis: str
    outermost: int
    buffers: frozenset[str]
    most: int
    counts: np.ndarray

    @property
    def extents(self) -> np.ndarray:
        """Of the axis, at each count."""
        return self.stage.op.axis(self.axis).extent // self.most * self.counts

    def batch(self) -> Stage:
        """The stage with an entry for each count."""
        loop = self.stage.loops[self.outermost]
        trips: Any = -(-self.extents // loop.stride)
        trips = trips if len(trips) > 1 else int(trips[0])
        loops = (*self.stage.loops[: self.outermost], replace(loop, extent=trips))
        return replace(self.stage, loops=(*loops, *self.stage.loops[self.outermost + 1 :]))

    def where(self, chosen: np.ndarray) -> Counted:
        return replace(self, counts=self.counts[chosen])


def price_counts(stages: Sequence[Counted], device: Device) -> list[np.ndarray]:
    """Predicted seconds of each stage at each of its counts.

    Axes that are no longer than a vector, which the model tells apart, are priced one by one.
    """
    seconds = [np.empty(len(one.counts)) for one in stages]
    pieces: list[tuple[int, np.ndarray]] = []
    alone: list[tuple[int, np.ndarray]] = []
    for number, one in enumerate(stages):
        short = one.extents <= max(1, one.stage.compute.lanes)
        alone += [(number, np.array([at])) for at in np.flatnonzero(short)]
        if not short.all():
            pieces.append((number, np.flatnonzero(~short)))
    alike: dict[Hashable, list[tuple[int, np.ndarray]]] = {}
    for number, at in pieces:
        one = stages[number]
        alike.setdefault((one.axis, one.buffers, one.most), []).append((number, at))
    for own in [*alike.values(), *([one] for one in alone)]:
        parts = [stages[number].where(at) for number, at in own]
        batches = [part.batch() for part in parts]
        place = {id(batch): n for n, batch in enumerate(batches)}
        for batch, members in side_by_side(batches, device):
            numbers = [place[id(stage)] for stage, _ in members]
            price, begin = price_batch(batch, device, facts=_facts([parts[n] for n in numbers])), 0
            for n in numbers:
                number, at = own[n]
                seconds[number][at] = price.seconds[begin : begin + len(at)]
                begin += len(at)
    return seconds


def _facts(members: Sequence[Counted]) -> Facts:
    """Of the tensor op that the members share, with an entry for each count of each."""
    one = members[0]
    counts: Any = np.concatenate([member.counts for member in members])
    counts = counts if len(counts) > 1 else int(counts[0])
    found = facts_of(one.stage.op, one.stage.kept_rows)

    def rows(operand: Operand) -> Operand:
        buffer = operand.buffer
        if buffer.name not in one.buffers:
            return operand
        longer: Any = buffer.shape[0] // one.most * counts
        return replace(operand, buffer=replace(buffer, shape=(longer, *buffer.shape[1:])))

    return replace(
        found, loads=tuple(map(rows, found.loads)), store=rows(found.store),
        extents={**found.extents, one.axis: found.extents[one.axis] // one.most * counts},
    )  # fmt: skip
