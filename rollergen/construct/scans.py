"""Construction of scans: small spaces, priced whole."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.construct.candidate import Candidate, assembled, candidates
from rollergen.construct.ledger import Ledger
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.scan import scan_stage
from rollergen.space.scan import scan_plans
from rollergen.tile.rules import AlignmentRules


def scan_candidates(op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger) -> Iterator[Candidate]:
    """Rows that one thread walks, and rows that the threads of a block share."""
    found = list(scan_plans(op, device, rules, ledger))
    for variant, own in (
        ("row by row", [plan for plan in found if plan.threads == 1]),
        ("shared row", [plan for plan in found if plan.threads > 1]),
    ):
        stages = assembled(own, lambda plan: scan_stage(op, plan, device), variant)
        yield from candidates(variant, stages, device)
