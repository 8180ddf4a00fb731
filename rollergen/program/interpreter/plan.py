"""Interpreter: what is known of a stage before it runs: traversals, copies in each, loops run in Python.

A pass over a tile is one traversal of the nest for each reduction and one for the result.
Outer loops run in Python; everything below becomes whole-array arithmetic.
"""

from __future__ import annotations

from rollergen.expr.values import Load, Value, Var, walk
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.interpreter.copies import Layout, layout_of
from rollergen.program.interpreter.points import Box, block_box, first_inner
from rollergen.program.interpreter.reduce import reduced_axes
from rollergen.program.rprogram import PARALLEL, KeptRow, Stage

POINTS_AT_ONCE = 4_000_000
"""Points of which whole arrays are formed at once; more are cut by running further loops in Python."""


@dataclass(frozen=True, eq=False)
class Traversal:
    """One walk through the loops inside the accumulators: a reduction's ``values`` or the result.

    ``kept``: kept rows that it computes; ``loads``: numbers of those read; ``skipped``: loops that do
    not run (reduce loops, while the result is stored); ``copies`` in the order in which a chain fills;
    loops outside ``depth`` run in Python.
    """

    number: int
    values: tuple[Value, ...]
    kept: tuple[KeptRow, ...]
    loads: tuple[int, ...]
    skipped: frozenset[int]
    copies: tuple[int, ...]
    depth: int


@dataclass(frozen=True, eq=False)
class StagePlan:
    """``start``: depth from which on the accumulators of a pass are held at once (at or outside their own
    depth: spatial loops around it may be taken in).  ``chains``: copies of each load, outermost first;
    ``load_numbers``: by identity of the load; ``load_axes``: sorted names of each load's axes."""

    stage: Stage
    start: int
    layouts: tuple[Layout, ...]
    chains: tuple[tuple[int, ...], ...]
    traversals: tuple[Traversal, ...]
    load_numbers: dict[int, int]
    load_axes: tuple[tuple[str, ...], ...]


def plan_stage(stage: Stage, device: Device) -> StagePlan:
    layouts = tuple(layout_of(stage, number, device) for number in range(len(stage.copies)))
    loads = {load: number for number, load in enumerate(stage.op.loads())}
    chains = tuple(chain(stage, device, number) for number in range(len(loads)))
    read = [_reads(stage, values, kept, loads) for values, kept in _phases(stage)]
    start = _start(stage, read)
    traversals = []
    for number, (values, kept) in enumerate(_phases(stage)):
        result = number == len(stage.op.reductions)
        used = tuple(copy for load in read[number] for copy in chains[load])
        skipped = _reduce_loops(stage) if result else frozenset[int]()
        depth = _depth(stage, start, [layouts[c] for c in used], skipped)
        traversals.append(Traversal(number, values, kept, read[number], skipped, used, depth))
    numbers = _numbers(loads, traversals)
    axes = tuple(tuple(sorted(load.axes())) for load in loads)
    return StagePlan(stage, start, layouts, chains, tuple(traversals), numbers, axes)


def chain(stage: Stage, device: Device, load: int) -> tuple[int, ...]:
    """The copies of one load, from the outermost layer inward."""
    names = [layer.name for layer in device.layers]
    own = [number for number, copy in enumerate(stage.copies) if copy.load == load]
    return tuple(sorted(own, key=lambda number: -names.index(stage.copies[number].from_layer)))


def _phases(stage: Stage) -> list[tuple[tuple[Value, ...], tuple[KeptRow, ...]]]:
    """(values, kept rows computed) of each traversal; kept values are replaced by their variables."""
    op = stage.op
    phases = []
    for number, values in enumerate([*(r.bodies for r in op.reductions), (op.result,)]):
        known = tuple(r for r in stage.kept_rows if r.phase <= number)
        kept = tuple(
            KeptRow(r.name, with_kept_rows(r.value, _before(stage, r)), r.layer, r.phase)
            for r in known
            if r.phase == number
        )
        phases.append((tuple(with_kept_rows(value, known) for value in values), kept))
    return phases


def _before(stage: Stage, kept_row: KeptRow) -> tuple[KeptRow, ...]:
    """Rows kept when `kept_row` is computed."""
    own = stage.kept_rows.index(kept_row)
    return tuple(r for at, r in enumerate(stage.kept_rows) if (r.phase, at) < (kept_row.phase, own))


def with_kept_rows(value: Value, kept_rows: tuple[KeptRow, ...]) -> Value:
    """`value` with every part that equals a kept row's value replaced by its variable, outermost first."""
    for kept_row in kept_rows:
        if value == kept_row.value:
            return Var(kept_row.name, value.dtype)
    children = value.children()
    if not children:
        return value
    return value.with_children(tuple(with_kept_rows(child, kept_rows) for child in children))


def _reads(
    stage: Stage, values: tuple[Value, ...], kept: tuple[KeptRow, ...], loads: dict[Load, int]
) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for root in (*(r.value for r in kept), *values):
        for node in walk(root):
            if isinstance(node, Load):
                found[loads[node]] = None
    return tuple(found)


def _numbers(loads: dict[Load, int], traversals: list[Traversal]) -> dict[int, int]:
    """Number of every load node, by its identity (hashing one costs more than reading it)."""
    roots = [root for t in traversals for root in (*(r.value for r in t.kept), *t.values)]
    return {id(node): loads[node] for root in roots for node in walk(root) if isinstance(node, Load)}


def _reduce_loops(stage: Stage) -> frozenset[int]:
    reduce = {axis.name for axis in stage.op.of_role("reduce")}
    return frozenset(p for p, loop in enumerate(stage.loops) if loop.axis in reduce)


def _vector_volume(stage: Stage, depth: int, skipped: frozenset[int]) -> int:
    """Points below `depth` in one block, threads included."""
    box = block_box(stage, dict.fromkeys(range(len(stage.loops)), 0))
    inner = (p for p, loop in enumerate(stage.loops) if p >= depth or loop.kind in PARALLEL)
    return box.volume(p for p in inner if p not in skipped)


def _start(stage: Stage, read: list[tuple[int, ...]]) -> int:
    """As far outside the accumulators' depth as only spatial loops are crossed, no copy that several
    traversals share is taken in, and all points still fit at once."""
    reduced = reduced_axes(stage)
    several = [n for n, copy in enumerate(stage.copies) if sum(copy.load in loads for loads in read) != 1]
    floor = max([first_inner(stage), *(stage.copies[n].at_loop for n in several)])
    depth = max(stage.accumulator.at_loop, first_inner(stage))
    floor = min(floor, depth)
    while (
        depth > floor
        and stage.loops[depth - 1].axis not in reduced
        and _vector_volume(stage, depth - 1, frozenset()) <= POINTS_AT_ONCE
    ):
        depth -= 1
    return depth


def _depth(stage: Stage, start: int, layouts: list[Layout], skipped: frozenset[int]) -> int:
    depth = max([start, *(layout.copy.at_loop for layout in layouts if layout.shared)])
    while depth < len(stage.loops) and _vector_volume(stage, depth, skipped) > POINTS_AT_ONCE:
        depth += 1
    return depth


def tile_box(box: Box, traversal: Traversal) -> Box:
    """`box` with the loops that the traversal skips at their first iteration."""
    for position in traversal.skipped:
        box = box.fix(position, 0)
    return box
