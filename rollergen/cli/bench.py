"""``rollergen bench``: the measurements of this checkout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from rollergen.bench import scripts
from rollergen.cli.commands import Advised
from rollergen.cli.output import NewFile, console
from rollergen.errors import writing
from rollergen.hal.files.kept import write_whole

if TYPE_CHECKING:
    from rollergen.bench.compare import Comparison
    from rollergen.bench.suite import Ended, Step


@click.group(cls=Advised)
def bench() -> None:
    """List and run the benches of a checkout, and show their committed results as one page."""


@bench.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def list_(as_json: bool) -> None:
    """List what can be measured, and the results that are kept."""
    root = scripts.checkout()
    kept = sorted(path.name for path in (root / "benches" / "results").glob("*.json"))
    found = scripts.scripts(root)
    if as_json:
        click.echo(json.dumps({"benches": {one.name: one.purpose for one in found}, "results": kept}))
        return
    rows = Table("bench", "what")
    for one in found:
        rows.add_row(one.name, one.what)
    console.print(rows)
    console.print("rollergen bench run NAME --help tells the bench's own options", highlight=False)
    console.print(f"{len(kept)} result files in {root / 'benches' / 'results'}", highlight=False)


def _benches(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of benches for a shell to complete."""
    return [one.name for one in scripts.scripts(scripts.checkout()) if one.name.startswith(incomplete)]


@bench.command(context_settings={"ignore_unknown_options": True}, short_help="Run one bench.", add_help_option=False)
@click.argument("name", shell_complete=_benches)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, name: str, arguments: tuple[str, ...]) -> None:
    """Run the bench NAME with its own ARGUMENTS, which --help after NAME lists.

    What it measures is kept under benches/results/.
    """
    if name in context.help_option_names:
        click.echo(context.get_help())
        return
    sys.exit(scripts.run(scripts.script(scripts.checkout(), name), arguments))


@bench.command(short_help="Run the benches of a CPU one by one.")
@click.option("--only", multiple=True, help="A bench of the suite (several times); default: all.")
@click.option("--again", is_flag=True, help="Also what has ended at this commit.")
@click.option("-o", "--out", type=NewFile(), default=Path("bench_report.html"))
def suite(only: tuple[str, ...], again: bool, out: Path) -> None:
    """Run the benches of a CPU one after the other (within an hour on two cores), then write the page of `report`.

    An interrupted suite goes on where it ended.  Exits with 1 where a bench failed or was ended by its limit.
    """
    from rich.progress import Progress

    from rollergen.bench import suite as cpu_suite

    root = scripts.checkout()
    listed = cpu_suite.chosen(cpu_suite.steps(root), only)
    rows = Table("bench", "how it ended", "seconds", "log")
    good, seconds = True, 0.0
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("benches", total=len(listed))
        for number, (step, ended) in enumerate(cpu_suite.run(root, listed, again=again), 1):
            good, seconds = good and ended.complete, seconds + ended.seconds
            rows.add_row(step.title, _how(step, ended), f"{ended.seconds:.0f}", ended.log)
            following = listed[number].title if number < len(listed) else "report"
            bar.update(task, advance=1, description=following)
    console.print(rows)
    console.print(f"{seconds / 60:.1f} minutes in all", highlight=False)
    _write_page(root, out)
    sys.exit(not good)


def _how(step: Step, ended: Ended) -> str:
    if ended.status is None:
        return f"ended after {step.minutes:g} minutes"
    if ended.complete:
        missed = ended.told if ended.told.startswith("misses ") else f"misses an aim: {ended.told}"
        said = f"complete, {missed}" if ended.status else "complete"
    else:
        said = f"failed ({ended.status}): {ended.told}"
    return said if ended.fresh else f"{said} (before)"


@bench.command()
@click.option("-o", "--out", type=NewFile(), default=Path("bench_report.html"))
@click.option("--readme", is_flag=True, help="Also write the figures of README.md and docs/ anew from the results.")
def report(out: Path, readme: bool) -> None:
    """Write all committed results as one self-contained HTML page."""
    root = scripts.checkout()
    _write_page(root, out)
    if readme:
        _write_figures(root)


def _write_figures(root: Path) -> None:
    from rollergen.bench.readme import linked, rendered

    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        before = path.read_text(encoding="utf-8")
        after = rendered(before, root)
        if after != before:
            write_whole(path, after.encode())
        changed = sum(old != new for old, new in zip(linked(before), linked(after), strict=True))
        if figures := len(list(linked(after))):
            console.print(f"{changed} of {figures} figures of {path} changed", highlight=False)


def _write_page(root: Path, out: Path) -> None:
    from rollergen.bench.page import page
    from rollergen.bench.results import figures, results

    folder = root / "benches" / "results"
    found = results(folder)
    absent = "Figures of GPUs are the model's or the compiler's unless a result names a GPU as its machine."
    text = page(found, absent, scripts.makers(root), figures(folder))
    with writing(out):
        out.write_text(text, encoding="utf-8")
    console.print(f"{len(found)} results: {out}", highlight=False)


@bench.command(short_help="Say what changed between two results.")
@click.argument("first", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("second", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """What changed from the result FIRST to the result SECOND, beyond chance; exits with 1 where anything is worse.

    A change above 1 is better.  A row is judged where both files have enough independent samples of it; all rows
    together are always judged.  A row's p does not count what shifts a whole run against another.
    """
    from dataclasses import asdict

    from rollergen.bench.compare import compare as compared

    found = compared(first, second)
    if as_json:
        click.echo(json.dumps({one.table: {**asdict(one), "verdict": one.overall.verdict} for one in found}))
    else:
        for one in found:
            console.print(_changes(one))
            if one.unmatched:
                console.print(f"in one file only: {', '.join(one.unmatched)}", highlight=False)
    sys.exit(any(row.verdict == "worse" for one in found for row in (one.overall, *one.rows)))


def _changes(one: Comparison) -> Table:
    rows = Table("row", "change", "95 %", "p", "verdict", title=f"{one.table}: {one.figure}")
    for row in (*sorted(one.rows, key=lambda row: row.change), one.overall):
        interval = "" if row.low is None else f"{row.low:.3f} to {row.high:.3f}"
        rows.add_row(row.label, f"{row.change:.3f}", interval, "" if row.p is None else f"{row.p:.2g}", row.verdict)
    return rows
