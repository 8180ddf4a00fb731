"""Contractions on devices whose threads share a managed layer (GPUs, IPU tiles): register tiles,
threads, staged steps, split reductions.  The aligned space is priced in batches; the best shapes are
then built with every step, depth and block order that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import lcm, prod
from typing import NamedTuple

import numpy as np

from rollergen.construct.adding import adding
from rollergen.construct.candidate import Candidate, assembled, candidate, candidates, price, rounded
from rollergen.construct.forms import Form
from rollergen.construct.ledger import (
    EXECUTION_UNIT,
    LONGER,
    REGISTERS,
    TENSOR_SHAPE,
    THREADS,
    TRANSACTION,
    UNROLLED,
    Ledger,
)
from rollergen.construct.reductions import combine_stage
from rollergen.construct.thread_drafts import Draft, Priced, best_of_each_tile, drafts_of, priced_batches
from rollergen.dropped import as_far_as_possible, standing
from rollergen.expr.definition import Definition
from rollergen.expr.index import Atom, Index, Mod
from rollergen.expr.quick import found_once, replaced
from rollergen.expr.splitting import split_reduction
from rollergen.hal.spec import Device
from rollergen.program.assemble.ahead import RING, has_asynchronous_copies
from rollergen.program.assemble.contraction import (
    accumulator_dtype,
    contraction_stage,
    fits_output,
    in_buffers,
    keeps_order,
)
from rollergen.program.assemble.plan import ContractionPlan, Roles
from rollergen.program.rprogram import Stage
from rollergen.tile.rules import (
    AlignmentRules,
    aligned_multiple,
    padding_waste,
    thread_multiple,
    vector_lanes,
)

_TILES = (1, 2, 4, 8, 16)
_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_STEPS = (8, 16)
_LONGER_STEPS = (8, 16, 32)
"""Of copies that hold no registers."""
_LEAST_STEP, _MOST_STEP = 4, 25
"""Of one staged tile along the reduction, where windows decide it."""
_MOST_UNROLLED = 512
"""Multiply-adds, each with loads and tests of its own, that one thread has written out: more no longer fit the
instruction cache (and take compilers minutes)."""
_PANELS = (1, 2, 4, 8, 16, 32, 64)


class ThreadSpace:
    """The plans of one form, whose aligned tiles are priced once, however often candidates are asked for."""

    def __init__(self, form: Form, device: Device, rules: AlignmentRules) -> None:
        self.form, self.device, self.rules = form, device, rules
        self._whole = _Shapes(form.definition, form.roles, device, rules)

    def candidates(self, count: int, ledger: Ledger) -> Iterator[Candidate]:
        """The best ones, split reductions included."""
        form, device, rules = self.form, self.device, self.rules
        yield from as_far_as_possible(self._whole.candidates(form.name, count, ledger), form.name)
        if not rules.shapes.split_reductions:
            return
        blocks = prod(a.extent for a in form.definition.of_role("spatial")) // 1024
        for parts in part_counts(device, form.definition.axis(form.roles.k).extent // 64):
            if blocks * parts <= 8 * device.units:
                split = _split(form, parts, device, rules, max(2, count // 4), ledger)
                yield from as_far_as_possible(split, f"{form.name}, split {parts}")


def part_counts(device: Device, most: int) -> list[int]:
    """Parts worth trying, up to `most`: powers of 4, and those of which two or four tiles keep every unit busy."""
    powers = {4**n for n in range(1, most.bit_length())}
    return sorted(parts for parts in powers | {device.units // 4, device.units // 2} if 2 <= parts <= most)


def _split(
    form: Form, parts: int, device: Device, rules: AlignmentRules, count: int, ledger: Ledger
) -> Iterator[Candidate]:
    split = split_reduction(form.definition, form.roles.k, parts)
    if split is None:
        return
    *others, last, combined = split
    first = replace(form.roles, batch=(last.axes[0].name, *form.roles.batch))
    shaped_as = lambda one, best: _Shapes(one, first, device, rules).candidates(form.name, best, ledger)
    made = [shaped_as(one, 1) for one in others]
    before = tuple(min(found, key=lambda one: one.seconds).stages[0] for found in made)
    combine = combine_stage(combined, device, rules)
    beside = price((*before, combine), device)
    workspaces = tuple(one.output for one in split[:-1])
    for shaped in shaped_as(last, count):
        stages = (*before, *shaped.stages, combine)
        seconds = rounded(shaped.seconds + beside)
        yield candidate(f"{form.name}, split {parts}", stages, workspaces, device, parts, seconds)
    added = adding(form.definition, form.roles.k, parts, device, rules)
    if added is not None:
        for shaped in shaped_as(added.sums, count):
            yield added.candidate(form.name, parts, shaped.stages[-1], device)


class _Shapes:
    """The aligned tiles of one definition, and the variants of those that were asked for."""

    def __init__(self, definition: Definition, roles: Roles, device: Device, rules: AlignmentRules) -> None:
        self._of = definition, roles, device, rules
        self._variants: dict[tuple[int, int], list[tuple[int, Stage]]] = {}

    @found_once
    def _priced(self) -> tuple[list[Priced], Ledger]:
        """All tiles in batches with their prices, and what was turned away."""
        ledger = Ledger()
        batches = list(_structures(*self._of, ledger))
        definition, roles, device, rules = self._of
        return priced_batches(definition, roles, batches, device, rules, ledger), ledger

    def candidates(self, name: str, count: int, ledger: Ledger) -> Iterator[Candidate]:
        """Of the best tiles, until there are `count`."""
        priced, turned_away = self._priced
        ledger.add(turned_away)
        enough, stages = 0, []
        for tiles, draft in enumerate(best_of_each_tile(drafts_of(priced, count), *self._of), start=1):
            variants = self._variants_of(draft)
            stages += [stage for _, stage in variants]
            # Of one tile and depth at most two candidates are kept.
            depths = [depth for depth, _ in variants]
            enough += sum([min(2, depths.count(depth)) for depth in set(depths)])
            if enough >= count and tiles >= max(3, count // 4 + 2):
                break
        yield from candidates(name, stages, self._of[2])

    def _variants_of(self, draft: Draft) -> list[tuple[int, Stage]]:
        place = id(draft.batch), draft.at
        if place not in self._variants:
            definition, roles, device, rules = self._of
            plan = draft.plan(*self._of)
            self._variants[place] = list(_variants(definition, roles, plan, device, rules))
        return self._variants[place]


def staged_loads(definition: Definition, roles: Roles) -> tuple[int, ...]:
    """Operands shared by several threads: those that do not vary along both tiled axes."""
    tiled = {axis for axis in (roles.m, roles.n) if axis}
    return tuple(
        number
        for number, load in enumerate(definition.body_loads())
        if len(tiled) == 2 and not tiled <= load.axes() and load.axes() & tiled and roles.k in load.axes()
    )


def _structures(
    definition: Definition, roles: Roles, device: Device, rules: AlignmentRules, ledger: Ledger
) -> Iterator[ContractionPlan]:
    """Plans with array sizes, one for each pair of fragment widths (and panel order)."""
    lanes = vector_lanes(device, accumulator_dtype(definition))
    staged = staged_loads(definition, roles)
    m_extent = definition.axis(roles.m).extent if roles.m else 1
    n_extent = definition.axis(roles.n or "").extent
    lanes = lanes if n_extent >= lanes else 1
    single = device.execution_width == 1
    wide = rules.shapes.register_tiles and rules.shapes.wide_accesses
    for vm in _vectors(m_extent, single) if roles.m and wide else (1,):
        for vn in _vectors(n_extent, single) if lanes == 1 and wide else (1,):
            if vm == vn == 1 and min(m_extent, n_extent) >= 64 and wide:
                continue  # with both axes this long some fragment of four fits and is never worse
            points = _points(vm, vn, lanes, device, rules, definition, roles, ledger)
            if len(points):
                rm, rn, tm, tn, pm, pn = points.T
                step = _first_step(definition, roles, device)
                yield (
                    ContractionPlan(rm, rn, lanes, tm, tn, 1, 1, pm, pn, step, vm, vn, unroll=1, staged=staged, depth=1)
                    if device.execution_width == 1
                    else ContractionPlan(
                        rm, rn, lanes, tm, tn, 1, 1, 1, 1, step, vm, vn, unroll=step, staged=staged, depth=1
                    )
                )


def _vectors(extent: int, few_registers: bool) -> tuple[int, ...]:
    """Fragment widths worth trying: single elements and full vectors; pairs where the axis or the
    register file is small."""
    return (1, 2, 4) if extent < 32 or few_registers else (1, 4)


def _first_step(definition: Definition, roles: Roles, device: Device) -> int:
    extent = definition.axis(roles.k).extent
    if device.execution_width == 1 and not fits_output(definition):
        return extent
    return min(8 if device.execution_width > 1 else 128, extent)


def _points(
    vm: int, vn: int, lanes: int, device: Device, rules: AlignmentRules, definition: Definition, roles: Roles,
    ledger: Ledger,
) -> np.ndarray:  # fmt: skip
    """Rows (rm, rn, tm, tn, pm, pn) that the rules and limits allow; waste raised until some are left."""
    m_extent = definition.axis(roles.m).extent if roles.m else 1
    n_extent = definition.axis(roles.n or "").extent
    grid = _within_limits(vm, vn, lanes, device, rules, bool(roles.m))
    points = grid.points
    rm, rn, tm, tn, pm, pn = points.T
    ledger.considered += grid.considered
    for constraint, count in grid.rejected:
        ledger.reject(constraint, count)
    ok = np.ones(len(points), dtype=bool)
    if device.execution_width > 1 and not staged_loads(definition, roles):
        written_out = rm * rn * _taps(definition, roles, device)
        ok = ledger.sieve(ok, UNROLLED, (written_out <= _MOST_UNROLLED) | (rm * rn == vm * vn))
    block_m, block_n = rm * tm * pm, rn * tn * pn * lanes
    # The smallest block that rule 1 allows stays, however short the axes are: no space is empty.
    least = 1 if device.execution_width == 1 else thread_multiple(device, rules)
    smallest = (rm == vm) & (rn == vn) & (tm * tn == least) & (pm * pn == 1)
    short = ((block_m < 2 * m_extent) | (rm * tm * pm == vm)) & ((block_n < 2 * n_extent) | (rn * tn * pn == vn))
    ok = ledger.sieve(ok, LONGER, smallest | short)
    unit = aligned_multiple(definition, roles.n or "", device, rules)
    aligned = (block_n % unit == 0) | (n_extent < unit)
    if (ok & aligned).any():
        ok = ledger.sieve(ok, TRANSACTION, aligned)
    if not ok.any():
        return np.empty((0, 6), dtype=np.int64)
    fit = _least_waste(ok, ((m_extent, block_m), (n_extent, block_n)), rules)
    ledger.reject(TENSOR_SHAPE, int(np.count_nonzero(ok & ~fit)))
    return np.asfortranarray(points[fit])


def _grid(vm: int, vn: int, device: Device, rules: AlignmentRules, has_m: bool) -> np.ndarray:
    """Every (rm, rn, tm, tn, pm, pn) of fragments of these widths, a row each; all 1 along an m that there is none
    of."""
    tiles_m = [t for t in _TILES if t % vm == 0 and (t == vm or vm == 4)] if has_m else [1]
    tiles_n = [t for t in _TILES if t % vn == 0 and (t == vn or vn == 4)]
    if not rules.shapes.wide_accesses:
        tiles_m, tiles_n = list(_TILES) if has_m else [1], list(_TILES)
    if not rules.shapes.register_tiles:
        tiles_m, tiles_n = [1], [1]
    single = device.execution_width == 1
    most = device.limits.threads_per_block
    threads_m = ([1, most] if single else _THREADS) if has_m else [1]
    threads_n = [1] if single else list(_THREADS)
    panels = _PANELS if single else (1,)
    sizes = tiles_m, tiles_n, threads_m, threads_n, panels if has_m else [1], panels
    grids = np.meshgrid(*[np.array(each, dtype=np.int64) for each in sizes], indexing="ij")
    return np.stack([grid.reshape(-1) for grid in grids], axis=1)


class _Grid(NamedTuple):
    """``points`` of those that were ``considered``, and what ``rejected`` the others."""

    points: np.ndarray
    considered: int
    rejected: tuple[tuple[str, int], ...]


@lru_cache(maxsize=64)
def _within_limits(vm: int, vn: int, lanes: int, device: Device, rules: AlignmentRules, has_m: bool) -> _Grid:
    """The rows of `_grid` that the device's threads and registers allow (read only): the same for all definitions."""
    points, own = _grid(vm, vn, device, rules, has_m), Ledger()
    rm, rn, tm, tn, _, _ = points.T
    threads, single = tm * tn, device.execution_width == 1
    ok = own.sieve(np.ones(len(points), dtype=bool), THREADS, threads <= device.limits.threads_per_block)
    ok = own.sieve(ok, EXECUTION_UNIT, single or threads % thread_multiple(device, rules) == 0)
    ok = own.sieve(ok, REGISTERS, rm * rn * lanes <= (2 * device.limits.registers_per_thread if single else 128))
    allowed = np.asfortranarray(points[ok])  # whoever looks at it takes column by column
    allowed.flags.writeable = False
    return _Grid(allowed, len(points), tuple(own.rejected.items()))


