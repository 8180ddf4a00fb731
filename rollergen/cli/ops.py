"""``rollergen ops``: which operators there are, their sizes, an example of each; suites of the literature."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Column, Table

from rollergen.bench.suites import Suite, suite, suite_names
from rollergen.cli.output import operators
from rollergen.errors import ArgumentError, name_advice


@click.command()
@click.argument("name", required=False, shell_complete=operators)
@click.option("--suite", "suite_name", metavar="NAME", help=f"List a suite instead: {', '.join(suite_names())}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def ops(name: str | None, suite_name: str | None, as_json: bool) -> None:
    """List the operators with their sizes, those whose names contain NAME with an example of each, or a suite."""
    if suite_name is not None:
        if name is not None:
            raise ArgumentError(f"{name!r} beside --suite; expected one of the two")
        _list_suite(suite(suite_name), as_json)
        return

    from rollergen.bench.catalogue import OPERATORS as every

    listed = {key: one for key, one in every.items() if name is None or name in key}
    if not listed:
        raise ArgumentError(f"there is no operator {name!r}; {name_advice(str(name), every)}")
    if as_json:
        described = {
            o.name: {"summary": o.summary, "sizes": o.required, "options": dict(o.optional), "example": o.example}
            for o in listed.values()
        }
        click.echo(json.dumps(described))
        return
    table = Table(Column("operator", no_wrap=True), "sizes", "computes", title="operators")
    for operator in listed.values():
        table.add_row(operator.name, operator.usage, operator.summary)
    console = Console()
    console.print(table, markup=False)
    if name is not None:
        for operator in listed.values():
            console.print(f"rollergen build {operator.example}", markup=False, highlight=False, soft_wrap=True)
        return
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
