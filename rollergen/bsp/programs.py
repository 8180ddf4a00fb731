"""Programs of a bulk-synchronous machine: the cheapest grids of every tensor op, joined, priced exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from rollergen.bsp.assemble import BulkPlan, bulk_stage, with_tile_mappings
from rollergen.bsp.grids import Grid, Roles, grid_count, grids, matrix_roles, plain_roles
from rollergen.bsp.model import without_exchange
from rollergen.bsp.scans import without_scan
from rollergen.construct.candidate import rounded
from rollergen.construct.rename import rename_buffers
from rollergen.dropped import standing
from rollergen.errors import ConstructionError
from rollergen.expr.places import put_of
from rollergen.expr.splitting import split_reduction
from rollergen.expr.stages import Graph, size_bytes
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram, Stage

DRAFTS = 12
"""Grids of each way to compute a tensor op that are priced exactly, as long as enough of them fit."""

_MOST_DRAFTS = 6 * DRAFTS


@dataclass(frozen=True, slots=True)
class Made:
    """A program, the variant of each tensor op and its predicted seconds."""

    program: RProgram
    variants: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Option:
    """One tensor op's stages on one grid."""

    variant: str
    stages: tuple[Stage, ...]
    temporaries: tuple[Buffer, ...]
    seconds: float


