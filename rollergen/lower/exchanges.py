"""Reductions across threads that exchange registers: within one execution width, then across the block's.

within a width:  value = combine(value, value of the thread `reach` further), reach halved again and again
a prefix:        value = combine(value of the thread `reach` before, value), reach doubled again and again
across widths:   one thread of each width writes its value, barrier, every width reads all and combines them so
"""

from __future__ import annotations

from math import prod

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import is_named
from rollergen.hal.dataclass import dataclass
from rollergen.lower.arithmetic import combine
from rollergen.lower.expressions import STORAGE_BYTES, Build, Exchange, Expr, Inside, Number, Pick, Read
from rollergen.lower.ir import LOCAL, Write
from rollergen.lower.masks import select
from rollergen.lower.nest import Nest
from rollergen.lower.place import Scope, conjunction, when_all
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import GROUP, PARALLEL, SERIAL, THREAD, UNROLL

Values = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Digit:
    """A reduced thread loop: its variable, and how many threads lie between neighbours along it."""

    variable: str
    extent: int
    apart: int


def across_width(out: Writer, scope: Scope, reduction: Reduction, values: Values, thread: Index) -> Values:
    """`values` of the threads that share a reduction combined; each of these then has the result.

    The reduced thread loops of kind ``thread`` (with ``shuffle`` also groups) are folded, the outermost first.
    """
    nest = scope.place.nest
    kinds = (THREAD,) if nest.stage.accumulator.combine == "groups" else PARALLEL
    digits = reduced_digits(nest, *kinds)
    steps = tuple((digit.apart, digit.extent) for digit in digits)
    first = thread % nest.device.execution_width
    for digit in digits:
        first = first - Index.axis(digit.variable) * digit.apart
    return _halved(out, scope, reduction, values, steps, first.simplify(out.ranges))


def across_groups(
    out: Writer, scope: Scope, reduction: Reduction, values: Values, thread: Index, segment: Index
) -> Values:
    """The `values`, alike in the threads of one execution width, combined across the block's widths."""
    nest = scope.place.nest
    (group,), (digit,) = reduced_digits(nest, GROUP), reduced_digits(nest, THREAD)
    segments = nest.threads // (group.extent * digit.extent)
    lanes = values[0].lanes
    cells = segments * group.extent * lanes
    size = lambda value: STORAGE_BYTES[value.dtype] * lanes
    wish = f"{reduction.name}_groups"
    arrays = [out.array(wish, LOCAL, v.dtype, cells, size(v), whole_kernel=True) for v in values]
    cell = lambda number: ((segment * group.extent + number) * lanes).simplify(out.ranges)
    condition = conjunction([Inside(Index.axis(digit.variable), None, 1)])
    assert condition is not None
    with out.when(condition):
        for array, value in zip(arrays, values, strict=True):
            out.write(Write(array, cell(Index.axis(group.variable)), value))
    out.barrier()
    mine = cell((Index.axis(digit.variable) % group.extent).simplify(out.ranges))
    parts = tuple(out.let("part", Read(array, mine, array.dtype, lanes)) for array in arrays)
    first = thread % nest.device.execution_width - Index.axis(digit.variable) * digit.apart
    total = _halved(out, scope, reduction, parts, ((digit.apart, group.extent),), first.simplify(out.ranges))
    if _comes_again(nest):
        out.barrier()
    return total


def prefix_of_width(
    out: Writer, scope: Scope, reduction: Reduction, found: Values, rank: Index, thread: Index
) -> tuple[Values, Values]:
    """(what the threads before this one have `found`, what all have), of those that share a row within a width."""
    digits = reduced_digits(scope.place.nest, *PARALLEL)
    row = _Row(rank, prod(digit.extent for digit in digits), digits[-1].apart)
    scanned = _scanned(out, scope, reduction, found, row)
    return _before(out, scope, reduction, scanned, row), _of_last(out, scope, scanned, row, thread)


def prefix_of_groups(
    out: Writer, scope: Scope, reduction: Reduction, found: Values, thread: Index, segment: Index
) -> tuple[Values, Values]:
    """The same across the block's widths: one thread of each writes what its width has, and every width scans that."""
    nest = scope.place.nest
    (group,), (digit,) = reduced_digits(nest, GROUP), reduced_digits(nest, THREAD)
    own, at = Index.axis(digit.variable), Index.axis(group.variable)
    row = _Row(own, digit.extent, digit.apart)
    scanned = _scanned(out, scope, reduction, found, row)
    before, width = _before(out, scope, reduction, scanned, row), _of_last(out, scope, scanned, row, thread)
    cells = nest.threads // digit.extent
    size = lambda value: STORAGE_BYTES[value.dtype]
    wish = f"{reduction.name}_groups"
    arrays = [out.array(wish, LOCAL, v.dtype, cells, size(v), whole_kernel=True) for v in found]
    cell = lambda number: (segment * group.extent + number).simplify(out.ranges)
    with when_all(out, [Inside(own, None, 1)]):
        for array, value in zip(arrays, width, strict=True):
            out.write(Write(array, cell(at), value))
    out.barrier()
    place = (own % group.extent).simplify(out.ranges)
    parts = tuple(out.let("part", Read(array, cell(place), array.dtype)) for array in arrays)
    groups = _Row(place, group.extent, digit.apart)
    every = _scanned(out, scope, reduction, parts, groups)
    present = min(nest.threads, nest.device.execution_width)
    first = thread % nest.device.execution_width - own * digit.apart
    earlier = (first + ((at + (group.extent - 1)) % group.extent) * digit.apart).simplify(out.ranges)
    others = _exchanged(out, every, "from", earlier, present)
    last = (first + (group.extent - 1) * digit.apart).simplify(out.ranges)
    total = _exchanged(out, every, "from", last, present)
    out.barrier()
    outside = _unless_first(out, reduction, others, at)
    return tuple(out.let("before", v) for v in combine(out, scope, reduction.combiner, outside, before)), total


