"""The tiles of elementwise stages: copies, packing, transposes, maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd, prod
from typing import Any

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import linear
from rollergen.expr.places import put_of
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Cast, Select, Take, Unary, axes_of, takes, walk
from rollergen.expr.views import in_a_row
from rollergen.hal.spec import Device
from rollergen.program.assemble.elementwise import elementwise_axes, reading_axes
from rollergen.program.assemble.nest import ceil_div, copy_vector, lane_stride
from rollergen.program.assemble.plan import ElementwisePlan
from rollergen.program.rprogram import GRID, LANE, SERIAL, THREAD, UNROLL
from rollergen.space.counts import least_threads, power_below, private_limit, thread_counts
from rollergen.space.engine import Digit, Rule, Tally, TileSpace, joint, limit, plans
from rollergen.space.rules import BLOCK_MEMORY, LONGER, UNROLLED, aligned_tiles
from rollergen.tile.rules import (
    AlignmentRules,
    contiguous_axis,
    vector_lanes,
)

_LIVE = 8
"""Registers of a vector of what is written out: its steps' and its arguments'."""
_PREFETCH_DISTANCE = 2
"""Vectors that are prefetched before they are written: the next one's line is where this one ends."""
_WRITTEN_ON = (16, 32, 64)
"""Vectors of a row of the output that follow each other, where stores wait for their lines: what writes a vector here
and the next one in another row finds no line prefetched (1009 x 997 elements by an AVX-512 core: 1.2 ms; a vector of
each of 64 rows in turn 1.9 to 3.3)."""
_ROWS_TOGETHER = (2, 3, 4, 5)
"""Rows that share what is computed of places along n (weights of a picture's columns that grows twofold, a Zen 4: 121
us by single rows, 64 by four).  Their vectors find registers beside it."""
_MOST_TURNED = 16
"""Elements of a thread in a tile that is written out: compilers make a loop of more."""
LEAST_SQUARE = 4
"""A side of the smallest squares that are transposed in registers."""
_SIDE = 32
"""Of a square tile that threads transpose through their block's layer."""


def elementwise_plans(
    op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally
) -> Iterator[ElementwisePlan]:
    of = _SerialMap if not device.kind.threads else _ThreadMap
    return of(op, device, rules, tally).plans()


def transposed_load(op: TensorOp) -> int:
    """The load that is contiguous along m but strided along n; -1 if there is none.  (Every other element is
    read as two vectors.)"""
    m, n, _ = elementwise_axes(op)
    for number, load in enumerate(op.loads()):
        if lane_stride(load, n) == 2:
            continue
        if m is not None and contiguous_axis(load) == m and n in load.axes() and not load.guard:
            return number
    return -1


class _Map:
    """An elementwise stage along (m, n) on a device."""

    def __init__(self, op: TensorOp, device: Device, rules: AlignmentRules, tally: Tally) -> None:
        self.op, self.device, self.rules, self.tally = op, device, rules, tally
        self.m, self.n, _ = elementwise_axes(op)
        self.m_extent = op.axis(self.m).extent if self.m else 1
        self.n_extent = op.axis(self.n).extent
        self.staged = transposed_load(op)
        # ids of whole rows are scalars: they leave vectors of rows as wide as those of a copy
        self.dtypes = [op.output.dtype, *(load.dtype for load in op.loads() if self.n in load.axes())]
        self.lanes = vector_lanes(device, max(self.dtypes, key=lambda dtype: ITEMSIZE[dtype]))

    def tiled(self, *digits: Digit, limits: Iterable[Rule] = (), **others: Any) -> list[ElementwisePlan]:
        """The plans of one loop structure; ``others``: what is the same in all of them."""
        space = TileSpace(self.op, self.device, self.rules, digits, tuple(limits))
        return plans(ElementwisePlan, aligned_tiles(space, self.tally), **others)

    def along_m(self, name: str, kind: str, choices: Iterable[int]) -> Digit:
        return Digit(name, self.m or "", kind, tuple(choices))

    def along_n(self, name: str, kind: str, choices: Iterable[int]) -> Digit:
        return Digit(name, self.n, kind, tuple(choices))


