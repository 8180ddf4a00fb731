"""Construction of reductions without operand reuse and of row stages: small spaces, priced whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from rollergen.construct.adding import adding
from rollergen.construct.candidate import Candidate, assembled, candidate, candidates, cheapest
from rollergen.construct.counts import POWERS, item_counts, power_below, private_limit, thread_counts
from rollergen.construct.roles import contraction_roles
from rollergen.dropped import as_far_as_possible
from rollergen.expr.definition import Definition
from rollergen.expr.rows import is_gathered, online
from rollergen.expr.splitting import split_reduction
from rollergen.expr.values import walk
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.assemble.contraction import accumulator_dtype, contraction_stage
from rollergen.program.assemble.nest import ceil_div, copy_vector
from rollergen.program.assemble.plan import ContractionPlan, ReductionPlan
from rollergen.program.assemble.reduction import is_costly, reduction_stage, row_stage
from rollergen.program.check.tiles import asks_for_rows
from rollergen.program.layers import REGISTERS
from rollergen.program.rprogram import SERIAL, Stage
from rollergen.tile.rules import (
    ITEMSIZE,
    AlignmentRules,
    block_layer,
    contiguous_axis,
    exchanges,
    vector_lanes,
)


def reduction_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    """Reductions along the contiguous reduce axis, and split ones where there are few outputs."""
    of = lambda form, plans: candidates(form, _stages(definition, plans, device), device)
    if len(definition.reductions) > 1:
        yield from of("one row", row_plans(definition, device, rules))
        return
    plans = list(reduction_plans(definition, device, rules))
    yield from of("direct", plans)
    # Full vectors straddle two lines wherever an array does not begin on a line.
    yield from of("direct, half vectors", [replace(plan, lanes=plan.lanes // 2) for plan in plans if plan.lanes >= 8])
    if rules.shapes.split_reductions:
        yield from split_candidates(definition, device, rules)


def _stages(
    definition: Definition, plans: Iterable[ReductionPlan], device: Device, name: str = "reduction"
) -> list[Stage]:
    return assembled(plans, lambda plan: reduction_stage(definition, plan, device, name), name)


def reduction_plans(
    definition: Definition, device: Device, rules: AlignmentRules, *, brief: bool = False
) -> Iterator[ReductionPlan]:
    """Threads, vectors and chains along the reduce axis, or several rows side by side.  ``brief``: blocks
    of one middling size only (for the parts of a split reduction, whose number varies instead)."""
    k = definition.of_role("reduce")[-1]
    rows = definition.of_role("spatial")[-1].extent if definition.of_role("spatial") else 1
    lanes = min(vector_lanes(device, accumulator_dtype(definition)), power_below(k.extent))
    counts = thread_counts(device, rules, 512)
    if brief and len(counts) > 2:
        counts = counts[-2:-1]
    vectors = _vectors(definition, k.name, device, lanes, (1, 4))
    for threads in counts:
        for vector in vectors:
            for chains in (1, 2, 4, 8) if lanes > 1 else (1, 4):
                least = threads == counts[0] and vector * chains == vectors[0]
                for count in item_counts(device, rows)[:8] if threads == 1 else (1,):
                    if threads * vector * lanes * chains <= 2 * k.extent or least:
                        yield ReductionPlan(count, 1, threads, vector, lanes, chains)
        for row_threads in () if brief else (2, 8, 32):
            per_row = threads // row_threads
            if per_row >= 1 and row_threads <= rows and threads > 1:
                yield ReductionPlan(1, row_threads, per_row, 1, lanes, 1)
    for row_threads, per_row in () if brief else _rows_together(device, rows):
        for vector in vectors:
            for chains in (1, 2, 4):
                if per_row * vector * chains <= 2 * k.extent:
                    yield ReductionPlan(1, row_threads, per_row, vector, 1, chains)


def _vectors(
    definition: Definition, axis: str, device: Device, lanes: int, otherwise: tuple[int, ...]
) -> tuple[int, ...]:
    """How many adjacent elements a thread takes at once: where threads exchange registers, which is where scalar
    threads fetch vectors of 16 bytes, as many as all operands along the axis allow."""
    if lanes > 1:
        return (1,)
    if not exchanges(device):
        return otherwise
    along = [load for load in definition.loads() if contiguous_axis(load) == axis]
    if not along:
        return (1,)
    most = 16 // max(ITEMSIZE[load.dtype] for load in along)
    return (min(most, max(copy_vector(definition, load, axis, most) for load in along)),)


def _rows_together(device: Device, rows: int) -> Iterator[tuple[int, int]]:
    """(rows side by side in a block, threads of each) where these exchange registers: an execution width or less
    for a row, four or eight widths a block."""
    width = device.execution_width
    if not exchanges(device):
        return
    for widths in (4, 8):
        per_row = width
        while per_row >= 4:
            together = widths * width // per_row
            if together <= rows and together * per_row <= device.limits.threads_per_block:
                yield together, per_row
            per_row //= 2


_TILE = 1024
"""Elements that the threads of a block take at once: parts are multiples of it where they are long."""


def split_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    """The longest reduce axis cut into parts that run side by side, then combined."""
    axis = max(definition.of_role("reduce"), key=lambda a: a.extent)
    outputs = 1
    for a in definition.of_role("spatial"):
        outputs *= a.extent
    for parts in (2, 4, 8, 16, 64, 256):
        if outputs * parts > 64 * device.units * max(1, device.limits.threads_per_unit) or parts * 64 > axis.extent:
            continue
        yield from as_far_as_possible(_in_parts(definition, axis.name, parts, device, rules), f"split {parts}")


def _in_parts(
    definition: Definition, axis: str, parts: int, device: Device, rules: AlignmentRules
) -> Iterator[Candidate]:
    """Parts combined by a second stage, and parts added up."""
    split = split_reduction(definition, axis, parts, tile=_TILE, whole=block_layer(device) is None)
    if split is None or device.units == 1:
        return
    *partials, combined = split
    stages = (*(_partial(one, device, rules) for one in partials), combine_stage(combined, device, rules))
    yield candidate(f"split {parts}", stages, tuple(one.output for one in partials), device, split=parts)
    added = adding(definition, axis, parts, device, rules)
    if added is not None:
        plans = reduction_plans(added.sums, device, rules, brief=True)
        made = [added.stage(stage) for stage in _stages(added.sums, plans, device, "partial")]
        yield added.candidate("", parts, cheapest(made, device), device)


def _partial(definition: Definition, device: Device, rules: AlignmentRules) -> Stage:
    """The cheapest stage for one component of the parts of a split reduction."""
    plans = reduction_plans(definition, device, rules, brief=True)
    return cheapest(_stages(definition, plans, device, "partial"), device)


def combine_stage(definition: Definition, device: Device, rules: AlignmentRules) -> Stage:
    """The cheapest stage that sums the parts of a split reduction (few of them, adjacent outputs)."""
    stages = []
    for roles in contraction_roles(definition):
        extent = definition.axis(roles.n or "").extent
        parts = definition.axis(roles.k).extent
        lanes = min(vector_lanes(device, accumulator_dtype(definition)), power_below(extent))
        for threads in thread_counts(device, rules):
            if threads * lanes <= 2 * extent or threads == min(thread_counts(device, rules)):
                plan = ContractionPlan(lanes=lanes, tn=threads, kc=parts)
                make = lambda plan, roles=roles: contraction_stage(definition, roles, plan, device, rules, "combine")
                stages += assembled([plan], make, "combine")
    if not stages:
        stages = _stages(definition, reduction_plans(definition, device, rules), device, "combine")
    return cheapest(stages, device)


def row_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    ahead = asking_ahead if rules.shapes.prefetch else lambda stage, device: stage
    make = lambda plan: ahead(row_stage(definition, plan, device), device)
    stages = assembled(row_plans(definition, device, rules), make, "row resident")
    yield from candidates("row resident", stages, device)
    merged = online(definition) if rules.shapes.online and exchanges(device) else None
    if merged is not None:
        gathered = rules.shapes.gathered_pairs and is_gathered(merged)
        plans = [
            replace(plan, gathered=gathered and plan.vector * plan.chains > 1)
            for plan in row_plans(merged, device, replace(rules, shapes=replace(rules.shapes, rows_in_registers=False)))
        ]
        stages = assembled(plans, lambda plan: row_stage(merged, plan, device), "online")
        yield from candidates("online", stages, device)


def asking_ahead(stage: Stage, device: Device) -> Stage:
    """The stage with its next row, and the lines of its result, asked for while a row is computed, where that helps."""
    first = next((layer for layer in device.layers[:-1] if not layer.managed), None)
    if first is None or block_layer(device) is not None or stage.threads > 1 or len(stage.definition.reductions) < 2:
        return stage
    return result_asked_for(next_row_prefetched(stage, first), first)


def result_asked_for(stage: Stage, first: MemoryLayer) -> Stage:
    """The stage with the row of the output asked for by the last reduction, where the first cache holds it beside the
    row that is read, or that reduction computes a costly function.

    Stores that wait for their lines keep loads waiting whose addresses share bytes with theirs modulo 4 KiB (Intel's
    optimization manual, "4K aliasing"; NumPy's large arrays all begin 16 bytes behind a page).  On a Sapphire Rapids
    Xeon a layer norm of 4096 x 1024 takes 1.32 to 1.35 ms wherever its arrays lie, without 1.35 to 1.66; of 128 KB, in
    the first caches, .92 to .97 of the time; but of rows of 8192 and more 1.1 times as long, and log_softmax .85."""
    if not asks_for_rows(stage):
        return stage
    if _row_bytes(stage) <= first.capacity_bytes or _is_costly(stage):
        return replace(stage, store=replace(stage.store, ahead=1))
    return stage


def next_row_prefetched(stage: Stage, first: MemoryLayer) -> Stage:
    """The stage with the next row fetched while one is computed, where that helps: the first reduction waits for
    memory, the last computes a costly function of a row that lies in the first cache, so that without it memory and
    arithmetic take turns.  On a Sapphire Rapids Xeon softmax and log_softmax take .76 to .97 of the time; norms,
    which compute little, the same, and rows whose successor does not fit beside them into the first cache more."""
    walked = {axis.name for axis in stage.definition.of_role("row", "reduce")}
    rows = [p for p, loop in enumerate(stage.loops) if loop.kind == SERIAL and loop.axis not in walked]
    if not rows or not _is_costly(stage) or _row_bytes(stage, ahead=1) > first.capacity_bytes:
        return stage
    return replace(stage, prefetch=rows[-1])


def _is_costly(stage: Stage) -> bool:
    """Whether the last reduction computes a costly function."""
    return any(is_costly(node) for body in stage.definition.reductions[-1].bodies for node in walk(body))


def _row_bytes(stage: Stage, ahead: int = 0) -> int:
    """Of what is read for a row, and for so many more, and of what is written."""
    definition = stage.definition
    walked = {axis.name for axis in definition.of_role("row", "reduce")}
    loads = [load for load in definition.loads() if load.axes() & walked]
    held = (1 + ahead) * sum(ITEMSIZE[load.dtype] for load in loads) + ITEMSIZE[definition.output.dtype]
    return held * prod(definition.axis(axis).extent for axis in walked)


def fills_output(definition: Definition) -> bool:
    """Whether every point of the row has a place of its own in an output as wide as the arithmetic."""
    places = {axis for index in definition.target for axis in index.axes()}
    rows = {axis.name for axis in definition.of_role("row")}
    return bool(rows) and rows <= places and definition.output.dtype == accumulator_dtype(definition)


def row_plans(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[ReductionPlan]:
    """Threads or lanes along the row; kept values in registers where a thread's share is small; where a
    block is one thread, in the output where it has place for them, else in a private array."""
    if _rows_apart(definition):
        yield from _side_by_side(definition, device, rules)
    extent = definition.of_role("row", "reduce")[-1].extent
    rows = definition.of_role("spatial")[-1].extent if definition.of_role("spatial") else 1
    lanes = min(vector_lanes(device, accumulator_dtype(definition)), power_below(extent))
    size = ITEMSIZE[accumulator_dtype(definition)]
    kept_bytes = size * prod(a.extent for a in definition.of_role("row", "reduce"))
    inner = device.layers[1].name
    single = block_layer(device) is None
    counts = thread_counts(device, rules)
    vectors = _vectors(definition, definition.of_role("row", "reduce")[-1].name, device, lanes, (1, 2, 4))
    together = [(1, threads) for threads in counts] + list(_rows_together(device, rows))
    for row_threads, threads in together:
        for vector in vectors:
            share = ceil_div(extent, threads * vector * lanes) * vector * _outside(definition)
            in_registers = not single and share <= _most_kept(device)
            for chains in (1, 2, 4) if single or (exchanges(device) and not in_registers) else (1,):
                least = threads == counts[0] and vector * chains == vectors[0]
                if threads * vector * lanes * chains > 2 * extent and not least:
                    continue
                kept = ["", inner] if single and kept_bytes <= private_limit(device) else [""]
                if single and fills_output(definition):
                    kept = ["", device.backing.name]
                if in_registers:
                    kept = [REGISTERS] if rules.shapes.rows_in_registers and exchanges(device) else ["", REGISTERS]
                if not rules.shapes.rows_in_registers and not single:
                    kept = [""]
                for layer in kept:
                    for count in item_counts(device, rows)[:6] if single else (1,):
                        yield ReductionPlan(count, row_threads, threads, vector, lanes, chains, layer)


def _rows_apart(definition: Definition) -> bool:
    """Whether neighbours in memory belong to different rows: an axis of rows comes last."""
    return bool(definition.of_role("row")) and definition.axes[-1].role == "spatial"


def _side_by_side(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[ReductionPlan]:
    """Rows whose elements lie apart: neighbouring threads take neighbouring rows."""
    row, last = definition.of_role("row")[-1], definition.axes[-1]
    for total in thread_counts(device, rules):
        for row_threads in (power for power in POWERS if power <= min(total, 2 * last.extent)):
            threads = total // row_threads
            if threads > 2 * row.extent or total % row_threads:
                continue
            share = ceil_div(row.extent, threads) * _outside(definition)
            kept = rules.shapes.rows_in_registers and share <= _most_kept(device)
            yield ReductionPlan(1, row_threads, threads, resident=REGISTERS if kept else "")


def _outside(definition: Definition) -> int:
    """Elements of a row for each place along its last axis: all of them are the same thread's."""
    return prod(axis.extent for axis in definition.of_role("row", "reduce")[:-1])


def _most_kept(device: Device) -> int:
    """Elements of a row that a thread may keep: a quarter of its registers where these are all that it has."""
    return (device.limits.registers_per_thread + 1) // 4 if exchanges(device) else 32
