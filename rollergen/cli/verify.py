"""``rollergen verify``: measurements collected for the learned verifier, rankers trained and evaluated."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from statistics import median

import click
from rich.progress import Progress

from rollergen.bench.scripts import checkout, has_benches
from rollergen.bench.suites import suite, suite_names
from rollergen.cli.commands import Advised
from rollergen.cli.output import NewFile, console, constants_option, objective_option, records_argument, shown_in
from rollergen.errors import ArgumentError

_LONGEST_TIMING_S = 60.0


OF_A_CHECKOUT = {
    "ablate": "Say what each group of features is worth.",
    "evaluate": "Rank and search programs of held-out operators.",
    "tables": "Write the tables of kept figures anew.",
}
"""Commands that compare the verifier with published systems, with their help; they lie in benches/verify/ and
are imported when they are called."""


class _WithBenches(Advised):
    """The commands here and those of a checkout."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *(OF_A_CHECKOUT if has_benches() else ())])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Raises ArgumentError for a command of a checkout where there is none."""
        if name not in OF_A_CHECKOUT:
            return super().get_command(context, name)
        if (root := str(checkout())) not in sys.path:
            sys.path.insert(0, root)
        return getattr(import_module("benches.verify.command"), name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        told = {name: command.get_short_help_str(80) for name, command in self.commands.items()} | OF_A_CHECKOUT
        with formatter.section("Commands"):
            formatter.write_dl([(name, told[name]) for name in self.list_commands(context)])


@click.group(cls=_WithBenches)
def verify() -> None:
    """Collect measurements, train the learned verifier on them; in a checkout: evaluate it."""


@verify.command(short_help="Measure many programs of a suite's operators.")
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
    from rollergen.runtime.executor import executor_for
    from rollergen.store.record_files import append
    from rollergen.targets import resolve
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
                    progress=shown_in(bar, task, entry.id),
                )  # fmt: skip
                append(out, target, found.records)
                _tell(entry.id, found, as_json)
            bar.advance(task)


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


@verify.command(short_help="Train a verifier on records.")
@records_argument
@objective_option
@click.option("--family", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--base", type=click.Path(path_type=Path, dir_okay=False),
    help="A verifier to update: its trees stay, more are added for RECORDS, which may be few; objective and family are "
    "its own.",
)  # fmt: skip
@constants_option
@click.option("-o", "--out", type=NewFile(), required=True)
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
