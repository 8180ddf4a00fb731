"""The two products of a chain's block by Volta's instruction, whose threads exchange weights before the second one.

Weights of 16 keys lie in the four threads of a row as accumulators do (`program.matrix.Accumulators`); each gets the
eight of its own quad pair, then those of the other one.  Quad pairs so multiply keys in different orders.
"""

from __future__ import annotations

from rollergen.expr.index import Index
from rollergen.lower.chain_products import WEIGHT_REGISTERS, Block, Pack, unrolled
from rollergen.lower.copies import piece_offset
from rollergen.lower.expressions import Call, Element, position
from rollergen.lower.matrix_ir import LoadMatrix, MultiplyMatrix, ShareWeights
from rollergen.program.matrix import SWIZZLE

_F32, _WORD = "float32", "uint32"
_ZERO = Index()
_OF_ROW = (2, 4)
"""Registers of a thread for 16 elements of one row, by pieces."""


class ProductsOfQuadPairs:
    """Each execution width multiplies fragments that it loads into registers, two times two quad pairs at once."""

    def __init__(self, block: Block) -> None:
        self.block, self.out = block, block.out
        lane = block.lane
        self._quad, self._down, self._across, self._half = lane % 4, lane // 4 % 2, lane // 8 % 2, lane // 16
        self._held: str | None = None

    def hold_queries(self) -> None:
        block = self.block
        steps, turn = block.inner // block.one.k, self._turn(block.loads.queries, self._down)
        self._held = self.out.register("held", _WORD, (steps, block.tile.tiles, *_OF_ROW))
        for step in unrolled(self.out, "held_step", steps):
            self._load_queries(step, Element(self._held, (step,), _WORD), turn)

    def multiply_scores(self, scores: str, buffer: Index) -> None:
        """Fragments of queries times those of keys."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        turn = self._turn(block.loads.keys, self._across)
        turn_of_queries = None if self._held else self._turn(block.loads.queries, self._down)
        for step in unrolled(out, "inner_step", block.inner // one.k):
            queries = Element(self._held or "", (step,), _WORD)
            if self._held is None:
                queries = Element(out.register("query", _WORD, (tile.tiles, *_OF_ROW)), (), _WORD)
                self._load_queries(step, queries, turn_of_queries)
            for part in unrolled(out, "part", tile.keys // one.n):
                keys = Element(out.register("key", _WORD, _OF_ROW), (), _WORD)
                row = part * one.n + self._row(self._across) + self._half * 8
                self._load_row(block.loads.keys, keys, "b", buffer, row, step, turn)
                self._multiply(scores, part, queries, keys, along_k=True)

    def multiply_weights(self, sums: str, buffer: Index, pack: Pack) -> None:
        """Weights, exchanged among the threads of a row, times what they weigh."""
        out, block, one, tile = self.out, self.block, self.block.one, self.block.tile
        load = block.loads.weighed
        pairs = [(across, self._turn(load, across)) for across in (self._across, self._across * -1 + 1)]
        for step in unrolled(out, "key_step", tile.keys // one.k):
            own = Element(out.register("own", _WORD, (tile.tiles, WEIGHT_REGISTERS)), (), _WORD)
            weights = Element(out.register("weight", _WORD, (tile.tiles, *_OF_ROW)), (), _WORD)
            pack(step, own)
            for at in unrolled(out, "row_tile", tile.tiles):
                out.collective(ShareWeights(Element(own.name, (at,), _WORD), Element(weights.name, (at,), _WORD)))
            for part in unrolled(out, "part", block.columns // one.n):
                values = Element(out.register("value", _WORD, (4, 2)), (), _WORD)
                for number, (across, turn) in enumerate(pairs):
                    for keys in (0, 1):
                        row = step * one.k + self._row(across) + keys * 8
                        half = Element(values.name, (Index.of(2 * number + keys),), _WORD)
                        self._load(load, half, "b", buffer, row, part * 2 + self._half, turn, self._across * 4)
                self._multiply(sums, part, weights, values, along_k=False)

    def _row(self, pair: Index) -> Index:
        """A thread's row (or key) of eight, in the quad pair of that number."""
        return self._quad + pair * 4

    def _turn(self, load: int, pair: Index) -> Index | None:
        """That row's number modulo the swizzle, computed anew: places would otherwise fill registers."""
        if not self.block.staged[load].copy.swizzle:
            return None
        row = self._row(pair).simplify(self.out.ranges)
        return self.out.integer("turn", Call("anew", (position(row, self.out.ranges),), "int32"), (0, SWIZZLE - 1))

    def _load_queries(self, step: Index, target: Element, turn: Index | None) -> None:
        block, tile = self.block, self.block.tile
        for at in unrolled(self.out, "row_tile", tile.tiles):
            row = block.group * (tile.tiles * block.one.m) + at * block.one.m
            row = row + self._row(self._down) + self._half * 8
            own = Element(target.name, (*target.indices, at), _WORD)
            self._load_row(block.loads.queries, own, "a", _ZERO, row, step, turn)

    def _load_row(
        self, load: int, fragment: Element, operand: str, buffer: Index, row: Index, step: Index, turn: Index | None
    ) -> None:
        """16 elements of a row, along the inner axis."""
        for half in (0, 1):
            piece = Element(fragment.name, (*fragment.indices, Index.of(half)), _WORD)
            self._load(load, piece, operand, buffer, row, step * 2 + half, turn)

    def _load(
        self, load: int, fragment: Element, operand: str, buffer: Index, row: Index, piece: Index, turn: Index | None,
        within: Index = _ZERO,
    ) -> None:  # fmt: skip
        """A piece of a row, or (of what is weighed) the half of it from element ``within`` on."""
        out, staged = self.out, self.block.staged[load]
        row, piece = row.simplify(out.ranges), piece.simplify(out.ranges)
        offset = piece_offset(out, staged, buffer, row, piece, turn) + within
        pointer, short = out.place(staged.pointer, offset.simplify(out.ranges))
        along_k = load != self.block.loads.weighed
        out.collective(LoadMatrix(self.block.shape, operand, fragment, pointer, short, staged.pitch, along_k))

    def _multiply(self, sums: str, part: Index, rows: Element, factor: Element, *, along_k: bool) -> None:
        for at in unrolled(self.out, "row_tile", self.block.tile.tiles):
            own = Element(rows.name, (*rows.indices, at), _WORD)
            target = Element(sums, (at, part), _F32)
            self.out.collective(MultiplyMatrix(self.block.shape, target, own, factor, True, along_k))
