"""The ledger of construction: how many tiles each constraint rejected, and what would admit one."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from typing import TypeVar

import numpy as np

from rollergen.dropped import Drop
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model import Price
from rollergen.program.rprogram import GRID, SERIAL, Stage
from rollergen.space.engine import Tally
from rollergen.space.rules import BLOCK_MEMORY, REGISTERS, TENSOR_SHAPE, THREADS
from rollergen.tile.rules import AlignmentRules, padding_waste


@dataclass(frozen=True, slots=True)
class Account:
    """What construction looked at and rejected.

    ``considered`` counts tiles. ``rejections`` are (constraint, tiles), each tile under the first constraint that
    rejected it. ``least_waste``: the smallest padded share of an axis among the programs that only the waste limit
    rejected. ``least_bytes``: the smallest block memory among those that only its capacity rejected. ``dropped``:
    candidates that failed while they were made, though no constraint forbids them.
    """

    considered: int
    rejections: tuple[tuple[str, int], ...]
    least_waste: float | None = None
    least_bytes: int | None = None
    dropped: tuple[Drop, ...] = ()

    def text(self) -> str:
        """``1,404 tiles considered; rejected: registers 300, tensor shape 12``, and how many were dropped, if any."""
        said = ", ".join(f"{name} {count:,}" for name, count in self.rejections)
        lost = f"; dropped: {sum(one.count for one in self.dropped):,}" if self.dropped else ""
        return f"{self.considered:,} tiles considered; rejected: {said or 'none'}{lost}"

    def relaxation(self) -> str:
        """The least change that would admit a program; empty if none is known."""
        if self.least_waste is not None:
            return f"epsilon={_rounded_up(self.least_waste):g} (and padding=True) admits one"
        if self.least_bytes is not None:
            return f"a device with {self.least_bytes} bytes of block memory admits one"
        return ""


@dataclass
class Ledger(Tally):
    """Collects an `Account` while the candidates of one tensor op are constructed."""

    least_waste: float | None = None
    least_bytes: int | None = None

    def account(self, dropped: Sequence[Drop] = ()) -> Account:
        found = sorted(self.rejected.items(), key=lambda item: (-item[1], item[0]))
        return Account(self.considered, tuple(found), self.least_waste, self.least_bytes, tuple(dropped))

    def unfit(self, price: Price, device: Device) -> None:
        """Counts the tiles whose price says that they do not fit a unit of the device."""
        memory, lost = price.shared_bytes, ~np.isfinite(price.seconds)
        if not lost.any():
            return
        threads = price.threads > device.limits.threads_per_block
        large = memory > device.limits.block_memory_bytes
        fewer = lost & ~threads
        overfull = fewer & large
        self.reject(THREADS, int(np.count_nonzero(lost & threads)))
        self.reject(BLOCK_MEMORY, int(np.count_nonzero(overfull)))
        self.reject(REGISTERS, int(np.count_nonzero(fewer & ~large)))
        if overfull.any():
            self.least_bytes = _least(self.least_bytes, int(memory[overfull].min()))

    def add(self, other: Ledger) -> None:
        """Adds the counts of another ledger."""
        self.considered += other.considered
        for constraint, count in other.rejected.items():
            self.reject(constraint, count)
        self.least_waste = _least(self.least_waste, other.least_waste)
        self.least_bytes = _least(self.least_bytes, other.least_bytes)

    def wasteful(self, waste: float) -> None:
        """Counts one program that only the waste limit rejects."""
        self.reject(TENSOR_SHAPE.name)
        self.least_waste = _least(self.least_waste, waste)


Size = TypeVar("Size", int, float)


def _least(one: Size | None, other: Size | None) -> Size | None:
    """The lesser one of those that are known."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def waste_limit(rules: AlignmentRules) -> float | None:
    """The padded share of an axis that the user allows; None: whatever programs need."""
    return rules.epsilon if rules.tensor_shape else None


def waste_of(stage: Stage) -> float:
    """The largest padded share of an axis that the stage's masks hide."""
    wasted = 0.0
    for axis, kind in stage.guards:
        if kind == "mask":
            own = [loop for loop in stage.loops if loop.axis == axis and loop.kind not in (GRID, SERIAL)]
            tile = max(loop.extent * loop.stride for loop in own)
            wasted = max(wasted, float(padding_waste(stage.op.axis(axis).extent, tile)))
    return wasted


def _rounded_up(share: float) -> float:
    """`share` with three significant digits, not less than it."""
    if share <= 0:
        return 0.0
    unit = 10.0 ** (ceil(log10(share)) - 3)
    return ceil(share / unit) * unit
