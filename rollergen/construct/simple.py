"""Construction of stages without operand reuse: their aligned space is small, all of it is priced."""

from __future__ import annotations

from collections.abc import Iterator

from rollergen.construct.candidate import Candidate, candidate, price
from rollergen.construct.roles import contraction_roles
from rollergen.expr.definition import Definition
from rollergen.expr.splitting import split_reduction
from rollergen.expr.values import Load
from rollergen.hal.spec import Device
from rollergen.program.assemble import accumulator_dtype, contraction_stage
from rollergen.program.assemble_simple import elementwise_axes, elementwise_stage, reduction_stage, row_stage
from rollergen.program.nest import ceil_div
from rollergen.program.plan import ContractionPlan, ElementwisePlan, ReductionPlan, RowPlan
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import ITEMSIZE, AlignmentRules, block_layer, contiguous_axis, thread_multiple, vector_lanes

_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def thread_counts(device: Device, rules: AlignmentRules, limit: int = 1024) -> list[int]:
    """Numbers of threads of a block that rule 1 allows; [1] where a block is one thread."""
    if block_layer(device) is None:
        return [1]
    most = min(device.limits.threads_per_block, limit)
    if device.execution_width == 1:
        return sorted({1, most})
    unit = thread_multiple(device, rules)
    return [count for count in _POWERS if count % unit == 0 and count <= most]


def lanes_of(device: Device, dtype: str) -> int:
    return vector_lanes(device, dtype)


def item_counts(device: Device, extent: int) -> list[int]:
    """Serial repetitions of a block: powers of two, and the count that gives each unit one block."""
    even = max(1, ceil_div(extent, device.units))
    return sorted({count for count in (*_POWERS[:9], even) if count <= max(1, extent)})


def reduction_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    """Reductions along the contiguous reduce axis, and split ones where there are few outputs."""
    for plan in reduction_plans(definition, device, rules):
        yield candidate("direct", (reduction_stage(definition, plan, device),), (), device)
    yield from split_candidates(definition, device, rules)


def reduction_plans(
    definition: Definition, device: Device, rules: AlignmentRules, *, brief: bool = False
) -> Iterator[ReductionPlan]:
    """Threads, vectors and chains along the reduce axis, or several rows side by side.  ``brief``: blocks
    of one middling size only (for the parts of a split reduction, whose number varies instead)."""
    k = definition.of_role("reduce")[-1]
    rows = definition.of_role("spatial")[-1].extent if definition.of_role("spatial") else 1
    lanes = min(lanes_of(device, accumulator_dtype(definition)), _power_below(k.extent))
    counts = thread_counts(device, rules, 512)
    if brief and len(counts) > 2:
        counts = counts[-2:-1]
    for threads in counts:
        for vector in (1,) if lanes > 1 else (1, 4):
            for chains in (1, 2, 4, 8) if lanes > 1 else (1, 4):
                least = threads == counts[0] and vector * chains == 1
                for count in item_counts(device, rows)[:8] if threads == 1 else (1,):
                    if threads * vector * lanes * chains <= 2 * k.extent or least:
                        yield ReductionPlan(count, 1, threads, vector, lanes, chains)
        for row_threads in () if brief else (2, 8, 32):
            per_row = threads // row_threads
            if per_row >= 1 and row_threads <= rows and threads > 1:
                yield ReductionPlan(1, row_threads, per_row, 1, lanes, 1)


def _power_below(extent: int) -> int:
    return 1 << (max(1, extent).bit_length() - 1)


def split_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    """The longest reduce axis cut into parts that run side by side, then combined."""
    axis = max(definition.of_role("reduce"), key=lambda a: a.extent)
    outputs = 1
    for a in definition.of_role("spatial"):
        outputs *= a.extent
    for parts in (2, 4, 8, 16, 64, 256):
        if outputs * parts > 64 * device.units * max(1, device.limits.threads_per_unit) or parts * 64 > axis.extent:
            continue
        pair = split_reduction(definition, axis.name, parts)
        if pair is None or device.units == 1:
            continue
        plans = reduction_plans(pair[0], device, rules, brief=True)
        first = cheapest([reduction_stage(pair[0], plan, device, "partial") for plan in plans], device)
        stages = (first, combine_stage(pair[1], device, rules))
        yield candidate(f"split {parts}", stages, (pair[0].output,), device, split=parts)


def combine_stage(definition: Definition, device: Device, rules: AlignmentRules) -> Stage:
    """The cheapest stage that sums the parts of a split reduction (few of them, adjacent outputs)."""
    stages = []
    for roles in contraction_roles(definition):
        extent = definition.axis(roles.n or "").extent
        parts = definition.axis(roles.k).extent
        lanes = min(lanes_of(device, accumulator_dtype(definition)), _power_below(extent))
        for threads in thread_counts(device, rules):
            if threads * lanes <= 2 * extent or threads == min(thread_counts(device, rules)):
                plan = ContractionPlan(lanes=lanes, tn=threads, kc=parts)
                stages.append(contraction_stage(definition, roles, plan, device, rules, "combine"))
    if not stages:
        plans = reduction_plans(definition, device, rules)
        stages = [reduction_stage(definition, plan, device, "combine") for plan in plans]
    return cheapest(stages, device)


def cheapest(stages: list[Stage], device: Device) -> Stage:
    return min(stages, key=lambda stage: (price((stage,), device), repr(stage.loops)))


def row_candidates(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Candidate]:
    for plan in row_plans(definition, device, rules):
        yield candidate("row resident", (row_stage(definition, plan, device),), (), device)


