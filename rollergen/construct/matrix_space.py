"""Contractions by matrix instructions: tiles that are multiples of the instruction's shape, priced in batches.

The space is small: tiles of an execution width, execution widths of a block, steps of k, buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rollergen.construct.candidate import (
    Candidate,
    assembled,
    candidate,
    candidates,
    cheapest_first,
    lowest,
    price,
    rounded,
)
from rollergen.construct.copies import behind
from rollergen.construct.ledger import Ledger
from rollergen.construct.reductions import combine_stage
from rollergen.construct.splits import adding, part_counts
from rollergen.construct.swizzle import grid_swizzle
from rollergen.construct.variants import Variant
from rollergen.dropped import as_far_as_possible, in_pieces, plan_text
from rollergen.expr.splitting import split_reduction
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.languages import language
from rollergen.hal.spec import Device, Instruction
from rollergen.program.assemble.asynchronous import has_asynchronous_copies
from rollergen.program.assemble.matrix import (
    MatrixPlan,
    axes_of,
    gains_by_rows_apart,
    has_realignable,
    matrix_stage,
    roles_for,
)
from rollergen.program.assemble.plan import Roles
from rollergen.program.matrix import PANEL_BYTES, ROW_BYTES, matrix_operands
from rollergen.program.model import price_batch
from rollergen.program.model.numeric import is_nothing
from rollergen.program.rows_apart import sum_apart
from rollergen.space.engine import Points
from rollergen.space.matrix import matrix_tiles
from rollergen.space.rules import aligned_tiles
from rollergen.tile.rules import AlignmentRules

_SIZES = ("fm", "fn", "gm", "gn")
_STEPS = (1, 2, 4)
_LONG_STEP, _SHORT_TILES = 8, 3
"""Of products with so few tiles of the instruction along m or n: their blocks stage little in a step, and would wait
for each other more often than for memory (16 x 4096 x 4096 on an H200: 9.0 us of barriers beside 7.8 of memory)."""
_NARROW_STEPS, _LEAST_NARROW_STEP = (1, 2, 4, 8, 16), 4
"""Of factors that are converted; fewer than the least only where k is no multiple of more."""
_LONG_NARROW_STEP, _LEAST_SHARED = 32, 8
"""Where execution widths share sums, which are through with a tile sooner: the longest step, so that enough bytes are
on their way (4 buffers of 16 on an H200: 1.2 us late of 3.6), and the shortest."""
_CHAINS = (2, 4)
"""Accumulators of a tile whose products of several steps are added up apart."""
_PARTS = (2, 4)
"""Execution widths of a block that share each sum, of products with so few results that a unit has few of them."""
_PANEL_STEPS = PANEL_BYTES // (2 * ROW_BYTES)
"""Of an asynchronous instruction, whose k has 32 bytes: rows along k are a panel's."""
_DEPTHS = (1, 2)
_RING = (3, 4)
"""Buffers of asynchronous copies."""
_CLUSTER = 2
"""Blocks of a cluster."""
_LEAST_STEPS, _CROWD, _FEW = 8, 4 * 128 * 128, (2, 3, 6, 8)
"""Of the parts of a split reduction: instructions along it, and see `part_counts`."""


