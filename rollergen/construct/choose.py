"""The few best programs of a graph: every definition's candidates, priced, ranked, diversified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import isfinite

from rollergen.construct.candidate import Candidate, best
from rollergen.construct.elementwise import elementwise_candidates
from rollergen.construct.fit import require_fit, room_bytes, size_bytes
from rollergen.construct.forms import forms
from rollergen.construct.ledger import BACKING_STORE, Account, Ledger, waste_limit, waste_of
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.reductions import reduction_candidates, row_candidates
from rollergen.construct.rename import rename_buffers
from rollergen.construct.roles import CONTRACTION, ELEMENTWISE, REDUCTION, ROW, contraction_roles, kind_of
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.thread_space import ThreadSpace
from rollergen.construct.tile_programs import tile_programs
from rollergen.construct.window_space import window_candidates
from rollergen.errors import ConstructionError
from rollergen.expr.definition import Definition
from rollergen.expr.stages import Graph
from rollergen.expr.values import Buffer
from rollergen.hal.spec import Device
from rollergen.options import BuildOptions
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.bulk import is_bulk
from rollergen.program.check import check_each
from rollergen.program.model import price_program, price_stage
from rollergen.program.model.nest import lockstep_threads
from rollergen.program.rprogram import RProgram, Stage
from rollergen.tile.rules import AlignmentRules, block_layer, contiguous_axis, vector_lanes

LEAST_CONSIDERED = 10
"""Candidates of each definition that are drafted, however few are asked for: the best of them is then the same."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One constructed program: the form of each definition and the predicted seconds."""

    program: RProgram
    forms: tuple[str, ...]
    seconds: float


def construct(
    graph: Graph, device: Device, options: BuildOptions = BuildOptions(), top_k: int = 10
) -> tuple[Ranked, ...]:
    """Up to `top_k` programs for `graph` on `device`, best predicted first.

    Deterministic: prices are rounded and ties fall by the program's text.  Raises `DoesNotFitError`
    where the device has no backing store and the data exceed its memory, `ConstructionError` where the
    limits of the options admit no program.
    """
    device = limited(device, options)
    require_fit(graph, device)
    made = tile_programs(graph, device, top_k) if is_bulk(device) else ()
    if made:
        check_each([each.program for each in made], device)
        return tuple(Ranked(each.program, each.forms, each.seconds) for each in made)
    room = room_bytes(graph, device)
    count = max(top_k, LEAST_CONSIDERED)
    choices = [some_candidates(d, device, options, count, room) for d in graph.definitions]
    ranked = tuple(program_of(graph, device, pick) for pick in _picks(choices, top_k))
    check_each([one.program for one in ranked], device)
    return ranked


def limited(device: Device, options: BuildOptions) -> Device:
    """`device` with no more units than the options allow, and without what they forbid to use."""
    if not options.shapes.shuffles:
        device = replace(device, costs=tuple(cost for cost in device.costs if cost[0] != "shuffle_clocks"))
    if options.max_units is None:
        return device
    return replace(device, units=min(device.units, options.max_units))


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidates of one definition, and what was turned away."""

    candidates: tuple[Candidate, ...]
    account: Account


@lru_cache(maxsize=64)
def choice(
    definition: Definition, device: Device, rules: AlignmentRules, count: int, room: int | None = None
) -> Choice:
    """The `count` best candidates of one definition, at most two of a kind; none if the rules admit none.

    ``room``: bytes for temporaries of the candidate's own; None: as many as it likes.
    """
    spaces = list(_spaces(definition, device, rules))
    for drafted in (count, WIDER * count):
        ledger = Ledger()
        made = list(_admitted(_all_candidates(spaces, drafted, ledger), device, rules, room, ledger))
        fitting = _in_registers(made, device)
        found = best(fitting, count)
        if len(found) >= count or len(fitting) == len(made):
            break
    return Choice(tuple(found), ledger.account())


WIDER = 4
"""How many times more is drafted where candidates that find no room in registers leave too few."""


def _in_registers(candidates: list[Candidate], device: Device) -> list[Candidate]:
    """Candidates whose scalar threads find room for all that they want, if there are any: what a compiler puts into
    local memory costs more, and is less certain, than what the model says of it."""
    if lockstep_threads(device) == 1:
        return candidates
    fitting = [one for one in candidates if not any(price_program(stage, device).spilled for stage in one.stages)]
    return fitting or candidates


def definition_candidates(
    definition: Definition, device: Device, rules: AlignmentRules, count: int
) -> tuple[Candidate, ...]:
    """The `count` best candidates of one definition, at most two of a kind."""
    return choice(definition, device, rules, count).candidates


def some_candidates(
    definition: Definition, device: Device, options: BuildOptions, count: int, room: int | None = None
) -> tuple[Candidate, ...]:
    """`definition_candidates` within the user's limits; ConstructionError, with the ledger, if there are none."""
    found = choice(definition, device, options.rules, count, room)
    if found.candidates:
        return found.candidates
    relaxation = found.account.relaxation()
    raise ConstructionError(
        f"{device.name}: no program for {definition.output.name} {definition.output.shape} within "
        f"{limits_text(options)}: {found.account.text()}" + (f"; {relaxation}" if relaxation else "")
    )


