"""Construction of reductions without operand reuse and of row stages: small spaces, priced whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from rollergen.construct.candidate import Candidate, assembled, candidate, candidates, cheapest
from rollergen.construct.ledger import Ledger
from rollergen.construct.roles import contraction_roles
from rollergen.construct.splits import adding, part_counts
from rollergen.dropped import as_far_as_possible
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.rows import is_gathered, online
from rollergen.expr.splitting import split_reduction
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import walk
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.assemble.contraction import contraction_stage
from rollergen.program.assemble.plan import ContractionPlan, ReductionPlan
from rollergen.program.assemble.reduction import inner_product_stage, is_costly, reduction_stage, row_stage
from rollergen.program.check.tiles import prefetches_rows
from rollergen.program.loops import panel_part
from rollergen.program.rprogram import SERIAL, Stage
from rollergen.space.contraction import combining_tiles
from rollergen.space.engine import Tally, plans
from rollergen.space.reduction import inner_product_plans, reduction_plans, row_plans
from rollergen.space.rules import aligned_tiles
from rollergen.tile.rules import AlignmentRules


def reduction_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger
) -> Iterator[Candidate]:
    """Reductions along the contiguous reduce axis, and split ones where there are few outputs."""
    of = lambda variant, plans: candidates(variant, _stages(op, plans, device), device)
    if len(op.reductions) > 1:
        yield from of("one row", row_plans(op, device, rules, ledger))
        return
    found = reduction_plans(op, device, rules, ledger)
    yield from of("direct", found)
    # Full vectors straddle two lines wherever an array does not begin on a line.
    yield from of("direct, half vectors", [replace(plan, lanes=plan.lanes // 2) for plan in found if plan.lanes >= 8])
    yield from split_candidates(op, device, rules)


def inner_product_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger
) -> Iterator[Candidate]:
    """Products of operands that are both contiguous along k, read as they lie: blocks along either axis, which go over
    all of the other one, and on CPUs may ask for the rows of the next tile meanwhile."""
    for roles in contraction_roles(op):
        if roles.m is None or roles.n is None:
            continue
        for rows, columns in ((roles.n, roles.m), (roles.m, roles.n)):
            make = lambda plan, rows=rows, columns=columns: inner_product_stage(op, rows, columns, plan, device)
            found = inner_product_plans(op, rows, columns, device, rules, ledger)
            variant = f"inner products, blocks along {rows}"
            made = assembled(found, make, variant)
            yield from candidates(variant, made, device)
            if rules.shapes.prefetch and not device.kind.threads:
                asking = [one for stage in made if (one := next_panel_prefetched(stage, rows)) is not None]
                yield from candidates(f"{variant}, next rows prefetched", asking, device)


def next_panel_prefetched(stage: Stage, axis: str | None) -> Stage | None:
    """The stage whose tiles along another axis ask for the next panel (or rows) along this one; None where there is one
    such tile, or one panel in a block."""
    p = next((p for p, loop in enumerate(stage.loops) if loop.axis == axis and loop.kind == SERIAL), -1)
    asking = replace(stage, prefetch=p)
    return asking if panel_part(asking) is not None else None


def _stages(
    op: TensorOp, plans: Iterable[ReductionPlan], device: Device, name: str = "reduction"
) -> list[Stage]:
    return assembled(plans, lambda plan: reduction_stage(op, plan, device, name), name)


_TILE = 1024
"""Elements that the threads of a block take at once: parts are multiples of it where they are long."""


def split_candidates(op: TensorOp, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    """The longest reduce axis cut into parts that run side by side, then combined."""
    axis = max(op.of_role("reduce"), key=lambda a: a.extent)
    for parts in part_counts(op, axis.name, 64, 64 * max(1, device.limits.threads_per_unit), device, rules):
        yield from as_far_as_possible(_in_parts(op, axis.name, parts, device, rules), f"split {parts}")


def _in_parts(
    op: TensorOp, axis: str, parts: int, device: Device, rules: AlignmentRules
) -> Iterator[Candidate]:
    """Parts combined by a second stage, and parts added up."""
    split = split_reduction(op, axis, parts, tile=_TILE, whole=not device.kind.threads)
    if split is None or device.units == 1:
        return
    *partials, combined = split
    made = [_partials(one, device, rules) for one in partials]
    if not all(made):
        return  # a device whose blocks have few threads: none of them aligns
    stages = (*(cheapest(some, device) for some in made), combine_stage(combined, device, rules))
    yield candidate(f"split {parts}", stages, tuple(one.output for one in partials), device, split=parts)
    added = adding(op, axis, parts, device, rules)
    if added is not None:
        sums = [added.stage(stage) for stage in _partials(added.sums, device, rules)]
        yield added.candidate("", parts, cheapest(sums, device), device)


def _partials(op: TensorOp, device: Device, rules: AlignmentRules) -> list[Stage]:
    """Stages for one component of the parts of a split reduction."""
    return _stages(op, reduction_plans(op, device, rules, Tally(), brief=True), device, "partial")


def sums_stage(op: TensorOp, device: Device) -> Stage:
    """The cheapest stage for the sums of a factor of a product."""
    few = reduction_plans(op, device, AlignmentRules(), Tally(), brief=True)
    return cheapest(_stages(op, few, device, f"sum_{op.output.name}"), device)


def combine_stage(op: TensorOp, device: Device, rules: AlignmentRules) -> Stage:
    """The cheapest stage that sums the parts of a split reduction (few of them, adjacent outputs); of tuples, which
    take many instructions each, threads may share the parts."""
    stages = []
    for roles in contraction_roles(op):
        make = lambda plan, roles=roles: contraction_stage(op, roles, plan, device, rules, "combine")
        points = aligned_tiles(combining_tiles(op, roles, device, rules), Tally())
        parts = op.axis(roles.k).extent
        stages += assembled(plans(ContractionPlan, points, kc=parts), make, "combine")
    if not stages or op.components > 1:
        stages += _stages(op, reduction_plans(op, device, rules, Tally()), device, "combine")
    return cheapest(stages, device)


def row_candidates(
    op: TensorOp, device: Device, rules: AlignmentRules, ledger: Ledger
) -> Iterator[Candidate]:
    prefetching = prefetching_row if rules.shapes.prefetch else lambda stage, device: stage
    make = lambda plan: prefetching(row_stage(op, plan, device), device)
    stages = assembled(row_plans(op, device, rules, ledger), make, "kept row")
    yield from candidates("kept row", stages, device)
    merged = online(op) if rules.shapes.online and device.kind.exchanges else None
    if merged is not None:
        gathered = rules.shapes.gathered_pairs and is_gathered(merged)
        again = replace(rules, shapes=replace(rules.shapes, rows_in_registers=False))
        one_pass = [
            replace(plan, gathered=gathered and plan.vector * plan.chains > 1)
            for plan in row_plans(merged, device, again, ledger)
        ]
        stages = assembled(one_pass, lambda plan: row_stage(merged, plan, device), "online")
        yield from candidates("online", stages, device)


def prefetching_row(stage: Stage, device: Device) -> Stage:
    """The stage with its next row, and the lines of its result, prefetched during a row, where that helps."""
    first = next(iter(device.caches), None)
    if first is None or device.kind.threads or stage.threads > 1 or len(stage.op.reductions) < 2:
        return stage
    return result_prefetched(next_row_prefetched(stage, first), first)


def result_prefetched(stage: Stage, first: MemoryLayer) -> Stage:
    """The stage with the row of the output prefetched by the last reduction, where the first cache holds it beside the
    row that is read, or that reduction computes a costly function.

    Stores that wait for their lines keep loads waiting whose addresses share bytes with theirs modulo 4 KiB (Intel's
    optimization manual, "4K aliasing"; NumPy's large arrays all begin 16 bytes behind a page).  On a Sapphire Rapids
    Xeon a layer norm of 4096 x 1024 takes 1.32 to 1.35 ms wherever its arrays lie, without 1.35 to 1.66; of 128 KB, in
    the first caches, .92 to .97 of the time; but of rows of 8192 and more 1.1 times as long, and log_softmax .85."""
    if not prefetches_rows(stage):
        return stage
    if _row_bytes(stage) <= first.capacity_bytes or _is_costly(stage):
        return replace(stage, store=replace(stage.store, prefetch_distance=1))
    return stage


def next_row_prefetched(stage: Stage, first: MemoryLayer) -> Stage:
    """The stage with the next row fetched while one is computed, where that helps: the first reduction waits for
    memory, the last computes a costly function of a row that lies in the first cache, so that without it memory and
    arithmetic take turns.  On a Sapphire Rapids Xeon softmax and log_softmax take .76 to .97 of the time; norms,
    which compute little, the same, and rows whose successor does not fit beside them into the first cache more."""
    row_axes = {axis.name for axis in stage.op.of_role("row", "reduce")}
    rows = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL and loop.axis not in row_axes]
    if not rows or not _is_costly(stage) or _row_bytes(stage, more=1) > first.capacity_bytes:
        return stage
    return replace(stage, prefetch=rows[-1])


def _is_costly(stage: Stage) -> bool:
    """Whether the last reduction computes a costly function."""
    return any(is_costly(node) for body in stage.op.reductions[-1].bodies for node in walk(body))


def _row_bytes(stage: Stage, more: int = 0) -> int:
    """Of what is read for a row, and for so many more, and of what is written."""
    op = stage.op
    row_axes = {axis.name for axis in op.of_role("row", "reduce")}
    loads = [load for load in op.loads() if load.axes() & row_axes]
    held = (1 + more) * sum(ITEMSIZE[load.dtype] for load in loads) + ITEMSIZE[op.output.dtype]
    return held * prod(op.axis(axis).extent for axis in row_axes)
