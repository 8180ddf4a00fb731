"""``rollergen verify``: measurements collected for the learned verifier, rankers trained and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from rich.progress import Progress, TaskID
from rich.table import Table

from rollergen.bench.suites import suite, suite_names
from rollergen.cli.output import console
from rollergen.errors import ArgumentError
from rollergen.runtime.executor import executor_for
from rollergen.targets import resolve
from rollergen.verify.objectives import DEFAULT_OBJECTIVE, OBJECTIVES

if TYPE_CHECKING:
    from rollergen.verify.dataset import Dataset
    from rollergen.verify.unfinished import Unfinished

Shown = Callable[[str, int, int], None]
_LONGEST_TIMING_S = 60.0


@click.group()
def verify() -> None:
    """Collect measurements, train the learned verifier on them, evaluate it."""


@verify.command()
@click.option("--suite", "suite_name", type=click.Choice(suite_names()), default="collection", show_default=True)
@click.option("--only", multiple=True, help="Identifiers of entries (several times); default: all.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--count", type=click.IntRange(min=1), default=60, show_default=True, help="Programs of each operator.")
@click.option(
    "--drafted", type=click.IntRange(1, 50), default=30, show_default=True,
    help="Of these, the model's best; the others are drawn from the aligned space.",
)  # fmt: skip
@click.option(
    "--seconds", type=float, default=0.2, show_default=True,
    help="Least wall time of each program's timing.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each operator instead of text.")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def collect(
    suite_name: str, only: tuple[str, ...], device: str, count: int, drafted: int, seconds: float, seed: int,
    as_json: bool, out: Path,
) -> None:  # fmt: skip
    """Measure programs of a suite's operators and append their records to OUT (JSON Lines; .gz and .xz compressed).

    Operators that OUT has records of already are skipped, so that an interrupted collection is resumed.
    """
    from rollergen.store.record_files import append
    from rollergen.verify.collect import collect as collect_one
    from rollergen.verify.collect import expression_key, recorded
    from rollergen.verify.protocol import Protocol

    if not 0 < seconds <= _LONGEST_TIMING_S:  # NaN is refused too, which click's ranges let pass
        raise ArgumentError(f"--seconds is {seconds}; expected more than 0 and at most {_LONGEST_TIMING_S}")
    entries = suite(suite_name).chosen(only)
    target = resolve(device)
    executor = executor_for(target)
    done = recorded(out)
    protocol = Protocol(seconds=seconds)
    append(out, target, ())  # before hours of measuring, not after: whether OUT can be written
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("operators", total=len(entries))
        for entry in entries:
            expr = entry.make()
            if expression_key(expr, target) not in done:
                found = collect_one(
                    expr, target, executor, count=count, drafted=drafted, protocol=protocol, seed=seed,
                    progress=_shown(bar, task, entry.id),
                )  # fmt: skip
                append(out, target, found.records)
                _tell(entry.id, found, as_json)
            bar.advance(task)


def _shown(bar: Progress, task: TaskID, name: str) -> Shown:
    return lambda what, done, of: bar.update(task, description=f"{name}: {what} {done}/{of}")


def _tell(name: str, found: object, as_json: bool) -> None:
    from rollergen.verify.collect import Collected

    assert isinstance(found, Collected)
    right = [median(r["result"]["times_ms"]) for r in found.records if r["result"]["status"] == "ok"]
    row = {
        "operator": name,
        "points": found.points,
        "programs": len(found.records),
        "right": len(right),
        "best_ms": min(right, default=None),
        "median_ms": median(right) if right else None,
        "spread": found.spread,
        "repeatability": median(found.repeatability) if found.repeatability else None,
        "drifted_segments": found.drifted,
    }
    if as_json:
        click.echo(json.dumps(row))
        return
    if not right:
        console.print(f"{name}: none of {row['programs']} programs is right", highlight=False)
        return
    repeat = "" if row["repeatability"] is None else f", repeated within {row['repeatability']:.1%}"
    console.print(
        f"{name}: {row['right']} of {row['programs']} programs right ({found.points} in the space), best "
        f"{row['best_ms']:.3f} ms, median {row['median_ms']:.3f} ms, spread {found.spread:.1%}{repeat}"
        + (f", {found.drifted} segments drifted" if found.drifted else ""),
        highlight=False,
    )


_records = click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
_seeds = click.option(
    "--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs with other folds and other models."
)
_objective = click.option(
    "--objective", type=click.Choice(OBJECTIVES), default=DEFAULT_OBJECTIVE,
    show_default=True, help="What the trees learn. residual: the log of time over predicted time; cautious: the same "
    "by fewer trees with larger leaves, of which half is believed; foremost: as cautious, the model's first programs "
    "weigh most; lambdarank: the order.",
)  # fmt: skip
_constants = click.option(
    "--constants", type=click.Choice(["present", "recorded"]), default="present", show_default=True,
    help="The model's constants of built-in devices: as they are now, or as they lie beside the records.",
)  # fmt: skip
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


@verify.command()
@_records
@_objective
@click.option("--family", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--base", type=click.Path(path_type=Path, dir_okay=False),
    help="A verifier to update: its trees stay, more are added for RECORDS, which may be few; objective and family are "
    "its own.",
)  # fmt: skip
@_constants
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def train(
    records: tuple[Path, ...], objective: str, family: str, seed: int, base: Path | None, constants: str, out: Path
) -> None:
    """Train a verifier on RECORDS (files of rollergen verify collect or records export); rg.build(verifier=OUT)."""
    from rollergen.verify import verifier
    from rollergen.verify.dataset import load

    data, about = load(records, constants), {"files": [path.name for path in records]}
    if base is None:
        made = verifier.train(data, family, about, objective, seed)
    else:
        made = verifier.update(verifier.load(base), data, about, seed)
    verifier.save(made, out)
    console.print(f"{made.about['records']} records of {made.about['operators']} operators: {out}", highlight=False)


@verify.command()
@_records
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
@_constants
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
            shown = _shown(bar, bar.add_task(part, total=None), "evaluated")
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
        from rollergen.verify.dataset import load
        from rollergen.verify.unfinished import Unfinished

        data = load(records, constants).of_family(family)
        if operators is not None:
            data = data.spread(operators)
        kept = Unfinished() if report is None else Unfinished.at(report / f"{command}.unfinished.jsonl", data)
        protocol = {**_protocol(data, seeds, records), "constants": constants}
        return _Asked(data, seeds, protocol, report, as_json, kept)

    def tell(self, name: str, content: dict[str, Any], left_out: dict[str, str]) -> None:
        """Writes the report ``name``, if one is asked for, and shows its tables, or the content as JSON."""
        from rollergen.bench.origin import origin
        from rollergen.verify import report, tables

        content = {**origin("lightgbm"), **content}
        content["protocol"] = self.protocol | content["protocol"] | {"left out": left_out}
        if self.report is not None:
            report.write(name, content, self.report)
        if self.as_json:
            click.echo(json.dumps(content))
            return
        for one in tables.RENDERED[name](content):
            shown = Table(*one.columns, title=one.title)
            for row in one.rows:
                shown.add_row(*row)
            console.print(shown)
        for what, why in left_out.items():
            console.print(f"left out: {what}: {why}", highlight=False)


def _rankers(asked: _Asked, names: tuple[str, ...], shown: Shown) -> None:
    from rollergen.verify import nested
    from rollergen.verify.evaluate import judge_all, table_of
    from rollergen.verify.pacm import Attentive
    from rollergen.verify.rankers import chosen
    from rollergen.verify.released import release
    from rollergen.verify.splits import FOLDS

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


def _stream(asked: _Asked, shown: Shown) -> None:
    from rollergen.verify.pacm import Attentive
    from rollergen.verify.stream import MEASURED, streams

    found, left_out = streams(asked.data, DEFAULT_OBJECTIVE, range(asked.seeds), shown, asked.kept)
    protocol = {"objective": DEFAULT_OBJECTIVE, "measured": MEASURED, "folds": 2}
    if "pacm" not in left_out:
        protocol["pacm"] = Attentive().settings()
    asked.tell("stream", {"protocol": protocol, "stream": found}, left_out)


def _searches(asked: _Asked, shown: Shown) -> None:
    from rollergen.verify.replay import BATCH, measurements_saved

    table = measurements_saved(asked.data, seeds=range(asked.seeds), progress=shown, kept=asked.kept)
    asked.tell("searches", {"protocol": {"batch": BATCH}, "searches": table}, {})


@verify.command()
@_records
@_objective
@_seeds
@_constants
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
    from rollergen.verify import ablate as parts

    asked = _Asked.of("ablate", records, seeds, constants, family, operators, report, as_json)
    with Progress(console=console, transient=True, disable=as_json) as bar:
        shown = _shown(bar, bar.add_task("ablation", total=None), "ablated")
        found, left_out = parts.whole(asked.data, objective, range(seeds), shown, asked.kept)
    asked.tell("ablation", {"protocol": {"objective": objective}, **found}, left_out)
    asked.kept.done()


@verify.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
def tables(directory: Path) -> None:
    """Write the tables (TABLES.md) of the figures that DIRECTORY holds anew, from these alone."""
    from rollergen.verify.report import write_tables

    console.print(str(write_tables(directory)), highlight=False)


def _protocol(data: Dataset, seeds: int, records: tuple[Path, ...]) -> dict[str, Any]:
    """What was evaluated."""
    from rollergen.verify.splits import FOLDS, STRUCTURE

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
