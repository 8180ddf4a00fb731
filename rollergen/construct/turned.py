"""Contractions with whole vectors along another axis than the results' innermost (`expr.turned`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter

from rollergen.construct.candidate import Candidate, rounded
from rollergen.construct.elementwise import elementwise_candidates
from rollergen.construct.ledger import Ledger
from rollergen.construct.roles import contraction_of
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.turned import turned
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.tile.rules import AlignmentRules, padding_waste, vector_lanes

LEAST_WASTE = 1 / 8
"""Idle lanes, as a share of the results: where there are fewer, less is saved, and construction stays as short."""


def turned_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, products: Callable[[TensorOp], tuple[Candidate, ...]]
) -> Iterator[Candidate]:
    """One for each of the best candidates of ``products``; none where vectors along the results' innermost axis waste
    few lanes and are several, or no other axis is whole vectors."""
    roles, lanes = contraction_of(op), vector_lanes(device, accumulator_dtype(op))
    n = roles.n if roles else None
    if n is None or not (padding_waste(op.axis(n).extent, lanes) >= LEAST_WASTE or _is_one_vector(op, n, lanes)):
        return
    found = turned(op, n, lanes)
    results = list(elementwise_candidates(found.output, device, rules, 1, Ledger())) if found else []
    if found is None or not results:
        return
    last = min(results, key=attrgetter("seconds"))
    output = replace(last.own[0], name="results")
    for one in products(found.sums):
        yield Candidate(
            f"turned, {one.variant}", (*one.own, output), (found.sums.output, *one.temporaries),
            rounded(one.seconds + last.seconds), before=one.before,
        )  # fmt: skip


def _is_one_vector(op: TensorOp, n: str, lanes: int) -> bool:
    """Whether all results along n are one vector, for which alone each element of another operand is broadcast.

    With vectors along another axis that operand is read in vectors, a constant one in panels that are prefetched.
    (Winograd's products of 512 x 7 x 7 to 512, whose transformed weights are 17 MB, on one core of a Zen 4: 1.89 and
    1.27 ms.)
    """
    others = {axis.name for axis in op.of_role("spatial")} - {n}
    return op.axis(n).extent <= lanes and any(others <= load.axes() for load in op.body_loads() if n not in load.axes())
