"""Plots of kernels and of spaces, drawn by matplotlib, which the extra ``plots`` installs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from pathlib import Path
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.errors import ArgumentError, shown, writing
from rollergen.explain.explanation import Facts, seconds_text
from rollergen.explain.rooflines import roofline
from rollergen.expr.language import Tensor
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.optional import blank_plot, optional
from rollergen.program.rprogram import RProgram
from rollergen.research import DeviceLike, construct, load_device, predict, profile, space

BLUE, ORANGE, GREY = "#4878a8", "#c85a3c", "#767676"
"""Grey is told from white and from black alike (a contrast of 4.5), so that plots suit light and dark pages."""
_STYLE = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), GREY),
    "axes.facecolor": "none", "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8,
    "svg.hashsalt": "rollergen", "svg.fonttype": "none", "font.family": "sans-serif",
}  # fmt: skip
PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Plot:
    """A drawing: notebooks show it, ``save(path)`` writes it, ``figure`` is matplotlib's ``Figure`` to change it.

    ``facts`` are the numbers that are drawn.
    """

    figure: Any = field(repr=False)
    facts: Any = field(repr=False)
    title: str

    def save(self, path: str | Path) -> Path:
        """Writes the drawing; the path's suffix says how.  Returns the path.

        Raises ArgumentError unless that is .svg, .png or .pdf, and for a file that cannot be written.
        """
        target = Path(path)
        if target.suffix not in PICTURES:
            raise ArgumentError(f"path is {shown(str(path))}; expected a file in {', '.join(PICTURES)}")
        with writing(target):
            target.write_bytes(self._drawn(target.suffix[1:]))
        return target

    def _repr_svg_(self) -> str:
        return self._drawn("svg").decode().replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)

    def _drawn(self, kind: str) -> bytes:
        written = io.BytesIO()
        metadata = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        with optional("matplotlib", "plots").rc_context(_STYLE):
            self.figure.savefig(written, format=kind, metadata=metadata, transparent=True)
        return written.getvalue()


def plot_kernel(title: str, facts: Facts, program: RProgram, device: Device) -> Plot:
    """Bars of the limiters of every launch, and the roofline of the whole call.

    The roofline (Williams, Waterman, Patterson, CACM 2009) has a slope for each memory layer that bytes leave, at the
    spec's bandwidth of the whole device, and a roof at the rate of multiply-adds of the launch with most of them; two
    operations are a multiply-add.  A dot on a slope's layer is the prediction, a ring the measured time.
    """
    launches = [one for one in facts["stages"] if not one["once"]]
    if not launches:
        raise ArgumentError("no output of the kernel has elements: nothing is launched, and there is nothing to plot")
    with optional("matplotlib", "plots").rc_context(_STYLE):
        bars = sum(len(one["limiters"]) + 2 for one in launches)
        drawn = blank_plot(9, max(3.2, 0.6 + 0.2 * bars), layout="constrained")
        left, right = drawn.subfigures(1, 2)
        heights = [len(one["limiters"]) + 2 for one in launches]
        panels = left.subplots(len(launches), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, one in zip(panels, launches, strict=True):
            _limiters(panel, one, len(launches) > 1)
        _roofline(right.subplots(), launches, facts, program, device)
    return Plot(drawn, facts, title)


def _limiters(panel: Any, stage: Facts, named: bool) -> None:
    found = sorted(stage["limiters"], key=lambda one: one["seconds"])
    colours = [ORANGE if one["name"] == stage["binding"] else BLUE for one in found]
    bars = panel.barh([one["name"] for one in found], [one["seconds"] * 1e6 for one in found], color=colours)
    panel.bar_label(bars, [seconds_text(one["seconds"]) for one in found], padding=3, fontsize=8, color=GREY)
    panel.margins(x=0.2)
    name = f"{stage['name']}: " if named else ""
    panel.set(title=f"{name}{seconds_text(stage['seconds'])}, bound by {stage['binding']}", xlabel="us")


def _roofline(panel: Any, launches: Sequence[Facts], facts: Facts, program: RProgram, device: Device) -> None:
    found = roofline(launches, program, device)
    flops, moved, slopes, roof, ends = found.flops, found.moved, found.slopes, found.roof, found.ends
    if not flops:
        _rates(panel, slopes, {layer: moved[layer] / facts["predicted_seconds"] for layer in slopes})
        return
    panel.loglog(ends, [roof / 1e9] * 2, color=GREY, linewidth=1)
    panel.annotate(found.instruction, (ends[1], roof / 1e9), (0, 3), textcoords="offset points", ha="right")
    for number, (layer, rate) in enumerate(slopes.items()):
        colour = (BLUE, ORANGE, "#6a9a58", "#8a6aa8")[number % 4]
        panel.loglog([ends[0], roof / rate], [ends[0] * rate / 1e9, roof / 1e9], color=colour, linewidth=1, label=layer)
        panel.plot(flops / moved[layer], flops / facts["predicted_seconds"] / 1e9, "o", color=colour)
        if facts["measured_seconds"]:
            at = flops / facts["measured_seconds"] / 1e9
            panel.plot(flops / moved[layer], at, "o", markerfacecolor="none", markeredgecolor=colour)
    measured = "; ring: measured" if facts["measured_seconds"] else ""
    panel.xaxis.set_minor_formatter("")
    panel.set_box_aspect(0.7)
    panel.set_anchor("N")
    panel.set(title=f"roofline (dot: predicted{measured})", xlabel="operations a byte", ylabel="GFLOP/s")
    if slopes:
        panel.legend(loc="lower right")


def _rates(panel: Any, rates: Mapping[str, float], reached: Mapping[str, float]) -> None:
    """Of kernels that only move: bytes a second out of each layer, beside what the spec says of it."""
    panel.barh(list(rates), [rate / 1e9 for rate in rates.values()], color=GREY, alpha=0.3, label="of the spec")
    panel.barh(list(reached), [rate / 1e9 for rate in reached.values()], height=0.4, color=BLUE, label="predicted")
    panel.set(title="bandwidth (nothing is computed)", xlabel="GB/s")
    panel.legend()


def plot_space(
    expr: Tensor | Sequence[Tensor],
    device: DeviceLike = None,
    *,
    count: int = 300,
    measured: int = 0,
    seed: int = 0,
    options: BuildOptions = BuildOptions(),
) -> Plot:
    """The aligned space of ``expr``: ``count`` programs drawn from it (`rg.space`), and the ten that are constructed.

    Three panels: the predicted seconds, sorted; bytes from memory against operations, padding included, with the
    programs that none surpasses in both (the Pareto front); and, if ``measured`` is not 0, the measured against the
    predicted seconds of so many of them, from the best predicted to the worst in even steps.  ``facts`` of the result
    has a row for each program.

    Needs ``rollergen[plots]``.  Raises ArgumentError for counts below their least, DeviceError where matplotlib, or
    the device that is to measure, is missing.
    """
    for name, value, least in (("count", count, 1), ("measured", measured, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ArgumentError(f"{name} is {shown(value)}; expected an integer of at least {least}")
    optional("matplotlib", "plots")
    target = load_device(device)
    chosen = construct(expr, target, 10, options=options)
    programs = [*chosen, *space(expr, target, options=options).sample(count, seed)]
    rows = [_row(one, target, number < len(chosen)) for number, one in enumerate(programs)]
    order = sorted(range(len(rows)), key=lambda number: rows[number]["predicted_seconds"])
    if measured:
        few = sorted({order[round(at * (len(order) - 1) / max(1, measured - 1))] for at in range(measured)})
        outcomes = profile([programs[at] for at in few], target, expr=expr, options=options)
        for at, outcome in zip(few, outcomes, strict=True):
            rows[at]["measured_seconds"] = outcome.wall_s
    return _space_plot([rows[at] for at in order], target.name, bool(measured))


def _row(program: RProgram, device: Device, constructed: bool) -> Facts:
    """``bytes`` are those of the outermost memory that any leave: of small tensors on a CPU a cache."""
    prediction = predict(program, device)
    moved: dict[str, float] = {}
    operations = 0.0
    for stage, one in zip(program.stages, prediction.stages, strict=True):
        if not one.once:
            padded = prod(loop.extent for loop in stage.loops) / prod(axis.extent for axis in stage.op.axes)
            operations += one.flops * max(1.0, padded)
            for layer, count in one.traffic_bytes:
                moved[layer] = moved.get(layer, 0.0) + float(count)
    memory = next((layer.name for layer in reversed(device.layers) if moved.get(layer.name)), device.backing.name)
    return {
        "predicted_seconds": float(prediction.seconds), "bytes": moved.get(memory, 0.0), "memory": memory,
        "operations": float(operations), "measured_seconds": None, "constructed": constructed,
    }  # fmt: skip


def _space_plot(rows: list[Facts], device: str, measured: bool) -> Plot:
    """``rows``: by rising prediction."""
    with optional("matplotlib", "plots").rc_context(_STYLE):
        drawn = blank_plot(11 if measured else 8, 3.2, layout="constrained")
        panels = drawn.subplots(1, 3 if measured else 2)
        microseconds = [one["predicted_seconds"] * 1e6 for one in rows]
        panels[0].semilogy(range(1, len(rows) + 1), microseconds, color=BLUE)
        made = [(at, us) for at, (one, us) in enumerate(zip(rows, microseconds, strict=True), 1) if one["constructed"]]
        panels[0].plot(*zip(*made, strict=True), ".", color=ORANGE, label="constructed")
        panels[0].set(title=f"{len(rows)} programs on {device}", xlabel="rank", ylabel="predicted us")
        panels[0].legend()
        _moved_and_computed(panels[1], rows)
        if measured:
            _against(panels[2], [one for one in rows if one["measured_seconds"] is not None])
    return Plot(drawn, rows, f"space of {len(rows)} programs on {device}")


def _moved_and_computed(panel: Any, rows: Sequence[Facts]) -> None:
    both = lambda some: ([one["bytes"] / 1e6 for one in some], [one["operations"] / 1e6 for one in some])
    panel.plot(*both(rows), ".", color=BLUE, alpha=0.4)
    panel.plot(*both(pareto(rows)), "o-", color=ORANGE, label="Pareto front")
    memories = " or ".join(dict.fromkeys(one["memory"] for one in rows))
    panel.set(title="what they move and compute", xlabel=f"MB out of {memories}", ylabel="million operations, padded")
    for axis, values in zip("xy", both(rows), strict=True):
        if min(values) > 0 and max(values) > 20 * min(values):
            panel.set(**{f"{axis}scale": "log"})
    panel.legend()


def pareto(rows: Sequence[Facts]) -> list[Facts]:
    """The rows that no other surpasses in bytes and in operations, by rising bytes.

    >>> [one["bytes"] for one in pareto([{"bytes": b, "operations": o} for b, o in ((1, 9), (2, 9), (3, 4), (4, 8))])]
    [1, 3]
    """
    front: list[Facts] = []
    for one in sorted(rows, key=lambda one: (one["bytes"], one["operations"])):
        if not front or one["operations"] < front[-1]["operations"]:
            front.append(one)
    return front


def _against(panel: Any, rows: Sequence[Facts]) -> None:
    predicted, taken = ([one[f"{what}_seconds"] * 1e6 for one in rows] for what in ("predicted", "measured"))
    panel.plot(predicted, taken, "o", color=BLUE, markersize=4)
    ends = [min(*predicted, *taken), max(*predicted, *taken)]
    panel.plot(ends, ends, color=GREY, linewidth=0.8)
    panel.set(title=f"{len(rows)} of them, measured", xlabel="predicted us", ylabel="measured us")
