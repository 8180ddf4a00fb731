"""Which block and which thread this is: loop variables as digits of their linear numbers."""

from __future__ import annotations

from math import gcd, prod

from rollergen.expr.index import Index
from rollergen.lower.expressions import Exchange, Expr, Name, Number, Operation, Position, position
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place
from rollergen.lower.writer import Writer


def define_grid(out: Writer, nest: Nest, block: str) -> None:
    grid = nest.grid
    width = nest.stage.block_order.group_rows
    swizzled = width > 0 and len(grid) >= 2
    if any(nest.is_open(loop.axis) for _, loop in (grid if swizzled else grid[1:])):
        _define_open_grid(out, nest, block, width if swizzled else 0)
        return
    if nest.stage.block_order.descending:
        _define_descending(out, nest, block)
        return
    _define_digits(out, nest, [p for p, _ in (grid[:-2] if swizzled else grid)], block, nest.blocks)
    if swizzled:
        _define_swizzle(out, nest, grid[-2][0], grid[-1][0], block, width)


def define_begins(out: Writer, nest: Nest) -> None:
    """Where blocks that are as long as an open extent begin: products by the argument, one of each a block."""
    axes = Place.outermost(nest).axes
    for index, name in nest.begins.items():
        here = index.substitute(axes).simplify(out.ranges)
        _, high = here.bounds(out.ranges)
        size, most = Index.axis(nest.argument), out.ranges[nest.argument][1]
        out.define(name, _int("mul", position(here, out.ranges), position(size, out.ranges)), (0, high * most))


def _define_digits(
    out: Writer, nest: Nest, positions: list[int], number: str, count: int, uniform: int = 0
) -> None:
    """Loop variables as mixed-radix digits of a linear number below `count`, the last one fastest.  Those of whole
    ``uniform`` numbers (0: none) are taken from a width's first thread, so that compilers know them to be the same."""
    below = count
    for p in positions:
        extent = nest.loops[p].extent
        left, below = below, below // extent
        digit = Index.axis(number) // below
        if left < count or extent == 1:  # else no number has a higher digit
            digit = digit % extent
        value: Expr = position(digit, out.ranges)
        if uniform and below % uniform == 0:
            value = Exchange(value, "from", Index(), nest.device.execution_width)
        out.define(nest.variables[p], value, (0, extent - 1))


