"""Contractions on devices whose threads share a managed layer (GPUs, IPU tiles): register tiles,
threads, staged steps, split reductions.  The aligned space is priced in batches; the best shapes are
then built with every step, depth and block order that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from math import lcm, prod

import numpy as np

from rollergen.construct.candidate import Candidate, candidate, price, rounded
from rollergen.construct.copies import behind
from rollergen.construct.drafts import beyond
from rollergen.construct.grow import grown_threads
from rollergen.construct.ledger import Ledger
from rollergen.construct.options import ALL, GROW
from rollergen.construct.priced import Contraction, Priced, cheapest_points
from rollergen.construct.reductions import combine_stage
from rollergen.construct.splits import adding, part_counts
from rollergen.construct.swizzle import grid_swizzle
from rollergen.construct.variants import Variant
from rollergen.dropped import as_far_as_possible, standing
from rollergen.expr.index import Atom, Index, Mod
from rollergen.expr.splitting import split_reduction
from rollergen.expr.tensor_op import TensorOp
from rollergen.hal.spec import Device
from rollergen.program.assemble.asynchronous import RING, has_asynchronous_copies
from rollergen.program.assemble.contraction import accumulator_dtype, fits_output, keeps_order
from rollergen.program.assemble.plan import Roles
from rollergen.program.rprogram import SERIAL
from rollergen.space.contraction import first_step, thread_tiles
from rollergen.space.engine import Digit, Points
from rollergen.space.rules import aligned_points, aligned_tiles
from rollergen.tile.rules import AlignmentRules, vector_lanes

_STEPS = (8, 16)
_LONGER_STEPS = (8, 16, 32)
"""Of copies that hold no registers."""
_SINGLE_STEPS = (16, 32, 64, 128, 256, 512, 1024)
"""Of threads that run alone."""
_LEAST_PART, _CROWD = 64, 8 * 1024
"""Of a split reduction: see `part_counts`."""
_LEAST_STEP, _MOST_STEP = 4, 25
"""Of one staged tile along the reduction, where windows decide it."""


class ThreadSpace:
    """The plans of one variant; its aligned tiles are priced once.  ``few``: as `choose.choice` has it."""

    def __init__(
        self, variant: Variant, device: Device, rules: AlignmentRules, search: str = ALL, few: int | None = None
    ) -> None:
        self.variant, self.device, self.rules, self.search, self._few = variant, device, rules, search, few
        self._whole = _Shapes(variant, variant.op, variant.roles, device, rules, search, few)

    def candidates(self, count: int, ledger: Ledger) -> Iterator[Candidate]:
        """The best ones, split reductions included, each behind the variant's copies."""
        yield from behind(self.variant.copies, self._bare(count, ledger), self.device)

    def _bare(self, count: int, ledger: Ledger) -> Iterator[Candidate]:
        variant, device, rules = self.variant, self.device, self.rules
        yield from as_far_as_possible(self._whole.candidates(variant.name, count, ledger), variant.name)
        for parts in part_counts(variant.op, variant.roles.k, _LEAST_PART, _CROWD, device, rules):
            split = self._split(parts, max(2, count // 4), ledger)
            yield from as_far_as_possible(split, f"{variant.name}, split {parts}")

    def _split(self, parts: int, count: int, ledger: Ledger) -> Iterator[Candidate]:
        variant, device, rules = self.variant, self.device, self.rules
        split = split_reduction(variant.op, variant.roles.k, parts)
        if split is None:
            return
        *others, last, combined = split
        first = replace(variant.roles, batch=(last.axes[0].name, *variant.roles.batch))
        shapes = lambda one: _Shapes(variant, one, first, device, rules, self.search, self._few)
        shaped_as = lambda one, best: shapes(one).candidates(variant.name, best, ledger)
        made = [shaped_as(one, 1) for one in others]
        before = tuple(min(found, key=lambda one: one.seconds).stages[0] for found in made)
        combine = combine_stage(combined, device, rules)
        beside = price((*before, combine), device)
        workspaces = tuple(one.output for one in split[:-1])
        for shaped in shaped_as(last, count):
            stages = (*before, *shaped.stages, combine)
            seconds = rounded(shaped.seconds + beside)
            yield candidate(f"{variant.name}, split {parts}", stages, workspaces, device, parts, seconds)
        added = adding(variant.op, variant.roles.k, parts, device, rules)
        if added is not None:
            for shaped in shaped_as(added.sums, count):
                yield added.candidate(variant.name, parts, shaped.stages[-1], device)


TILES = 40
"""Tiles, of those priced at one step of the reduction, that are crossed with what is decided late."""


class _Shapes:
    """The tiles of a variant's tensor op, or of its split reduction, with their prices at one step.

    They are found once, however often candidates are asked for.
    """

    def __init__(
        self, variant: Variant, op: TensorOp, roles: Roles, device: Device, rules: AlignmentRules, search: str,
        few: int | None,
    ) -> None:  # fmt: skip
        self._variant, self._search, self._few = variant, search, few
        self._of = Contraction(op, roles, device, rules)
        self._staged = staged_loads(op, roles)
        self._fixed = {"staged": self._staged, "unrolled": device.kind.lockstep}

    @cached_property
    def _tiles(self) -> tuple[list[Priced], Ledger]:
        """All aligned tiles with their prices, and what was turned away."""
        op, roles, device, rules = self._of
        lanes = vector_lanes(device, accumulator_dtype(op))
        lanes = lanes if op.axis(roles.n or "").extent >= lanes else 1
        ledger, space = Ledger(), thread_tiles(op, roles, device, rules, lanes, self._staged)
        grown = grown_threads(space, self._variant, lanes)
        points = aligned_points(space, grown, ledger) if self._search == GROW else aligned_tiles(space, ledger, grown)
        step = first_step(op, roles, device)
        return self._of.priced(points, ledger, kc=step, **self._fixed), ledger

    def candidates(self, name: str, count: int, ledger: Ledger) -> Iterator[Candidate]:
        """The best tiles with every step, depth and shape of warps: at most two of a block tile and depth."""
        tiles, turned_away = self._tiles
        ledger.add(turned_away)
        found: dict[tuple[int, int, int], int] = {}
        drawn: list[float] = []
        for seconds, priced, at in cheapest_points(self._late(self._best(tiles, max(TILES, count)))):
            if self._few and len(drawn) >= self._few and seconds > beyond(drawn[self._few - 1]):
                return
            key = (*block_tile(priced.points.at(at)), priced.points.at(at)["depth"])
            found[key] = found.get(key, 0) + 1
            if found[key] <= 2:
                for _, stage in standing([at], partial(self._of.program, priced), lambda _: name):
                    drawn.append(seconds)
                    yield candidate(name, (stage,), (), self._of.device, seconds=rounded(seconds))
                if sum(min(2, each) for each in found.values()) >= count:
                    return

    def _best(self, tiles: Sequence[Priced], count: int) -> Points | None:
        """The best tiles, with the order of blocks and the shape of warps that follow from them."""
        chosen = [(priced, at) for _, priced, at in islice(cheapest_points(tiles), count)]
        if not chosen:
            return None
        digits = chosen[0][0].points.digits
        columns = np.stack([priced.points.columns[:, at] for priced, at in chosen], axis=1)
        sizes = [priced.points.at(at) for priced, at in chosen]
        resident = [int(priced.price.resident_blocks[at]) for priced, at in chosen]
        blocks = list(zip(map(block_tile, sizes), resident, strict=True))
        known = {one: self._group_rows(*one) for one in dict.fromkeys(blocks)}
        groups = [known[one] for one in blocks]
        warps = [self._warps(own["tm"], own["tn"]) for own in sizes]
        gm, gn = np.array(warps).T
        return Points(digits, columns).beside(group_rows=np.array(groups), gm=gm, gn=gn)

    def _group_rows(self, block: tuple[int, int], resident: int) -> int:
        op, roles, device, rules = self._of
        return grid_swizzle(op, roles, block, device.units * resident, device, rules)

    def _warps(self, tm: int, tn: int) -> tuple[int, int]:
        return _groups(tm, tn, self._of.device) if self._of.rules.shapes.warp_tiles else (1, 1)

    def _late(self, tiles: Points | None) -> list[Priced]:
        """The tiles with all steps of the reduction and numbers of buffers, staged through registers and past them."""
        op, roles, device, rules = self._of
        if tiles is None:
            return []
        k_extent, single = op.axis(roles.k).extent, not device.kind.lockstep
        period = _period(op, roles.k)
        steps = [step for step in (*_STEPS, *period) if step <= k_extent] or [k_extent]
        if single:
            shorter = _SINGLE_STEPS if fits_output(op) else ()
            steps = sorted({step for step in shorter if step < k_extent} | {k_extent})
        depths = (1, 2) if self._staged and not single and rules.shapes.prefetch else (1,)
        crossed = lambda points, steps, depths: points.crossed(Digit("kc", roles.k, SERIAL, steps)).crossed(
            Digit("depth", "", "", depths)
        )
        ledger = Ledger()
        found = self._of.priced(crossed(tiles, steps, depths), ledger, **self._fixed)
        several = tiles.where(tiles["tm"] * tiles["tn"] > 1)
        longer = sorted({step for step in (*_LONGER_STEPS, *period) if step < k_extent})
        if not (self._staged and has_asynchronous_copies(device, rules) and len(several) and longer):
            return found
        past = {**self._fixed, "asynchronous": True}
        found += self._of.priced(crossed(several, longer, RING), ledger, **past)
        along_k = [step for step in longer if step % _ALONG_K == 0]
        if along_k and rules.shapes.vectors_along_k and _lies_along_k(op, roles, self._staged):
            scalar = several.with_column("vm", 1)
            found += self._of.priced(crossed(scalar, along_k, RING), ledger, vk=_ALONG_K, **past)
        return found


def block_tile(sizes: Mapping[str, int]) -> tuple[int, int]:
    """Rows and columns of a block."""
    size = lambda *names: prod(sizes[name] for name in names)
    return size("rm", "tm", "pm"), size("rn", "tn", "pn", "lanes")


def staged_loads(op: TensorOp, roles: Roles) -> tuple[int, ...]:
    """Operands shared by several threads: those that do not vary along both tiled axes."""
    tiled = {axis for axis in (roles.m, roles.n) if axis}
    return tuple(
        number
        for number, load in enumerate(op.body_loads())
        if len(tiled) == 2 and not tiled <= load.axes() and load.axes() & tiled and roles.k in load.axes()
    )


def _lies_along_k(op: TensorOp, roles: Roles, staged: Sequence[int]) -> bool:
    """Whether the operand along m can be staged as it lies along k, and that along n in vectors as ever."""
    loads = [op.body_loads()[number] for number in staged]
    kept = [keeps_order(op, roles, load, _ALONG_K) for load in loads]
    return any(kept) and all(roles.m in load.axes() for load, keeps in zip(loads, kept, strict=True) if keeps)


_ALONG_K = 4
"""Elements of 4 bytes of one access."""


def _only_atom(index: Index) -> Atom | None:
    return index.terms[0][0] if len(index.terms) == 1 else None


def _period(op: TensorOp, k: str) -> tuple[int, ...]:
    """The step after which the bounds of gathered operands repeat (the taps of a window), and twice that: inside it,
    which tap an element belongs to is a constant, and its bounds are tested once for all steps."""
    atoms = [
        atom
        for load in op.body_loads()
        for bound in load.guard
        for atom, _ in bound.index.terms
        if not isinstance(atom, str) and k in atom.index.axes()
    ]
    within = [atom if isinstance(atom, Mod) else _only_atom(atom.index) for atom in atoms]
    divisors = {atom.divisor for atom in within if isinstance(atom, Mod)}
    period = lcm(*divisors)
    return (period, 2 * period) if _LEAST_STEP <= period <= _MOST_STEP else ()


def _groups(tm: int, tn: int, device: Device) -> tuple[int, int]:
    """Groups that make each execution width a near-square patch of threads."""
    unit = device.execution_width
    if unit == 1 or tm * tn <= unit:
        return 1, 1
    for wide in (8, 16, 4, 32, 2):
        tall = unit // wide
        if wide * tall == unit and tn % wide == 0 and tm % tall == 0:
            return tm // tall, tn // wide
    return 1, 1
