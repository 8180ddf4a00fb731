"""``rollergen devices what-if``: an expression on a device with other figures, or on all devices."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from rollergen.cli.device_facts import as_json_option, parse_settings
from rollergen.cli.output import NewFile, console, devices, operators
from rollergen.errors import ArgumentError

if TYPE_CHECKING:
    from rollergen.expr.language import Tensor

ALL = "all"


@click.command("what-if")
@click.argument("device", shell_complete=devices)
@click.argument("problem", shell_complete=operators)
@click.argument("sizes", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "settings", multiple=True, metavar="FIGURE=VALUE", help="May be given often.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--plot", type=NewFile(), metavar="FILE.svg", help="Draw it as well.")
@as_json_option
def what_if(
    device: str, problem: str, sizes: tuple[str, ...], settings: tuple[str, ...], dtype: str, plot: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Predict PROBLEM on DEVICE and on DEVICE with other figures; on every device where DEVICE is all.

    \b
        rollergen devices what-if v100 matmul m=1024 n=1024 k=1024 \\
            --set dram.bandwidth_gb_s=1500 --set units=120
        rollergen devices what-if all softmax shape=4096x1024 --plot softmax.svg
    """
    from rollergen.bench.problems import expression

    tensor, title = expression(problem, sizes, dtype), " ".join((problem, *sizes, dtype))
    if plot is not None and plot.suffix not in (".svg", ".png", ".pdf"):
        raise ArgumentError(f"{plot} is no picture; expected a file in .svg, .png or .pdf")
    if device == ALL:
        if settings:
            raise ArgumentError(f"--set {settings[0]} has no device; expected the name of one instead of {ALL}")
        _on_all(tensor, title, plot, as_json)
    elif settings:
        _on_one(tensor, title, device, settings, plot, as_json)
    else:
        raise ArgumentError(f"nothing is set; expected --set FIGURE=VALUE, or {ALL} instead of {device}")


def _on_all(tensor: Tensor, title: str, plot: Path | None, as_json: bool) -> None:
    from rollergen.explain.explanation import seconds_text
    from rollergen.explain.what_if import across, plot_across
    from rollergen.hal.load import every_spec
    from rollergen.targets import resolve

    rows = across(tensor, (resolve(spec) for _, spec in every_spec()))
    if plot is not None:
        plot_across(rows, title, plot)
    if as_json:
        found = [asdict(one) | {"seconds": one.seconds if isfinite(one.seconds) else None} for one in rows]
        click.echo(json.dumps({"devices": found}))
        return
    table = Table("device", "predicted", "times the fastest", "limiter", title=title)
    for one in rows:
        if one.missing:
            table.add_row(one.device, "does not fit", "-", "-")
        else:
            table.add_row(one.device, seconds_text(one.seconds), f"{one.seconds / rows[0].seconds:.3g}", one.limiter)
    console.print(table, markup=False)


def _on_one(
    tensor: Tensor, title: str, device: str, settings: tuple[str, ...], plot: Path | None, as_json: bool
) -> None:  # fmt: skip
    from rollergen.explain.explanation import seconds_text
    from rollergen.explain.what_if import limiter, on_the_way, plot_way, require_figures, turns
    from rollergen.research import construct, predict
    from rollergen.targets import resolve

    before, values = resolve(device), parse_settings(settings)
    after = require_figures(before, values)
    program, chosen = (construct(tensor, one, top_k=1)[0] for one in (before, after))
    rows = {
        "as it is": predict(program, before),
        "changed, the same program": predict(program, after),
        "changed, constructed again": predict(chosen, after),
    }
    found = turns(program, before, values)
    if plot is not None:
        plot_way(on_the_way(program, before, values), found, f"{title} on {before.name}", plot)
    if as_json:
        priced = {what: {"seconds": float(p.seconds), "limiter": limiter(p)} for what, p in rows.items()}
        first = found[0].settings if found else None
        click.echo(json.dumps({**priced, "limiter_changes_at": first, "limiters": list(map(asdict, found))}))
        return
    table = Table("device", "predicted", "limiter")
    for what, prediction in rows.items():
        table.add_row(what, seconds_text(float(prediction.seconds)), limiter(prediction))
    console.print(table, markup=False)
    for turn in found:
        place = ", ".join(f"{path} = {value:.6g}" for path, value in turn.settings.items())
        line = f"the limiter of that program changes at {place}: from {turn.before} to {turn.after}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not found:
        console.print("the limiter of that program stays the same on the way", markup=False, highlight=False)
