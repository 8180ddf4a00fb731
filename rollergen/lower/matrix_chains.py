"""Chains of two contractions by a matrix instruction: the scores' accumulators become a factor in registers.

queries to the block's layer, once
blocks of keys, those that some row sees:
  scores:   fragments of queries and keys, multiplied; masked where the block crosses a bound, or the keys' end
  weights:  the largest of each row so far, in all four threads that share it; exponentials, packed as a factor
  sums:     shrunk where a larger score is found; fragments of what is weighed, multiplied
results, two neighbours at a time
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Union

from rollergen.errors import ProgramError
from rollergen.expr.chains import ROW, SCORE, SUM, unrounded
from rollergen.expr.index import Index
from rollergen.expr.ruled_out import scores_of_whole_blocks
from rollergen.expr.values import Cast, Load, Partial, Value
from rollergen.hal.dataclass import dataclass
from rollergen.lower.access import fetch, put
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.chain_bounds import ChainBounds
from rollergen.lower.chain_copies import ChainCopies, bounds_of
from rollergen.lower.chain_products import Block, ProductsBeside, ProductsOfFragments, unrolled
from rollergen.lower.chain_quad_pairs import ProductsOfQuadPairs
from rollergen.lower.context import Context
from rollergen.lower.elements import Access
from rollergen.lower.expressions import (
    Build,
    Call,
    Element,
    Expr,
    Number,
    Operation,
)
from rollergen.lower.nest import Lane
from rollergen.lower.online import OnlineRows, scaled_score
from rollergen.lower.place import Place, Scope, when_all
from rollergen.program.chains import chain_factors, read_columns
from rollergen.program.matrix import COLUMNS, QUAD_PAIRS, ROWS, accumulators_of, matrix_instruction, rows_of_thread
from rollergen.program.matrix_chains import chain_loads, multiplied_columns, tile_of_matrix_chain
from rollergen.program.rprogram import GRID, GROUP, THREAD, UNROLL

_F32, _WORD = "float32", "uint32"
_ZERO = Index()
Products = Union[ProductsBeside, ProductsOfFragments, ProductsOfQuadPairs]


def write_matrix_chain(context: Context) -> None:
    """The whole stage inside its grid and thread loops."""
    _MatrixChain(context).write()


@dataclass(frozen=True, slots=True)
class _Cell:
    """Which accumulator of a thread: ``tile`` of rows, ``half`` of it, ``column`` tile (or keys), neighbour ``e``."""

    tile: Index
    half: int
    column: Index
    e: int


def _products(block: Block) -> Products:
    if block.one.is_asynchronous:
        return ProductsBeside(block)
    return ProductsOfQuadPairs(block) if block.one.layout == QUAD_PAIRS else ProductsOfFragments(block)


class _MatrixChain:
    """One chain that is being written."""

    def __init__(self, context: Context) -> None:
        self.context, self.out, self.nest = context, context.out, context.nest
        self.op, self.stage = context.nest.op, context.nest.stage
        self.roles, self.tile = tile_of_matrix_chain(self.stage)
        one = matrix_instruction(self.stage, context.nest.device)
        loads = chain_loads(self.op, one.dtype) if one else None
        if one is None or loads is None:
            raise ProgramError(f"stage {self.stage.name}: {self.stage.compute.instruction} multiplies no factors of it")
        self.one, self.loads = one, loads
        extents = self.op.extents()
        (inner,) = self.roles.inner
        self.inner, self.columns = extents[inner], extents[self.roles.column]
        self.weighed = read_columns(self.op, self.roles.column)
        self.pair = next((one for one in self.op.reductions if one.name == ROW), None)
        self.halves = rows_of_thread(one)
        self.staged = {copy.load: staged for copy, staged in context.buffers.items()}
        self.spread = accumulators_of(one)
        self._of = {(loop.axis, loop.kind, loop.stride): p for p, loop in enumerate(self.stage.loops)}
        group = Index.axis(self.nest.variables[self._of[self.roles.rows, GROUP, self.tile.tiles * one.m]])
        lane = (context.threads.thread % (ROWS * COLUMNS)).simplify(self.out.ranges)
        self.multiplied = multiplied_columns(one, self.weighed)
        block = Block(self.out, one, loads, self.tile, self.staged, self.inner, self.multiplied, group, lane)
        self.products = _products(block)

    def write(self) -> None:
        out, tile = self.out, self.tile
        width = max(self.columns, self.multiplied)
        sums = self._accumulators("sums", width)
        self._clear(sums, width)
        rows = None if self.pair is None else OnlineRows(out, self.pair, tile.tiles, self.halves, self.spread)
        self.bounds = ChainBounds(out, self.nest, self.roles, tile.rows, tile.keys, self._place())
        begin, end = self.bounds.blocks()
        first = Index.of(begin) if isinstance(begin, int) else out.integer("begin", begin, (0, self.bounds.most))
        self.copies = ChainCopies(
            out, self.nest, self.loads, self.staged, self.context.threads.thread, self._place(), self.bounds.overhang
        )
        self.copies.copy_queries()
        self.copies.make_registers()
        with self._when_any(begin, end):
            self.copies.copy_first(first)
        if not isinstance(self.products, ProductsBeside) and tile.held:
            self.copies.wait()
            self.products.hold_queries()
        name = out.names.fresh(f"{self.roles.key}_block")
        with out.loop(name, end, (0, self.bounds.most - 1), start=begin) as number:
            self._write_block(number, first, end, sums, rows)
        self._store(sums, rows)

    def _when_any(self, begin: int | Expr, end: int | Expr) -> AbstractContextManager[object]:
        """Where a block of rows runs any keys; where it may run none, that is asked."""
        if isinstance(begin, int) and isinstance(end, int):
            return nullcontext()
        return self.out.when(Operation("lt", (_number(begin), _number(end)), "bool"))

    def _accumulators(self, wish: str, along: int) -> str:
        shape = (self.tile.tiles, along // self.one.n, self.halves, self.one.n // COLUMNS)
        return self.out.register(wish, _F32, shape)

    def _clear(self, name: str, along: int) -> None:
        for cell in self._cells(along):
            self.out.assign(self._sum(name, cell), Number(0.0, _F32))

    def _cells(self, along: int) -> Iterator[_Cell]:
        for tile in unrolled(self.out, "tile", self.tile.tiles):
            for column in unrolled(self.out, "part", along // self.one.n):
                for half in range(self.halves):
                    for e in range(len(self.spread.places)):
                        yield _Cell(tile, half, column, e)

    def _sum(self, name: str, cell: _Cell) -> Element:
        return Element(name, (cell.tile, cell.column, Index.of(cell.half), Index.of(cell.e)), _F32)

    # Places

    def _place(self, cell: _Cell | None = None, key: Index = _ZERO, column: Index = _ZERO) -> Place:
        """The place of an accumulator's row, of a key and of a column."""
        roles, one = self.roles, self.one
        changes = {p: _ZERO for (axis, kind, _), p in self._of.items()
                   if axis in (roles.key, roles.column) and kind not in (GRID, GROUP)}  # fmt: skip
        changes[self._of[roles.key, UNROLL, 1]] = key
        changes[self._of[roles.column, UNROLL, 1]] = column
        changes[self._of[roles.rows, UNROLL, one.m]] = cell.tile if cell else _ZERO
        changes[self._of[roles.rows, UNROLL, self.spread.row_step]] = Index.of(cell.half) if cell else _ZERO
        if cell is None:
            changes |= {p: _ZERO for (axis, kind, _), p in self._of.items()
                        if axis == roles.rows and kind in (GROUP, THREAD)}  # fmt: skip
        return Place.outermost(self.nest).bind(changes)

    def _column(self, cell: _Cell) -> Index:
        """The number, within the block's keys or the columns, of an accumulator."""
        found = cell.column * self.one.n + self.spread.places[cell.e]
        for across, _, step in self.spread.threads:
            if across:
                found += Index.axis(self.nest.variables[self._of[self.roles.column, THREAD, step]]) * step
        return found

    def _scope(self, place: Place, partials: Mapping[tuple[str, int], Expr]) -> Scope:
        known = lambda partial: partials[partial.name, partial.component]
        return Scope(place, None, lambda load: self._read(load, place), known, {})

    def _read(self, load: Load, place: Place) -> Expr:
        """An element of what scores read beside the factors, where its row and key exist."""
        offset = self.nest.offset(load).substitute(place.axes).simplify(self.out.ranges)
        tests = tuple(
            self.nest.below(place.axes[axis], axis)
            for axis, overhangs in ((self.roles.rows, bool(self.stage.guards)), (self.roles.key, self.bounds.overhang))
            if overhangs and axis in load.axes()
        )
        tests = (*tests, *bounds_of(self.out, load, place.axes))
        return fetch(self.out, Access(self.nest.parameters[load.buffer.name], offset, tests, load.fill), None, "read")

    # Blocks of keys

    def _write_block(self, number: Index, first: Index, end: int | Expr, sums: str, rows: OnlineRows | None) -> None:
        out, copies, behind = self.out, self.copies, _number(end)
        buffer = copies.buffer(number, first)
        copies.wait()
        copies.before_scores(number, first, behind)
        scores = self._accumulators("scores", self.tile.keys)
        self._clear(scores, self.tile.keys)
        self.products.multiply_scores(scores, buffer)
        copies.before_sums(number, first, behind)
        self._write_scores(scores, number)
        if rows is not None:
            rows.gather(scores, self.tile.keys // self.one.n)
            for cell in self._cells(self.weighed):
                target = self._sum(sums, cell)
                shrink = rows.shrink(cell.tile, cell.half)
                out.assign(target, Operation("mul", (target, shrink), _F32))
        self.products.multiply_weights(sums, buffer, partial(self._pack, scores, rows))

    # Weights

    def _pack(self, scores: str, rows: OnlineRows | None, step: Index, weights: Element) -> None:
        """Weights of a step of keys as a factor of the next product, in registers."""
        for at in unrolled(self.out, "row_tile", self.tile.tiles):
            for register in range(4):
                half, column, e = register % 2, step * 2 + register // 2, 0
                if self.one.layout == QUAD_PAIRS:
                    column, e = step, register // 2 * 2
                both = tuple(self._weight(scores, _Cell(at, half, column, e + i), rows) for i in (0, 1))
                packed = Call(f"pack_{self.one.dtype}", both, _WORD)
                self.out.assign(Element(weights.name, (*weights.indices, at, Index.of(register)), _WORD), packed)

    # Scores

    def _write_scores(self, scores: str, number: Index) -> None:
        """Scores of a block from its products, as far as they are not weights' own arithmetic; -inf, or a product of 0,
        where a key does not exist."""
        if self.pair is None:
            return
        value, _ = scaled_score(self.pair.bodies[0])
        whole, _ = scaled_score(scores_of_whole_blocks(self.op))
        test = self.bounds.is_whole(number)
        if test is None:
            self._compute_scores(scores, number, whole, tail=False)
            return
        with self.out.when(test):
            self._compute_scores(scores, number, whole, tail=False)
        with self.out.otherwise():
            self._compute_scores(scores, number, value, tail=self.bounds.overhang)

    def _compute_scores(self, scores: str, number: Index, value: Value, *, tail: bool) -> None:
        out = self.out
        if value == Partial(SCORE, _F32) and not tail:
            return
        for cell in self._cells(self.tile.keys):
            target = self._sum(scores, cell)
            key = number * self.tile.keys + self._column(cell)
            scope = self._scope(self._place(cell, key), {(SCORE, 0): target})
            found = evaluate(out, scope, value)
            if tail:
                inside = self.nest.below(key.simplify(out.ranges), self.roles.key)
                found = Operation("select", (inside, found, Number(float("-inf"), _F32)), _F32)
            out.assign(target, found)

    def _weight(self, scores: str, cell: _Cell, rows: OnlineRows | None) -> Expr:
        """The weight of a score; of a row with a largest one it joins the row's sum."""
        target = self._sum(scores, cell)
        if rows is not None:
            return rows.weight(target, cell.tile, cell.half)
        (weight,) = chain_factors(self.op).weights
        scope = self._scope(self._place(cell), {(SCORE, 0): target})
        return self.out.atom("weight", evaluate(self.out, scope, unrounded(weight)))

    # Results

    def _store(self, sums: str, rows: OnlineRows | None) -> None:
        out = self.out
        if rows is not None:
            rows.finish()
        result, output = self.op.result, self.op.output
        if isinstance(result, Cast) and result.dtype == output.dtype and result.x.dtype == _F32:
            result = result.x  # the store rounds
        for tile in unrolled(self.out, "tile", self.tile.tiles):
            for half in range(self.halves):
                row = self._place(_Cell(tile, half, _ZERO, 0)).axes[self.roles.rows]
                inside = [self.nest.below(row, self.roles.rows)] if self.stage.guards else []
                with when_all(out, inside):
                    for column in unrolled(self.out, "part", self.columns // self.one.n):
                        for e in range(0, len(self.spread.places), self.spread.neighbours):
                            self._store_pair(sums, rows, _Cell(tile, half, column, e), result)

    def _store_pair(self, sums: str, rows: OnlineRows | None, first: _Cell, result: Value) -> None:
        out = self.out
        values = []
        for e in range(self.stage.store.vector):
            cell = replace(first, e=first.e + e)
            known: dict[tuple[str, int], Expr] = {(SUM, 0): self._sum(sums, cell)}
            if rows is not None:
                known |= {(ROW, component): found for component, found in enumerate(rows.pair(cell.tile, cell.half))}
            scope = self._scope(self._place(cell, column=self._column(cell)), known)
            values.append(out.atom("result", evaluate(out, scope, result)))
        place = self._place(first, column=self._column(first))
        stored = self.nest.offset(self.op.stored())
        pointer, step = self.nest.parameters[self.op.output.name], stored.coefficient(self.roles.column)
        offset = stored.substitute(place.axes).simplify(out.ranges)
        if step == 1:
            lane = Lane(out.names.fresh("lane"), len(values))
            out.ranges[lane.variable] = (0, lane.width - 1)
            put(out, Access(*out.place(pointer, offset + Index.axis(lane.variable))), Build(tuple(values)), lane)
            return
        for e, value in enumerate(values):
            put(out, Access(*out.place(pointer, offset + e * step)), value, None)


def _number(value: int | Expr) -> Expr:
    return Number(value, "int32") if isinstance(value, int) else value