def tile_programs(graph: Graph, device: Device, count: int) -> tuple[Made, ...]:
    """Up to `count` programs, best first; none where some tensor op fits no grid of the device's tiles."""
    graph = replace(graph, tensor_ops=tuple(_reduced(op, device) for op in graph.tensor_ops))
    for op in graph.tensor_ops:
        for take in op.takes():
            raise ConstructionError(
                f"{op.output.name} takes elements of {take.row.buffer.name} at places that are read; {device.name} "
                "moves data between its tiles in exchanges decided before the call: expected indices of the axes"
            )
        if put_of(op) is not None:
            raise ConstructionError(
                f"{op.output.name} is updated at places that are read; {device.name} moves data between its tiles in "
                "exchanges decided before the call: expected a new tensor"
            )
    everything = size_bytes((*graph.inputs, *graph.temporaries, *graph.outputs))
    memory = device.layers[1]
    choices = []
    for op in graph.tensor_ops:
        own = size_bytes({b.name: b for b in (op.output, *(x.buffer for x in op.loads()))}.values())
        others = max(0, -(-(everything - own) // device.units))
        found = _options(op, device, memory.capacity_bytes - memory.reserved_bytes - others, count)
        if not found:
            return ()
        choices.append(found)
    made = []
    for pick in _picks(choices, 4 * count):
        named = lambda pick: " then ".join(_variants(pick))
        together = standing([pick], lambda pick: _made(graph, device, pick), named)
        made += [one for _, one in together if isfinite(one.seconds)]
        if len(made) == count:
            break
    return tuple(sorted(made, key=lambda one: (one.seconds, repr([stage.loops for stage in one.program.stages]))))


def _reduced(op: TensorOp, device: Device) -> TensorOp:
    found = without_scan(op)
    if found is None:
        raise ConstructionError(
            f"{op.output.name} is a scan in which the order counts; {device.name} combines in any: expected a sum, a "
            "product or an extreme value"
        )
    return found


def _made(graph: Graph, device: Device, pick: Sequence[_Option]) -> Made:
    program = settled(_joined(graph, device, pick), device)
    return Made(program, _variants(pick), rounded(float(predict(program, device).seconds)))


def _variants(pick: Sequence[_Option]) -> tuple[str, ...]:
    return tuple(option.variant for option in pick)


def grid_notes(graph: Graph, device: Device) -> tuple[str, ...]:
    """For each tensor op, how many grids of tiles were priced, by what computes a tile's block."""
    notes = []
    for op in graph.tensor_ops:
        counts = [
            f"{grid_count(op, roles, device)} grids of tiles for {_unit_name(roles)}"
            for roles in (*matrix_roles(op, device), plain_roles(op))
        ]
        notes.append(f"{op.output.name}: {', '.join(counts)} priced, the cheapest {DRAFTS} of each exactly")
    return tuple(notes)


def _unit_name(roles: Roles) -> str:
    return roles.instruction.name if roles.instruction is not None else "vector"


def _options(op: TensorOp, device: Device, room: int, count: int) -> list[_Option]:
    """The best stages for one tensor op alone, its operands planned for it."""
    found = []
    for roles in (*matrix_roles(op, device), plain_roles(op)):
        fitting = 0
        for drafted, grid in enumerate(grids(op, roles, device, room, max(_MOST_DRAFTS, 2 * count))):
            if drafted >= max(DRAFTS, 2 * count) and fitting >= count:
                break
            made = standing([grid], lambda grid: _option(op, grid, device), lambda grid: f"grid {grid.blocks}")
            options = [one for _, one in made if one is not None and isfinite(one.seconds)]
            found += options
            fitting += len(options)
    found.sort(key=lambda option: (option.seconds, option.variant, repr([stage.loops for stage in option.stages])))
    return found[: 2 * count]


def _option(op: TensorOp, grid: Grid, device: Device) -> _Option | None:
    first, temporaries, stages = op, (), ()  # type: tuple[TensorOp, tuple[Buffer, ...], tuple[Stage, ...]]
    if grid.parts > 1:
        pair = split_reduction(op, grid.roles.inputs, grid.parts, tile=1)
        if pair is None:
            return None
        first, second = pair
        temporaries = (first.output,)
        stages = (bulk_stage(second, BulkPlan(grid.blocks, shares=first.output.name), device, "sums"),)
    copied = tuple(range(len(first.loads())))
    name = "products" if grid.roles.weights >= 0 else "tiles"
    stages = (bulk_stage(first, grid.plan(first, copied), device, name), *stages)
    inputs = {load.buffer.name: load.buffer for load in op.loads()}
    alone = RProgram(device.name, tuple(inputs.values()), (op.output,), stages, temporaries)
    alone = settled(with_tile_mappings(alone), device)
    variant = _unit_name(grid.roles)
    variant += f", {grid.parts} parts" if grid.parts > 1 else ""
    return _Option(variant, alone.stages, temporaries, rounded(float(predict(alone, device).seconds)))


def settled(program: RProgram, device: Device) -> RProgram:
    """`program` with copies of what has to come from elsewhere; a matrix instruction's operands are always copied, as
    it wants them contiguous."""
    local = without_exchange(program, device)
    return replace(program, stages=tuple(_copying(stage, local) for stage in program.stages))


def _copying(stage: Stage, local: frozenset[tuple[str, int]]) -> Stage:
    step = stage.superstep
    assert step is not None
    if step.shares:
        return stage
    matrix = len(stage.op.body_loads()) if step.weights >= 0 else 0
    numbers = range(len(stage.op.loads()))
    copied = tuple(n for n in numbers if n < matrix or (stage.name, n) not in local)
    return replace(stage, superstep=replace(step, copied=copied))


def _picks(choices: Sequence[Sequence[_Option]], count: int) -> list[tuple[_Option, ...]]:
    """Combinations, best first: all at their best, then each alternative of one of them."""
    first = tuple(options[0] for options in choices)
    picks = [(0.0, 0, 0, first)]
    for at, options in enumerate(choices):
        for rank, other in enumerate(options[1:], start=1):
            pick = (*first[:at], other, *first[at + 1 :])
            picks.append((other.seconds - first[at].seconds, at, rank, pick))
    picks.sort(key=lambda item: item[:3])
    return [pick for *_, pick in picks[:count]]


def _joined(graph: Graph, device: Device, pick: Sequence[_Option]) -> RProgram:
    """One program of one option for each tensor op: stages and temporaries with names of their own."""
    taken = {b.name for b in (*graph.inputs, *graph.temporaries, *graph.outputs)}
    stages: list[Stage] = []
    temporaries = list(graph.temporaries)
    used: dict[str, int] = {}
    for option in pick:
        mapping = {}
        for buffer in option.temporaries:
            name = buffer.name
            while name in taken:
                name += "_"
            taken.add(name)
            mapping[buffer.name] = name
            temporaries.append(replace(buffer, name=name))
        for stage in option.stages:
            used[stage.name] = used.get(stage.name, 0) + 1
            name = stage.name if used[stage.name] == 1 else f"{stage.name}_{used[stage.name]}"
            stages.append(_renamed(stage, name, mapping))
    return with_tile_mappings(RProgram(device.name, graph.inputs, graph.outputs, tuple(stages), tuple(temporaries)))


def _renamed(stage: Stage, name: str, mapping: dict[str, str]) -> Stage:
    step = stage.superstep
    assert step is not None
    step = replace(step, shares=mapping.get(step.shares, step.shares))
    return replace(stage, name=name, op=rename_buffers(stage.op, mapping), superstep=step)