def _least_waste(
    ok: np.ndarray, axes: tuple[tuple[int, np.ndarray], ...], rules: AlignmentRules
) -> np.ndarray:
    """Which of the rows that are `ok` fit every (extent, tile), epsilon raised until there are enough."""
    enough = min(24, int(np.count_nonzero(ok)))
    waste = np.full(len(ok), np.inf)
    waste[ok] = np.maximum.reduce([padding_waste(extent, tile[ok]) for extent, tile in axes])
    for epsilon in rules.waste_limits():
        fit = ok & (waste <= epsilon) if rules.tensor_shape else ok
        if np.count_nonzero(fit) >= enough:
            break
    if not fit.any():
        # Only the user's own limit leaves nothing: the least wasteful tiles say by how much.
        fit = ok & (waste == waste[ok].min())
    return fit


def _taps(definition: Definition, roles: Roles, device: Device) -> int:
    """Steps of the reduction that are written out one after the other."""
    last = definition.axis(roles.taps[-1]).extent if roles.taps else 1
    return _first_step(definition, roles, device) * last


def _variants(
    definition: Definition, roles: Roles, plan: ContractionPlan, device: Device, rules: AlignmentRules
) -> Iterator[tuple[int, Stage]]:
    """Steps, pipelining depths, warp shapes and block orders of one tile shape, each with its depth."""
    k_extent = definition.axis(roles.k).extent
    single = device.execution_width == 1
    period = _period(definition, roles.k)
    steps = [s for s in (*_STEPS, *period) if s <= k_extent] or [k_extent]
    if single:
        shorter = (16, 32, 64, 128, 256, 512, 1024) if fits_output(definition) else ()
        steps = sorted({s for s in shorter if s < k_extent} | {k_extent})
    depths = (1, 2) if plan.staged and not single and rules.shapes.prefetch else (1,)
    gm, gn = _groups(plan, device) if rules.shapes.warp_tiles else (1, 1)
    make = lambda one: contraction_stage(definition, roles, one, device, rules)
    made = lambda one: [(one.depth, stage) for stage in assembled([one], make, "variants")]
    for step in steps:
        for _, stage in made(replaced(plan, kc=step, unroll=1 if single else step, gm=gm, gn=gn)):
            yield from standing(depths, partial(in_buffers, stage))
    if plan.staged and has_asynchronous_copies(device, rules) and plan.tm * plan.tn > 1:
        for step in sorted({s for s in (*_LONGER_STEPS, *period) if s < k_extent}):
            for depth in RING:
                ring = replaced(plan, kc=step, unroll=step, depth=depth, gm=gm, gn=gn, asynchronous=True)
                yield from made(ring)
                if rules.shapes.vectors_along_k and step % _ALONG_K == 0 and _lies_along_k(definition, roles, plan):
                    yield from made(replaced(ring, vm=1, vk=_ALONG_K))


