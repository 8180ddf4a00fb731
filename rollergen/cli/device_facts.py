"""``rollergen devices show | check | compare | what-if``: what a spec says, whether it holds, what it moves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from rollergen.cli.output import console
from rollergen.cli.problems import expression
from rollergen.errors import ArgumentError, DeviceError
from rollergen.explain import seconds_text
from rollergen.hal.changes import changed, figure, figures, json_path
from rollergen.hal.errors import SpecError
from rollergen.hal.lints import WARNING, lint
from rollergen.hal.load import device_hash, device_names, device_to_json, load_device
from rollergen.hal.spec import Device
from rollergen.program.model.prediction import Prediction
from rollergen.program.rprogram import RProgram
from rollergen.research import construct, predict
from rollergen.targets import resolve

_HALVINGS = 24
"""Steps to a break-even: the figure is found to one part in 16 million of the change."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


@click.command()
@click.argument("device")
@as_json_option
def show(device: str, as_json: bool) -> None:
    """Every figure of DEVICE with its kind and source."""
    spec = loaded(device)
    if as_json:
        click.echo(json.dumps(device_to_json(spec)))
        return
    origins = dict(spec.provenance)
    table = Table("figure", "value", "kind", "source", title=f"{spec.name}: {spec.title}")
    for path, value in figures(spec).items():
        if value:
            table.add_row(path, f"{value:.12g}", *origins.get(json_path(spec, path), ("-", "-")))
    console.print(table, markup=False)
    console.print(f"hash {device_hash(spec)}", markup=False, highlight=False, soft_wrap=True)


@click.command()
@click.argument("device")
@as_json_option
def check(device: str, as_json: bool) -> None:
    """Load DEVICE and print what is likely wrong; exit code 1 where there are warnings."""
    spec = loaded(device)
    found = lint(spec, (load_device(name) for name in device_names()))
    warnings = sum(finding.severity == WARNING for finding in found)
    if as_json:
        rows = [{"severity": f.severity, "path": f.path, "message": f.message, "reason": f.reason} for f in found]
        click.echo(json.dumps({"device": spec.name, "hash": device_hash(spec), "findings": rows}))
    else:
        for finding in found:
            console.print(str(finding), markup=False, highlight=False, soft_wrap=True)
        line = f"{spec.name}: {warnings} warnings, {len(found) - warnings} notes"
        console.print(line, markup=False, highlight=False)
    if warnings:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("first")
@click.argument("second")
@as_json_option
def compare(first: str, second: str, as_json: bool) -> None:
    """The figures in which two devices differ, and by what factor."""
    one, other = figures(loaded(first)), figures(loaded(second))
    rows = {path: (one.get(path, 0.0), other.get(path, 0.0)) for path in {**one, **other}}
    rows = {path: pair for path, pair in rows.items() if pair[0] != pair[1]}
    if as_json:
        click.echo(json.dumps({path: {"first": a, "second": b} for path, (a, b) in rows.items()}))
        return
    table = Table("figure", first, second, "factor")
    for path, (a, b) in rows.items():
        factor = f"{b / a:.3g}" if a and b else "-"
        table.add_row(path, *(f"{x:.12g}" if x else "-" for x in (a, b)), factor)
    console.print(table, markup=False)


@click.command("what-if")
@click.argument("device")
@click.argument("problem")
@click.argument("sizes", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "settings", multiple=True, required=True, metavar="FIGURE=VALUE", help="May be given often.")
@click.option("--dtype", default="float32", show_default=True)
@as_json_option
def what_if(
    device: str, problem: str, sizes: tuple[str, ...], settings: tuple[str, ...], dtype: str, as_json: bool
) -> None:  # fmt: skip
    """Predict PROBLEM on DEVICE and on DEVICE with other figures.

    \b
        rollergen devices what-if v100 matmul m=1024 n=1024 k=1024 \\
            --set dram.bandwidth_gb_s=1500 --set units=120
    """
    before, values = resolve(device), parse_settings(settings)
    after = _changed(before, values)
    tensor = expression(problem, sizes, dtype)
    program, chosen = (construct(tensor, one, top_k=1)[0] for one in (before, after))
    rows = {
        "as it is": predict(program, before),
        "changed, the same program": predict(program, after),
        "changed, constructed again": predict(chosen, after),
    }
    turn = break_even(program, before, values)
    if as_json:
        found = {what: {"seconds": float(p.seconds), "limiter": limiter(p)} for what, p in rows.items()}
        click.echo(json.dumps({**found, "limiter_changes_at": turn}))
        return
    table = Table("device", "predicted", "limiter")
    for what, prediction in rows.items():
        table.add_row(what, seconds_text(float(prediction.seconds)), limiter(prediction))
    console.print(table, markup=False)
    text = "the limiter of that program stays the same on the way"
    if turn:
        text = "the limiter of that program changes at " + ", ".join(f"{p} = {v:.6g}" for p, v in turn.items())
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def loaded(device: str) -> Device:
    """The spec as it is written; DeviceError for one that does not load."""
    try:
        return load_device(device)
    except SpecError as error:
        raise DeviceError(str(error)) from None


def parse_settings(words: Sequence[str]) -> dict[str, float]:
    """``units=120`` as path and number; ArgumentError for anything else."""
    found: dict[str, float] = {}
    for word in words:
        path, _, text = word.partition("=")
        try:
            found[path] = float(text)
        except ValueError:
            raise ArgumentError(f"{word!r} sets nothing; expected figure=number, such as units=120") from None
    return found


def limiter(prediction: Prediction) -> str:
    """The largest limiter of the stage that takes longest."""
    return str(max((stage for stage in prediction.stages if not stage.once), key=lambda stage: stage.seconds).binding)


def break_even(program: RProgram, device: Device, settings: Mapping[str, float]) -> dict[str, float] | None:
    """Where, on the straight way from the device's figures to `settings`, the program's limiter is no longer the first.

    Halves the way again and again, so that of several changes it finds one; None where both ends agree.  Figures that
    are whole numbers change in whole steps.
    """
    start = figures(device)
    whole = {path for path in settings if isinstance(figure(device, path), int)}

    def on_the_way(share: float) -> dict[str, float]:
        there = {path: start[path] + share * (value - start[path]) for path, value in settings.items()}
        return {path: round(value) if path in whole else value for path, value in there.items()}

    binding = lambda share: limiter(predict(program, _changed(device, on_the_way(share))))
    first, low, high = limiter(predict(program, device)), 0.0, 1.0
    if binding(high) == first:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if binding(middle) == first else (low, middle)
    return on_the_way(high)


def _changed(device: Device, settings: Mapping[str, float]) -> Device:
    try:
        return changed(device, {path: int(v) if float(v).is_integer() else v for path, v in settings.items()})
    except SpecError as error:
        raise DeviceError(str(error)) from None
