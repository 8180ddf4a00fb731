"""The few best programs of a graph: every tensor op's candidates, priced, ranked, diversified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate, islice
from math import isfinite
from typing import Any

import numpy as np

from rollergen.construct.asked_parts import asked_parts
from rollergen.construct.candidate import Candidate, best, candidates_text, variants_text
from rollergen.construct.chains import chain_candidates
from rollergen.construct.edges import candidates_apart
from rollergen.construct.elementwise import elementwise_candidates
from rollergen.construct.ledger import Account, Ledger, waste_limit, waste_of
from rollergen.construct.matrix_space import matrix_candidates
from rollergen.construct.options import ALL, GROW, RANKED, BuildOptions, Rank
from rollergen.construct.reductions import inner_product_candidates, reduction_candidates, row_candidates
from rollergen.construct.rename import renamed, with_names
from rollergen.construct.roles import CHAIN, CONTRACTION, ELEMENTWISE, REDUCTION, ROW, SCAN, contraction_roles, kind_of
from rollergen.construct.rows_in_lanes import lane_rows_candidates
from rollergen.construct.scans import scan_candidates
from rollergen.construct.serial_space import serial_candidates
from rollergen.construct.thread_space import ThreadSpace
from rollergen.construct.turned import turned_candidates
from rollergen.construct.variants import variants
from rollergen.construct.window_space import window_candidates
from rollergen.construct.winograd import winograd_candidates
from rollergen.dropped import as_far_as_possible, at_once, collected_drops, none_stands, standing, tell
from rollergen.errors import ArgumentError, ConstructionError, DoesNotFitError, shown
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.stages import Graph, size_bytes
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.languages import Machine
from rollergen.hal.spec import Device
from rollergen.program.assemble.contraction import accumulator_dtype
from rollergen.program.check import check_each
from rollergen.program.model import price_stages, with_launches
from rollergen.program.rprogram import RProgram, Stage
from rollergen.space.rules import BACKING_STORE
from rollergen.tile.rules import AlignmentRules, contiguous_axis, vector_lanes

WIDER = 4
"""How many times more programs of machines of tiles are drafted where too few of them are sound."""
LEAST_CONSIDERED = 10
"""Candidates of each tensor op that are drafted, however few are asked for: the best of them is then the same."""
FEW = 2
"""Programs that variety never moves: where no more are asked for, spaces of threads draft no more than may be these."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One constructed program: the variant of each tensor op and the predicted seconds."""

    program: RProgram
    variants: tuple[str, ...]
    seconds: float


def construct(
    graph: Graph, device: Device, options: BuildOptions = BuildOptions(), top_k: int = 10
) -> tuple[Ranked, ...]:
    """Up to `top_k` programs for `graph` on `device`, best predicted first.

    Deterministic: prices are rounded and ties fall by the program's text.  Raises `DoesNotFitError` where the device
    has no backing store and the data exceed its memory, `ConstructionError` where the options admit no program.
    """
    device = limited(device, options)
    require_fit(graph, device)
    with collected_drops() as dropped:
        found = _constructed(graph, device, options, top_k if options.rank is None else max(top_k, RANKED))
    tell(dropped)
    if not found:
        raise none_stands(dropped, device.name)
    return found if options.rank is None else _ranked_by(options.rank, found)[:top_k]


def _ranked_by(rank: Rank, found: tuple[Ranked, ...]) -> tuple[Ranked, ...]:
    """In the order of the user's own ranking, the model's where it is the same."""
    given = rank([one.program for one in found])
    scores: list[Any] = [] if not isinstance(given, Iterable) or isinstance(given, (Mapping, Set)) else list(given)
    if len(scores) != len(found) or not all(isinstance(one, (int, float, np.integer, np.floating)) for one in scores):
        raise ArgumentError(
            f"rank gives {shown(given)} for {len(found)} programs; expected a number for each, the lowest for the best"
        )
    if any(score != score for score in scores):
        raise ArgumentError(f"rank gives {shown(given)}; expected numbers that can be compared, no NaN")
    return tuple(found[at] for at in sorted(range(len(found)), key=lambda at: scores[at]))


