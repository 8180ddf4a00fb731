"""Into how many parts a reduction is worth splitting: said here for every variant; `expr.splitting` does it."""

from __future__ import annotations

from math import prod

from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.tile.rules import AlignmentRules


def part_counts(op: TensorOp, axis: str, least: int, crowd: int, device: Device, rules: AlignmentRules) -> list[int]:
    """Numbers of parts to try, ascending: powers of 4, and those that keep every unit busy with one, two or four tiles.

    ``least``: elements along `axis` that a part has at least.  ``crowd``: partial results for each unit beyond which
    the units are busy without a split.
    """
    if not rules.shapes.split_reductions:
        return []
    outputs = prod(one.extent for one in op.of_role("spatial"))
    most = min(op.axis(axis).extent // least, crowd * device.units // outputs)
    powers = {4**n for n in range(1, most.bit_length())}
    shares = {device.units // 4, device.units // 2, device.units}
    return sorted(parts for parts in powers | shares if 2 <= parts <= most)