def limits_text(options: BuildOptions) -> str:
    """The user's limits on padding, as they are written; the device's own where there are none."""
    if not options.padding:
        return "padding=False"
    return "the device's limits" if options.epsilon is None else f"epsilon={options.epsilon:g}"


def _admitted(
    candidates: Iterator[Candidate], device: Device, rules: AlignmentRules, room: int | None, ledger: Ledger
) -> Iterator[Candidate]:
    """Candidates that fit the device and waste no more than the rules allow."""
    limit = waste_limit(rules)
    for one in candidates:
        waste = 0.0 if limit is None else max(waste_of(stage) for stage in one.stages)
        if not isfinite(one.seconds):
            for stage in one.stages:
                ledger.unfit(price_stage(stage, device), device)
        elif room is not None and size_bytes(one.temporaries) > room:
            ledger.reject(BACKING_STORE)
        elif limit is not None and waste > limit:
            ledger.wasteful(waste)
        else:
            yield one


def _all_candidates(spaces: Sequence[Drawn], count: int, ledger: Ledger) -> Iterator[Candidate]:
    for drawn in spaces:
        for one in drawn(count, ledger):
            ledger.considered += 1
            yield one


Drawn = Callable[[int, Ledger], Iterator[Candidate]]
"""Candidates of one space, so many as are to be drafted."""


def _spaces(definition: Definition, device: Device, rules: AlignmentRules) -> Iterator[Drawn]:
    """Where candidates of a definition come from."""
    of = definition, device, rules
    kind = kind_of(definition)
    if kind == ROW:
        yield lambda count, ledger: row_candidates(*of)
    elif kind == ELEMENTWISE:
        yield lambda count, ledger: elementwise_candidates(*of, count)
    if kind == REDUCTION or (kind == CONTRACTION and (_dot_shaped(definition, device) or _in_rows(definition))):
        yield lambda count, ledger: reduction_candidates(*of)
    if definition.reductions:
        yield lambda count, ledger: window_candidates(*of, count)
    if kind == CONTRACTION:
        for form in forms(definition, device):
            if block_layer(device) is None:
                yield partial(serial_candidates, form, device, rules)
            else:
                yield ThreadSpace(form, device, rules).candidates
            yield partial(matrix_candidates, form, device, rules)


def _in_rows(definition: Definition) -> bool:
    """Whether tiles have one axis only, as nothing is reused along a second (pooling)."""
    return all(roles.m is None for roles in contraction_roles(definition))


def _dot_shaped(definition: Definition, device: Device) -> bool:
    """Whether every operand that varies along the last reduce axis is contiguous along it, and it is long enough
    to occupy half of the threads or lanes that would share it (the taps of a window are not)."""
    k = definition.of_role("reduce")[-1]
    sharers = max(device.execution_width, vector_lanes(device, accumulator_dtype(definition)))
    contiguous = all(contiguous_axis(load) == k.name for load in definition.body_loads() if k.name in load.axes())
    return contiguous and 2 * k.extent >= sharers


def _picks(choices: Sequence[Sequence[Candidate]], count: int) -> list[tuple[Candidate, ...]]:
    """Combinations, best first: all definitions at their best, then each alternative of one of them."""
    first = tuple(options[0] for options in choices)
    total = sum(one.seconds for one in first)
    picks = [(total, 0, 0, first)]
    for at, options in enumerate(choices):
        for rank, other in enumerate(options[1:], start=1):
            pick = (*first[:at], other, *first[at + 1 :])
            picks.append((total - first[at].seconds + other.seconds, at, rank, pick))
    picks.sort(key=lambda item: item[:3])
    return [pick for *_, pick in picks[:count]]


def program_of(graph: Graph, device: Device, pick: Sequence[Candidate]) -> Ranked:
    """One candidate for each definition, joined into a program."""
    stages: list[Stage] = []
    temporaries: list[Buffer] = list(graph.temporaries)
    for one in pick:
        mapping = _renamed(one.temporaries, {b.name for b in (*temporaries, *graph.inputs, *graph.outputs)})
        stages.extend(_with_names(stage, mapping) for stage in one.stages)
        temporaries.extend(mapping.get(b.name, b) for b in one.temporaries)
    program = RProgram(device.name, graph.inputs, graph.outputs, _numbered(stages), tuple(temporaries))
    return Ranked(program, tuple(one.form for one in pick), sum(one.seconds for one in pick))


def _numbered(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages with distinct names, in launch order."""
    used: dict[str, int] = {}
    named = []
    for stage in stages:
        used[stage.name] = used.get(stage.name, 0) + 1
        named.append(stage if used[stage.name] == 1 else replace(stage, name=f"{stage.name}_{used[stage.name]}"))
    return tuple(named)


def _renamed(buffers: Sequence[Buffer], taken: set[str]) -> dict[str, Buffer]:
    """New names for temporaries that clash with buffers of the graph."""
    mapping = {}
    for buffer in buffers:
        name = buffer.name
        while name in taken:
            name += "_"
        taken.add(name)
        if name != buffer.name:
            mapping[buffer.name] = replace(buffer, name=name)
    return mapping


def _with_names(stage: Stage, mapping: dict[str, Buffer]) -> Stage:
    if not mapping:
        return stage
    return replace(stage, definition=rename_buffers(stage.definition, {old: b.name for old, b in mapping.items()}))
