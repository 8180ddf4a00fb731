"""The two products of a chain's block: by fragments in registers, or beside the program from panels in local memory.

Both add to the same accumulators, and both take weights as a factor in registers, as the scores' accumulators lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Instruction
from rollergen.lower.copies import Staged, piece_offset
from rollergen.lower.expressions import Element
from rollergen.lower.matrix_ir import (
    BeginProducts,
    EndProducts,
    LoadMatrix,
    MatrixShape,
    MultiplyLocal,
    MultiplyMatrix,
    Operand,
    WaitProducts,
)
from rollergen.lower.writer import Writer
from rollergen.program.matrix import COLUMNS, PANEL_BYTES, ROW_BYTES, ROWS, rows_of_thread
from rollergen.program.matrix_chains import ChainLoads, MatrixChainTile

_F32, _WORD = "float32", "uint32"
_ZERO = Index()
WEIGHT_REGISTERS = 4
"""Of a thread, for an m x k16 factor of weights of one execution width."""

Pack = Callable[[Index, Element], None]
"""Writes the weights of a step of keys into the registers that the element names."""


def unrolled(out: Writer, wish: str, count: int) -> Iterator[Index]:
    with out.loop(out.names.fresh(wish), count, (0, count - 1), unroll=True) as at:
        yield at


@dataclass(frozen=True, slots=True)
class Block:
    """What both ways multiply: the factors ``staged``, by number of their loads; ``inner`` terms of a score,
    ``columns`` that are multiplied; the number of this thread's group of rows, and its ``lane``."""

    out: Writer
    one: Instruction
    loads: ChainLoads
    tile: MatrixChainTile
    staged: Mapping[int, Staged]
    inner: int
    columns: int
    group: Index
    lane: Index

    @property
    def shape(self) -> MatrixShape:
        one = self.one
        return MatrixShape(one.m, one.n, one.k, one.dtype, one.accumulator_dtype, one.layout)

    def accumulators(self, along: int) -> int:
        """Of a thread: its results of ``along`` keys or columns."""
        return self.tile.tiles * along * rows_of_thread(self.one) // COLUMNS


