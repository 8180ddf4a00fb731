"""``rollergen devices sensitivity``: which figures of a spec move which predictions, choices and ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.table import Column, Table

from rollergen.cli.device_facts import as_json_option, loaded
from rollergen.cli.output import console, device_argument, operators, progress_bar
from rollergen.errors import ArgumentError

if TYPE_CHECKING:
    from rollergen.explain.sensitivity import Effect


@click.command("sensitivity")
@device_argument()
@click.argument("problem", required=False, shell_complete=operators)
@click.argument("sizes", nargs=-1, type=click.UNPROCESSED)
@click.option("--figure", "figures", multiple=True, metavar="FIGURE", help="Only this one; may be given often.")
@click.option("--quick", is_flag=True, help="Stop at the first thing that a figure moves: tells what is dead.")
@click.option("--dtype", default="float32", show_default=True)
@as_json_option
def sensitivity_command(
    device: str, problem: str | None, sizes: tuple[str, ...], figures: tuple[str, ...], quick: bool, dtype: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Raise and lower each figure of DEVICE by a fifth: what moves?

    Over PROBLEM, else over a few operators that between them use every mechanism of the model.  Exit code 1 where
    a figure moves nothing and the schema does not say why.  Columns count operators: whose predicted time moves,
    for which another program is chosen, for which programs change places; "most" is the largest change of a time.
    All figures of a GPU take minutes: each is a construction for each operator, twice.

    \b
        rollergen devices sensitivity v100 --figure dram.bandwidth_gb_s
        rollergen devices sensitivity v100 matmul m=1024 n=1024 k=1024
    """
    from rollergen.bench.problems import expression
    from rollergen.explain.representative import representative
    from rollergen.explain.sensitivity import sensitivity
    from rollergen.hal.changes import paths, require_path

    spec = loaded(device)
    for figure in figures:
        require_path(spec, figure)
        if figure not in set(paths(spec)):
            raise ArgumentError(f"{figure} is not stated by {spec.name}; devices what-if --set tries a value of it")
    operators = representative() if problem is None else {problem: expression(problem, sizes, dtype)}
    with progress_bar(not as_json) as progress:
        effects = sensitivity(spec, operators, thorough=not quick, paths=figures or None, progress=progress)
    if as_json:
        click.echo(
            json.dumps({"device": spec.name, "operators": list(operators), "effects": list(map(asdict, effects))})
        )
    else:
        console.print(effects_table(spec.name, effects), markup=False)
        for effect in effects:
            if effect.informational and not effect.moves:
                line = f"{effect.path}: informational: {effect.informational}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    dead = [effect.path for effect in effects if effect.unexplained]
    if dead and problem is None:
        console.print(f"moves nothing, unexplained: {', '.join(dead)}", markup=False, highlight=False, soft_wrap=True)
        raise click.exceptions.Exit(1)


def effects_table(name: str, effects: Iterable[Effect]) -> Table:
    """One row for each figure: its value, what it moves."""
    effects = list(effects)
    figure = Column("figure", no_wrap=True, min_width=max((len(one.path) for one in effects), default=0))
    table = Table(figure, "value", "predictions", "choices", "ranks", "most", "", title=f"{name}, each figure +-20 %")
    for e in effects:
        counts = (str(len(names)) if names else "-" for names in (e.predictions, e.choices, e.ranks))
        table.add_row(e.path, f"{e.value:.12g}", *counts, f"{e.largest:.2%}" if e.largest else "-", remark(e))
    return table


def remark(effect: Effect) -> str:
    """What the counts do not say, in a word."""
    from rollergen.explain.sensitivity import FIFTH

    if effect.moves:
        return "" if effect.factor == FIFTH[1] else f"from x{effect.factor:g} or 1/{effect.factor:g} on"
    if effect.informational:
        return "informational"
    return "no other value is accepted" if effect.refused else "moves nothing"
