"""Chains of two contractions: rows (queries) in the lanes, so that nothing is reduced or moved across them.

queries, turned so that the rows of a tile lie side by side
blocks of keys, those that some row sees:
  scores:   groups of keys side by side in registers, over the inner axes; to an array [key][row]
  weights:  the largest of each row so far, exponentials of the differences to it, their sum
  sums:     groups of columns side by side in registers, over the keys of the block; an array [column][row]
results, turned back
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rollergen.expr.chains import ROW, SCORE
from rollergen.expr.index import Index
from rollergen.expr.ruled_out import scores_of_whole_blocks
from rollergen.expr.values import Binary, Const, Partial, Select, Value
from rollergen.hal.dataclass import dataclass
from rollergen.lower.arithmetic import evaluate
from rollergen.lower.chain_lines import ChainLines
from rollergen.lower.chain_operands import ChainPlaces, finished_results, number_of, turned_queries
from rollergen.lower.context import Context
from rollergen.lower.expressions import (
    Broadcast,
    Element,
    Expr,
    Inside,
    Number,
    Operation,
    Pointer,
    Read,
    position,
)
from rollergen.lower.ir import PRIVATE, Write
from rollergen.lower.masks import in_lanes, select
from rollergen.lower.maths import LOG2E, exp2_below, exp_below
from rollergen.lower.online import scaled_score
from rollergen.lower.place import clipped, conjunction, when_all
from rollergen.lower.writer import Nested
from rollergen.program.chain_lines import asked_lines
from rollergen.program.chains import chain_factors, key_bounds, steps_of, tail_vectors, tile_of_chain

_F32 = "float32"
_FAR = 2.0**64
"""Queries are not multiplied by numbers that are so large, or so small, which they or the scores might overflow by."""


def write_chain(context: Context) -> None:
    """The whole stage inside its grid loops."""
    _Chain(context).write()


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of keys: the first one, and how many there are (a number, or known at run time)."""

    begin: Index
    count: Index


