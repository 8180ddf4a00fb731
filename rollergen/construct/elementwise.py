"""Construction of elementwise stages: copies, packing, transposes, maps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields, replace
from math import prod
from operator import attrgetter

import numpy as np

from rollergen.construct.candidate import Candidate, candidate, cheapest_first, rounded
from rollergen.construct.counts import power_below, private_limit, thread_counts
from rollergen.construct.ledger import waste_limit
from rollergen.dropped import at_once, plan_text, standing
from rollergen.expr.definition import Definition
from rollergen.expr.index import linear
from rollergen.expr.primitives import LONG, PRIMITIVES
from rollergen.expr.values import Unary, walk
from rollergen.hal.spec import Device
from rollergen.program.assemble.elementwise import elementwise_axes, elementwise_stage, reading_axes
from rollergen.program.assemble.nest import ceil_div, copy_vector, lane_stride
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.model import price_batches, price_stages
from rollergen.program.neighbours import in_a_row
from rollergen.tile.rules import (
    ITEMSIZE,
    AlignmentRules,
    block_layer,
    contiguous_axis,
    in_lockstep,
    thread_multiple,
    vector_lanes,
)


def elementwise_candidates(
    definition: Definition, device: Device, rules: AlignmentRules, count: int, *, name: str = "elementwise"
) -> Iterator[Candidate]:
    """Candidates of all plans, or of those that a price in batches finds best, twice `count`."""
    plans = _promising(definition, list(elementwise_plans(definition, device, rules)), device, rules, count)
    made = standing(plans, lambda plan: elementwise_stage(definition, plan, device, name), plan_text)
    together = lambda some: price_stages([stage for _, stage in some], device)
    for (plan, stage), priced in at_once(made, together, lambda one: plan_text(one[0])):
        form = "transposed" if plan.staged >= 0 else ("grid stride" if plan.strides else "direct")
        yield candidate(form, (stage,), (), device, seconds=rounded(float(priced.seconds)))


def _promising(
    definition: Definition, plans: list[ElementwisePlan], device: Device, rules: AlignmentRules, count: int
) -> list[ElementwisePlan]:
    """The plans worth a price of their own.

    A batch of plans is priced as one loop structure, which tells them apart to a few parts in a thousand: so three
    are kept for each block tile, of which at most two become candidates.  All are kept where the user limits
    padding, which the price does not know, and where threads are not in lockstep.
    """
    if not in_lockstep(device) or waste_limit(rules) is not None or len(plans) <= 3 * count:
        return plans
    alone = [plan for plan in plans if plan.strides]  # few, each with a structure of its own
    groups: dict[Hashable, list[ElementwisePlan]] = {}
    for plan in plans:
        if plan.strides:
            continue
        groups.setdefault(_AS_ONE(plan), []).append(plan)
    priced: list[tuple[float, ElementwisePlan]] = []
    together = lambda some: price_batches([elementwise_stage(definition, _batch(own), device) for own in some], device)
    said = lambda own: f"{len(own)} of {plan_text(own[0])}"
    for own, price in at_once(list(groups.values()), together, said, len, lambda own, which: own[which]):
        values = np.broadcast_to(np.asarray(price.seconds, dtype=float), (len(own),))
        priced += [(rounded(float(s)), p) for s, p in zip(values, own, strict=True)]
    tiles: dict[tuple[int, int], int] = {}
    kept = []
    for plan in cheapest_first(priced):
        tile = (plan.pm * plan.um * plan.tm, plan.pn * plan.un * plan.tn * plan.vector * plan.lanes)
        tiles[tile] = tiles.get(tile, 0) + 1
        if tiles[tile] <= 3:
            kept.append(plan)
    return kept[: 2 * count] + alone


def _batch(plans: list[ElementwisePlan]) -> ElementwisePlan:
    """Plans that differ in threads and unrolled steps alone, as one of arrays."""
    column = lambda size: np.array([getattr(plan, size) for plan in plans])
    return replace(plans[0], tm=column("tm"), tn=column("tn"), un=column("un"))


_AS_ONE = attrgetter(*(field.name for field in fields(ElementwisePlan) if field.name not in ("tm", "tn", "un")))
"""What plans have in common that are priced as one batch."""


def elementwise_plans(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[ElementwisePlan]:
    m, n, _ = elementwise_axes(definition)
    staged = transposed_load(definition)
    if block_layer(device) is None:
        yield from _serial_plans(definition, device, m, n, staged)
    else:
        yield from _thread_plans(definition, device, rules, m, n, staged)


def transposed_load(definition: Definition) -> int:
    """The load that is contiguous along m but strided along n; -1 if there is none.  (Every other element is
    read as two vectors.)"""
    m, n, _ = elementwise_axes(definition)
    for number, load in enumerate(definition.loads()):
        if lane_stride(load, n) == 2:
            continue
        if m is not None and contiguous_axis(load) == m and n in load.axes() and not load.guard:
            return number
    return -1


def _serial_plans(
    definition: Definition, device: Device, m: str | None, n: str, staged: int
) -> Iterator[ElementwisePlan]:
    lanes = min(vector_lanes(device, _widest(definition)), power_below(definition.axis(n).extent))
    streams = (False, True) if staged < 0 and _worth_streaming(definition, device, n, lanes) else (False,)
    if staged >= 0 and lanes > 1:
        yield from _turned_plans(definition, device, m, n, lanes, staged)
    for width in (lanes, *_side_by_side(definition, device, n, lanes, staged)):
        yield from _walking_plans(definition, device, m, n, staged, width, streams)


_LIVE = 8
"""Registers of a vector of a function that is written out: its steps' and its arguments'."""


def _side_by_side(definition: Definition, device: Device, n: str, lanes: int, staged: int) -> Iterator[int]:
    """Lanes of as many vectors at once as registers hold, where each is a long chain of operations: the operations of
    one vector stand between those of another, which need not wait for them.  (A processor that reorders operations
    looks ahead by about a hundred, which is fewer chains than would keep its pipes busy.)"""
    times = device.limits.registers_per_thread // _LIVE
    loads = definition.loads()
    single = {definition.output.dtype, *(load.dtype for load in loads)} == {"float32"}
    functions = [n for n in walk(definition.result) if isinstance(n, Unary) and PRIMITIVES[n.op].chain >= LONG]
    plain = staged < 0 and all(lane_stride(load, n) in (0, 1) and not load.guard for load in loads)
    whole = definition.axis(n).extent % (times * lanes) == 0
    if times > 1 and lanes > 1 and single and functions and plain and whole:
        yield times * lanes


def _walking_plans(
    definition: Definition, device: Device, m: str | None, n: str, staged: int, lanes: int, streams: tuple[bool, ...]
) -> Iterator[ElementwisePlan]:
    """Blocks of so many vectors of `lanes`, and of so many rows."""
    n_steps = ceil_div(definition.axis(n).extent, lanes)
    m_extent = definition.axis(m).extent if m else 1
    for streaming in streams:
        for pn in sorted({1, 4, 16, 64, 256, 1024, 4096, ceil_div(n_steps, device.units), n_steps}):
            for pm in sorted({1, 8, 16, 32, 64, ceil_div(m_extent, device.units)}):
                if pn > n_steps or pm > m_extent:
                    continue
                if staged >= 0 and pm * pn * lanes * 4 <= private_limit(device):
                    yield ElementwisePlan(
                        pm=pm, pn=pn, lanes=lanes, staged=staged, layer=device.layers[1].name, streaming=streaming
                    )
                yield ElementwisePlan(pm=pm, pn=pn, lanes=lanes, streaming=streaming)
    if True in streams and staged < 0 and (axes := reading_axes(definition)):
        yield from _plans_as_read(definition, axes[0], n_steps, lanes)


def _plans_as_read(definition: Definition, m: str, n_steps: int, lanes: int) -> Iterator[ElementwisePlan]:
    """Whole rows in the order in which they are read: stores that bypass the caches wait for nothing, wherever they go,
    while reads are fetched ahead as long as they follow each other."""
    for pm in (1, 8, 16, 32, 64):
        if pm <= definition.axis(m).extent:
            yield ElementwisePlan(pm=pm, pn=n_steps, lanes=lanes, streaming=True, as_read=True)


def _turned_plans(
    definition: Definition, device: Device, m: str | None, n: str, lanes: int, staged: int
) -> Iterator[ElementwisePlan]:
    """Square tiles turned in registers; where every row of the output begins alike, and stores may bypass the caches,
    these begin on its lines."""
    if m is None or definition.axis(m).extent < lanes:
        return
    if definition.axis(m).extent % lanes and not in_a_row(definition.loads()[staged], m):
        return
    rows = ceil_div(definition.axis(m).extent, lanes)
    plan = ElementwisePlan(lanes=lanes, staged=staged, layer=device.layers[1].name, turned=lanes)
    long = definition.axis(n).extent >= _WRITTEN_ON[0] * lanes
    if long and _rows_alike(definition, n, lanes) and _worth_streaming(definition, device, n, lanes):
        yield from _turned_on_lines(definition.axis(n).extent, rows, plan)
        return
    vectors = ceil_div(definition.axis(n).extent, lanes)
    for pm in (1, 2, 4, 8, 16):
        for pn in sorted({min(steps, vectors) for steps in _WRITTEN_ON}):
            if pm <= rows:
                yield replace(plan, pm=pm, pn=pn, across=True, ahead=_AHEAD)


_AHEAD = 2
"""Vectors that are asked for before they are written: the next one's line is where this one ends."""
_WRITTEN_ON = (16, 32, 64)
"""Vectors of a row of the output that follow each other, where stores wait for their lines: what writes a vector here
and the next one in another row finds no line fetched ahead (1009 x 997 elements by an AVX-512 core: 1.2 ms; a vector of
each of 64 rows in turn 1.9 to 3.3)."""


