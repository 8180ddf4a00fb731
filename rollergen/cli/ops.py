"""``rollergen ops``: which operators there are, their sizes, an example of each; suites of the literature."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Column, Table

from rollergen.bench.suites import Suite, suite, suite_names


@click.command()
@click.option("--suite", "suite_name", metavar="NAME", help=f"List a suite instead: {', '.join(suite_names())}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def ops(suite_name: str | None, as_json: bool) -> None:
    """List the operators with their sizes and an example of each, or the entries of a suite."""
    from rollergen.bench.catalogue import OPERATORS

    if suite_name is not None:
        _list_suite(suite(suite_name), as_json)
        return
    if as_json:
        described = {
            o.name: {"summary": o.summary, "sizes": o.required, "options": dict(o.optional), "example": o.example}
            for o in OPERATORS.values()
        }
        click.echo(json.dumps(described))
        return
    table = Table(Column("operator", no_wrap=True), "sizes", "computes", title="operators")
    for operator in OPERATORS.values():
        table.add_row(operator.name, operator.usage, operator.summary)
    console = Console()
    console.print(table, markup=False)
    console.print('Any other contraction is an einsum string: rollergen build "bmk,bkn->bmn" b=8 m=64 k=64 n=64')
    console.print(f"Suites (--suite): {', '.join(suite_names())}; rollergen explain roller:C0 builds one entry")


def _list_suite(listed: Suite, as_json: bool) -> None:
    if as_json:
        entries = [
            {"name": e.name, "id": e.id, "kind": e.kind, "dtype": e.dtype, "summary": e.summary} for e in listed.entries
        ]
        click.echo(json.dumps({"suite": listed.name, "source": listed.source, "entries": entries}))
        return
    table = Table("name", "kind", "dtype", "sizes", title=f"{listed.name}: {len(listed.entries)} operators")
    for entry in listed.entries:
        table.add_row(entry.name, entry.kind, entry.dtype, entry.summary)
    console = Console()
    console.print(table, markup=False)
    console.print(f"From: {listed.source}", markup=False)
