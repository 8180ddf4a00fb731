"""What ``rollergen verify evaluate | ablate`` do: the figures, their tables, what is left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.progress import Progress
from rich.table import Table

from benches.verify import ablate as groups
from benches.verify import nested, report
from benches.verify.evaluate import judge_all, table_of
from benches.verify.pacm import Attentive
from benches.verify.rankers import chosen
from benches.verify.released import release
from benches.verify.replay import BATCH, measurements_saved
from benches.verify.splits import FOLDS, STRUCTURE
from benches.verify.stream import MEASURED, streams
from benches.verify.tables import RENDERED
from benches.verify.unfinished import Unfinished
from rollergen.bench.origin import origin
from rollergen.cli.output import ProgressCallback, console, shown_in
from rollergen.verify.dataset import Dataset, load
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES


def evaluate(asked: Asked, parts: tuple[str, ...], rankers: tuple[str, ...]) -> None:
    for part in parts or ("rankers", "searches", "stream"):
        with Progress(console=console, transient=True, disable=asked.as_json) as bar:
            shown = shown_in(bar, bar.add_task(part, total=None), "evaluated")
            if part == "rankers":
                _rankers(asked, rankers, shown)
            else:
                (_searches if part == "searches" else _stream)(asked, shown)
    asked.kept.done()


def ablate(asked: Asked, objective: str) -> None:
    with Progress(console=console, transient=True, disable=asked.as_json) as bar:
        shown = shown_in(bar, bar.add_task("ablation", total=None), "ablated")
        found, left_out = groups.whole(asked.data, objective, range(asked.seeds), shown, asked.kept)
    asked.tell("ablation", {"protocol": {"objective": objective}, **found}, left_out)
    asked.kept.done()


@dataclass(frozen=True)
class Asked:
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
    ) -> Asked:  # fmt: skip
        data = load(records, constants).of_family(family)
        if operators is not None:
            data = data.spread(operators)
        kept = Unfinished() if report is None else Unfinished.at(report / f"{command}.unfinished.jsonl", data)
        protocol = {**_protocol(data, seeds, records), "constants": constants}
        return Asked(data, seeds, protocol, report, as_json, kept)

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


def _rankers(asked: Asked, names: tuple[str, ...], shown: ProgressCallback) -> None:
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


def _stream(asked: Asked, shown: ProgressCallback) -> None:
    found, left_out = streams(asked.data, DEFAULT_OBJECTIVE, range(asked.seeds), shown, asked.kept)
    protocol = {"objective": DEFAULT_OBJECTIVE, "measured": MEASURED, "folds": 2}
    if "pacm" not in left_out:
        protocol["pacm"] = Attentive().settings()
    asked.tell("stream", {"protocol": protocol, "stream": found}, left_out)


def _searches(asked: Asked, shown: ProgressCallback) -> None:
    table = measurements_saved(asked.data, seeds=range(asked.seeds), progress=shown, kept=asked.kept)
    asked.tell("searches", {"protocol": {"batch": BATCH}, "searches": table}, {})


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
