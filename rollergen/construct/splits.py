"""Split reductions: into how many parts, for every variant (`expr.splitting` does it), and those whose parts are added
atomically to the output: zeros first, then all parts side by side."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rollergen.construct.candidate import Candidate, candidate, cheapest
from rollergen.construct.elementwise import elementwise_candidates
from rollergen.construct.ledger import Ledger
from rollergen.expr.splitting import add_reduction
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.rprogram import Stage, Store
from rollergen.tile.rules import AlignmentRules


def part_counts(
    op: TensorOp, axis: str, least: int, partials: int, device: Device, rules: AlignmentRules, few: tuple[int, ...] = ()
) -> list[int]:
    """Numbers of parts to try, ascending: powers of 4, a ``few`` others, and those that keep every unit busy with one,
    two or four tiles.

    ``least``: elements along `axis` that a part has at least.  ``partials``: partial results for each unit beyond which
    the units are busy without a split.
    """
    if not rules.shapes.split_reductions:
        return []
    outputs = prod(one.extent for one in op.of_role("spatial"))
    most = min(op.axis(axis).extent // least, partials * device.units // outputs)
    powers = {4**n for n in range(1, most.bit_length())} | {*few}
    shares = {device.units // 4, device.units // 2, device.units}
    return sorted(parts for parts in powers | shares if 2 <= parts <= most)


@dataclass(frozen=True, slots=True)
class Adding:
    """A split reduction in two stages.

    ``zeros``: the stage that begins the sums; ``sums``: the tensor op whose results are added to them.
    """

    zeros: Stage
    sums: TensorOp

    def stage(self, stage: Stage) -> Stage:
        """A stage of ``sums`` that adds its results, one by one."""
        return replace(stage, store=Store(adds=True))

    def candidate(self, variant: str, parts: int, stage: Stage, device: Device) -> Candidate:
        """Both stages; ``variant``: of the products, or empty."""
        name = f"split {parts}, added up"
        stages = (self.zeros, self.stage(stage))
        return candidate(f"{variant}, {name}" if variant else name, stages, (), device, parts)


def adding(op: TensorOp, axis: str, parts: int, device: Device, rules: AlignmentRules) -> Adding | None:
    """The two stages of `op` with the reduction along `axis` in so many `parts`; None where there are none.

    There are none where the user has not allowed atomics, where the result is no bare sum, and on devices whose threads
    are not scalar: these have few units to split a sum among.
    """
    pair = add_reduction(op, axis, parts) if rules.atomics and device.kind.exchanges else None
    if pair is None:
        return None
    zeros = elementwise_candidates(pair[0], device, rules, 1, Ledger())
    stages = [replace(one.stages[0], name="zeros") for one in zeros]
    return Adding(cheapest(stages, device), pair[1])
