"""Contractions on devices whose blocks are one thread (CPUs): register tiles of vectors, panels,
k blocks and packed operands.  The aligned space is priced whole, in a few batches of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollergen.construct.candidate import Candidate, rounded
from rollergen.construct.drafts import SIZES, Draftable, Drafted, drafted
from rollergen.construct.grow import grown_panels, points_of
from rollergen.construct.ledger import Ledger, waste_limit
from rollergen.construct.options import ALL, GROW
from rollergen.construct.prefetching import prefetching, with_next_panels
from rollergen.construct.serial_structures import Structure, structures
from rollergen.construct.variants import Variant
from rollergen.dropped import as_far_as_possible, in_pieces, plan_text, standing
from rollergen.hal.spec import Device
from rollergen.program.assemble.levels import reuses
from rollergen.program.assemble.plan import ContractionPlan
from rollergen.program.model import keep_price, least_seconds, price_batch, price_stages
from rollergen.space.contraction import serial_tiles
from rollergen.space.engine import Points, Tally, TileSpace
from rollergen.space.rules import aligned_points, aligned_tiles
from rollergen.tile.rules import AlignmentRules


def serial_candidates(
    variant: Variant, device: Device, rules: AlignmentRules, count: int, ledger: Ledger, search: str = ALL
) -> Iterator[Candidate]:
    """The best candidates of one variant: all structures in batches, the best of each built exactly.

    Those with tiles of a block's own are drafted by themselves, and so are those that ask for next rows: what the model
    says wrongly of them, or of the others, then keeps no kind from being measured.  Of few rows times words those that
    ask for the next panel are, too: other register tiles are quick where no panel is waited for."""
    every = _sparing(list(as_far_as_possible(structures(variant, device, rules), variant.name)), rules)
    plain = [one for one in every if not (one.staged or one.asked)]
    ahead = [[one.asking_for_panels()] for one in plain if rules.shapes.prefetch and one.shares_words_of_few_rows]
    for alike in (plain, [one for one in every if one.staged], [one for one in every if one.asked], *ahead):
        made = made_of(alike, count, 3 * count if alike is plain else count, device, rules, ledger, search)
        if rules.shapes.prefetch and variant.roles.taps:
            made = with_next_panels(made, device)
        yield from (one for _, one in made)
        if rules.shapes.prefetch and not variant.roles.taps:
            yield from as_far_as_possible(prefetching(made, device), f"{variant.name}, prefetched")


def made_of(
    structures: Sequence[Structure], each: int, count: int, device: Device, rules: AlignmentRules, ledger: Ledger,
    search: str = ALL,
) -> list[tuple[Structure, Candidate]]:  # fmt: skip
    """The ``count`` best candidates of these structures, at most so many of ``each``."""
    found, spaces = [], []
    for structure in structures:
        points = grid(structure, device, rules, ledger, search)
        own = _draftables(structure, points, device, rules) if len(points) else []
        found += [structure] * len(own)
        spaces += own

    def whole(one: Drafted) -> tuple[Structure, Candidate]:
        structure = found[one.structure]
        stage = structure.stage(one.plan, device, rules)
        keep_price(stage, device, one.price)
        return structure, structure.candidate(stage, device, one.seconds)

    best = drafted(spaces, each, count)
    return [pair for _, pair in standing(best, whole, lambda one: plan_text(one.plan))]


def _draftables(structure: Structure, points: Points, device: Device, rules: AlignmentRules) -> list[Draftable]:
    """All plans of a structure as one, or those of which a bound can be found.  Sums without reuse start accumulators
    anew so often that each step of the reduction has loops of its own."""
    said = lambda points: f"{structure.name}: {len(points)} tiles"
    bounded = lambda points: _draftable(structure, points, device, rules)
    sums = not reuses(structure.op)
    alike = points.alike(points["kc"], points["pm"] * points["pn"] > 1) if sums else [points]
    return [space for own in alike for _, space in in_pieces(own, bounded, len, Points.where, said)]


def _draftable(structure: Structure, points: Points, device: Device, rules: AlignmentRules) -> Draftable:
    plan = structure.plan(*(points[name] for name in SIZES))

    exactly = lambda plan, limit: price_batch(structure.stage(plan, device, rules), device, limit)
    bounds = least_seconds(structure.stage(plan, device, rules), device)
    return Draftable(plan, bounds, exactly, lambda: structure.packing.copy_seconds(device))


def _sparing(found: list[Structure], rules: AlignmentRules) -> list[Structure]:
    """Those whose panels waste no more than the user allows, else the least wasteful."""
    limit = waste_limit(rules)
    if limit is None or not found:
        return found
    least = max(limit, min(structure.waste for structure in found))
    return [structure for structure in found if structure.waste <= least]


def grid(
    structure: Structure, device: Device, rules: AlignmentRules, tally: Tally, search: str = ALL
) -> Points:
    """All tiles of the structure that the rules admit, or those of them that were grown."""
    width, variant = structure.vectors * structure.lanes, structure.variant
    space = serial_tiles(
        structure.op, variant.roles, device, rules, structure.vectors, width, variant.unrolled,
        structure.tile_bytes(1, 1), bool(structure.asked), structure.ahead,
    )  # fmt: skip
    grown = points_of(space, _grown(structure, space))
    return aligned_points(space, grown, tally) if search == GROW else aligned_tiles(space, tally, grown)


def _grown(structure: Structure, space: TileSpace) -> list[dict[str, int]]:
    """Sizes that growth comes to with the structure's vectors, by the next step of the reduction that the space has:
    others cannot be cut into levels of accumulators."""
    (steps,) = [list(digit.choices) for digit in space.digits if digit.name == "kc" and not callable(digit.choices)]
    step = lambda wanted: next((one for one in steps if one >= wanted), steps[-1])
    rows = grown_panels(structure.variant, space.device, space.rules, structure.lanes)
    return [{**row, "kc": step(row["kc"])} for row in rows if row["rn"] == structure.vectors]


def exact(structure: Structure, plan: ContractionPlan, device: Device, rules: AlignmentRules) -> Candidate:
    stage = structure.stage(plan, device, rules)
    seconds = float(price_stages([stage], device).seconds[0])
    return structure.candidate(stage, device, rounded(structure.packing.copy_seconds(device) + seconds))
