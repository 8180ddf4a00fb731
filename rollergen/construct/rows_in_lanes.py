"""Tuples reduced along rows, with the rows in the lanes: the rows are turned first, in registers.

Along a row, the lanes hold a tuple each at its end, which take many instructions to put together; beside each other,
they hold the tuples of as many rows.  argmax of 4096 x 10 takes 7.7 us for 21.3 on one core of an EPYC of Zen 4, of
4096 x 16 11.3 us for 27.6, of 4096 x 64 45 us for 59.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rollergen.construct.candidate import Candidate
from rollergen.construct.ledger import Ledger
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.variants import Variant
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.assemble.plan import Roles
from rollergen.space.elementwise import LEAST_SQUARE
from rollergen.tile.rules import AlignmentRules, contiguous_axis, vector_lanes


def lane_rows_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """Those of a contraction whose lanes lie along the results' innermost axis, in panels without a ragged one, whose
    elements would be turned one by one; none where `rows_in_lanes` has no roles."""
    roles = rows_in_lanes(op, vector_lanes(device, accumulator_dtype(op)))
    if roles is not None:
        exact = replace(rules, tensor_shape=True, epsilon=0.0)
        yield from serial_candidates(Variant("rows in the lanes", (), op, roles), device, exact, count, ledger)


def rows_in_lanes(op: TensorOp, lanes: int) -> Roles | None:
    """The roles of the axes; None where what is reduced is no tuple, or rows are shorter than the smallest square that
    is turned in registers, or their elements do not lie side by side, or not whole vectors of rows below each other."""
    reduced, spatial = op.of_role("reduce"), op.of_role("spatial")
    n = contiguous_axis(op.stored())
    if op.components == 1 or len(op.reductions) != 1 or len(reduced) != 1 or n not in [axis.name for axis in spatial]:
        return None
    k = reduced[0]
    lies_along = lambda load: n in load.axes() and contiguous_axis(load) == k.name
    if k.extent < LEAST_SQUARE or op.axis(n).extent % lanes or not all(map(lies_along, op.body_loads())):
        return None
    return Roles(n, None, tuple(axis.name for axis in spatial if axis.name != n), k.name, ())