def _lies_along_k(definition: Definition, roles: Roles, plan: ContractionPlan) -> bool:
    """Whether the operand along m can be staged as it lies along k, and that along n in vectors as ever."""
    loads = [definition.body_loads()[number] for number in plan.staged]
    kept = [keeps_order(definition, roles, load, _ALONG_K) for load in loads]
    return any(kept) and all(roles.m in load.axes() for load, keeps in zip(loads, kept, strict=True) if keeps)


_ALONG_K = 4
"""Elements of 4 bytes of one access."""


def _only_atom(index: Index) -> Atom | None:
    return index.terms[0][0] if len(index.terms) == 1 else None


def _period(definition: Definition, k: str) -> tuple[int, ...]:
    """The step after which the bounds of gathered operands repeat (the taps of a window), and twice that: inside it,
    which tap an element belongs to is a constant, and its bounds are tested once for all steps."""
    atoms = [
        atom
        for load in definition.body_loads()
        for bound in load.guard
        for atom, _ in bound.index.terms
        if not isinstance(atom, str) and k in atom.index.axes()
    ]
    within = [atom if isinstance(atom, Mod) else _only_atom(atom.index) for atom in atoms]
    divisors = {atom.divisor for atom in within if isinstance(atom, Mod)}
    period = lcm(*divisors)
    return (period, 2 * period) if _LEAST_STEP <= period <= _MOST_STEP else ()


def _groups(plan: ContractionPlan, device: Device) -> tuple[int, int]:
    """Groups that make each execution width a near-square patch of threads."""
    unit = device.execution_width
    if unit == 1 or plan.tm * plan.tn <= unit:
        return 1, 1
    for wide in (8, 16, 4, 32, 2):
        tall = unit // wide
        if wide * tall == unit and plan.tn % wide == 0 and plan.tm % tall == 0:
            return plan.tm // tall, plan.tn // wide
    return 1, 1