def _constructed(graph: Graph, device: Device, options: BuildOptions, top_k: int) -> tuple[Ranked, ...]:
    """As `construct`; none where every program is dropped."""
    machine = device.kind.machine
    if machine is not None and (found := _of_machine(machine, graph, device, top_k)):
        return found
    join = lambda pick: program_of(graph, device, pick)
    for count, few in considered(device, options, top_k):
        choices = list(_choices(graph, device, options, count, few))
        if graph.definition:  # what quantises activations takes little time: all variety is the products'
            pairs = zip(graph.tensor_ops, choices, strict=True)
            choices = [found[:1] if op.output.kind == "temporary" else found for op, found in pairs]
        joined = (one for pick in _picks(choices) for _, one in standing([pick], join, candidates_text))
        found = _sound(joined, device, top_k)
        if len(found) == top_k:
            break
    return found


def _choices(
    graph: Graph, device: Device, options: BuildOptions, count: int, few: int | None
) -> Iterator[tuple[Candidate, ...]]:
    """The candidates of each tensor op."""
    room = room_bytes(graph, device)
    return (some_candidates(op, device, options, count, room, few) for op in graph.tensor_ops)


def takes_longer(seconds: float, graph: Graph, device: Device, options: BuildOptions, top_k: int) -> bool:
    """Whether the best candidates of the graph's tensor ops together take more; once they do, no other op is asked."""
    device = limited(device, options)
    if device.kind.machine is not None:
        return False
    asked = considered(device, options, top_k)[0]
    so_far = accumulate(found[0].seconds for found in _choices(graph, device, options, *asked))
    return any(some > seconds for some in so_far)


def considered(device: Device, options: BuildOptions, top_k: int) -> tuple[tuple[int, int | None], ...]:
    """``count`` and ``few`` of `choice` for so many programs, at first, and then where too few of them are sound.
    (Limits of padding reject drafts, for which others are there.)"""
    few = top_k <= FEW and device.kind.threads and waste_limit(options.rules) is None
    count = max(top_k, LEAST_CONSIDERED)
    return ((count, FEW), (count, None)) if few else ((count, None),)


