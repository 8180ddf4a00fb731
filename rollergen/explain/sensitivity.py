"""Which figures of a device spec move what: every numeric field raised and lowered by a fifth, over some operators.

A field bears load where a prediction, the first choice or the ranking of an operator differs.  Limits and capacities
are steps: one that moves nothing within a fifth is tried further, and the factor that moves something is told.  What
bears no load at all is either declared ``informational`` in the schema, with the reason, or a fault.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from math import inf, isfinite

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.construct.space import space
from rollergen.errors import ConstructionError, DoesNotFitError, ProgramError
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.hal.changes import changed, figure, figures
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import SpecError
from rollergen.hal.informational import informational
from rollergen.hal.spec import Device, Instruction
from rollergen.measure.outcome import Progress, silent
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

FIFTH = (0.8, 1.2)
FURTHER = ((0.5, 2.0), (0.25, 4.0))
CANDIDATES = 5
"""Programs whose order is compared."""
CHOICE, RANKS = "choice", "ranks"
_FILLED = 0.9
_FILLING = "copy that fills the memory"
_SAMPLED, _WIDELY = 60, 300


@dataclass(frozen=True, slots=True)
class Effect:
    """What one figure moves.

    ``predictions``, ``choices``, ``ranks``: names of the operators for which one of the programs chosen before is
    predicted otherwise, another program is the first choice (or none fits), another order or set is among the first
    few.  ``largest``: the largest change of a first choice's predicted time, as a share (0.03: by 3 %).
    ``factor``: 1.2 where a change by a fifth moves something, else the factor (or its inverse) that did; 0 if none.
    ``refused``: the loader's reason, where it takes neither a lower nor a higher value.
    ``informational``: why the schema lets it move nothing; "" where it does not.
    """

    path: str
    value: float
    predictions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    largest: float = 0.0
    factor: float = 0.0
    refused: str = ""
    informational: str = ""

    @property
    def moves(self) -> bool:
        """Whether it moves anything."""
        return bool(self.predictions or self.choices or self.ranks)

    @property
    def unexplained(self) -> bool:
        """Whether it moves nothing, and nothing says why."""
        return not (self.moves or self.refused or self.informational)


def sensitivity(
    device: Device, operators: Mapping[str, Tensor], thorough: bool = True, paths: Collection[str] | None = None,
    sampled: bool = True, progress: Progress = silent,
) -> tuple[Effect, ...]:  # fmt: skip
    """One effect for each figure that the spec states, in the order of `rollergen devices show`.

    `paths`: only these figures, as `hal.changes.paths` writes them.

    `operators`: expressions by name.  One that fills nine tenths of the device's memory is added, and of the first one
    a sample of all its programs is predicted too: what a figure does to bad programs is why they are not chosen.  What
    moves none of these is tried on larger samples, of the first operator and of the one with the most elements.
    `sampled`: whether these samples are predicted; without them, only programs that are chosen tell what moves.
    `thorough`: all of them for each figure, with the new choices; else no further than a figure's first effect, and
    informational figures unmoved: tells what is unexplained, ten times as fast.
    `progress`: called with ("figures", done, of) as figures have been tried.
    """
    every = {_FILLING: _filling(device), **operators}
    graphs = {name: planned(expr, device) for name, expr in every.items()}
    before = {name: ranked for name, graph in graphs.items() if (ranked := _ranked(graph, device))}
    graphs = {name: graphs[name] for name in before}
    first = next((name for name in operators if name in before), "")
    if first and sampled:
        before[_sampled(first, _SAMPLED)] = _priced(space(graphs[first], device).sample(_SAMPLED), device)
    reasons = informational(device)
    effect = _effect if thorough else _first_effect
    stated = [path for path in stated_figures(device) if paths is None or path in paths]
    found = []
    for number, path in enumerate(stated):
        progress("figures", number, len(stated))
        found.append(effect(device, path, reasons.get(path, ""), graphs, before))
    progress("figures", len(stated), len(stated))
    if first and sampled and any(one.unexplained for one in found):
        largest = max((name for name in operators if name in graphs), key=lambda name: _elements(graphs[name]))
        both = dict.fromkeys((first, largest))
        wide = {_sampled(x, _WIDELY): _priced(space(graphs[x], device).sample(_WIDELY), device) for x in both}
        found = [_first_effect(device, one.path, "", {}, wide) if one.unexplained else one for one in found]
    return tuple(found)


def _elements(graph: Graph) -> int:
    return sum(buffer.elements for buffer in (*graph.inputs, *graph.outputs))


def _sampled(name: str, count: int) -> str:
    return f"{name}, {count} programs"


def stated_figures(device: Device) -> list[str]:
    """Paths of the figures that say something: not those that are 0, or what they are unless a spec says otherwise."""
    usual = {field.name: field.default for field in fields(Instruction)}
    return [path for path, value in figures(device).items() if value and usual.get(path.rpartition(".")[2]) != value]


def variants(device: Device, path: str, factors: Sequence[float] = FIFTH) -> Iterator[Device | SpecError]:
    """The device with the figure times each factor (whole numbers move by at least 1), or why the loader refuses it.

    Where the format ties figures to each other, such as the ways of a cache to its capacity, they move together.
    """
    value = figure(device, path)
    for factor in factors:
        new: float = value * factor
        if isinstance(value, int):
            new = min(round(new), value - 1) if factor < 1 else max(round(new), value + 1)
        yield _variant(device, path, new)


def seconds_on(program: RProgram, device: Device) -> float:
    """Predicted seconds of a call, infinite where the program does not fit the device, or is none of it at all."""
    try:
        return float(predict(program, device).seconds)
    except ProgramError:
        return inf


def _filling(device: Device) -> Tensor:
    room = device.backing.capacity_bytes - device.backing.reserved_bytes
    rows = max(1, int(room * _FILLED / 2) // 4096)
    return rg.ops.relu(rg.tensor("X", (rows, 1024)), name="Y")


def _variant(device: Device, path: str, value: float) -> Device | SpecError:
    first: SpecError | None = None
    for settings in ({path: value}, *_together(device, path, value)):
        try:
            return changed(device, settings)
        except SpecError as error:
            first = first or error
    assert first is not None  # there is at least one way to try
    return first


def _together(device: Device, path: str, value: float) -> Iterator[dict[str, float]]:
    """The figures that a change of this one takes with it."""
    owner, _, key = path.rpartition(".")
    layer = next((one for one in device.layers if one.name == owner), None)
    if layer is not None and layer.sets:
        cache = {"sets": layer.sets, "ways": layer.ways, "transaction_bytes": layer.transaction_bytes}
        if key == "capacity_bytes":
            ways = max(1, round(layer.ways * value / layer.capacity_bytes))
            yield {f"{owner}.ways": ways, path: layer.sets * ways * layer.transaction_bytes}
        elif key in cache:
            cache[key] = int(value)
            yield {path: value, f"{owner}.capacity_bytes": cache["sets"] * cache["ways"] * cache["transaction_bytes"]}
    tied = {"threads_per_block": "threads_per_unit", "registers_per_thread": "registers_per_unit"}
    tied |= {whole: part for part, whole in tied.items()}
    if owner == "limits" and key in tied:
        yield {path: value, f"limits.{tied[key]}": value}


@dataclass(frozen=True, slots=True)
class _Priced:
    program: RProgram
    seconds: float
    text: str


def _ranked(graph: Graph, device: Device) -> tuple[_Priced, ...]:
    """The first few programs; none where the device has no room for the tensors."""
    try:
        return _priced([one.program for one in construct(graph, device, top_k=CANDIDATES)], device)
    except DoesNotFitError:
        return ()


def _priced(programs: Sequence[RProgram], device: Device) -> tuple[_Priced, ...]:
    return tuple(_Priced(p, seconds_on(p, device), repr(p.stages)) for p in programs)


def _effect(
    device: Device, path: str, reason: str, graphs: Mapping[str, Graph], before: Mapping[str, tuple[_Priced, ...]]
) -> Effect:
    """Everything that the figure moves, at the smallest factor that moves anything."""
    value, refused = float(figure(device, path)), ""
    for factors in (FIFTH, *FURTHER):
        tried = list(variants(device, path, factors))
        accepted = [one for one in tried if isinstance(one, Device)]
        shares = [found for one in accepted for found in _repriced(one, before)]
        again = [found for one in accepted for found in _reconstructed(one, graphs, before)]
        predictions = tuple(dict.fromkeys(name for name, _ in shares))
        choices, ranks = (tuple(dict.fromkeys(name for kind, name in again if kind == k)) for k in (CHOICE, RANKS))
        if shares or again:
            largest = max((share for _, share in shares), default=0.0)
            return Effect(path, value, predictions, choices, ranks, largest, factors[1], informational=reason)
        if not accepted:
            refused = str(tried[0])
        if reason:
            break
    return Effect(path, value, refused=refused, informational=reason)


def _first_effect(
    device: Device, path: str, reason: str, graphs: Mapping[str, Graph], before: Mapping[str, tuple[_Priced, ...]]
) -> Effect:
    """The first thing that the figure is seen to move; predictions are tried at all factors first, being cheap."""
    value = float(figure(device, path))
    if reason:
        return Effect(path, value, informational=reason)
    tried = {factors[1]: list(variants(device, path, factors)) for factors in (FIFTH, *FURTHER)}
    accepted = [(factor, one) for factor, two in tried.items() for one in two if isinstance(one, Device)]
    for factor, one in accepted:
        for name, share in _repriced(one, before):
            return Effect(path, value, predictions=(name,), largest=share, factor=factor)
    for factor, one in accepted:
        for kind, name in _reconstructed(one, graphs, before):
            choices, ranks = ((name,), ()) if kind == CHOICE else ((), (name,))
            return Effect(path, value, choices=choices, ranks=ranks, factor=factor)
    return Effect(path, value, refused="" if accepted else str(tried[FIFTH[1]][0]))


def _repriced(variant: Device, before: Mapping[str, Sequence[_Priced]]) -> Iterator[tuple[str, float]]:
    """Operators of which a program is predicted otherwise, and by what share the first one is."""
    for name, ranked in before.items():
        shares = (_share(one.seconds, seconds_on(one.program, variant)) for one in ranked)
        first = next(shares)
        if first or any(shares):
            yield name, first


def _reconstructed(
    variant: Device, graphs: Mapping[str, Graph], before: Mapping[str, Sequence[_Priced]]
) -> Iterator[tuple[str, str]]:
    """(choice | ranks, operator) for what is constructed otherwise."""
    for name, graph in graphs.items():
        old = [one.text for one in before[name]]
        try:
            after = [repr(one.program.stages) for one in construct(graph, variant, top_k=CANDIDATES)]
        except (ConstructionError, DoesNotFitError):
            after = []
        if after[:1] != old[:1]:
            yield CHOICE, name
        if after != old:
            yield RANKS, name


def _share(before: float, after: float) -> float:
    if not (isfinite(before) and isfinite(after)):
        return float(isfinite(before) != isfinite(after))
    share = abs(after / before - 1)
    return share if share > 1e-9 else 0.0  # sums in another order differ in the last digits