def matrix_candidates(
    variant: Variant, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    """The best candidates of one variant for every matrix instruction that computes it, split reductions included, each
    behind the variant's copies."""
    if has_matrices(device, rules):
        yield from behind(variant.copies, _bare(variant, device, rules, count, ledger), device)


def _bare(
    variant: Variant, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    for instruction in device.instructions:
        if not rules.allows(instruction):
            continue
        if instruction.is_asynchronous and not rules.shapes.asynchronous_products:
            continue
        spelled = instruction.layout in language(device.kind.language).matrix_layouts
        whole = spelled and instruction.lanes % device.execution_width == 0 and not instruction.is_for_chains
        if whole and matrix_operands(variant.op, axes_of(variant.roles), instruction) is not None:
            name = f"{variant.name}, {instruction.name}"
            own = _shaped(variant.op, variant.roles, name, instruction, device, rules, count, ledger)
            yield from as_far_as_possible(own, name)
            split = _split(variant, name, instruction, device, rules, max(2, count // 4), ledger)
            yield from as_far_as_possible(split, f"{name}, split")


def has_matrices(device: Device, rules: AlignmentRules) -> bool:
    """Whether programs for the device may use matrix instructions."""
    return device.kind.matrix_instructions and rules.shapes.matrix_instructions


def _split(
    variant: Variant,
    name: str,
    instruction: Instruction,
    device: Device,
    rules: AlignmentRules,
    count: int,
    ledger: Ledger,
) -> Iterator[Candidate]:
    """Where blocks are fewer than units: parts of the sum side by side, put together by a second stage.  (Warps share
    sums of converted factors, so that few numbers of parts are tried.)"""
    operands = matrix_operands(variant.op, axes_of(variant.roles), instruction)
    few = () if operands is not None and operands.conversions else _FEW
    for parts in part_counts(variant.op, variant.roles.k, _LEAST_STEPS * instruction.k, _CROWD, device, rules, few):
        pair = split_reduction(variant.op, variant.roles.k, parts) if variant.op.components == 1 else None
        if pair is None:
            continue
        combine = combine_stage(pair[1], device, rules)
        combining = price((combine,), device)
        roles = replace(variant.roles, batch=(pair[0].axes[0].name, *variant.roles.batch))
        if matrix_operands(pair[0], axes_of(roles), instruction) is None:
            continue
        for shaped in _shaped(pair[0], roles, name, instruction, device, rules, count, ledger):
            stages, seconds = (*shaped.stages, combine), rounded(shaped.seconds + combining)
            yield candidate(f"{name}, split {parts}", stages, (pair[0].output,), device, parts, seconds)
        added = adding(variant.op, variant.roles.k, parts, device, rules)
        if added is not None and matrix_operands(added.sums, axes_of(roles), instruction) is not None:
            for shaped in _shaped(added.sums, roles, name, instruction, device, rules, count, ledger):
                yield added.candidate(name, parts, shaped.stages[-1], device)


def _shaped(
    op: TensorOp, roles: Roles, name: str, instruction: Instruction, device: Device, rules: AlignmentRules,
    count: int, ledger: Ledger,
) -> Iterator[Candidate]:  # fmt: skip
    roles = roles_for(roles, instruction)
    points = aligned_tiles(matrix_tiles(op, roles, instruction, device, rules), ledger)
    if not len(points):
        return
    drafts: list[tuple[float, MatrixPlan]] = []
    depths = _DEPTHS if rules.shapes.prefetch else _DEPTHS[:1]
    if has_asynchronous_copies(device, rules):
        depths = (*depths, *_RING)
    operands = matrix_operands(op, axes_of(roles), instruction)
    converts = operands is not None and bool(operands.conversions)
    few, apart = _has_few_tiles(op, roles, instruction), gains_by_rows_apart(op, roles, instruction, device)
    realigned = _realigned(depths, rules) if has_realignable(op, roles, instruction, device) and not converts else []
    for steps in _steps_of(op, roles, instruction, converts):
        ways = _filled(depths, steps, converts, few, apart, instruction, device, rules)
        for depth, how in (*ways, *realigned):
            plan = MatrixPlan(instruction.name, 1, 1, 1, 1, steps, depth, **how)
            drafted = lambda some, plan=plan: _draft(op, roles, plan, some, device, rules, ledger)
            said = lambda some, plan=plan: f"{name}: {len(some)} tiles of {plan_text(plan)}"
            for _, found in in_pieces(points, drafted, len, Points.where, said):
                drafts += found
    plans = _few_of_a_kind(cheapest_first(drafts))[: 2 * count]
    make = lambda plan: matrix_stage(op, roles, plan, device, rules)
    yield from candidates(name, assembled(plans, make, name), device)


def _realigned(depths: tuple[int, ...], rules: AlignmentRules) -> list[tuple[int, dict[str, Any]]]:
    """(buffers, fields of `MatrixPlan`) of plans with realigned vectors, one tile ahead where that may be."""
    return [(depth, {"realigned": True}) for depth in depths[1:] or depths if rules.shapes.realigned_vectors]


def _steps_of(op: TensorOp, roles: Roles, instruction: Instruction, converts: bool) -> list[int]:
    """Instructions along k that are staged at a time; of converted factors whole tiles alone."""
    k_extent = op.axis(roles.k).extent
    if instruction.is_asynchronous:
        return [_PANEL_STEPS]
    if converts:
        longer = (_LONG_NARROW_STEP,) if _has_few_tiles(op, roles, instruction) else ()
        whole = [steps for steps in (*_NARROW_STEPS, *longer) if k_extent % (steps * instruction.k) == 0]
        return [steps for steps in whole if steps >= _LEAST_NARROW_STEP] or whole
    some = (*_STEPS, _LONG_STEP) if _has_few_tiles(op, roles, instruction) else _STEPS
    return [steps for steps in some if steps == 1 or steps * instruction.k < 2 * k_extent]


def _has_few_tiles(op: TensorOp, roles: Roles, instruction: Instruction) -> bool:
    """Whether it has few of the instruction's tiles along m or n."""
    tiles = ((roles.m, instruction.m), (roles.n, instruction.n))
    return any(op.axis(axis or "").extent <= _SHORT_TILES * side for axis, side in tiles)


def _filled(
    depths: tuple[int, ...], steps: int, converts: bool, few: bool, apart: bool, instruction: Instruction,
    device: Device, rules: AlignmentRules,
) -> list[tuple[int, dict[str, Any]]]:  # fmt: skip
    """(buffers, how they are filled and what is added up apart: fields of `MatrixPlan`) that are tried.

    Products with few rows are of few tiles, of which each waits for the one before: of narrow factors alone, whose
    tiles come in time.  Of ``few`` tiles a block has few execution widths, unless several share them."""
    if converts:
        depths = depths[-2:]
    found: list[tuple[int, dict[str, Any]]] = [(depth, {}) for depth in depths]
    if converts:
        parts = [(1, chains) for chains in _CHAINS if chains <= steps]
        parts += [(gk, min(steps // gk, max(_CHAINS))) for gk in _PARTS if few and steps >= _LEAST_SHARED]
        found += [(depth, {"chains": chains, "gk": gk}) for depth in depths for gk, chains in parts]
    if instruction.is_asynchronous and device.kind.box_copies and rules.shapes.box_copies:
        found += [(depth, way) for depth in depths if depth in _RING for way in _boxed(device, rules, apart)]
    return found


def _boxed(device: Device, rules: AlignmentRules, apart: bool) -> Iterator[dict[str, Any]]:
    """How a copy engine may fill the buffers, and store results: fields of `MatrixPlan`.  ``apart``: by rows that are
    apart as well."""
    for way in _filling(device, rules):
        for how in ({}, {"apart": True}) if apart else ({},):
            yield {**way, **how}
            if rules.shapes.box_stores:
                yield {**way, **how, "box_stores": True}


def _filling(device: Device, rules: AlignmentRules) -> Iterator[dict[str, Any]]:
    yield {"boxes": True}
    if not rules.shapes.producers:
        return
    clustered = rules.shapes.clusters and any(layer.cluster_blocks >= _CLUSTER for layer in device.layers)
    for persistent in (False, True) if rules.shapes.persistent_grids else (False,):
        for cluster in (0, _CLUSTER) if clustered else (0,):
            yield {"boxes": True, "producer": True, "persistent": persistent, "cluster": cluster}


def _few_of_a_kind(plans: list[MatrixPlan]) -> list[MatrixPlan]:
    """At most two of a block tile and depth, as become candidates (`Candidate.key`)."""
    seen: dict[tuple[int, ...], int] = {}
    kept = []
    for plan in plans:
        kind = plan.fm * plan.gm, plan.fn * plan.gn, plan.depth
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 2:
            kept.append(plan)
    return kept


def _draft(
    op: TensorOp, roles: Roles, plan: MatrixPlan, points: Points, device: Device, rules: AlignmentRules,
    ledger: Ledger,
) -> list[tuple[float, MatrixPlan]]:  # fmt: skip
    """The best of the plans that have the tiles of ``points``, with their prices."""
    instruction = device.instruction(plan.instruction)
    columns = {name: points[name] for name in _SIZES}
    stage = matrix_stage(op, roles, replace(plan, **columns), device, rules)
    apart = any(copy.apart for copy in stage.copies)
    order = stage.block_order
    launched, cluster = (np.broadcast_to(size, len(points)) for size in (order.launched, order.cluster))
    if (plan.persistent and not launched.any()) or (plan.cluster and not cluster.any()):  # the same as without
        return []
    if (plan.box_stores and is_nothing(stage.store.boxes)) or (plan.apart and not apart):  # the same as without
        return []
    if plan.realigned and plan.depth in _RING and all(copy.realigned for copy in stage.copies):  # as with two buffers
        return []
    priced = price_batch(stage, device)
    ledger.unfit(priced, device)
    picked = []
    held = sum_apart(stage)
    for at in lowest(priced.seconds, 32):
        if held and priced.spilled[at]:  # without registers for the factors, compilers run the products one by one
            continue
        if (plan.persistent and not launched[at]) or (plan.cluster and not cluster[at]):  # the same as without
            continue
        size: dict[str, Any] = {name: int(column[at]) for name, column in columns.items()}
        resident = int(priced.resident_blocks[at])
        block = size["fm"] * size["gm"] * instruction.m, size["fn"] * size["gn"] * instruction.n
        rows = grid_swizzle(stage.op, roles, block, device.units * resident, device, rules)
        picked.append((rounded(float(priced.seconds[at])), replace(plan, **size, group_rows=rows)))
    return picked
