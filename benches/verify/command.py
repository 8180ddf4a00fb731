"""``rollergen verify evaluate | ablate | tables``: what a verifier is worth beside published systems.

What they do is imported when they are called, so that help comes at once.
"""

from __future__ import annotations

from pathlib import Path

import click

from rollergen.cli.output import console, constants_option, objective_option, records_argument

_seeds = click.option(
    "--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs with other folds and other models."
)
_operators = click.option(
    "--operators", type=click.IntRange(min=2), help="Only so many operators, spread over the structures: a quick look."
)
_family = click.option(
    "--family", type=click.Choice(["cpu", "gpu"]), help="Devices whose records are meant; needed where both are there."
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
_report = click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False),
    help="A directory for the figures (JSON, SVG) and their tables (TABLES.md). What was finished is kept there: after "
    "an interruption the same command goes on.",
)  # fmt: skip


@click.command(short_help="Rank and search programs of held-out operators.")
@records_argument
@_seeds
@click.option(
    "--part", "parts", type=click.Choice(["rankers", "searches", "stream"]), multiple=True,
    help="rankers: how well programs are ordered; searches: how many are measured until one is near the best; stream: "
    "operators one after another, rankers updated by each (PaCM by momentum). Default: all.",
)  # fmt: skip
@click.option(
    "--ranker", "rankers", multiple=True,
    help="Of the part rankers those of these names (several times); default: all whose packages are there.",
)  # fmt: skip
@constants_option
@_family
@_operators
@_report
@_json
def evaluate(
    records: tuple[Path, ...], seeds: int, parts: tuple[str, ...], rankers: tuple[str, ...], constants: str,
    family: str | None, operators: int | None, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Rank and search the programs of held-out operators: the model's order, trained rankers, and published systems.

    Ten folds, or as many as there are structures (stream: the two halves of the structures, in turn); operators of one
    canonical structure are never in training and test together. The ranker pacm needs the extra of its name.
    """
    from benches.verify import commanded

    asked = commanded.Asked.of("evaluate", records, seeds, constants, family, operators, report, as_json)
    commanded.evaluate(asked, parts, rankers)


@click.command(short_help="Say what each group of features is worth.")
@records_argument
@objective_option
@_seeds
@constants_option
@_family
@_operators
@_report
@_json
def ablate(
    records: tuple[Path, ...], objective: str, seeds: int, constants: str, family: str | None, operators: int | None,
    report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """What the verifier owes to groups of features and to the number of records (learning curve), how it fares on new
    operators, shapes and classes by how many of their programs were measured (transfer curve), and how often it
    abstains on classes and structures that it has not seen."""
    from benches.verify import commanded

    asked = commanded.Asked.of("ablate", records, seeds, constants, family, operators, report, as_json)
    commanded.ablate(asked, objective)


@click.command(short_help="Write the tables of kept figures anew.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
def tables(directory: Path) -> None:
    """Write the tables (TABLES.md) of the figures that DIRECTORY holds anew, from these alone."""
    from benches.verify.report import write_tables

    console.print(str(write_tables(directory)), highlight=False)