def _turned_on_lines(extent: int, rows: int, plan: ElementwisePlan) -> Iterator[ElementwisePlan]:
    for pm in (1, 2, 4, 8, 16):
        for steps in (1, 2, 4, 8, 16, 32, 64):
            # One step more than a power of two, so that blocks are even though the first starts early.
            pn = steps + 1
            blocks = ceil_div(extent + plan.lanes - 1, pn * plan.lanes)
            if pm <= rows and (blocks - 1) * pn * plan.lanes < extent:
                yield replace(plan, pm=pm, pn=pn, streaming=True, on_lines=True)


def _rows_alike(definition: Definition, n: str, lanes: int) -> bool:
    """Whether the output's rows along n lie multiples of `lanes` elements apart."""
    offset = linear(definition.target, definition.output.shape)
    return all(coefficient % lanes == 0 for atom, coefficient in offset.terms if atom != n)


def _worth_streaming(definition: Definition, device: Device, n: str, lanes: int) -> bool:
    """Whether stores may bypass the caches: the output is large beside them, nobody reads it next, and it is
    written in whole vectors.  (Arrays of a host begin at multiples of 16 bytes only: short runs that do not begin
    on lines lose their first and last ones, which costs more than it saves.)"""
    size_bytes = definition.output.elements * ITEMSIZE[definition.output.dtype]
    cache = max((layer.capacity_bytes for layer in device.layers[1:-1]), default=0)
    contiguous = contiguous_axis(definition.stored()) == n
    whole = definition.axis(n).extent % lanes == 0 and contiguous
    return size_bytes > cache // 8 and whole and definition.output.kind == "output"