def _of_call(op: TensorOp, found: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidates as calls run them: of what is made once the best, which takes no call any time."""
    if not op.output.constant:
        return found
    once = tuple([replace(stage, once=True) for stage in found[0].stages])
    return (replace(found[0], own=once, before=(), seconds=0.0),)


def _of_machine(machine: Machine, graph: Graph, device: Device, top_k: int) -> tuple[Ranked, ...]:
    """The machine's own programs, more of them where some break an invariant."""
    for wanted in (top_k, WIDER * top_k):
        made = machine.construct(graph, device, wanted)
        found = _sound((Ranked(each.program, each.variants, each.seconds) for each in made), device, top_k)
        if len(found) == min(top_k, len(made)):
            break
    return found


def _sound(ranked: Iterable[Ranked], device: Device, count: int) -> tuple[Ranked, ...]:
    """The first `count` that meet the invariants; others are dropped."""

    def checked(some: Sequence[Ranked]) -> Sequence[Ranked]:
        check_each([one.program for one in some], device)
        return some

    waiting, found = iter(ranked), []  # type: Iterator[Ranked], list[Ranked]
    while some := list(islice(waiting, count - len(found))):
        found += [one for one, _ in at_once(some, checked, lambda one: variants_text(one.variants, one.program.stages))]
    return tuple(found)


def limited(device: Device, options: BuildOptions) -> Device:
    """`device` with no more units than the options allow, and without what they forbid to use."""
    if not options.shapes.shuffles:
        device = replace(device, costs=tuple(cost for cost in device.costs if cost[0] != "shuffle_clocks"))
    if options.max_units is None:
        return device
    return replace(device, units=min(device.units, options.max_units))


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidates of one tensor op, and what the rules rejected."""

    candidates: tuple[Candidate, ...]
    account: Account


@lru_cache(maxsize=32)
def choice(
    op: TensorOp, device: Device, rules: AlignmentRules, count: int, room: int | None = None,
    search: str = ALL, few: int | None = None,
) -> Choice:  # fmt: skip
    """The `count` best candidates of one tensor op, at most two of a kind; none if the rules admit none.

    ``room``: bytes for temporaries of the candidate's own; None: as many as it likes.  ``search``: see `BuildOptions`.
    ``few``: so many of the best are asked for: those that follow may be any.
    """
    with collected_drops() as everything:
        spaces, ledger = as_far_as_possible(_spaces(op, device, rules, search, few), "the spaces"), Ledger()
        admitted = lambda some: best(_admitted(some, device, rules, room, ledger), count)
        found = admitted(_all_candidates(spaces, count, ledger))
        if found and rules.shapes.edges_apart:
            shaped = lambda own, shapes: choice(
                own, device, replace(rules, shapes=shapes), count, room, search, few
            ).candidates
            apart = candidates_apart(op, device, rules.shapes, found[0].seconds, shaped)
            found = best([*found, *admitted(as_far_as_possible(apart, "edges and frames"))], count)
    return Choice(tuple(found), ledger.account(everything))


def op_candidates(op: TensorOp, device: Device, rules: AlignmentRules, count: int) -> tuple[Candidate, ...]:
    """The `count` best candidates of one tensor op, at most two of a kind; dropped ones are reported."""
    found = choice(op, device, rules, count)
    tell(found.account.dropped)
    return found.candidates


def some_candidates(
    op: TensorOp, device: Device, options: BuildOptions, count: int, room: int | None = None, few: int | None = None
) -> tuple[Candidate, ...]:
    """`op_candidates` within the user's limits, as calls run them.

    Raises ConstructionError, with the ledger, if there are none.
    """
    found = choice(op, device, options.rules, count, room, options.search, few)
    tell(found.account.dropped)
    if found.candidates:
        return _of_call(op, found.candidates)
    if found.account.dropped:
        raise none_stands(found.account.dropped, f"{device.name}: {op.output.name} {op.output.shape}")
    relaxation = found.account.relaxation()
    raise ConstructionError(
        f"{device.name}: no program for {op.output.name} {op.output.shape} within "
        f"{limits_text(options)}: {found.account.text()}" + (f"; {relaxation}" if relaxation else "")
    )


def limits_text(options: BuildOptions) -> str:
    """The user's limits on padding, or the device's own, as text."""
    if not options.padding:
        return "padding=False"
    if options.epsilon is None:
        return "the device's limits" if options.search == ALL else f'search="{options.search}"'
    return f"epsilon={options.epsilon:g}"


def _admitted(
    candidates: Iterator[Candidate], device: Device, rules: AlignmentRules, room: int | None, ledger: Ledger
) -> Iterator[Candidate]:
    """Candidates that fit the device and waste no more than the rules allow."""
    limit = waste_limit(rules)
    wasted = lambda one: 0.0 if limit is None else max(waste_of(stage) for stage in one.stages)
    for one, waste in standing(candidates, wasted, lambda one: candidates_text([one])):
        if not isfinite(one.seconds):
            for stage in one.own:
                ledger.unfit(price_stages([stage], device), device)
        elif room is not None and size_bytes(one.temporaries) > room:
            ledger.reject(BACKING_STORE)
        elif limit is not None and waste > limit:
            ledger.wasteful(waste)
        else:
            yield one


def _all_candidates(spaces: Iterable[Drawn], count: int, ledger: Ledger) -> Iterator[Candidate]:
    for drawn in spaces:
        for one in as_far_as_possible(_lazily(drawn, count, ledger), "a space"):
            ledger.considered += 1
            yield one


def _lazily(drawn: Drawn, count: int, ledger: Ledger) -> Iterator[Candidate]:
    yield from drawn(count, ledger)


Drawn = Callable[[int, Ledger], Iterator[Candidate]]
"""Candidates of one space, so many as are to be drafted."""


def _spaces(
    op: TensorOp, device: Device, rules: AlignmentRules, search: str, few: int | None
) -> Iterator[Drawn]:
    """Where candidates of a tensor op come from; growth knows of contractions alone."""
    of = op, device, rules
    kind = kind_of(op)
    if kind == CHAIN:
        yield lambda count, ledger: chain_candidates(*of, ledger)
        return
    if search == GROW and kind == CONTRACTION:
        yield from _variant_spaces(*of, search, few)
        return
    if kind == SCAN:
        yield lambda count, ledger: scan_candidates(*of, ledger)
        return
    if kind == ROW:
        yield lambda count, ledger: row_candidates(*of, ledger)
    elif kind == ELEMENTWISE:
        yield lambda count, ledger: elementwise_candidates(*of, count, ledger)
    if kind == REDUCTION or (kind == CONTRACTION and (_dot_shaped(op, device) or _in_rows(op))):
        yield lambda count, ledger: reduction_candidates(*of, ledger)
    if kind == CONTRACTION and not device.kind.threads and _dot_shaped(op, device):
        yield lambda count, ledger: inner_product_candidates(*of, ledger)
    if kind == REDUCTION and not device.kind.threads:
        yield lambda count, ledger: lane_rows_candidates(*of, count, ledger)
    if op.reductions:
        yield lambda count, ledger: window_candidates(*of, count, ledger)
    if kind == CONTRACTION:
        yield from _variant_spaces(*of, search, few)
        products = lambda count: lambda own: choice(own, device, rules, count, None, search, few).candidates
        yield lambda count, ledger: winograd_candidates(*of, products(count))
        if not device.kind.threads:
            yield lambda count, ledger: turned_candidates(*of, products(count))


def _variant_spaces(
    op: TensorOp, device: Device, rules: AlignmentRules, search: str, few: int | None
) -> Iterator[Drawn]:
    """Of each variant of a contraction."""
    for variant in variants(op, device, rules):
        if variant.by_matrices:
            pass
        elif not device.kind.threads:
            yield partial(serial_candidates, variant, device, rules, search=search)
        else:
            yield ThreadSpace(variant, device, rules, search, few).candidates
        if search == ALL:
            yield partial(matrix_candidates, variant, device, rules)
            yield partial(asked_parts, variant, device, rules)


def _in_rows(op: TensorOp) -> bool:
    """Whether tiles have one axis only, as nothing is reused along a second (pooling)."""
    return all(roles.m is None for roles in contraction_roles(op))


def _dot_shaped(op: TensorOp, device: Device) -> bool:
    """Whether every operand that varies along the last reduce axis is contiguous along it, and it is long enough
    to occupy half of the threads or lanes that would share it (the taps of a window are not)."""
    k = op.of_role("reduce")[-1]
    sharers = max(device.execution_width, vector_lanes(device, accumulator_dtype(op)))
    contiguous = all(contiguous_axis(load) == k.name for load in op.body_loads() if k.name in load.axes())
    return contiguous and 2 * k.extent >= sharers


def _picks(choices: Sequence[Sequence[Candidate]]) -> list[tuple[Candidate, ...]]:
    """Combinations, best first: all tensor ops at their best, then each alternative of one of them."""
    first = tuple(options[0] for options in choices)
    total = sum(one.seconds for one in first)
    picks = [(total, 0, 0, first)]
    for at, options in enumerate(choices):
        for rank, other in enumerate(options[1:], start=1):
            pick = (*first[:at], other, *first[at + 1 :])
            picks.append((total - first[at].seconds + other.seconds, at, rank, pick))
    picks.sort(key=lambda item: item[:3])
    return [pick for *_, pick in picks]


def program_of(graph: Graph, device: Device, pick: Sequence[Candidate]) -> Ranked:
    """One candidate for each tensor op, joined into a program."""
    stages: list[Stage] = []
    temporaries: list[Buffer] = list(graph.temporaries)
    for one in pick:
        mapping = renamed(one.temporaries, {b.name for b in (*temporaries, *graph.inputs, *graph.outputs)})
        stages.extend(with_names(stage, mapping) for stage in one.stages)
        temporaries.extend(mapping.get(b.name, b) for b in one.temporaries)
    program = RProgram(device.name, graph.inputs, graph.outputs, _numbered(stages), tuple(temporaries))
    return Ranked(with_launches(program, device), tuple(one.variant for one in pick), sum(one.seconds for one in pick))


def _numbered(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages with distinct names, in launch order."""
    used: dict[str, int] = {}
    named = []
    for stage in stages:
        used[stage.name] = used.get(stage.name, 0) + 1
        named.append(stage if used[stage.name] == 1 else replace(stage, name=f"{stage.name}_{used[stage.name]}"))
    return tuple(named)


def require_fit(graph: Graph, device: Device) -> None:
    """Raise `DoesNotFitError` with the shortfall where all tensors exceed the backing store."""
    buffers = (*graph.inputs, *graph.temporaries, *graph.outputs)
    needed, available = size_bytes(buffers), _available(device)
    if needed > available:
        sizes = ", ".join(f"{b.name} {b.elements * ITEMSIZE[b.dtype]}" for b in buffers)
        raise DoesNotFitError(
            f"{device.name}: the tensors take {needed} bytes ({sizes}) and {device.backing.name} holds "
            f"{available}; {needed - available} bytes too many"
        )


def room_bytes(graph: Graph, device: Device) -> int:
    """What is left of the backing store for each tensor op's own temporaries (packed operands, parts of sums)."""
    used = size_bytes((*graph.inputs, *graph.temporaries, *graph.outputs))
    return (_available(device) - used) // max(1, len(graph.tensor_ops))


def _available(device: Device) -> int:
    return device.backing.capacity_bytes - device.backing.reserved_bytes