class ProductsOfFragments:
    """Each execution width multiplies fragments that it loads into registers."""

    def __init__(self, block: Block) -> None:
        self.block, self.out = block, block.out
        self._held: str | None = None

    def hold_queries(self) -> None:
        block, one = self.block, self.block.one
        steps = block.inner // one.k
        self._held = self.out.register("held", _WORD, (steps, block.tile.tiles, one.a_registers))
        for step in unrolled(self.out, "held_step", steps):
            self._load_queries(step, Element(self._held, (step,), _WORD))

    def multiply_scores(self, scores: str, buffer: Index) -> None:
        """Fragments of queries times those of keys, two tiles of keys at a time."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        staged, lane = block.staged[block.loads.keys], block.lane
        for step in unrolled(out, "inner_step", block.inner // one.k):
            queries = Element(self._held or "", (step,), _WORD)
            if self._held is None:
                queries = Element(out.register("query", _WORD, (tile.tiles, one.a_registers)), (), _WORD)
                self._load_queries(step, queries)
            for pair in unrolled(out, "pair", tile.keys // (2 * one.n)):
                keys = out.register("key", _WORD, (2, one.b_registers))
                row = pair * (2 * one.n) + lane // 16 * ROWS + lane % ROWS
                piece = step * 2 + (lane // ROWS) % 2
                self._load(staged, "b", Element(keys, (), _WORD), buffer, row, piece, along_k=True, count=2)
                self._multiply(scores, pair, queries, keys)

    def multiply_weights(self, sums: str, buffer: Index, pack: Pack) -> None:
        """Weights, packed as a factor, times what they weigh."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        staged, lane = block.staged[block.loads.weighed], block.lane
        for step in unrolled(out, "key_step", tile.keys // one.k):
            weights = Element(out.register("weight", _WORD, (tile.tiles, one.a_registers)), (), _WORD)
            pack(step, weights)
            for pair in unrolled(out, "pair", block.columns // (2 * one.n)):
                values = out.register("value", _WORD, (2, one.b_registers))
                row, piece = step * one.k + lane % 16, pair * 2 + lane // 16
                self._load(staged, "b", Element(values, (), _WORD), buffer, row, piece, along_k=False, count=2)
                self._multiply(sums, pair, weights, values)

    def _load_queries(self, step: Index, target: Element) -> None:
        block, tile = self.block, self.block.tile
        staged, lane = block.staged[block.loads.queries], block.lane
        for at in unrolled(self.out, "row_tile", tile.tiles):
            row = block.group * (tile.tiles * block.one.m) + at * block.one.m + lane % 16
            fragment = Element(target.name, (*target.indices, at), _WORD)
            self._load(staged, "a", fragment, _ZERO, row, step * 2 + lane // 16, along_k=True, count=1)

    def _load(
        self, staged: Staged, operand: str, fragment: Element, buffer: Index, row: Index, piece: Index, *,
        along_k: bool, count: int,
    ) -> None:  # fmt: skip
        """A fragment, or two neighbouring ones, by the row and the piece of it that this thread names."""
        out = self.out
        offset = piece_offset(out, staged, buffer, row.simplify(out.ranges), piece.simplify(out.ranges))
        pointer, short = out.place(staged.pointer, offset)
        shape = self.block.shape
        out.collective(LoadMatrix(shape, operand, fragment, pointer, short, staged.pitch, along_k, count))

    def _multiply(self, sums: str, pair: Index, rows: Element, factors: str) -> None:
        """All tiles of ``rows`` times two neighbouring ones of ``factors``."""
        for at in unrolled(self.out, "row_tile", self.block.tile.tiles):
            own = Element(rows.name, (*rows.indices, at), _WORD)
            for which in (0, 1):
                target = Element(sums, (at, pair * 2 + which), _F32)
                factor = Element(factors, (Index.of(which),), _WORD)
                self.out.collective(MultiplyMatrix(self.block.shape, target, own, factor, True, True))


class ProductsBeside:
    """Several execution widths multiply what lies in panels, beside the program; each product is waited for."""

    def __init__(self, block: Block) -> None:
        self.block, self.out = block, block.out

    def multiply_scores(self, scores: str, buffer: Index) -> None:
        """Queries times keys, all of the block's keys at once."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        shape = replace(block.shape, n=tile.keys)
        out.collective(BeginProducts())
        for step in unrolled(out, "inner_step", block.inner // one.k):
            for at in unrolled(out, "row_tile", tile.tiles):
                row = (block.group * tile.tiles + at) * one.m
                queries = self._along_k(block.loads.queries, _ZERO, row, step)
                keys = self._along_k(block.loads.keys, buffer, _ZERO, step)
                out.collective(MultiplyLocal(shape, Element(scores, (at,), _F32), queries, keys))
        self._wait(scores, tile.keys)

    def multiply_weights(self, sums: str, buffer: Index, pack: Pack) -> None:
        """Weights, packed as a factor in registers, times all columns of what they weigh."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        shape, steps = replace(block.shape, n=block.columns), tile.keys // one.k
        weights = out.register("weight", _WORD, (steps, tile.tiles, WEIGHT_REGISTERS))
        for step in unrolled(out, "key_step", steps):
            pack(step, Element(weights, (step,), _WORD))
        staged = block.staged[block.loads.weighed]
        panel = staged.copy.panel
        out.collective(BeginProducts())
        for step in unrolled(out, "key_step", steps):
            for at in unrolled(out, "row_tile", tile.tiles):
                offset = buffer * staged.tile + step * (one.k * panel)
                values = self._operand(staged, offset, along_k=False)
                own = Element(weights, (step, at), _WORD)
                out.collective(MultiplyLocal(shape, Element(sums, (at,), _F32), own, values))
        self._wait(sums, block.columns)

    def _along_k(self, load: int, buffer: Index, row: Index, step: Index) -> Operand:
        """A factor whose rows run along the inner axis: from a row on, its step's part of a panel."""
        staged, k = self.block.staged[load], self.block.one.k
        rows, panel = staged.shape[0], staged.copy.panel
        number, within = (step * k) // panel, (step * k) % panel
        return self._operand(staged, buffer * staged.tile + (number * rows + row) * panel + within, along_k=True)

    def _operand(self, staged: Staged, offset: Index, *, along_k: bool) -> Operand:
        pointer, short = self.out.place(staged.pointer, offset.simplify(self.out.ranges))
        return Operand(pointer, short, along_k, ROW_BYTES if along_k else staged.shape[0] * PANEL_BYTES)

    def _wait(self, sums: str, along: int) -> None:
        self.out.collective(EndProducts(0))
        self.out.collective(WaitProducts((sums,), _F32, self.block.accumulators(along)))
