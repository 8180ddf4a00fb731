"""How the loops of contractions may run on devices whose blocks are one thread (CPUs): vectors of a register tile,
packed operands, tiles of a block's own, what is asked for ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod

import numpy as np

from rollergen.construct.candidate import Candidate
from rollergen.construct.copies import copy_seconds, pending_copies
from rollergen.construct.reductions import next_panel_prefetched
from rollergen.construct.variants import Variant, needs_packing, operands
from rollergen.dropped import standing
from rollergen.expr.joining import joined
from rollergen.expr.packing import is_in_panels, pack_operand
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, is_named
from rollergen.expr.views import in_a_row
from rollergen.hal.masked_stores import MASK_REGISTERS
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype, contraction_stage, sharing_panels
from rollergen.program.assemble.nest import ceil_div, is_batch
from rollergen.program.assemble.plan import ContractionPlan, Size
from rollergen.program.loops import prefetches_lines
from rollergen.program.model.costs import costs_of
from rollergen.program.model.limiters.arithmetic import pipe_lanes
from rollergen.program.rprogram import SERIAL, Stage
from rollergen.space.contraction import MOST_ROWS, MOST_WRITTEN_OUT, written_out
from rollergen.tile.rules import ITEMSIZE, AlignmentRules, main_instruction, padding_waste, vector_lanes

_VECTORS = (1, 2, 3, 4, 6, 8, 12, 16)
_FEW_ROWS = 3 * MOST_ROWS
"""Products of up to so many rows with weights in words wait for the weights.  Large tiles are quick there if they ask
for the next panel, and only then: such tiles are drafted for themselves.  (Words of four weights, 4096 x 4096, one core
of a Zen 5, us before and since: 4 bits, 8 rows 505 and 450, 16 rows 972 and 892; 8 bits, 8 rows 800 and 650, 16 rows
1522 and 1058, 32 rows 2259 and 2008.  In float32, 8 rows 2690 and 2060, but 4 rows of 2048 times 8192 1990 and 2500, as
another tile is not timed.)
"""


class Structure:
    """One loop structure: variant, vectors per register tile, packed operands and ``staged`` ones.

    ``staged``: numbers of the tensor op's loads that each block copies tile by tile into an array of its own.
    ``asked``: numbers of those of which each pass over few rows asks for the next ones (`next_rows`).  ``ahead``: its
    tiles ask for the next panel.
    """

    def __init__(
        self, variant: Variant, lanes: int, vectors: int, packing: Packing, order: str, staged: tuple[int, ...] = (),
        asked: tuple[int, ...] = (), ahead: bool = False,
    ):  # fmt: skip
        self.variant, self.lanes, self.vectors, self.packing, self.order = variant, lanes, vectors, packing, order
        self.op, self.staged, self.asked, self.ahead = packing.op, staged, asked, ahead

    def asking_for_panels(self) -> Structure:
        return Structure(self.variant, self.lanes, self.vectors, self.packing, self.order, ahead=True)

    @property
    def shares_words_of_few_rows(self) -> bool:
        """Whether several tiles of few rows read the same panel of words, constants that are packed as they are stored,
        one after the other."""
        roles, op = self.variant.roles, self.op
        in_turn = self.order == "ji" and self.vectors > 1 and not roles.taps
        if not in_turn or roles.m is None or op.axis(roles.m).extent > _FEW_ROWS:
            return False
        panels = [load for load in op.body_loads() if is_in_panels(load, roles.n or "", self.lanes)]
        return any(load.buffer.constant for load in panels)

    @property
    def packed(self) -> tuple[Load, ...]:
        return self.packing.loads

    @property
    def waste(self) -> float:
        """Padded share of the axis along which panels run."""
        return padding_waste(self.op.axis(self.variant.roles.n or "").extent, self.vectors * self.lanes)

    @property
    def name(self) -> str:
        named = self.variant.name
        if self.packed:
            named += ", packed " + ", ".join(load.buffer.name for load in self.packed)
        if self.staged:
            loads = self.op.body_loads()
            named += ", own tiles of " + ", ".join(loads[number].buffer.name for number in self.staged)
        if self.asked:
            named += ", next rows asked for"
        if _several_sums(self.op) or self.ahead:  # other register tiles are measured beside the model's first
            named += f", {self.vectors} {'vector' if self.vectors == 1 else 'vectors'} of each sum"
        return named

    def plan(self, rows: Size, step: Size, pm: Size, pn: Size) -> ContractionPlan:
        return ContractionPlan(
            rm=rows, rn=self.vectors, lanes=self.lanes, pm=pm, pn=pn, kc=step, order=self.order, staged=self.staged,
            unroll=self._steps_written_out(),
        )  # fmt: skip

    def _steps_written_out(self) -> int:
        """Steps of the reduction that the loop over register tiles has: several where there are several sums, each of
        which brings vectors of its own (eight took 14 % less time than one, of 6 x 2 vectors of each of two sums), and
        where a vector's product reads a few rows side by side (7.04 ms, 7.09 to 7.7 with a loop over them)."""
        few = bool(self.asked) and self.variant.roles.m is None
        return gcd(self.op.axis(self.variant.roles.k).extent, _WRITTEN_OUT) if few or _several_sums(self.op) else 1

    def tile_bytes(self, step: int, panels: int) -> int:
        """Bytes of the arrays that a block copies operands into, or of the rows that it asks for."""
        loads = self.op.body_loads()
        taps = prod(self.op.axis(tap).extent for tap in self.variant.roles.taps)
        width = self.vectors * self.lanes * panels * taps
        return sum(step * width * ITEMSIZE[loads[number].dtype] for number in (*self.staged, *self.asked))

    def stage(self, plan: ContractionPlan, device: Device, rules: AlignmentRules) -> Stage:
        if is_batch(plan.pm, plan.pn) and np.max(plan.pm * plan.pn) == 1:
            plan = replace(plan, pm=1, pn=1)  # which then have no loops
        if self.variant.unrolled:
            steps = self.op.axis(self.variant.roles.k).extent
            plan = replace(plan, kc=steps, unroll=steps)
        if not self.asked:
            stage = contraction_stage(self.op, self.variant.roles, plan, device, rules)
            return (next_panel_prefetched(stage, self.variant.roles.n) or stage) if self.ahead else stage
        stage = contraction_stage(self.op, self.variant.roles, replace(plan, pm=1), device, rules)
        passes = next(p for p, loop in stage.of_kind(SERIAL) if loop.axis == self.variant.roles.k)
        return replace(stage, prefetch=passes)

    def candidate(self, stage: Stage, device: Device, seconds: float) -> Candidate:
        """A program of this structure with its copies; ``seconds``: the price of all."""
        prefetched = ", lines asked for ahead" if prefetches_lines(stage) else ", next panel prefetched"
        twin = stage.prefetch >= 0 and not self.asked and not self.variant.roles.taps
        variant = self.name + (prefetched if twin else "")
        temporaries: tuple[Buffer, ...] = tuple(copy.output for copy in self.packing.copies)
        return Candidate(variant, (stage,), temporaries, seconds, before=pending_copies(self.packing.copies, device))