def _define_descending(out: Writer, nest: Nest, block: str) -> None:
    """The last grid loop from its last row to its first, around `BlockOrder.descending` blocks of the others.
    Where the outermost loop's extent is known at the call only, it stays outermost."""
    *others, (p, rows) = nest.grid
    beside, last = nest.stage.block_order.descending, rows.extent - 1
    if others and nest.is_open(nest.loops[others[0][0]].axis):
        beside = gcd(beside, prod(loop.extent for _, loop in others[1:]))
    row = Operation("sub", (Number(last, "int32"), _digit(out, block, beside, rows.extent)), "int32")
    out.define(nest.variables[p], row, (0, last))
    if others:
        count, name = nest.blocks // rows.extent, out.names.fresh("other")
        outer = _int("mul", _digit(out, block, beside * rows.extent, count // beside), Number(beside, "int32"))
        out.define(name, _int("add", outer, _digit(out, block, 1, beside)), (0, count - 1))
        _define_digits(out, nest, [at for at, _ in others], name, count)


def _digit(out: Writer, number: str, below: int, extent: int) -> Expr:
    """The digit of that extent above ``below``.  Where both are powers of two, it is a field of bits: compilers handle
    the sign of an int's division, which takes registers that attention has not left."""
    if (below & (below - 1)) or (extent & (extent - 1)):
        return Position((Index.axis(number) // below % extent).simplify(out.ranges))
    shifted = _int("shr", Name(number, "int32"), Number(below.bit_length() - 1, "int32"))
    return _int("bitand", shifted if below > 1 else Name(number, "int32"), Number(extent - 1, "int32"))


def _define_swizzle(out: Writer, nest: Nest, p: int, q: int, block: str, width: int) -> None:
    """The last two grid loops in groups of `width` rows (see `BlockOrder`)."""
    rows_all, columns = nest.loops[p].extent, nest.loops[q].extent
    number = Index.axis(block) % (rows_all * columns)
    number = number.simplify(out.ranges)
    group = (number // (width * columns)).simplify(out.ranges)
    rest = (number % (width * columns)).simplify(out.ranges)
    if rows_all % width == 0:
        row, column = group * width + rest % width, rest // width
        out.define(nest.variables[p], Position(row.simplify(out.ranges)), (0, rows_all - 1))
        out.define(nest.variables[q], Position(column.simplify(out.ranges)), (0, columns - 1))
        return
    left = Position(group * -width + rows_all)
    limit = Number(width, "int32")
    few = Operation("lt", (left, limit), "bool")
    rows = out.let("rows", Operation("select", (few, left, limit), "int32"))
    first = Operation("add", (Position(group * width), _int("mod", Position(rest), rows)), "int32")
    out.define(nest.variables[p], first, (0, rows_all - 1))
    out.define(nest.variables[q], _int("div", Position(rest), rows), (0, columns - 1))


def _define_open_grid(out: Writer, nest: Nest, block: str, width: int) -> None:
    """`define_grid` where a count of blocks that others are divided by is known at the call only."""
    counts = {p: _count(out, nest, p) for p, _ in nest.grid}
    number: Expr = Name(block, "int32")
    positions = list(counts)
    if nest.stage.block_order.descending:
        number = _define_open_descending(out, nest, number, counts)
        positions.pop()
    if width:
        number = _define_open_swizzle(out, nest, number, counts, width)
        del positions[-2:]
    for p in reversed(positions):
        digit = number if p == positions[0] else _int("mod", number, counts[p])
        out.define(nest.variables[p], digit, (0, nest.loops[p].extent - 1))
        if p != positions[0]:
            number = out.let("outer", _int("div", number, counts[p]))


def _count(out: Writer, nest: Nest, p: int) -> Expr:
    """The number of blocks along one loop of the grid."""
    loop = nest.loops[p]
    if not nest.is_open(loop.axis) or loop.extent == 1:
        return Number(loop.extent, "int32")
    blocks = (nest.size(loop.axis) + (loop.stride - 1)) // loop.stride
    return out.let(f"{nest.variables[p]}_blocks", Position(blocks.simplify(out.ranges)))


def _define_open_descending(out: Writer, nest: Nest, number: Expr, counts: dict[int, Expr]) -> Expr:
    """`_define_descending` with counts that are expressions; the number of the blocks of the others."""
    p, beside = list(counts)[-1], Number(nest.stage.block_order.descending, "int32")
    rows = _int("mod", _int("div", number, beside), counts[p])
    last = _int("sub", counts[p], Number(1, "int32"))
    out.define(nest.variables[p], _int("sub", last, rows), (0, nest.loops[p].extent - 1))
    outer = _int("mul", _int("div", number, _int("mul", beside, counts[p])), beside)
    return out.let("other", _int("add", outer, _int("mod", number, beside)))


def _define_open_swizzle(out: Writer, nest: Nest, number: Expr, counts: dict[int, Expr], width: int) -> Expr:
    """`_define_swizzle` with counts that are expressions; the number of the groups around."""
    p, q = list(counts)[-2:]
    outer = number
    if len(counts) > 2:
        both = out.let("inner_blocks", _int("mul", counts[p], counts[q]))
        outer, number = out.let("outer", _int("div", number, both)), out.let("inner", _int("mod", number, both))
    wide = out.let("group_blocks", _int("mul", counts[q], Number(width, "int32")))
    first = out.let("first_row", _int("mul", _int("div", number, wide), Number(width, "int32")))
    rest = out.let("rest", _int("mod", number, wide))
    left, limit = out.let("left", _int("sub", counts[p], first)), Number(width, "int32")
    few = Operation("lt", (left, limit), "bool")
    rows = out.let("rows", Operation("select", (few, left, limit), "int32"))
    row = _int("add", first, _int("mod", rest, rows))
    out.define(nest.variables[p], row, (0, nest.loops[p].extent - 1))
    out.define(nest.variables[q], _int("div", rest, rows), (0, nest.loops[q].extent - 1))
    return outer


def _int(op: str, a: Expr, b: Expr) -> Expr:
    return Operation(op, (a, b), "int32")


def define_threads(out: Writer, nest: Nest, thread: str) -> None:
    """Threads' digits; addresses of asynchronous products depend on no other than that of their whole group, and lie
    in uniform registers where this is known to be the same in it."""
    positions = [p for p, _ in nest.parallel]
    beside = nest.instruction.lanes if nest.exchanges and nest.products and nest.instruction is not None else 0
    _define_digits(out, nest, positions, thread, nest.threads, beside)
