"""``rollergen devices fit``: which corrections of a spec measured programs ask for."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from rollergen.cli.output import NewFile, console, device_argument
from rollergen.errors import ArgumentError

if TYPE_CHECKING:
    from rollergen.explain.device_fit import DeviceFit


@click.command("fit")
@device_argument()
@click.argument("records", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("-o", "--output", type=NewFile(), metavar="FILE.json", help="Write the corrected spec; else nothing is.")
@click.option("--force", is_flag=True, help="Overwrite FILE.json.")
@click.option("--programs", default=300, show_default=True, type=click.IntRange(6), help="Of the records, at most.")
@click.option("--figures", type=click.IntRange(1, 20), help="Figures to correct, at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def fit_command(
    device: str, records: tuple[Path, ...], output: Path | None, force: bool, programs: int, figures: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Propose corrections of DEVICE from measured programs: RECORDS (JSON Lines), else those of the store.

    Each correction keeps within bounds and has its gain: how much nearer predictions come to the measured times. A
    third of the operators is held out, to see whether the gain holds for others. DEVICE stays as it is: -o writes a new
    file.

    \b
        rollergen devices fit cpu records.jsonl.xz
        rollergen devices fit cpu records.jsonl.xz -o fitted.json
    """
    name = _name_of(output, force) if output else ""

    from rollergen.explain.device_fit import MOST_FIGURES, fit_device, sample
    from rollergen.hal.load import save_device
    from rollergen.store.collection import stored
    from rollergen.store.location import store_path
    from rollergen.store.record_files import read
    from rollergen.targets import resolve

    spec = resolve(device)
    files = [read(path) for path in records] or [stored(store_path())]
    found = fit_device(spec, sample(spec, files, programs), figures or MOST_FIGURES)
    if output:
        save_device(replace(found.corrected(), name=name, verified=()), output)
    if as_json:
        click.echo(json.dumps(_plain(found, output)))
    else:
        _show(found, output)


def _name_of(output: Path, force: bool) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", output.stem.lower()).strip("-_")[:64]
    if output.suffix != ".json" or not re.match("[a-z]", name):
        raise ArgumentError(f"{output} names no spec; expected a file such as my.json, which begins with a letter")
    if output.exists() and not force:
        raise ArgumentError(f"{output} exists; expected a new file, or --force")
    return name


def _plain(found: DeviceFit, output: Path | None) -> dict[str, object]:
    before_after = {"before": 0, "after": 1}
    quality = {
        what: {when: asdict(pair[at]) for when, at in before_after.items()}
        for what, pair in (("fitted", found.fitted), ("held_out", found.held_out))
    }
    return {
        "device": found.device.name, "programs": found.programs, "operators": found.operators, **quality,
        "corrections": [asdict(one) for one in found.corrections], "written": str(output) if output else None,
    }  # fmt: skip


def _show(found: DeviceFit, output: Path | None) -> None:
    table = Table("figure", "kind", "old", "new", "of the loss", title=f"{found.device.name}: proposed corrections")
    for one in found.corrections:
        bound = " (at its bound)" if one.at_bound else ""
        table.add_row(one.path, one.kind, f"{one.old:.4g}", f"{one.new:.4g}{bound}", f"-{one.gain:.1%}")
    if found.corrections:
        console.print(table, markup=False)
    else:
        console.print("no correction helps operators that were held out", markup=False)
    quality = Table("programs", "median error", "predicted / measured", "pairs in order")
    for what, (before, after) in (("fitted", found.fitted), ("held out", found.held_out)):
        for when, now in (("before", before), ("after", after)):
            quality.add_row(f"{what}, {when}", f"{now.error:.1%}", f"{now.bias:.3f}", f"{now.order:.1%}")
    console.print(quality, markup=False)
    line = f"{found.programs} programs of {found.operators} operators; the spec is as it was"
    console.print(line + (f"; written to {output}" if output else "; -o FILE.json writes this one"), soft_wrap=True)