def _several_sums(op: TensorOp) -> bool:
    return op.components > 1 and all(is_named(reduction.combiner) for reduction in op.reductions)


_WRITTEN_OUT = 8


class Packing:
    """The copies before a contraction: the variant's own, and operands packed into panels of `width`."""

    def __init__(self, variant: Variant, width: int, loads: tuple[Load, ...], pad_value: float = 0.0):
        copies, op = [], variant.op
        for load in loads:
            copy, op = pack_operand(op, load, variant.roles.n or "", width, pad_value)
            copies.append(copy)
        self.loads, self.op = loads, op
        self.copies = joined((*variant.copies, *copies), op)
        self._seconds: float | None = None

    def copy_seconds(self, device: Device) -> float:
        """Seconds of the copies that run at every call."""
        if self._seconds is None:
            self._seconds = copy_seconds(self.copies, device)
        return self._seconds


def _line_vectors(variant: Variant, whole: int, device: Device) -> int:
    """Vectors of a line in tiles of several lines: all, of which compilers see what guards cut; where two lines do not
    fit, as many as have their masks, one for each tap along them, in registers; 0 where that is not even two."""
    held = 3 * whole <= device.limits.registers_per_thread
    fits = held and written_out(variant.op, 2 * whole) <= MOST_WRITTEN_OUT
    few = MASK_REGISTERS // variant.op.axis(variant.roles.k).extent
    return whole if fits else few if few > 1 else 0


