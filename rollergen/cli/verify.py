"""``rollergen verify``: measurements collected for the learned verifier, rankers trained and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from rich.progress import Progress, TaskID
from rich.table import Table

from rollergen.cli.output import console
from rollergen.expr.canonical import canonicalize
from rollergen.measure.executor import executor_for
from rollergen.store.keys import expression_text, sha256
from rollergen.suites import suite, suite_names
from rollergen.targets import resolve

if TYPE_CHECKING:
    from rollergen.verify.dataset import Dataset

Shown = Callable[[str, int, int], None]


@click.group()
def verify() -> None:
    """Collect measurements, train the learned verifier on them, evaluate it."""


@verify.command()
@click.option("--suite", "suite_name", type=click.Choice(suite_names()), default="collection", show_default=True)
@click.option("--only", multiple=True, help="Identifiers of entries (several times); default: all.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--count", default=60, show_default=True, help="Programs of each operator.")
@click.option("--drafted", default=30, show_default=True, help="Of these, the model's best.")
@click.option("--seconds", default=0.2, show_default=True, help="Wall time of each program's timing.")
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
    from rollergen.construct.residence import resident_rows
    from rollergen.store.record_files import append, read
    from rollergen.verify.collect import collect as collect_one
    from rollergen.verify.protocol import Protocol

    target = resolve(device)
    executor = executor_for(target)
    done = {record["op"]["expr"] for record in read(out).records} if out.exists() else set()
    entries = [entry for entry in suite(suite_name).entries if not only or entry.id in only]
    protocol = Protocol(seconds=seconds)
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("operators", total=len(entries))
        for entry in entries:
            expr = entry.make()
            if sha256(expression_text(canonicalize(expr, rows=resident_rows(target)))) not in done:
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
    "--objective", type=click.Choice(["cautious", "foremost", "residual", "lambdarank"]), default="cautious",
    show_default=True, help="What the trees learn: the log of time over predicted time (half of it; half of it, where "
    "the model's first programs weigh most; all of it), or the order.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
_report = click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), help="A directory for report.json and figures (SVG)."
)


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
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), required=True)
def train(
    records: tuple[Path, ...], objective: str, family: str, seed: int, base: Path | None, out: Path
) -> None:
    """Train a verifier on RECORDS (files of rollergen verify collect or records export); rg.build(verifier=OUT)."""
    from rollergen.verify import verifier
    from rollergen.verify.dataset import load

    data, about = load(records), {"files": [path.name for path in records]}
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
    "--part", "parts", type=click.Choice(["rankers", "searches", "pacm"]), multiple=True,
    help="rankers: how well programs are ordered; searches: how many are measured until one is near the best; pacm: "
    "PaCM beside the model's order, one seed (the extra pacm). Default: the first two.",
)  # fmt: skip
@_report
@_json
def evaluate(
    records: tuple[Path, ...], seeds: int, parts: tuple[str, ...], report: Path | None, as_json: bool
) -> None:
    """Rank and search the programs of held-out operators: the model's order, trained rankers, and published systems.

    Ten folds; operators of one canonical structure are never in training and test together.
    """
    from rollergen.verify.dataset import load

    data = load(records)
    protocol = _protocol(data, seeds, records)
    for part in parts or ("rankers", "searches"):
        with Progress(console=console, transient=True, disable=as_json) as bar:
            shown = _shown(bar, bar.add_task(part, total=None), "evaluated")
            run = {"rankers": _rankers, "searches": _searches, "pacm": _pacm}[part]
            run(data, seeds, protocol, report, as_json, shown)


def _rankers(
    data: Dataset, seeds: int, protocol: dict[str, Any], report: Path | None, as_json: bool, shown: Shown
) -> None:
    from rollergen.verify.evaluate import compare
    from rollergen.verify.released import release
    from rollergen.verify.verifier import OBJECTIVES

    table = compare(data, seeds=range(seeds), progress=shown)
    verdicts = {name: release(table, name) for name in OBJECTIVES}
    content = {"protocol": protocol, "rankers": table, "release": verdicts}
    if _kept(content, report, "write_evaluation", as_json):
        return
    _show_rankers(table)
    for name, one in verdicts.items():
        console.print(f"{name}: {one['state']}", highlight=False)


def _pacm(
    data: Dataset, seeds: int, protocol: dict[str, Any], report: Path | None, as_json: bool, shown: Shown
) -> None:
    from rollergen.verify.evaluate import compare
    from rollergen.verify.pacm import Attentive
    from rollergen.verify.rankers import RANKERS

    rankers = {"analytical": RANKERS["analytical"], "pacm": Attentive}
    table = compare(data, rankers, seeds=[0], progress=shown)
    content = {"protocol": {**protocol, "seeds": [0]}, "rankers": table}
    if not _kept(content, report, "write_pacm", as_json):
        _show_rankers(table)


def _kept(content: dict[str, Any], report: Path | None, writer: str, as_json: bool) -> bool:
    """Writes the report, if one is asked for, with a function of `verify.report`; whether `content` was printed as
    JSON, so that no tables are to be shown."""
    if report is not None:
        from rollergen.verify import report as reports

        getattr(reports, writer)(content, report)
    if as_json:
        click.echo(json.dumps(content))
    return as_json


def _show_rankers(table: dict[str, dict[str, Any]]) -> None:
    from rollergen.verify.evaluate import BEST_OF

    rows = Table("ranker", "top-1", "top-3", "top-5", "worst top-3", "pairs", "NDCG", "regret", "trials")
    for name, line in table.items():
        tops = (_interval(line[k]) for k in ("top-1", "top-3", "top-5"))
        others = (line["worst top-3"]["value"], *(line[key]["mean"] for key in ("pairs", "ndcg", "regret")))
        rows.add_row(name, *tops, *(f"{value:.3f}" for value in others), f"{line['trials']['mean']:.1f}")
    console.print(rows)
    sums = [f"{what}-{k}" for what in ("weighted top", "best") for k in (1, 3, 5)]
    rows = Table("ranker", *sums, title=f"Pruner's sums (best-k: of the first {BEST_OF})")
    for name, line in table.items():
        rows.add_row(name, *(f"{line[key]:.3f}" for key in sums))
    console.print(rows)


def _searches(
    data: Dataset, seeds: int, protocol: dict[str, Any], report: Path | None, as_json: bool, shown: Shown
) -> None:
    from rollergen.verify.replay import BATCH, measurements_saved

    table = measurements_saved(data, seeds=range(seeds), progress=shown)
    content = {"protocol": {**protocol, "batch": BATCH}, "searches": table}
    if _kept(content, report, "write_searches", as_json):
        return
    rows = Table("search", "to within 2 %", "5 %", "10 %", "saved", "speed after 1", "8", title="measurements")
    for name, line in table.items():
        needed = (line[f"within {share}"]["mean"] for share in ("5%", "10%"))
        speeds = (f"{line['speed after'][n - 1]:.3f}" for n in (1, 8))
        saved = _interval(line["saved against analytical"], 1)
        rows.add_row(name, _interval(line["within 2%"], 1), *(f"{n:.1f}" for n in needed), saved, *speeds)
    console.print(rows)


@verify.command()
@_records
@_objective
@_seeds
@_report
@_json
def ablate(records: tuple[Path, ...], objective: str, seeds: int, report: Path | None, as_json: bool) -> None:
    """What the verifier owes to groups of features and to the number of records (learning curve), how it fares on new
    operators, shapes and classes by how many of their programs were measured (transfer curve), and how often it
    abstains on classes that it has not seen."""
    from rollergen.verify import ablate as parts
    from rollergen.verify.dataset import load
    from rollergen.verify.transfer_curve import SPLITS, curve

    data = load(records)
    with Progress(console=console, transient=True, disable=as_json) as bar:
        shown = _shown(bar, bar.add_task("ablation", total=None), "ablated")
        content: dict[str, Any] = {
            "protocol": {**_protocol(data, seeds, records), "objective": objective},
            "groups": parts.by_group(data, objective, range(seeds), progress=shown),
            "learning curve": parts.learning_curve(data, objective, range(seeds), progress=shown),
            "transfer": {split: curve(data, objective, range(seeds), split, shown) for split in SPLITS},
            "abstention": parts.abstention(data, objective, range(seeds), progress=shown),
        }
    if not _kept(content, report, "write_ablation", as_json):
        _show_ablation(content)


def _show_ablation(content: dict[str, Any]) -> None:
    told = lambda line: [f"{line[k]:.3f}" for k in ("top-1", "top-3", "pairs")]
    rows = Table("features", "top-1", "top-3", "pairs")
    for name, line in content["groups"].items():
        rows.add_row(name, *told(line))
    console.print(rows)
    rows = Table("records", "top-1", "top-3", "pairs")
    for line in content["learning curve"]:
        rows.add_row(f"{line['records']:.0f}", *told(line))
    console.print(rows)
    for split, lines in content["transfer"].items():
        rows = Table(f"new {split}", *(f"{n} measured" for n in next(iter(lines.values()))), title="top-1")
        for method, by_count in lines.items():
            rows.add_row(method, *(f"{line['top-1']:.3f}" for line in by_count.values()))
        console.print(rows)
    rows = Table("class held out", "abstained", "best of 3", "worst", "of 10", "worst", title="speed over the model's")
    for kind, line in content["abstention"].items():
        speeds = (line[f"{n} slots, {what}"] for n in (3, 10) for what in ("with abstention", "worst with abstention"))
        rows.add_row(kind, f"{line['abstained']:.0%}", *(f"{speed:.3f}" for speed in speeds))
    console.print(rows)


def _protocol(data: Dataset, seeds: int, records: tuple[Path, ...]) -> dict[str, Any]:
    """What was evaluated, and on what machine."""
    import platform

    from rollergen.hal.host_facts import cpu_model

    return {
        "records": len(data),
        "failed": int((~data.right).sum()),
        "operators": len(data.operators()),
        "structures": len(set(data.structure.tolist())),
        "median noise": float(median(data.noise[data.right].tolist())),
        "files": [path.name for path in records],
        "folds": 10,
        "split": "by canonical structure",
        "seeds": list(range(seeds)),
        "machine": cpu_model(),
        "python": platform.python_version(),
    }


def _interval(value: dict[str, float], digits: int = 3) -> str:
    mean, low, high = (f"{value[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"
