"""Row values kept from one phase for later ones."""

from __future__ import annotations

from collections.abc import Mapping

from rollergen.expr.values import Value, Var
from rollergen.lower.access import fetch, put
from rollergen.lower.arithmetic import register_dtype
from rollergen.lower.context import Context
from rollergen.lower.expressions import Expr
from rollergen.lower.loops import spread
from rollergen.lower.nest import Lane, Nest
from rollergen.lower.outputs import output_access
from rollergen.lower.place import Place, Registers
from rollergen.program.rprogram import KeptRow


def in_output(nest: Nest, kept_row: KeptRow) -> bool:
    """Whether the value waits where the result of its point will be written."""
    return kept_row.layer == nest.device.backing.name


def allocate_kept_rows(context: Context) -> dict[str, Registers]:
    """A private array for each kept row that does not wait in the output, over the loops inside the tile."""
    nest = context.nest
    positions = nest.positions("spatial", "reduce", "row", after=nest.tile_depth)
    shape = tuple(nest.loops[p].extent for p in positions)
    lanes = nest.lane.width if nest.lane else 1
    kept = {}
    for kept_row in nest.stage.kept_rows:
        if in_output(nest, kept_row):
            continue
        dtype = register_dtype(kept_row.value.dtype)
        name = context.out.register(kept_row.name, dtype, shape, lanes)
        kept[kept_row.name] = Registers(name, tuple(((p, 1),) for p in positions), dtype, lanes)
    return kept


def kept_values(
    context: Context, here: Place, kept: Mapping[str, Registers], phase: int, lane: Lane | None
) -> dict[str, Expr]:
    """The values kept before `phase`, at this point."""
    nest, out = context.nest, context.out
    names: dict[str, Expr] = {name: here.element(registers) for name, registers in kept.items()}
    for kept_row in nest.stage.kept_rows:
        if in_output(nest, kept_row) and kept_row.phase < phase:
            names[kept_row.name] = spread(fetch(out, output_access(here, out), lane, kept_row.name), lane)
    return names


def keep(context: Context, here: Place, kept: Mapping[str, Registers], kept_row: KeptRow, value: Expr) -> None:
    """The value put where later phases find it."""
    if in_output(context.nest, kept_row):
        put(context.out, output_access(here, context.out), value, context.nest.lane)
    else:
        context.out.assign(here.element(kept[kept_row.name]), value)


def phase_values(
    nest: Nest, number: int, values: tuple[Value, ...]
) -> tuple[tuple[tuple[KeptRow, Value], ...], tuple[Value, ...]]:
    """(rows kept in this phase with their values, the phase's values), both reading kept ones."""
    if not nest.stage.kept_rows:
        return (), values
    earlier = tuple(r for r in nest.stage.kept_rows if r.phase < number)
    made: list[tuple[KeptRow, Value]] = []
    known = list(earlier)
    for kept_row in nest.stage.kept_rows:
        if kept_row.phase == number:
            made.append((kept_row, _substituted(kept_row.value, known)))
            known.append(kept_row)
    return tuple(made), tuple(_substituted(value, known) for value in values)


def _substituted(value: Value, known: list[KeptRow]) -> Value:
    """Kept values replaced by their names, largest first (one may contain another)."""
    return _rebuilt(value, sorted(known, key=lambda r: -_size(r.value)))


def _rebuilt(node: Value, sized: list[KeptRow]) -> Value:
    for kept_row in sized:
        if node == kept_row.value:
            return Var(kept_row.name, kept_row.value.dtype)
    children = node.children()
    return node.with_children(tuple(_rebuilt(child, sized) for child in children)) if children else node


def _size(value: Value) -> int:
    return 1 + sum(_size(child) for child in value.children())
