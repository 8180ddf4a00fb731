"""Reductions across threads that exchange registers: within one execution width, then across the block's.

within a width:  value = combine(value, value of the thread `reach` further), reach halved again and again
across widths:   one thread of each width writes its value, barrier, every width reads all and combines them so
"""

from __future__ import annotations

from dataclasses import dataclass

from rollergen.expr.index import Index
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import is_named
from rollergen.lower.arithmetic import Scope, combine
from rollergen.lower.expressions import STORAGE_BYTES, Build, Exchange, Expr, Inside, Pick, Read
from rollergen.lower.ir import LOCAL, Write
from rollergen.lower.nest import Nest
from rollergen.lower.place import conjunction
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
