"""``rollergen ops``: which operators there are, their sizes, an example of each."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from rollergen.cli.problems import OPERATORS


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def ops(as_json: bool) -> None:
    """List the operators with their sizes and an example of each."""
    if as_json:
        described = {
            o.name: {"summary": o.summary, "sizes": o.required, "options": dict(o.optional), "example": o.example}
            for o in OPERATORS.values()
        }
        click.echo(json.dumps(described))
        return
    table = Table("operator", "sizes", "computes", title="operators")
    for operator in OPERATORS.values():
        table.add_row(operator.name, operator.usage, operator.summary)
    console = Console()
    console.print(table, markup=False)
    console.print('Any other contraction is an einsum string: rollergen build "bmk,bkn->bmn" b=8 m=64 k=64 n=64')
