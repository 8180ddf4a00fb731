"""``rollergen bench``: the measurements of this checkout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.table import Table

from rollergen.bench import scripts
from rollergen.bench.results import results
from rollergen.cli.output import console


@click.group()
def bench() -> None:
    """List and run the benches of a checkout, and show their committed results as one page."""


@bench.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def list_(as_json: bool) -> None:
    """What can be measured, and which results there are."""
    root = scripts.checkout()
    kept = sorted(path.name for path in (root / "benches" / "results").glob("*.json"))
    found = scripts.scripts(root)
    if as_json:
        click.echo(json.dumps({"benches": {one.name: one.purpose for one in found}, "results": kept}))
        return
    rows = Table("bench", "what")
    for one in found:
        rows.add_row(one.name, one.purpose)
    console.print(rows)
    console.print(f"{len(kept)} result files in {root / 'benches' / 'results'}", highlight=False)


@bench.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(name: str, arguments: tuple[str, ...]) -> None:
    """Run the bench NAME with its own ARGUMENTS; what it measures is kept under benches/results/."""
    sys.exit(scripts.run(scripts.script(scripts.checkout(), name), arguments))


@bench.command()
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("bench_report.html"))
def report(out: Path) -> None:
    """All committed results as one self-contained HTML page."""
    from rollergen.bench.page import page

    found = results(scripts.checkout() / "benches" / "results")
    absent = "Figures of GPUs are the model's or the compiler's unless a result names a GPU as its machine."
    text = page(found, absent)
    out.write_text(text, encoding="utf-8")
    console.print(f"{len(found)} results: {out}", highlight=False)