@dataclass(frozen=True, slots=True)
class _Row:
    """Threads of one width that share a row: this one's ``rank`` of ``count``, neighbours ``apart`` threads apart."""

    rank: Index
    count: int
    apart: int


def _scanned(out: Writer, scope: Scope, reduction: Reduction, found: Values, row: _Row) -> Values:
    """Each thread's value combined with those of all before it: of the one 1, 2, 4, ... before."""
    nest = scope.place.nest
    present = min(nest.threads, nest.device.execution_width)
    reach = 1
    while reach < row.count:
        other = _exchanged(out, found, "up", Index.of(reach * row.apart), present)
        new = combine(out, scope, reduction.combiner, other, found)
        behind = _inside(Inside(row.rank, reach, None))
        found = tuple(out.let("scanned", select(behind, n, f)) for n, f in zip(new, found, strict=True))
        reach *= 2
    return found


def _before(out: Writer, scope: Scope, reduction: Reduction, scanned: Values, row: _Row) -> Values:
    nest = scope.place.nest
    present = min(nest.threads, nest.device.execution_width)
    others = _exchanged(out, scanned, "up", Index.of(row.apart), present)
    return _unless_first(out, reduction, others, row.rank)


def _unless_first(out: Writer, reduction: Reduction, others: Values, rank: Index) -> Values:
    """The identity where nobody is before."""
    pairs = zip(others, identities(reduction, others), strict=True)
    return tuple(out.let("before", select(_inside(Inside(rank, 1, None)), other, one)) for other, one in pairs)


def _of_last(out: Writer, scope: Scope, scanned: Values, row: _Row, thread: Index) -> Values:
    nest = scope.place.nest
    last = thread % nest.device.execution_width + (row.rank * -1 + (row.count - 1)) * row.apart
    present = min(nest.threads, nest.device.execution_width)
    return _exchanged(out, scanned, "from", last.simplify(out.ranges), present)


def _inside(test: Inside) -> Expr:
    found = conjunction([test])
    assert found is not None
    return found


def identities(reduction: Reduction, values: Values) -> tuple[Number, ...]:
    """What leaves the values as they are, in their dtypes."""
    return tuple(Number(c.value, v.dtype) for c, v in zip(reduction.combiner.identity, values, strict=True))


def reduced_digits(nest: Nest, *kinds: str) -> tuple[Digit, ...]:
    """The loops of these kinds over reduced axes, outermost first."""
    found: list[Digit] = []
    apart = 1
    for p, loop in reversed(nest.parallel):
        if loop.kind in kinds and nest.roles[loop.axis] != "spatial":
            found.append(Digit(nest.variables[p], loop.extent, apart))
        apart *= loop.extent
    return tuple(reversed(found))


def _halved(
    out: Writer, scope: Scope, reduction: Reduction, values: Values, steps: tuple[tuple[int, int], ...], first: Index
) -> Values:
    """Upper halves combined with lower ones along each (apart, extent); `first`: the thread at 0 along all.

    Where the combiner is known to commute all threads compute the result, bit for bit the same; else the
    first one does, in rising order, and hands it to the others.
    """
    commutes = is_named(reduction.combiner)
    present = min(scope.place.nest.threads, scope.place.nest.device.execution_width)
    for apart, extent in steps:
        reach = extent // 2
        while reach:
            by = Index.of(reach * apart)
            other = _exchanged(out, values, "xor" if commutes else "down", by, present)
            new = combine(out, scope, reduction.combiner, values, other)
            values = tuple(out.atom("folded", value) for value in new)
            reach //= 2
    return values if commutes else _exchanged(out, values, "from", first, present)


def _exchanged(out: Writer, values: Values, how: str, by: Index, present: int) -> Values:
    return tuple(out.let("other", _by_lanes(out, value, how, by, present)) for value in values)


def _by_lanes(out: Writer, value: Expr, how: str, by: Index, present: int) -> Expr:
    if value.lanes == 1:
        return Exchange(value, how, by, present)
    whole = out.atom("whole", value)
    return Build(tuple(Exchange(part, how, by, present) for part in _elements(whole, value.lanes)))


def _comes_again(nest: Nest) -> bool:
    """Whether a thread writes the same cells several times: there are loops around, or several outputs in a thread."""
    around = any(x.extent > 1 and x.kind in (SERIAL, UNROLL) for x in nest.loops[: nest.tile_depth])
    return around or bool(nest.positions("spatial", after=nest.tile_depth))


def _elements(value: Expr, count: int) -> tuple[Expr, ...]:
    """The lanes of a value, one by one."""
    return (value,) if count == 1 else tuple(Pick(value, e) for e in range(count))
