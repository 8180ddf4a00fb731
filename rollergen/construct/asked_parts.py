"""Few rows times a matrix, and sums of columns, in parts whose passes ask for their next rows.

A pass over few rows leaves its results in the output until the next one (`loops.next_rows`).  Where that holds only
rounded ones, or so many passes would add up more terms one after the other than are exact enough, the reduction is cut
into parts: of each, results in the accumulators' dtype wait in rows of a workspace, which a second stage adds up.

(One core of a Zen 4, us, in tiles of 256 columns and in parts.  A row times 4096 x 4096 in float16 3602 and 1042, in
bfloat16 3846 and 1240, four rows 8096 and 1777; times 32768 x 1024 in float32 11106 and 4841; sums of 4096 columns of
4096 5228 and 2268, of 1024 of 16384 5351 and 2310, of 4096 of 1024, in the last cache, 361 and 310.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rollergen.construct.candidate import Candidate, candidate, price, rounded
from rollergen.construct.ledger import Ledger
from rollergen.construct.reductions import combine_stage
from rollergen.construct.serial_space import made_of
from rollergen.construct.serial_structures import structures
from rollergen.construct.variants import Variant
from rollergen.dropped import as_far_as_possible
from rollergen.expr.splitting import split_reduction
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import fits_output
from rollergen.program.assemble.levels import least_step, reuses
from rollergen.program.assemble.nest import ceil_div
from rollergen.space.contraction import MOST_ASKED, MOST_ROWS
from rollergen.tile.rules import AlignmentRules


def asked_parts(
    variant: Variant, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """The best candidate of each number of parts; none where rows are not asked for, or need no parts."""
    roles, forbidden = variant.roles, not rules.shapes.split_reductions
    rows = variant.op.axis(roles.m).extent if roles.m else 1
    if device.kind.threads or variant.copies or variant.by_matrices or forbidden or roles.taps or rows > MOST_ROWS:
        return
    for parts in _part_counts(variant):
        made = _in_parts(variant, parts, device, rules, ledger)
        yield from as_far_as_possible(made, f"{variant.name}, split {parts}")


_MOST_PARTS = 64
"""Rows of a workspace that a second stage adds up."""


def _part_counts(variant: Variant) -> list[int]:
    """The least equal parts of which each has few rows in a pass, and twice as many."""
    op, extent = variant.op, variant.op.axis(variant.roles.k).extent
    passes = ceil_div(least_step(op, extent, few_rows=reuses(op)), MOST_ASKED)
    least = max(passes, 1 if fits_output(op) else 2)
    if least == 1:
        return []
    even = [parts for parts in range(least, 2 * least + 1) if extent % parts == 0 and parts <= _MOST_PARTS]
    return sorted({even[0], even[-1]}) if even else []


def _in_parts(
    variant: Variant, parts: int, device: Device, rules: AlignmentRules, ledger: Ledger
) -> Iterator[Candidate]:
    split = split_reduction(variant.op, variant.roles.k, parts, whole=True)
    if split is None:
        return
    own, combined = split
    roles = replace(variant.roles, batch=(own.axes[0].name, *variant.roles.batch))
    asking = [one for one in structures(replace(variant, op=own, roles=roles), device, rules) if one.asked]
    made = made_of(asking, 1, 1, device, rules, ledger)
    if made:
        combine = combine_stage(combined, device, rules)
        for _, one in made:
            seconds = rounded(one.seconds + price((combine,), device))
            name = f"{one.variant}, split {parts}"
            yield candidate(name, (*one.stages, combine), (own.output,), device, parts, seconds)
