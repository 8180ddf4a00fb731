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
from rollergen.program.rprogram import Resident


def in_output(nest: Nest, resident: Resident) -> bool:
    """Whether the value waits where the result of its point will be written."""
    return resident.layer == nest.device.backing.name


def allocate_residents(context: Context) -> dict[str, Registers]:
    """A private array for each resident that does not wait in the output, over the loops inside the tile."""
    nest = context.nest
    positions = nest.positions("spatial", "reduce", "row", after=nest.tile_depth)
    shape = tuple(nest.loops[p].extent for p in positions)
    lanes = nest.lane.width if nest.lane else 1
    kept = {}
    for resident in nest.stage.residents:
        if in_output(nest, resident):
            continue
        dtype = register_dtype(resident.value.dtype)
        name = context.out.register(resident.name, dtype, shape, lanes)
        kept[resident.name] = Registers(name, tuple(((p, 1),) for p in positions), dtype, lanes)
    return kept


def kept_values(
    context: Context, here: Place, kept: Mapping[str, Registers], phase: int, lane: Lane | None
) -> dict[str, Expr]:
    """The residents made before `phase`, at this point."""
    nest, out = context.nest, context.out
    names: dict[str, Expr] = {name: here.element(registers) for name, registers in kept.items()}
    for resident in nest.stage.residents:
        if in_output(nest, resident) and resident.phase < phase:
            names[resident.name] = spread(fetch(out, output_access(here, out), lane, resident.name), lane)
    return names


def keep(context: Context, here: Place, kept: Mapping[str, Registers], resident: Resident, value: Expr) -> None:
    """The resident's value put where later phases find it."""
    if in_output(context.nest, resident):
        put(context.out, output_access(here, context.out), value, context.nest.lane)
    else:
        context.out.assign(here.element(kept[resident.name]), value)


def phase_values(
    nest: Nest, number: int, values: tuple[Value, ...]
) -> tuple[tuple[tuple[Resident, Value], ...], tuple[Value, ...]]:
    """(residents made in this phase with their values, the phase's values), both reading kept ones."""
    if not nest.stage.residents:
        return (), values
    earlier = tuple(r for r in nest.stage.residents if r.phase < number)
    made: list[tuple[Resident, Value]] = []
    known = list(earlier)
    for resident in nest.stage.residents:
        if resident.phase == number:
            made.append((resident, _substituted(resident.value, known)))
            known.append(resident)
    return tuple(made), tuple(_substituted(value, known) for value in values)


def _substituted(value: Value, known: list[Resident]) -> Value:
    """Kept values replaced by their names, largest first (one may contain another)."""
    return _rebuilt(value, sorted(known, key=lambda r: -_size(r.value)))


def _rebuilt(node: Value, sized: list[Resident]) -> Value:
    for resident in sized:
        if node == resident.value:
            return Var(resident.name, resident.value.dtype)
    children = node.children()
    return node.with_children(tuple(_rebuilt(child, sized) for child in children)) if children else node


def _size(value: Value) -> int:
    return 1 + sum(_size(child) for child in value.children())
