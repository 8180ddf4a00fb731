"""``rollergen devices show | check | compare``: what a spec says, whether it holds, where two differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf

import click
from rich.table import Column, Table

from rollergen.cli.output import console, device_argument
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.changes import figures, json_path
from rollergen.hal.errors import SpecError
from rollergen.hal.languages import language_names
from rollergen.hal.lints import WARNING, lint
from rollergen.hal.load import device_hash, device_names, device_to_json, known_names, load_device
from rollergen.hal.spec import Device

as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


@click.command()
@device_argument()
@as_json_option
def show(device: str, as_json: bool) -> None:
    """Every figure of DEVICE with its kind and source."""
    spec = loaded(device)
    if as_json:
        click.echo(json.dumps(device_to_json(spec)))
        return
    origins = dict(spec.provenance)
    found = {path: value for path, value in figures(spec).items() if value}
    name = Column("figure", no_wrap=True, min_width=max(map(len, found)))
    table = Table(name, Column("value", no_wrap=True), "kind", "source", title=f"{spec.name}: {spec.title}")
    sources: dict[str, int] = {}
    for path, value in found.items():
        kind, source = origins.get(json_path(spec, path), ("-", ""))
        number = f"[{sources.setdefault(source, len(sources) + 1)}]" if source else "-"
        table.add_row(path, f"{value:.12g}", kind, number)
    console.print(table, markup=False)
    for source, key in sources.items():
        console.print(f"[{key}] {source}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"hash {device_hash(spec)}", markup=False, highlight=False, soft_wrap=True)


@click.command()
@device_argument()
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
        line = f"{spec.name}: {_counted(warnings, 'warning')}, {_counted(len(found) - warnings, 'note')}"
        console.print(line, markup=False, highlight=False)
    if warnings:
        raise click.exceptions.Exit(1)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@click.command()
@device_argument("first")
@device_argument("second")
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


def loaded(device: str) -> Device:
    """The spec as it is written; of a language's name that of the device that is present.  DeviceError for one that
    does not load, or where none is present."""
    if device.partition(":")[0] in language_names() and device not in known_names():
        from rollergen.targets import resolve

        return resolve(device)
    try:
        return load_device(device)
    except SpecError as error:
        raise DeviceError(str(error)) from None


def parse_settings(words: Sequence[str]) -> dict[str, float]:
    """``units=120`` as path and number; ArgumentError for anything else, and for what no figure can be."""
    found: dict[str, float] = {}
    for word in words:
        path, _, text = word.partition("=")
        try:
            found[path] = float(text)
        except ValueError:
            raise ArgumentError(f"{word!r} sets nothing; expected figure=number, such as units=120") from None
        if not 0 <= found[path] < inf:
            raise ArgumentError(f"{path} is {text}; expected a finite number of at least 0")
    return found
