"""Contractions on devices whose threads share a managed layer (GPUs, IPU tiles): register tiles,
threads, staged steps, split reductions.  The aligned space is priced in batches; the best shapes are
then built with every step, depth and block order that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import lcm, prod

from rollergen.construct.adding import adding
from rollergen.construct.candidate import Candidate, assembled, candidate, candidates, price, rounded
from rollergen.construct.forms import Form
from rollergen.construct.ledger import Ledger
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
from rollergen.space.contraction import first_step, thread_tiles
from rollergen.space.rules import aligned_tiles
from rollergen.tile.rules import AlignmentRules, vector_lanes

_STEPS = (8, 16)
_LONGER_STEPS = (8, 16, 32)
"""Of copies that hold no registers."""
_LEAST_STEP, _MOST_STEP = 4, 25
"""Of one staged tile along the reduction, where windows decide it."""


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
    step = first_step(definition, roles, device)
    for vm in _vectors(m_extent, single) if roles.m and wide else (1,):
        for vn in _vectors(n_extent, single) if lanes == 1 and wide else (1,):
            if vm == vn == 1 and min(m_extent, n_extent) >= 64 and wide:
                continue  # with both axes this long some fragment of four fits and is never worse
            found = aligned_tiles(thread_tiles(definition, roles, device, rules, vm, vn, lanes, staged), ledger)
            if len(found):
                sizes = {name: found[name] for name in ("rm", "rn", "tm", "tn", *(("pm", "pn") if single else ()))}
                unroll = 1 if single else step
                yield ContractionPlan(
                    **sizes, lanes=lanes, kc=step, vm=vm, vn=vn, unroll=unroll, staged=staged, depth=1
                )


def _vectors(extent: int, few_registers: bool) -> tuple[int, ...]:
    """Fragment widths worth trying: single elements and full vectors; pairs where the axis or the
    register file is small."""
    return (1, 2, 4) if extent < 32 or few_registers else (1, 4)


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
