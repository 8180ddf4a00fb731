"""How queries, keys and what they weigh come to the block's layer, for chains by a matrix instruction.

Beside the program, a block of keys (or, with one buffer, either half of it) a product ahead; or through registers: the
half that comes next is fetched while a product runs, and put into its buffer once all threads have read the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.expr.values import Load, Within
from rollergen.lower.copies import Staged, piece_offset
from rollergen.lower.expressions import Element, Expr, Inside, Operation, Pointer, Position, Read, moved_dtype
from rollergen.lower.ir import Route, Write
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, guarded, when_all
from rollergen.lower.writer import Writer
from rollergen.program.chains import read_columns
from rollergen.program.matrix_chains import ChainLoads, tile_of_matrix_chain

_ZERO = Index()


class ChainCopies:
    """Copies by all threads of a block; ``outermost`` is the place of its first row.

    ``staged``: the buffers by number of their loads; ``thread``: this thread's number; ``overhang``: whether the last
    block has keys that do not exist."""

    def __init__(
        self, out: Writer, nest: Nest, loads: ChainLoads, staged: Mapping[int, Staged], thread: Index,
        outermost: Place, overhang: bool,
    ) -> None:  # fmt: skip
        self.out, self.nest, self.loads, self.staged, self.thread = out, nest, loads, staged, thread
        self.axes, self.overhang = outermost.axes, overhang
        self.roles, self.tile = tile_of_matrix_chain(nest.stage)
        self.columns = read_columns(nest.op, self.roles.column)
        self.ring = self.tile.depth > 1
        self.beside = staged[loads.keys].copy.asynchronous
        self._fetched: dict[int, str] = {}

    def buffer(self, number: Index, first: Index) -> Index:
        """The buffer of a block of keys, of which the first one is ``first``."""
        return ((number - first) % self.tile.depth).simplify(self.out.ranges)

    def copy_queries(self) -> None:
        self._copy(self.loads.queries, _ZERO, _ZERO)

    def make_registers(self) -> None:
        """Those through which blocks of keys pass."""
        for load in () if self.beside else (self.loads.keys, self.loads.weighed):
            copy, kept = self.staged[load].copy, self._kept(load)
            name = f"{self._source(load).buffer.name}_next"
            self._fetched[load] = self.out.register(name, kept, (self._steps(load),), copy.vector)

    def copy_first(self, first: Index) -> None:
        """Of the first block of keys what the first barrier waits for; without a ring the rest comes later."""
        if self.beside:
            self._copy_block(first, first)
        else:
            self._fetch(self.loads.keys, first)
            self._put(self.loads.keys)
            self._fetch(self.loads.weighed, first)

    def wait(self) -> None:
        self.out.barrier(0 if self.beside else None, self.nest.products)

    def before_scores(self, number: Index, first: Index, end: Expr) -> None:
        """After all threads have come to a block of keys, whose keys have arrived."""
        if self.ring:
            with self._when_next(number, end):
                self._copy_block(number + 1, first)
        elif self.beside:
            self._copy(self.loads.weighed, number * self.tile.keys, _ZERO)
            self.out.end_group()
        else:
            self._put(self.loads.weighed)
            with self._when_next(number, end):
                self._fetch(self.loads.keys, number + 1)

    def before_sums(self, number: Index, first: Index, end: Expr) -> None:
        """After the scores of a block of keys; where a ring has it all, nothing is left."""
        if self.ring:
            return
        self.wait()
        with self._when_next(number, end):
            if self.beside:
                self._copy_block(number + 1, first)
            else:
                self._put(self.loads.keys)
                self._fetch(self.loads.weighed, number + 1)

    def _when_next(self, number: Index, end: Expr) -> AbstractContextManager[None]:
        """Where another block of keys follows."""
        return self.out.when(Operation("lt", (Position(number + 1), end), "bool"))

    def _copy_block(self, number: Index, first: Index) -> None:
        """A block's keys, and in a ring what they weigh, as one group of copies."""
        buffer = self.buffer(number, first)
        for load in (self.loads.keys, self.loads.weighed)[: 1 + self.ring]:
            self._copy(load, number * self.tile.keys, buffer)
        self.out.end_group()

    # One tile

    def _copy(self, load: int, begin: Index, buffer: Index) -> None:
        """A tile of the factor, from row (or key) ``begin`` on; what does not exist is 0."""
        route = Route.PAST_CACHE if self.beside else Route.REGISTERS
        for _, row, piece in self._pieces(load):
            self._write(load, buffer, row, piece, self._value(load, begin, row, piece), route)

    def _fetch(self, load: int, number: Index) -> None:
        """The tile of a block of keys into registers."""
        for at, row, piece in self._pieces(load):
            self.out.assign(self._register(load, at), self._value(load, number * self.tile.keys, row, piece))

    def _put(self, load: int) -> None:
        for at, row, piece in self._pieces(load):
            self._write(load, _ZERO, row, piece, self._register(load, at), Route.REGISTERS)

    def _register(self, load: int, at: Index) -> Element:
        return Element(self._fetched[load], (at,), self._kept(load), self.staged[load].copy.vector)

    def _pieces(self, load: int) -> Iterator[tuple[Index, Index, Index]]:
        """(step, row, piece of the row) of what this thread moves of a tile."""
        out, pieces, count = self.out, self._width(load), self._count(load)
        steps, threads = self._steps(load), self.nest.stage.threads
        with out.loop(out.names.fresh("step"), steps, (0, steps - 1), unroll=True) as at:
            number = at * threads + self.thread
            row, piece = (number // pieces).simplify(out.ranges), (number % pieces).simplify(out.ranges)
            with when_all(out, [Inside(number, None, count)] if count % threads else []):
                yield at, row, piece

    def _source(self, load: int) -> Load:
        return self.nest.loads[load]

    def _kept(self, load: int) -> str:
        return moved_dtype(self._source(load).dtype)

    def _width(self, load: int) -> int:
        """Pieces of a row; those behind the columns that are read are not copied."""
        staged = self.staged[load]
        return (self.columns if load == self.loads.weighed else staged.shape[1]) // staged.copy.vector

    def _count(self, load: int) -> int:
        return self.staged[load].shape[0] * self._width(load)

    def _steps(self, load: int) -> int:
        return -(-self._count(load) // self.nest.stage.threads)

    def _value(self, load: int, begin: Index, row: Index, piece: Index) -> Expr:
        out, copy, source, kept = self.out, self.staged[load].copy, self._source(load), self._kept(load)
        rows, along = copy.order
        of_rows = rows == self.roles.rows
        start = self.axes[rows] if of_rows else begin
        axes = {**self.axes, rows: start + row, along: piece * copy.vector}
        offset = self.nest.offset(source).substitute(axes).simplify(out.ranges)
        value: Expr = Read(self._as(self.nest.parameters[source.buffer.name], kept), offset, kept, copy.vector)
        overhangs = bool(self.nest.stage.guards) if of_rows else self.overhang
        here = (start + row).simplify(out.ranges)
        tests = [self.nest.below(here, rows)] if overhangs else []
        return guarded((*tests, *bounds_of(out, source, axes)), value, 0)

    def _write(self, load: int, buffer: Index, row: Index, piece: Index, value: Expr, route: Route) -> None:
        staged = self.staged[load]
        target, into = piece_offset(self.out, staged, buffer, row, piece), self._as(staged.pointer, self._kept(load))
        self.out.write(Write(into, target, value, aligned=True, asynchronous=route))

    @staticmethod
    def _as(pointer: Pointer, dtype: str) -> Pointer:
        return replace(pointer, dtype=dtype)


def bounds_of(out: Writer, load: Load, axes: Mapping[str, Index]) -> list[Inside]:
    """The load's own bounds, those that do not hold for all of these axes."""
    every = [Within(one.index.substitute(axes).simplify(out.ranges), one.low, one.high) for one in load.guard]
    return [Inside(one.index, one.low, one.high) for one in every if not one.always(out.ranges)]
