"""``rollergen verify evaluate | ablate | tables``: what a verifier is worth beside published systems."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.progress import Progress
from rich.table import Table

from benches.verify import ablate as parts
from benches.verify import nested, report
from benches.verify.evaluate import judge_all, table_of
from benches.verify.pacm import Attentive
from benches.verify.rankers import chosen
from benches.verify.released import release
from benches.verify.replay import BATCH, measurements_saved
from benches.verify.report import write_tables
from benches.verify.splits import FOLDS, STRUCTURE
from benches.verify.stream import MEASURED, streams
from benches.verify.tables import RENDERED
from benches.verify.unfinished import Unfinished
from rollergen.bench.origin import origin
from rollergen.cli.output import (
    ProgressCallback,
    console,
    constants_option,
    objective_option,
    records_argument,
    shown_in,
)
from rollergen.verify.dataset import Dataset, load
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES

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
    asked = _Asked.of("evaluate", records, seeds, constants, family, operators, report, as_json)
    for part in parts or ("rankers", "searches", "stream"):
        with Progress(console=console, transient=True, disable=as_json) as bar:
            shown = shown_in(bar, bar.add_task(part, total=None), "evaluated")
            if part == "rankers":
                _rankers(asked, rankers, shown)
            else:
                (_searches if part == "searches" else _stream)(asked, shown)
    asked.kept.done()


@dataclass(frozen=True)
class _Asked:
    """What an evaluation is of, and where its figures go.  ``kept``: what an interrupted one has finished."""

    data: Dataset
    seeds: int
    protocol: dict[str, Any]
    report: Path | None
    as_json: bool
    kept: Unfinished

    @staticmethod
    def of(
        command: str, records: tuple[Path, ...], seeds: int, constants: str, family: str | None, operators: int | None,
        report: Path | None, as_json: bool,
    ) -> _Asked:  # fmt: skip
        data = load(records, constants).of_family(family)
        if operators is not None:
            data = data.spread(operators)
        kept = Unfinished() if report is None else Unfinished.at(report / f"{command}.unfinished.jsonl", data)
        protocol = {**_protocol(data, seeds, records), "constants": constants}
        return _Asked(data, seeds, protocol, report, as_json, kept)

    def tell(self, name: str, content: dict[str, Any], left_out: dict[str, str]) -> None:
        """Writes the report ``name``, if one is asked for, and shows its tables, or the content as JSON."""
        content = {**origin("lightgbm"), **content}
        content["protocol"] = self.protocol | content["protocol"] | {"left out": left_out}
        if self.report is not None:
            report.write(name, content, self.report)
        if self.as_json:
            click.echo(json.dumps(content))
            return
        for one in RENDERED[name](content):
            shown = Table(*one.columns, title=one.title)
            for row in one.rows:
                shown.add_row(*row)
            console.print(shown)
        for what, why in left_out.items():
            console.print(f"left out: {what}: {why}", highlight=False)


def _rankers(asked: _Asked, names: tuple[str, ...], shown: ProgressCallback) -> None:
    rankers, left_out = chosen(names)
    seeds, protocol = range(asked.seeds), {}
    runs = judge_all(asked.data, rankers, seeds, FOLDS, shown, asked.kept)
    offered = [name for name in OBJECTIVES if name in runs]
    if len(offered) == len(OBJECTIVES):
        makers = {name: rankers[name] for name in offered}
        found, often = nested.chosen_runs(asked.data, makers, runs, seeds, FOLDS, asked.kept, shown)
        runs, protocol["nested"] = {**runs, nested.NESTED: found}, nested.told(often)
        offered.append(nested.NESTED)
    if "pacm" in runs:
        protocol["pacm"] = Attentive().settings()
    table = table_of(runs)
    verdicts = {name: release(table, name) for name in offered if "against analytical" in table[name]}
    asked.tell("evaluation", {"protocol": protocol, "rankers": table, "release": verdicts}, left_out)


def _stream(asked: _Asked, shown: ProgressCallback) -> None:
    found, left_out = streams(asked.data, DEFAULT_OBJECTIVE, range(asked.seeds), shown, asked.kept)
    protocol = {"objective": DEFAULT_OBJECTIVE, "measured": MEASURED, "folds": 2}
    if "pacm" not in left_out:
        protocol["pacm"] = Attentive().settings()
    asked.tell("stream", {"protocol": protocol, "stream": found}, left_out)


def _searches(asked: _Asked, shown: ProgressCallback) -> None:
    table = measurements_saved(asked.data, seeds=range(asked.seeds), progress=shown, kept=asked.kept)
    asked.tell("searches", {"protocol": {"batch": BATCH}, "searches": table}, {})


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
    asked = _Asked.of("ablate", records, seeds, constants, family, operators, report, as_json)
    with Progress(console=console, transient=True, disable=as_json) as bar:
        shown = shown_in(bar, bar.add_task("ablation", total=None), "ablated")
        found, left_out = parts.whole(asked.data, objective, range(seeds), shown, asked.kept)
    asked.tell("ablation", {"protocol": {"objective": objective}, **found}, left_out)
    asked.kept.done()


@click.command(short_help="Write the tables of kept figures anew.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
def tables(directory: Path) -> None:
    """Write the tables (TABLES.md) of the figures that DIRECTORY holds anew, from these alone."""
    console.print(str(write_tables(directory)), highlight=False)


def _protocol(data: Dataset, seeds: int, records: tuple[Path, ...]) -> dict[str, Any]:
    """What was evaluated."""
    structures = len(set(data.structure.tolist()))
    noise = data.noise[data.right].tolist()
    return {
        "records": len(data),
        "failed": int((~data.right).sum()),
        "operators": len(data.operators()),
        "structures": structures,
        "median noise": median(noise) if noise else None,
        "files": [path.name for path in records],
        "folds": min(FOLDS, structures),
        "split": "by canonical structure",
        "structure": STRUCTURE,
        "seeds": list(range(seeds)),
    }