class _Chain:
    """One chain that is being written: its arrays, and the registers of each vector of rows."""

    def __init__(self, context: Context) -> None:
        self.out, self.nest = context.out, context.nest
        self.op, self.stage = context.nest.op, context.nest.stage
        self.roles, self.tile = tile_of_chain(self.stage)
        self.factors = chain_factors(self.op)
        self.pair = next((one for one in self.op.reductions if one.name == ROW), None)
        self.score, self.whole_score, self.scale = self._scores()
        self.places = ChainPlaces(self.out, self.nest, self.roles, self.tile)
        extents, rows = self.op.extents(), self.tile.rows
        self.columns, self.keys = extents[self.roles.column], extents[self.roles.key]
        array = lambda wish, elements: self.out.array(wish, PRIVATE, _F32, elements, 4 * self.tile.lanes)
        inner_points = math.prod(extents[axis] for axis in self.roles.inner)
        self.queries: Pointer = array("queries", inner_points * rows)
        self.scores: Pointer = array("scores", self.tile.keys * rows)
        self.sums: Pointer = array("sums", self.columns * rows)
        inner = self.stage.inner
        assert inner is not None
        self.alone = self.keys <= self.tile.keys and not inner.first and not inner.last
        """Whether a block has all keys: its sums add to nothing."""

    @property
    def vectors(self) -> range:
        return self.places.vectors

    def write(self) -> None:
        """The block, of which the last one of rows has perhaps fewer vectors."""
        tail, every = range(tail_vectors(self.op, self.roles, self.tile)), range(self.tile.vectors)
        if tail == every or self.nest.is_open(self.roles.rows):
            self._write_rows(every)
        elif self.op.extents()[self.roles.rows] <= self.tile.rows:
            self._write_rows(tail)
        else:
            last = (self.places.rows_left - 1).simplify(self.out.ranges)
            with self.out.when(Inside(last, None, len(tail) * self.tile.lanes)):
                self._write_rows(tail)
            with self.out.otherwise():
                self.places.fill()
                self._write_rows(every)

    def _write_rows(self, vectors: range) -> None:
        """The rows of so many vectors."""
        out, self.places.vectors = self.out, vectors
        turned_queries(self.places, self.factors.queries, self.queries, self.scale)
        if not self.alone:
            count = self.columns * self.tile.vectors
            with out.loop(out.names.fresh("n"), count, (0, count - 1)) as at:
                out.write(Write(self.sums, at * self.tile.lanes, self._number(0.0), aligned=True))
        if self.pair is not None:
            least = self.pair.combiner.identity[0].value
            self.largest, self.total = self._registers("largest", least), self._registers("total", 0.0)
        self.behind = self._keys_end()
        begin, end = self._blocks()
        name = out.names.fresh(f"{self.roles.key}_block")
        most = steps_of(self.keys, self.tile.keys)
        with out.loop(name, end, (0, most - 1), start=begin) as number:
            first = number * self.tile.keys
            self._write_block(_Block(first, self._count(first)))
        pair = None if self.pair is None else (self.largest, self.total)
        for v in self.vectors if pair and self.scale != 1.0 else []:
            largest = self._element(self.largest, v)
            out.assign(largest, Operation("mul", (largest, self._number(1 / self.scale)), _F32, self.tile.lanes))
        finished_results(self.places, self.op.result, self.sums, pair)

    def _scores(self) -> tuple[Value, Value, float]:
        """(what becomes of a product, where all keys of a block are seen, what queries are multiplied by first).

        Where scores are products times a number, so are queries, and log2(e) with them: weights are powers of two."""
        if self.pair is None:
            return self._weight(), self._weight(), 1.0
        every = self.pair.bodies[0], scores_of_whole_blocks(self.op)
        (score, factor), (whole, other) = map(scaled_score, every)
        scale = factor * LOG2E
        if factor == other and 1 / _FAR < scale < _FAR and _is_product(score) and _is_product(whole):
            return score, whole, scale
        return *every, 1.0

    def _registers(self, wish: str, value: float | int) -> str:
        name = self.out.register(wish, _F32, (self.tile.vectors,), self.tile.lanes)
        for v in self.vectors:
            self.out.assign(self._element(name, v), self._number(value))
        return name

    def _element(self, name: str, *at: int) -> Element:
        return Element(name, tuple(Index((), one) for one in at), _F32, self.tile.lanes)

    def _number(self, value: float | int) -> Expr:
        return Number(float(value), _F32, self.tile.lanes)

    # Blocks of keys

    def _blocks(self) -> tuple[int | Expr, int | Expr]:
        """The first block of keys that some row sees, and the one behind the last."""
        inner, out = self.stage.inner, self.out
        assert inner is not None
        most = steps_of(self.keys, self.tile.keys)
        first = self._common(inner.first, most, lambda index: index // self.tile.keys, least=True)
        end = ((self.behind + (self.tile.keys - 1)) // self.tile.keys).simplify(out.ranges)
        return 0 if first is None else out.let("first", first), number_of(end, out.ranges)

    def _keys_end(self) -> Index:
        """How many keys are run: up to the last one that some row sees, in whole groups."""
        inner, step = self.stage.inner, self.tile.key_step
        assert inner is not None
        size = self.nest.size(self.roles.key)
        most = number_of(size, self.out.ranges)
        end = self._common(inner.last, most, lambda index: (index // step + 1) * step, least=False)
        return size if end is None else self.out.integer("keys", end, (0, self.keys))

    def _common(
        self, bounds: tuple[Index, ...], most: int | Expr, of: Callable[[Index], Index], *, least: bool
    ) -> Expr | None:
        """What all bounds leave, within [0, most]: `of` each at the row where it is least, or largest."""
        out, found = self.out, None
        for index in self._bounds(bounds, least=least):
            at = of(index).simplify(out.ranges)
            value = clipped(position(at, out.ranges), *at.bounds(out.ranges), most)
            found = value if found is None else _picked("gt" if least else "lt", found, value)
        return found

    def _bounds(self, bounds: tuple[Index, ...], *, least: bool) -> list[Index]:
        """Bounds of keys at the row of this tile where they are least, or largest."""
        low, high = self.places.row_range
        axes = self.places.place().axes
        found = key_bounds(bounds, self.roles.rows, low, high, least=least)
        return [index.substitute(axes).simplify(self.out.ranges) for index in found]

    def _count(self, first: Index) -> Index:
        """How many keys a block has."""
        step = self.tile.keys if self.behind.terms == () else self.tile.key_step
        if not self.nest.overhangs(self.roles.key, self.tile.keys) and step == self.tile.keys:
            return Index((), self.tile.keys)
        left = first * -1 + self.behind
        low, high = left.simplify(self.out.ranges).bounds(self.out.ranges)
        value = clipped(position(left, self.out.ranges), low, high, self.tile.keys)
        return self.out.integer("count", value, (1, self.tile.keys))

    def _write_block(self, block: _Block) -> None:
        self.places.turn_block(block.begin, block.count)
        if self.pair is None:
            self._write_scores(block, self.score)
        else:
            new = self._registers_of("new", self.largest)
            whole = self._is_whole(block)
            if whole is None:
                self._write_scores(block, self.score, new)
            else:
                with self.out.when(whole):
                    self._write_scores(block, self.whole_score, new)
                with self.out.otherwise():
                    self._write_scores(block, self.score, new)
            self._write_weights(block, new)
        size, rest = self.tile.columns, self.columns % self.tile.columns
        steps = self.columns // size
        if steps:
            name = self.out.names.fresh(self.roles.column)
            with self.out.loop(name, steps, (0, steps - 1)) as at:
                self._write_sums(block, at * size, size)
        if rest:
            self._write_sums(block, Index((), steps * size), rest)

    def _registers_of(self, wish: str, source: str) -> str:
        name = self.out.register(wish, _F32, (self.tile.vectors,), self.tile.lanes)
        for v in self.vectors:
            self.out.assign(self._element(name, v), self._element(source, v))
        return name

    def _weight(self) -> Value:
        product, *others = self.factors.weights
        for one in others:
            product = _product(product, one)
        return product

    def _is_whole(self, block: _Block) -> Expr | None:
        """Whether every row of the tile sees every key of the block; None where there is nothing to rule out."""
        inner = self.stage.inner
        assert inner is not None
        if not inner.first and not inner.last:
            return None
        beyond = [block.begin - index for index in self._bounds(inner.first, least=False)]
        last = block.begin + (self.tile.keys - 1)
        beyond += [index - last for index in self._bounds(inner.last, least=True)]
        tests = [Inside(index.simplify(self.out.ranges), 0, None) for index in beyond]
        return conjunction(tests)

    # Scores

    def _write_scores(self, block: _Block, score: Value, new: str | None = None) -> None:
        """The scores of a block, and the largest of each row and of what ``new`` holds."""
        out, size = self.out, self.tile.inner_keys
        groups = (block.count // size).simplify(out.ranges)
        most = groups.bounds(out.ranges)[1]
        if most:
            with out.loop(out.names.fresh("group"), number_of(groups, out.ranges), (0, most - 1)) as at:
                self._write_group(block, at * size, size, score, new, asking=at)
        rest, unknown = self.keys % size, self.nest.is_open(self.roles.key)
        if rest and self.tile.keys % size == 0 and not unknown:  # of the last block alone
            left = (block.count - groups * size).simplify(out.ranges)
            with when_all(out, [Inside(left, 1, None)]):
                self._write_group(block, groups * size, rest, score, new)
        elif rest or self.tile.keys % size or unknown:
            name, start = out.names.fresh(self.roles.key), number_of(groups * size, out.ranges)
            with out.loop(name, number_of(block.count, out.ranges), (0, self.tile.keys - 1), start=start) as at:
                self._write_group(block, at, 1, score, new)

    def _write_group(
        self, block: _Block, at: Index, size: int, score: Value, new: str | None, asking: Index | None = None
    ) -> None:
        """The scores of neighbouring keys side by side in registers; ``asking``: the number of a group that asks for
        lines while it is computed."""
        out, places, lanes = self.out, self.places, self.tile.lanes
        dots = out.register("dot", _F32, (size, self.tile.vectors), lanes)
        for u in range(size):
            for v in self.vectors:
                out.assign(self._element(dots, u, v), self._number(0.0))
        lines = None
        if asking is not None and self.stage.prefetch >= 0:
            lines = ChainLines(self.places, asked_lines(self.op, self.roles, self.tile), block.begin + at, asking)
        with Nested() as nested:
            inner: dict[str, Index] = {}
            flat = Index()
            for axis in self.roles.inner:
                extent = self.op.extents()[axis]
                inner[axis] = nested.loop(out.loop(out.names.fresh(axis), extent, (0, extent - 1)))
                flat = flat * extent + inner[axis]
            if lines is not None:
                lines.ask(flat)
            queries = [out.let("query", self._read(self.queries, flat, v)) for v in self.vectors]
            for u in range(size):
                scope = places.scope(places.place(key=block.begin + at + u), inner=inner)
                key = out.atom("key", evaluate(out, scope, self.factors.keys))
                for v, query in enumerate(queries):
                    self._add_product(self._element(dots, u, v), query, key)
        for u in range(size):
            for v in self.vectors:
                place = places.place(v=v, key=block.begin + at + u)
                scope = places.scope(place, lanes=True, partials={(SCORE, 0): self._element(dots, u, v)})
                value = out.atom("score", in_lanes(evaluate(out, scope, score), lanes))
                out.write(Write(self.scores, self._at(at + u, v), value, aligned=True))
                if new is not None:
                    most = self._element(new, v)
                    larger = Operation("gt", (value, most), "mask32", lanes)
                    out.assign(most, select(larger, value, most))

    def _add_product(self, target: Element, vector: Expr, scalar: Expr) -> None:
        lanes = self.tile.lanes
        product = Operation("mul", (vector, Broadcast(scalar, lanes)), _F32, lanes)
        self.out.assign(target, Operation("add", (product, target), _F32, lanes))

    def _at(self, number: Index, v: int) -> Index:
        return number * self.tile.rows + v * self.tile.lanes

    def _read(self, array: Pointer, number: Index, v: int) -> Expr:
        return Read(array, self._at(number, v), _F32, self.tile.lanes, aligned=True)

    # Weights

    def _write_weights(self, block: _Block, new: str) -> None:
        """Scores become weights; ``shrink`` is what sums of earlier blocks shrink by."""
        out, lanes = self.out, self.tile.lanes
        power = exp_below if self.scale == 1.0 else exp2_below
        self.shrink = out.register("shrink", _F32, (self.tile.vectors,), lanes)
        for v in self.vectors:
            largest, total, most = (self._element(name, v) for name in (self.largest, self.total, new))
            below = Operation("sub", (largest, most), _F32, lanes)
            out.assign(self._element(self.shrink, v), power(out, out.atom("below", below)))
            out.assign(total, Operation("mul", (total, self._element(self.shrink, v)), _F32, lanes))
            out.assign(largest, most)
        name = out.names.fresh(self.roles.key)
        with out.loop(name, number_of(block.count, out.ranges), (0, self.tile.keys - 1)) as at:
            for v in self.vectors:
                score = self._read(self.scores, at, v)
                below = Operation("sub", (score, self._element(self.largest, v)), _F32, lanes)
                weight = out.let("weight", power(out, out.atom("below", below)))
                total = self._element(self.total, v)
                out.assign(total, Operation("add", (total, weight), _F32, lanes))
                out.write(Write(self.scores, self._at(at, v), weight, aligned=True))

    # Sums

    def _write_sums(self, block: _Block, begin: Index, size: int) -> None:
        """What the block's weights add to neighbouring columns side by side in registers."""
        out, places, lanes = self.out, self.places, self.tile.lanes
        held = out.register("held", _F32, (size, self.tile.vectors), lanes)
        for u in range(size):
            for v in self.vectors:
                value = self._number(0.0) if self.alone else self._read(self.sums, begin + u, v)
                if self.pair is not None and not self.alone:
                    value = Operation("mul", (value, self._element(self.shrink, v)), _F32, lanes)
                out.assign(self._element(held, u, v), value)
        name = out.names.fresh(self.roles.key)
        first, *others = self.factors.weighed
        for one in others:
            first = _product(first, one)
        with out.loop(name, number_of(block.count, out.ranges), (0, self.tile.keys - 1)) as at:
            weights = [out.let("weight", self._read(self.scores, at, v)) for v in self.vectors]
            for u in range(size):
                scope = places.scope(places.place(key=block.begin + at, column=begin + u))
                value = out.atom("value", evaluate(out, scope, first))
                for v, weight in enumerate(weights):
                    self._add_product(self._element(held, u, v), weight, value)
        for u in range(size):
            for v in self.vectors:
                out.write(Write(self.sums, self._at(begin + u, v), self._element(held, u, v), aligned=True))


def _is_product(score: Value) -> bool:
    """Whether a score is the product itself, or -inf."""
    if isinstance(score, Select):
        sides = [side for side in (score.a, score.b) if not (isinstance(side, Const) and side.value == -math.inf)]
        return len(sides) == 1 and _is_product(sides[0])
    return isinstance(score, Partial) and score.name == SCORE


def _product(a: Value, b: Value) -> Value:
    return Binary("mul", a, b, a.dtype)


def _picked(order: str, a: Expr, b: Expr) -> Expr:
    return Operation("select", (Operation(order, (a, b), "bool"), a, b), a.dtype)