def _widest(definition: Definition) -> str:
    dtypes = [definition.output.dtype, *(load.dtype for load in definition.loads())]
    return max(dtypes, key=lambda d: ITEMSIZE[d])


def _striding_plans(
    definition: Definition, device: Device, counts: list[int], n: str, lanes: int
) -> Iterator[ElementwisePlan]:
    """As many blocks along n as run at once, which together stride over it, where that is at least two rounds."""
    others = prod(a.extent for a in definition.of_role("spatial", "row") if a.name != n)
    vector = 4 if lanes == 1 else 1
    for threads in counts[-3:]:
        resident = device.limits.threads_per_unit // threads
        for un in (1, 2, 4):
            tile = threads * vector * un * lanes
            tiles = ceil_div(definition.axis(n).extent, tile)
            for units in (resident, max(1, resident // 2)):
                blocks = ceil_div(device.units * units, others)
                if 2 * blocks <= tiles and blocks * tile <= definition.axis(n).extent:
                    yield ElementwisePlan(tn=threads, un=un, vector=vector, lanes=lanes, strides=blocks)


_MOST_TURNED = 16
"""Elements of a thread in a tile that is written out: more are walked in a loop by compilers."""


def _turning_plans(
    definition: Definition, rules: AlignmentRules, device: Device, n: str, tile: int, staged: int
) -> Iterator[ElementwisePlan]:
    """A square tile through the block's layer, stored in vectors; a thread's part of it written out."""
    size = ITEMSIZE[definition.output.dtype]
    vector = copy_vector(definition, definition.stored(), n, max(1, 16 // size))
    if vector == 1:
        return
    across = tile // vector
    for rows in (2, 4, 8, 16, 32):
        if rows * across % thread_multiple(device, rules) == 0 and tile // rows * vector <= _MOST_TURNED:
            yield ElementwisePlan(tm=rows, tn=across, um=tile // rows, vector=vector, staged=staged)


def _thread_plans(
    definition: Definition, device: Device, rules: AlignmentRules, m: str | None, n: str, staged: int
) -> Iterator[ElementwisePlan]:
    n_extent = definition.axis(n).extent
    m_extent = definition.axis(m).extent if m else 1
    lanes = vector_lanes(device, _widest(definition))
    lanes = lanes if n_extent >= lanes else 1
    if staged >= 0:
        tile = 32 if device.execution_width > 1 else 8
        for rows in (4, 8, 16):
            if device.execution_width > 1:
                yield ElementwisePlan(tm=rows, tn=tile, pm=tile // rows, staged=staged)
        if device.execution_width > 1 and rules.shapes.turned_vectors:
            yield from _turning_plans(definition, rules, device, n, tile, staged)
    counts = thread_counts(device, rules)
    for threads in counts:
        for tn in {threads, min(threads, max(1, power_below(n_extent))), min(threads, device.execution_width)}:
            tm = threads // tn
            if tm > 1 and (m is None or tm > 2 * m_extent):
                continue
            for vector in (1,) if lanes > 1 else (1, 2, 4):
                for un in (1, 2, 4):
                    if tn * vector * un * lanes <= 2 * n_extent or (threads == counts[0] and vector * un == 1):
                        yield ElementwisePlan(tm=tm, tn=tn, un=un, vector=vector, lanes=lanes)
    if rules.shapes.grid_stride and staged < 0 and device.execution_width > 1:
        yield from _striding_plans(definition, device, counts, n, lanes)
    if device.execution_width == 1:
        most = device.limits.threads_per_block
        for pn in (1, 4, 16, 64, 256):
            for pm in (1, 4, 16, 64):
                if pn * lanes * most <= 2 * n_extent and pm <= m_extent:
                    yield ElementwisePlan(tn=most, pn=pn, pm=pm, lanes=lanes)
