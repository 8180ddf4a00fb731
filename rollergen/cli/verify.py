"""``rollergen verify``: measurements collected for the learned verifier, rankers trained and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
from rich.progress import Progress, TaskID

from rollergen.cli.output import console
from rollergen.expr.canonical import canonicalize
from rollergen.measure.executor import executor_for
from rollergen.store.keys import expression_text, sha256
from rollergen.suites import suite, suite_names
from rollergen.targets import resolve


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
    from rollergen.verify.collect import collect as collect_one
    from rollergen.verify.files import append, read
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
            if sha256(expression_text(canonicalize(expr))) not in done:
                found = collect_one(
                    expr, target, executor, count=count, drafted=drafted, protocol=protocol, seed=seed,
                    progress=_shown(bar, task, entry.id),
                )  # fmt: skip
                append(out, target, found.records)
                _tell(entry.id, found, as_json)
            bar.advance(task)


def _shown(bar: Progress, task: TaskID, name: str) -> Callable[[str, int, int], None]:
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
        "best_ms": min(right),
        "median_ms": median(right),
        "spread": found.spread,
        "repeatability": median(found.repeatability) if found.repeatability else None,
        "drifted_segments": found.drifted,
    }
    if as_json:
        click.echo(json.dumps(row))
        return
    repeat = "" if row["repeatability"] is None else f", repeated within {row['repeatability']:.1%}"
    console.print(
        f"{name}: {row['right']} of {row['programs']} programs right ({found.points} in the space), best "
        f"{row['best_ms']:.3f} ms, median {row['median_ms']:.3f} ms, spread {found.spread:.1%}{repeat}"
        + (f", {found.drifted} segments drifted" if found.drifted else ""),
        highlight=False,
    )
