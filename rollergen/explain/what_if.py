"""What another device, or other figures of one, would make of an expression: times, limiters, where these change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollergen.construct import construct
from rollergen.construct.planning import planned
from rollergen.errors import DeviceError, DoesNotFitError, writing
from rollergen.expr.language import Tensor
from rollergen.hal.changes import changed, figure
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import SpecError
from rollergen.hal.spec import Device
from rollergen.optional import blank_plot
from rollergen.program.model import predict
from rollergen.program.model.price import Prediction
from rollergen.program.rprogram import RProgram

_HALVINGS = 24
"""Steps to a turn: the figure is found to one part in 16 million of the distance between two points of the way."""
POINTS = 33
"""Points of the way that are looked at: of two turns between neighbours none is seen."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The best program for one device.  ``seconds``: predicted, infinite where the data do not fit (``missing`` says
    why).  ``limiter``: the largest one of the stage that takes longest."""

    device: str
    seconds: float
    limiter: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """A program on a device on the way: its figures, predicted seconds and limiter."""

    settings: dict[str, float]
    seconds: float
    limiter: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A point at which the limiter changes: from there on it is `after`."""

    settings: dict[str, float]
    before: str
    after: str


def limiter(prediction: Prediction) -> str:
    """The largest limiter of the stage that takes longest."""
    return str(max((stage for stage in prediction.stages if not stage.once), key=lambda stage: stage.seconds).binding)


def across(expression: Tensor, devices: Iterable[Device]) -> tuple[OnDevice, ...]:
    """The time of each device, the fastest first. Programs are constructed for each; none need be present."""
    found = []
    for device in devices:
        try:
            best = construct(planned(expression, device), device, top_k=1)[0].program
        except DoesNotFitError as error:
            found.append(OnDevice(device.name, float("inf"), "", str(error)))
            continue
        prediction = predict(best, device)
        found.append(OnDevice(device.name, float(prediction.seconds), limiter(prediction)))
    return tuple(sorted(found, key=lambda one: (one.seconds, one.device)))


def on_the_way(program: RProgram, device: Device, settings: Mapping[str, float], points: int = POINTS) -> list[Point]:
    """The program at so many points of the straight way from the device's figures to `settings`.

    Figures that are whole numbers change in whole steps.  Raises SpecError for a device that contradicts itself.
    """
    return [_at(program, device, settings, number / (points - 1)) for number in range(points)]


def turns(program: RProgram, device: Device, settings: Mapping[str, float], points: int = POINTS) -> list[Turn]:
    """Every change of the program's limiter on that way, in order, each found by halving between two points."""
    way, found = on_the_way(program, device, settings, points), []
    for number in range(points - 1):
        first, last = way[number].limiter, way[number + 1].limiter
        low, high = number / (points - 1), (number + 1) / (points - 1)
        if first == last:
            continue
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if _at(program, device, settings, middle).limiter == first else (low, middle)
        there = _at(program, device, settings, high)
        found.append(Turn(there.settings, first, there.limiter))
    return found


def _at(program: RProgram, device: Device, settings: Mapping[str, float], share: float) -> Point:
    start = {path: float(figure(device, path)) for path in settings}
    there = {path: start[path] + share * (value - start[path]) for path, value in settings.items()}
    whole = {path for path in settings if isinstance(figure(device, path), int)}
    there = {path: round(value) if path in whole else value for path, value in there.items()}
    prediction = predict(program, changed(device, there))
    return Point(there, float(prediction.seconds), limiter(prediction))


def require_figures(device: Device, settings: Mapping[str, float]) -> Device:
    """The device with these figures.  Raises DeviceError, with the nearest name, for one that it does not have."""
    try:
        return changed(device, {path: int(v) if float(v).is_integer() else v for path, v in settings.items()})
    except SpecError as error:
        raise DeviceError(str(error)) from None


def plot_across(rows: Sequence[OnDevice], title: str, path: Path) -> None:
    """A bar for each device that the data fit, in microseconds on a logarithmic scale, with its limiter.

    Raises DeviceError where matplotlib is missing, ArgumentError for a file that cannot be written.
    """
    shown = [one for one in rows if not one.missing]
    figure_, axes = _axes(0.35 * len(shown) + 1.2)
    axes.barh([one.device for one in shown], [one.seconds * 1e6 for one in shown])
    for place, one in enumerate(shown):
        axes.annotate(f" {one.limiter}", (one.seconds * 1e6, place), va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="predicted microseconds", title=title)
    axes.margins(x=0.3)
    with writing(path):
        figure_.savefig(path, bbox_inches="tight")


def plot_way(points: Sequence[Point], found: Sequence[Turn], title: str, path: Path) -> None:
    """Predicted microseconds over the figure that moves first, with a line wherever the limiter changes.

    Raises DeviceError where matplotlib is missing, ArgumentError for a file that cannot be written.
    """
    figure_, axes = _axes(3.5)
    moving = next(iter(points[0].settings))
    axes.plot([one.settings[moving] for one in points], [one.seconds * 1e6 for one in points])
    for turn in found:
        axes.axvline(turn.settings[moving], color="grey", linewidth=0.8)
        text = f"{turn.before} | {turn.after}"
        axes.annotate(text, (turn.settings[moving], 0.97), xycoords=("data", "axes fraction"), fontsize=8, va="top")
    axes.set(xlabel=", ".join(points[0].settings), ylabel="predicted microseconds", title=title, ylim=(0, None))
    with writing(path):
        figure_.savefig(path, bbox_inches="tight")


def _axes(height: float) -> tuple[Any, Any]:
    drawn = blank_plot(7, height)
    return drawn, drawn.subplots()