def row_plans(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[RowPlan]:
    """Threads or lanes along the row; kept values in registers where a thread's share is small,
    else in a private array where a block is one thread."""
    extent = definition.of_role("row")[-1].extent
    rows = definition.of_role("spatial")[-1].extent if definition.of_role("spatial") else 1
    lanes = min(lanes_of(device, accumulator_dtype(definition)), _power_below(extent))
    size = ITEMSIZE[accumulator_dtype(definition)]
    inner = device.layers[1].name
    single = block_layer(device) is None
    counts = thread_counts(device, rules)
    for threads in counts:
        for vector in (1,) if lanes > 1 else (1, 2, 4):
            for chains in (1, 2, 4) if single else (1,):
                share = ceil_div(extent, threads * vector * lanes) * vector
                least = threads == counts[0] and vector * chains == 1
                if threads * vector * lanes * chains > 2 * extent and not least:
                    continue
                kept = ["", inner] if single and extent * size <= _private_limit(device) else [""]
                if not single and share <= 32:
                    kept = ["", "registers"]
                for layer in kept:
                    for count in item_counts(device, rows)[:6] if single else (1,):
                        yield RowPlan(count, 1, threads, vector, lanes, chains, layer)


def _private_limit(device: Device) -> int:
    """Bytes of a private array: what stays within the second cache, and well within a stack."""
    caches = [layer for layer in device.layers[1:-1] if not layer.managed]
    return min(caches[min(1, len(caches) - 1)].capacity_bytes // 2, 1 << 19) if caches else 0


def elementwise_candidates(
    definition: Definition, device: Device, rules: AlignmentRules, *, name: str = "elementwise"
) -> Iterator[Candidate]:
    for plan in elementwise_plans(definition, device, rules):
        form = "transposed" if plan.staged >= 0 else "direct"
        yield candidate(form, (elementwise_stage(definition, plan, device, name),), (), device)


def elementwise_plans(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[ElementwisePlan]:
    m, n, _ = elementwise_axes(definition)
    staged = transposed_load(definition)
    if block_layer(device) is None:
        yield from _serial_plans(definition, device, m, n, staged)
    else:
        yield from _thread_plans(definition, device, rules, m, n, staged)


def transposed_load(definition: Definition) -> int:
    """The load that is contiguous along m but strided along n; -1 if there is none."""
    m, n, _ = elementwise_axes(definition)
    for number, load in enumerate(definition.loads()):
        if m is not None and contiguous_axis(load) == m and n in load.axes() and not load.guard:
            return number
    return -1


def _serial_plans(
    definition: Definition, device: Device, m: str | None, n: str, staged: int
) -> Iterator[ElementwisePlan]:
    dtype = _widest(definition)
    lanes = min(lanes_of(device, dtype), _power_below(definition.axis(n).extent))
    size_bytes = definition.output.elements * ITEMSIZE[definition.output.dtype]
    cache = max((layer.capacity_bytes for layer in device.layers[1:-1]), default=0)
    last_store = Load(definition.output, definition.target)
    aligned = definition.axis(n).extent % lanes == 0 and contiguous_axis(last_store) == n
    streams = (False, True) if size_bytes > cache // 8 and aligned and definition.output.kind == "output" else (False,)
    n_steps = ceil_div(definition.axis(n).extent, lanes)
    m_extent = definition.axis(m).extent if m else 1
    for streaming in streams:
        for pn in sorted({1, 4, 16, 64, 256, 1024, 4096, ceil_div(n_steps, device.units), n_steps}):
            for pm in sorted({1, 8, 16, 32, 64, ceil_div(m_extent, device.units)}):
                if pn > n_steps or pm > m_extent:
                    continue
                if staged >= 0 and pm * pn * lanes * 4 <= _private_limit(device):
                    yield ElementwisePlan(
                        pm=pm, pn=pn, lanes=lanes, staged=staged, layer=device.layers[1].name, streaming=streaming
                    )
                yield ElementwisePlan(pm=pm, pn=pn, lanes=lanes, streaming=streaming)


def _widest(definition: Definition) -> str:
    dtypes = [definition.output.dtype, *(load.dtype for load in definition.loads())]
    return max(dtypes, key=lambda d: ITEMSIZE[d])


def _thread_plans(
    definition: Definition, device: Device, rules: AlignmentRules, m: str | None, n: str, staged: int
) -> Iterator[ElementwisePlan]:
    n_extent = definition.axis(n).extent
    m_extent = definition.axis(m).extent if m else 1
    lanes = lanes_of(device, _widest(definition))
    lanes = lanes if n_extent >= lanes else 1
    if staged >= 0:
        tile = 32 if device.execution_width > 1 else 8
        for rows in (4, 8, 16):
            if device.execution_width > 1:
                yield ElementwisePlan(tm=rows, tn=tile, pm=tile // rows, staged=staged)
    counts = thread_counts(device, rules)
    for threads in counts:
        for tn in {threads, min(threads, max(1, _power_below(n_extent))), min(threads, device.execution_width)}:
            tm = threads // tn
            if tm > 1 and (m is None or tm > 2 * m_extent):
                continue
            for vector in (1,) if lanes > 1 else (1, 2, 4):
                for un in (1, 2, 4):
                    if tn * vector * un * lanes <= 2 * n_extent or (threads == counts[0] and vector * un == 1):
                        yield ElementwisePlan(tm=tm, tn=tn, un=un, vector=vector, lanes=lanes)
    if device.execution_width == 1:
        most = device.limits.threads_per_block
        for pn in (1, 4, 16, 64, 256):
            for pm in (1, 4, 16, 64):
                if pn * lanes * most <= 2 * n_extent and pm <= m_extent:
                    yield ElementwisePlan(tn=most, pn=pn, pm=pm, lanes=lanes)