class _ThreadMap(_Map):
    """By blocks of threads that share a managed layer."""

    def plans(self) -> Iterator[ElementwisePlan]:
        self.lanes = self.lanes if self.n_extent >= self.lanes else 1
        lockstep = self.device.kind.lockstep
        if self.staged >= 0 and lockstep:
            yield from self._staged()
        yield from self._direct()
        if lockstep and self.staged < 0 and self.rules.shapes.grid_stride:
            yield from self._striding()
        if not lockstep:
            yield from self._in_panels()

    def _direct(self) -> list[ElementwisePlan]:
        """A block for each tile: threads along n, then along m."""
        width, n_power = self.device.execution_width, power_below(self.n_extent)
        lanes, least = self.lanes, least_threads(self.device, self.rules)
        pairs = {
            (threads // tn, tn)
            for threads in thread_counts(self.device)
            for tn in (threads, min(threads, n_power), min(threads, width))
        }
        short = lambda tm, tn, vector, un: (tn * vector * un * lanes <= 2 * self.n_extent) | (
            (tm * tn == least) & (vector * un == 1)
        )
        return self.tiled(
            self.along_n("lanes", LANE, (lanes,)),
            *joint(("tm", self.m or "", THREAD), ("tn", self.n, THREAD), pairs),
            self.along_n("vector", UNROLL, self._vectors((1, 2, 4))),
            self.along_n("un", UNROLL, (1, 2, 4)),
            limits=[
                limit(LONGER, "tm", lambda tm: (tm == 1) | ((tm <= 2 * self.m_extent) & (self.m is not None))),
                limit(LONGER, "tm tn vector un", short),
            ],
        )

    def _striding(self) -> list[ElementwisePlan]:
        """As many blocks along n as run at once, which together stride over it, where that is at least two rounds."""
        others = prod(a.extent for a in self.op.of_role("spatial", "row") if a.name != self.n)
        (vector,) = self._vectors((4,))

        def strides(tn: int, un: int) -> Iterator[int]:
            resident, tile = self.device.limits.threads_per_unit // tn, tn * vector * un * self.lanes
            for units in (resident, max(1, resident // 2)):
                blocks = ceil_div(self.device.units * units, others)
                if 2 * blocks <= ceil_div(self.n_extent, tile) and blocks * tile <= self.n_extent:
                    yield blocks

        return self.tiled(
            self.along_n("lanes", LANE, (self.lanes,)),
            self.along_n("vector", UNROLL, (vector,)),
            self.along_n("tn", THREAD, thread_counts(self.device)[-3:]),
            self.along_n("un", UNROLL, (1, 2, 4)),
            Digit("strides", self.n, GRID, strides, of=("tn", "un")),
        )

    def _staged(self) -> Iterator[ElementwisePlan]:
        """A square tile through the block's layer, stored element by element or in vectors; of the latter, a thread's
        part is written out."""
        in_turn = lambda tm: (_SIDE // tm,)
        yield from self.tiled(
            self.along_n("tn", THREAD, (_SIDE,)),
            self.along_m("tm", THREAD, (4, 8, 16)),
            Digit("pm", self.m or "", SERIAL, in_turn, of=("tm",)),
            staged=self.staged,
        )
        most = max(1, 16 // ITEMSIZE[self.op.output.dtype])
        vector = copy_vector(self.op, self.op.stored(), self.n, most)
        if vector > 1 and self.rules.shapes.transposed_vectors:
            yield from self.tiled(
                self.along_n("vector", UNROLL, (vector,)),
                self.along_n("tn", THREAD, (_SIDE // vector,)),
                self.along_m("tm", THREAD, (2, 4, 8, 16, 32)),
                Digit("um", self.m or "", UNROLL, in_turn, of=("tm",)),
                limits=[limit(UNROLLED, "um", lambda um: um * vector <= _MOST_TURNED)],
                staged=self.staged,
            )

    def _in_panels(self) -> list[ElementwisePlan]:
        """By threads that run alone."""
        most = self.device.limits.threads_per_block
        return self.tiled(
            self.along_n("lanes", LANE, (self.lanes,)),
            self.along_n("tn", THREAD, (most,)),
            self.along_n("pn", SERIAL, (1, 4, 16, 64, 256)),
            self.along_m("pm", SERIAL, (1, 4, 16, 64)),
            limits=[
                limit(LONGER, "pn", lambda pn: pn * self.lanes * most <= 2 * self.n_extent),
                limit(LONGER, "pm", lambda pm: pm <= self.m_extent),
            ],
        )

    def _vectors(self, widths: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) if self.lanes > 1 else widths


class _SerialMap(_Map):
    """By blocks of one thread."""

    def plans(self) -> Iterator[ElementwisePlan]:
        self.lanes = min(self.lanes, power_below(self.n_extent))
        streams = self.staged < 0 and self._worth_streaming()
        if self.staged >= 0 and self.lanes > 1:
            yield from self._transposed()
        yield from self._walking(self._side_by_side() or self.lanes)
        if streams:
            yield from self._walking(self.lanes, streaming=True)

    def _walking(self, lanes: int, streaming: bool = False) -> Iterator[ElementwisePlan]:
        """Blocks of so many vectors of `lanes`, and of so many rows."""
        steps, units = ceil_div(self.n_extent, lanes), self.device.units
        digits = (
            self.along_n("lanes", LANE, (lanes,)),
            self.along_n("pn", SERIAL, sorted({1, 4, 16, 64, 256, 1024, 4096, ceil_div(steps, units), steps})),
            self.along_m("um", UNROLL, sorted({1, self._rows_together()})),
            Digit("pm", self.m or "", SERIAL, self._steps_along_m, of=("um",)),
        )
        whole = limit(LONGER, "pm um", lambda pm, um: pm * um <= self.m_extent)
        limits = (limit(LONGER, "pn", lambda pn: pn <= steps), whole)
        yield from self.tiled(*digits, limits=limits, streaming=streaming, ahead=self._asks_ahead())
        if self.staged >= 0:
            room = private_limit(self.device)
            held = limit(BLOCK_MEMORY, "pm pn um", lambda pm, pn, um: pm * um * pn * lanes * 4 <= room)
            yield from self.tiled(*digits, limits=(*limits, held), staged=self.staged, layer=self.device.layers[1].name)
        axes = reading_axes(self.op) if streaming else None
        if axes:
            yield from self._as_read(axes[0], steps, lanes)

    def _steps_along_m(self, together: int) -> list[int]:
        """Steps of a block, of so many rows each: of several an even number, too, so that no place needs a test."""
        steps = {1, 8, 16, 32, 64, ceil_div(self.m_extent, self.device.units)}
        return sorted(steps | {gcd(self.m_extent // together, n) for n in range(32, 65) if together > 1})

    def _rows_together(self) -> int:
        """Rows written out side by side, which share what is computed of a place along n alone; none is half a step."""
        computed = (node for node in walk(self.op.result) if isinstance(node, (Binary, Unary, Cast, Select)))
        shares = any(axes_of(node) == {self.n} for node in computed)
        return max((rows for rows in _ROWS_TOGETHER if self.m_extent % rows == 0), default=1) if shares else 1

    def _as_read(self, m: str, steps: int, lanes: int) -> list[ElementwisePlan]:
        """Whole rows in the order in which they are read: stores that bypass the caches wait for nothing, wherever they
        go, while reads are fetched ahead as long as they follow each other."""
        extent = self.op.axis(m).extent
        return self.tiled(
            self.along_n("lanes", LANE, (lanes,)),
            self.along_n("pn", SERIAL, (steps,)),
            Digit("pm", m, SERIAL, sorted({1, 8, 16, 32, 64, min(extent, 64)})),
            limits=[limit(LONGER, "pm", lambda pm: pm <= extent)],
            streaming=True,
            as_read=True,
        )

    def _transposed(self) -> Iterator[ElementwisePlan]:
        """Square tiles transposed in registers, a vector's elements a side, or a half or quarter of them where m is
        shorter; where every row of the output begins alike, and stores may bypass caches, these begin on its lines.

        What a stage packs for another one has short rows, which begin on lines anyway.  There squares may also follow
        each other along the rows that are read: of these as many as lanes are walked at once, which prefetchers follow.
        And what is large may be written past the caches, as the product that reads it computes longer than it waits
        (3072 x 768 in panels of 48 on a Zen 4: across the rows 1102 us, along them 836, past the caches 428)."""
        lanes = self.lanes
        while lanes > max(self.m_extent, LEAST_SQUARE):
            lanes //= 2
        if self.m is None or self.m_extent < lanes:
            return
        if self.m_extent % lanes and not in_a_row(self.op.loads()[self.staged], self.m):
            return
        vectors = ceil_div(self.n_extent, lanes)
        straight = self._rows_alike() and put_of(self.op) is None
        on_lines = self.n_extent >= _WRITTEN_ON[0] * lanes and straight and self._worth_streaming()
        # On lines one step more than a power of two, so that blocks are even though the first starts early.
        steps = [n + 1 for n in (1, 2, 4, 8, 16, 32, 64)] if on_lines else {min(n, vectors) for n in _WRITTEN_ON}

        def short(pn: Any) -> Any:
            blocks = ceil_div(self.n_extent + lanes - 1, pn * lanes)
            return (blocks - 1) * pn * lanes < self.n_extent

        rows = ceil_div(self.m_extent, lanes)
        limits = [limit(LONGER, "pm", lambda pm: pm <= rows), *([limit(LONGER, "pn", short)] if on_lines else [])]
        across = {"across": True, "prefetch_distance": _PREFETCH_DISTANCE}
        ways = [{"streaming": True, "on_lines": True} if on_lines else across]
        if self.op.output.kind == "temporary" and straight:
            past = self._far_beyond() and set(self.dtypes) == {"float32"}
            ways += [{}, {"streaming": True}] if past else [{}]
        for how in ways:
            yield from self.tiled(
                self.along_n("lanes", LANE, (lanes,)),
                self.along_m("pm", SERIAL, (1, 2, 4, 8, 16)),
                self.along_n("pn", SERIAL, sorted(steps)),
                limits=limits,
                staged=self.staged,
                layer=self.device.layers[1].name,
                square=lanes,
                **how,
            )

    def _side_by_side(self) -> int:
        """Lanes of as many vectors at once as registers hold; 0 where there are no such.

        Their loads stand before their stores: one behind a store whose address ends in the same twelve bits waits for
        it (4 MB whose result begins a line further in its page, on Zen 4: 131 us vector by vector, 98 by four).  And
        the operations of one vector stand between those of another, which need not wait for them.  (A processor that
        reorders operations looks ahead by about a hundred, which is fewer long chains than would keep its pipes
        busy.)"""
        times, loads = self.device.limits.registers_per_thread // _LIVE, self.op.loads()
        single = set(self.dtypes) == {"float32"}
        plain = self.staged < 0 and all(lane_stride(load, self.n) in (0, 1) and not load.guard for load in loads)
        whole = self.n_extent % (times * self.lanes) == 0
        several = times > 1 and self.lanes > 1 and len(loads) < _LIVE
        return times * self.lanes if several and single and plain and whole else 0

    def _asks_ahead(self) -> bool:
        """Whether what the next row takes is prefetched: of tables beyond the first cache, which holds the lines of two
        rows.  Nothing else fetches ahead what is read in any order, or rows that begin anywhere.

        On Zen 4 rows of 256 elements at the same ids take .94 of the time (on a Sapphire Rapids Xeon .81), embeddings
        and other rows that lie anywhere .94 to .97.  With other ids in each row, which are then read twice, 1.02."""
        first = next(iter(self.device.caches), None)
        if first is None or self.m is None or not self.rules.shapes.prefetch:
            return False
        along_m = [take for take in takes(self.op.result) if self.m in axes_of(take)]
        far = [take for take in along_m if take.row.buffer.elements * ITEMSIZE[take.dtype] > first.capacity_bytes]
        anew = any({self.m, self.n} <= axes_of(value) for take in along_m for value in take.ids)
        return bool(far) and not anew and 2 * sum(map(self._row_bytes, along_m)) <= first.capacity_bytes

    def _row_bytes(self, take: Take) -> int:
        """Of the lines that a take reads along n at most."""
        itemsize = ITEMSIZE[take.dtype]
        if not any(self.n in axes_of(value) for value in take.ids):
            return self.n_extent * itemsize
        span = sum(extent * stride for extent, stride in zip(take.extents, take.strides, strict=True)) * itemsize
        return min(self.n_extent * self.device.backing.transaction_bytes, span)

    def _rows_alike(self) -> bool:
        """Whether the output's rows along n lie multiples of the lanes apart."""
        offset = linear(self.op.target, self.op.output.shape)
        return all(coefficient % self.lanes == 0 for atom, coefficient in offset.terms if atom != self.n)

    def _worth_streaming(self) -> bool:
        """Whether stores may bypass the caches: the output is large beside them, nobody reads it next, and it is
        written in whole vectors.  (Arrays of a host begin at multiples of 16 bytes only: short runs that do not begin
        on lines lose their first and last ones, which costs more than it saves.)"""
        contiguous = contiguous_axis(self.op.stored()) == self.n
        whole = self.n_extent % self.lanes == 0 and contiguous
        return self._far_beyond() and whole and self.op.output.kind == "output"

    def _far_beyond(self) -> bool:
        """Whether what is written is more than an eighth of the largest cache: past it stores may then be faster."""
        output = self.op.output
        cache = max((layer.capacity_bytes for layer in self.device.layers[1:-1]), default=0)
        elements = output.elements if put_of(self.op) is None else self.op.points
        return elements * ITEMSIZE[output.dtype] > cache // 8