def structures(variant: Variant, device: Device, rules: AlignmentRules) -> Iterator[Structure]:
    roles = variant.roles
    assert roles.n is not None
    n_extent = variant.op.axis(roles.n).extent
    lanes = vector_lanes(device, accumulator_dtype(variant.op))
    while lanes > 1 and n_extent < lanes // 2:
        lanes //= 2
    vectors = sorted({*_VECTORS, min(ceil_div(n_extent, lanes), _VECTORS[-1])})
    yield from _of_lanes(variant, device, rules, lanes, vectors)
    if narrow := _narrower(variant, device, lanes):
        yield from _of_lanes(variant, device, rules, lanes // 2, narrow)


_LEAST_NARROW, _MOST_NARROW = 3, 8
"""Narrower vectors of a register tile: enough for a step to keep the pipes busy, and no wider than four whole ones."""


def _narrower(variant: Variant, device: Device, lanes: int) -> list[int]:
    """How many vectors of half the lanes cover n with less padding than whole ones do, where pipes are no wider than
    these (64 products of 49 x 49 x 32 on a Zen 4: 56 columns for 64)."""
    instruction = main_instruction(device, accumulator_dtype(variant.op))
    if variant.unrolled or variant.whole_rows or pipe_lanes(instruction, costs_of(device)) > lanes // 2:
        return []
    n_extent = variant.op.axis(variant.roles.n or "").extent
    padded = lambda width: ceil_div(n_extent, width) * width
    counts = range(_LEAST_NARROW, _MOST_NARROW + 1)
    return [n for n in counts if padded(n * lanes // 2) < padded(lanes)]


def _of_lanes(
    variant: Variant, device: Device, rules: AlignmentRules, lanes: int, counts: Sequence[int]
) -> Iterator[Structure]:
    """Those with vectors of so many lanes; ``counts``: of vectors in a register tile."""
    roles, n = variant.roles, variant.roles.n or ""
    n_extent, most = variant.op.axis(n).extent, max(4, vector_lanes(device, accumulator_dtype(variant.op)) * 4 // lanes)
    must = tuple(needs_packing(variant.op, roles, lanes))
    may = tuple(load for load in operands(variant.op, n) if not is_in_panels(load, n, lanes))
    own, rows = _own_tiles(variant, must, lanes), lambda vectors: _rows_in_lines(variant, vectors, lanes, device)
    choices = {must, may} if (roles.m is not None or must) and not variant.unrolled else {must}
    for packed in sorted(choices, key=len):
        for vectors in counts:
            whole = vectors == ceil_div(n_extent, lanes)
            if vectors > most and (roles.m is not None or packed) and not variant.unrolled:
                continue
            if variant.unrolled and vectors != _line_vectors(variant, ceil_div(n_extent, lanes), device):
                continue
            if variant.whole_rows and not whole:
                continue
            if vectors * lanes < 2 * n_extent or vectors == 1:
                orders = ("ji",) if variant.unrolled else ("ji", "ij")
                if roles.taps and sharing_panels(variant.op, roles):
                    orders = (*orders, "jbi")
                for packing, order in product(_packings(variant, vectors * lanes, packed, rules), orders):
                    yield Structure(variant, lanes, vectors, packing, order)
                    if own and packed == must:
                        yield Structure(variant, lanes, vectors, packing, order, own)
                    if rules.shapes.prefetch and order == "ji" and not packed and (asked := rows(vectors)):
                        yield Structure(variant, lanes, vectors, packing, order, asked=asked)


def _packings(variant: Variant, width: int, packed: tuple[Load, ...], rules: AlignmentRules) -> list[Packing]:
    """The one, or none where it is dropped."""
    said = lambda packed: f"{variant.name}, packed {', '.join(load.buffer.name for load in packed)}"
    make = lambda packed: Packing(variant, width, packed, rules.pad_value)
    return [packing for _, packing in standing([packed], make, said)]


def _own_tiles(variant: Variant, packed: tuple[Load, ...], lanes: int) -> tuple[int, ...]:
    """Operands that a block may copy into an array of its own, for all rows of tiles along m to read them from near:
    those that vary along n and not along m, whose neighbours along n lie side by side.  (A window's tile holds each
    element once for every tap, each time where the lanes' vectors begin.)"""
    roles, found = variant.roles, []
    if roles.m is None or packed or lanes == 1 or variant.unrolled or variant.whole_rows:
        return ()
    for number, load in enumerate(variant.op.body_loads()):
        axes = load.axes()
        if roles.n in axes and roles.k in axes and roles.m not in axes and in_a_row(load, roles.n or ""):
            found.append(number)
    return tuple(found)


def _rows_in_lines(variant: Variant, vectors: int, lanes: int, device: Device) -> tuple[int, ...]:
    """Operands larger than a third of the last cache whose rows along n, each read once, a register tile of so many
    vectors reads by single lines.  Rows as short as the widest tile are read in one piece, one behind the other, which
    needs no asking, and smaller operands come from the last cache.

    (A row times 11008 x 4096 by one, two, four and eight lines of each of eight rows, the next ones asked for: 7.04,
    7.27, 7.98 and 7.35 ms; times 4096 x 11008 7.75, 8.34, 8.20 and 9.04.  Times 20000 x 256 in one piece .35, by lines
    that are asked for .41; a sum of 512 x 4096, a quarter of the last cache, .11 and .15.)"""
    roles, found = variant.roles, []
    short = variant.op.axis(roles.n or "").extent <= _VECTORS[-1] * lanes
    if variant.unrolled or variant.whole_rows or short or len(device.layers) < 3:
        return ()
    line, last = device.layers[1].transaction_bytes, device.layers[-2].capacity_bytes
    for number, load in enumerate(variant.op.body_loads()):
        size = ITEMSIZE[load.dtype]
        far = 3 * load.buffer.elements * size > last and vectors * lanes * size == line
        rows = {roles.n, roles.k} <= load.axes() and roles.m not in load.axes() and in_a_row(load, roles.n or "")
        if far and rows and not is_in_panels(load, roles.n or ""):
            found.append(number)
    return tuple(found)
