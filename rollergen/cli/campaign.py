"""``rollergen campaign``: many operators measured by a cluster, into one store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rollergen.cli.commands import Advised
from rollergen.cli.output import console
from rollergen.store.location import store_path

if TYPE_CHECKING:
    from rollergen.campaign.run import Progress as Shown
    from rollergen.campaign.run import Summary

_plan = click.argument("plan", type=click.Path(path_type=Path, dir_okay=False, exists=True))
_store = click.option(
    "--store", type=click.Path(path_type=Path, dir_okay=False), help="SQLite file of the records; default: the cache's."
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")


@click.group(cls=Advised)
def campaign() -> None:
    """Measure the operators of a TOML file on a cluster (pip install "rollergen[dask]").

    An example of such a file: python -c "import rollergen.campaign.plan as p; print(p.__doc__)"
    """


@campaign.command("run", short_help="Measure what the store lacks of a plan.")
@_plan
@click.option("--scheduler", metavar="ADDRESS", help="Of a Dask cluster, tcp://host:8786; default: a local one.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Of the local cluster.")
@_store
@_json
def run_(plan: Path, scheduler: str | None, workers: int, store: Path | None, as_json: bool) -> None:
    """Measure what the store lacks of PLAN; run it again after any interruption.

    On a cluster of your own start one worker for each device, on its machine:

        dask worker ADDRESS --nthreads 1 --resources "cpu=1"

    with the device's name in the spec.  Workers of a local cluster share the machine: they compile side by side, and
    take turns in timing.
    """
    from rollergen.campaign.cluster import connected, workers_with
    from rollergen.campaign.plan import read_plan
    from rollergen.campaign.run import Summary, all_delivered, run

    read, path = read_plan(plan), store or store_path()
    if all_delivered(read, path):
        _tell(Summary(len(read.tasks), len(read.tasks), 0, 0, 0, ()), path, as_json)
        return
    with connected(scheduler, workers, read.device) as client:
        if not as_json:
            console.print(f"{read.name}: {len(read.tasks)} tasks; dashboard {client.dashboard_link}", highlight=False)
            if not workers_with(client, read.device):
                name = read.device.name
                console.print(
                    f'no worker offers {name}: dask worker {scheduler} --nthreads 1 --resources "{name}=1"',
                    highlight=False, markup=False,
                )  # fmt: skip
        with _bar(not as_json) as shown:
            summary = run(read, path, client, shown)
    _tell(summary, path, as_json)
    if summary.failed:
        raise click.exceptions.Exit(1)


@campaign.command()
@_plan
@_store
@_json
def status(plan: Path, store: Path | None, as_json: bool) -> None:
    """Say how many tasks of PLAN the store has."""
    from rollergen.campaign.plan import read_plan
    from rollergen.store.deliveries import finished

    read, path = read_plan(plan), store or store_path()
    known = finished(path)
    left = [task.title for task in read.tasks if task.id not in known]
    facts = {"campaign": read.name, "tasks": len(read.tasks), "delivered": len(read.tasks) - len(left), "left": left}
    if as_json:
        click.echo(json.dumps(facts))
        return
    console.print(f"{read.name}: {facts['delivered']} of {len(read.tasks)} tasks are in {path}", highlight=False)
    for title in left:
        console.print(f"  to do: {title}", highlight=False)


@contextmanager
def _bar(shown: bool) -> Iterator[Shown]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, of, what: bar.update(task, completed=done, total=of, description=what or "measuring")


def _tell(summary: Summary, path: Path, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**asdict(summary), "store": str(path)}))
        return
    console.print(
        f"{summary.delivered} tasks delivered {summary.records} records to {path}; {summary.before} were there before"
        + (f", {summary.twice} were delivered by others meanwhile" if summary.twice else ""),
        highlight=False,
    )
    for title, why in summary.failed:
        console.print(f"failed: {title}: {why}", highlight=False, markup=False)
