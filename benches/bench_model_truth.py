"""Predicted against measured on this kind of machine: ``python benches/bench_model_truth.py [--keep] [--stored]``.

Every program of the committed collection (`benches/data`: 90 operators; of each up to 60 programs drawn from the
aligned space and the model's best 30; checked and timed on one core) is predicted anew by the present model and
compared with its measured time, operator by operator:

- Kendall's tau over the programs that were drawn, and, where the space has too few for 60 of these, drafted ones (tau
  over all, of which a third are the model's best and lie close together, stands beside it);
- what the first choice lacks to the best measured of all (regret; the better of two as good as equal is nobody's
  merit, so ties are drawn at random);
- the error of the predicted time itself, of all.

The bars are for operators whose space has 60 programs; those of smaller spaces are listed beside them.  Of six
operators up to 500 programs were measured: the same for these.  The machine's figures (clock, bandwidths, caches) are
those of the day of the collection, which lie beside its records; the model's constants are the present ones.
``--stored`` takes the predictions of that day instead.  Exits with 1 where an aim is missed.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from aims import Aim, verdict
from ranking import rank
from results import ROOT, keep
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rollergen.bench.suites import Entry, suite
from rollergen.hal.changes import with_present_costs
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.serial import from_json
from rollergen.store.record_files import read
from rollergen.verify.collect import SAMPLED, expression_key

DATA = ROOT / "benches" / "data" / "collection_amd-epyc_2026-11-21.jsonl.xz"
LARGE = DATA.with_name("samples_amd-epyc_2026-11-21.jsonl.xz")
MOST_REGRET, LEAST_TAU, MOST_ERROR = 0.10, 0.6, 0.25
DRAWN = 60
"""Programs of the aligned space that an operator is judged by; those whose space has fewer are listed apart."""
WORST = 10
PLOTTED = 300


def records_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, Device]]:
    """Records that passed the check, and the devices they name."""
    file = read(path)
    return [one for one in file.records if one["result"]["status"] == "ok"], dict(file.devices)


def drawn(rows: Sequence[dict[str, Any]], count: int = DRAWN) -> list[dict[str, Any]]:
    """Those that were drawn from the space, and where these are fewer than ``count``, drafted ones at random."""
    found = [row for row in rows if row["rank"] == SAMPLED]
    others = [row for row in rows if row["rank"] != SAMPLED]
    return found + random.Random(0).sample(others, min(len(others), max(0, count - len(found))))


def tau(rows: Sequence[dict[str, Any]]) -> float:
    return rank(np.array([row["predicted"] for row in rows]), np.array([row["measured"] for row in rows])).tau


def judged(title: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One operator: ``rows`` have ``predicted``, ``measured`` (ms), ``noise``, ``limiter``, ``kind`` and ``rank``."""
    predicted = np.array([row["predicted"] for row in rows])
    measured = np.array([row["measured"] for row in rows])
    found = rank(predicted, measured)
    first, best = int(predicted.argmin()), int(measured.argmin())
    return {
        "operator": title,
        "kind": rows[0]["kind"],
        "programs": len(rows),
        "tau": tau(drawn(rows)),
        "tau of all": found.tau,
        "regret": found.top1 - 1,
        "regret of ten": found.top10 - 1,
        "error": float(np.median(np.abs(predicted / measured - 1))),
        "bias": found.bias,
        "noise": median(row["noise"] for row in rows),
        "spread": float(measured.max() / measured.min()),
        "best ms": float(measured[best]),
        "first over predicted": float(measured[first] / predicted[first]),
        "best over predicted": float(measured[best] / predicted[best]),
        "limiter of the first": rows[first]["limiter"],
        "limiter of the best": rows[best]["limiter"],
    }


def why(one: dict[str, Any]) -> str:
    """What the figures say about an operator's error."""
    if one["spread"] < 1.15:
        return f"its programs lie within {one['spread'] - 1:.0%} of each other, their noise is {one['noise']:.1%}"
    side = one["best over predicted"] / one["first over predicted"]
    if side < 0.9:
        limiter = one["limiter of the best"]
        return f"beside the first, the best is taken for {1 / side:.2f} times slower than it is ({limiter})"
    if one["bias"] > 1.25 or one["bias"] < 0.8:
        return f"all predictions are {one['bias']:.2f} times the measured times ({one['limiter of the first']})"
    return f"misordered among programs limited by {one['limiter of the first']}"


def entries_on(device: Device) -> dict[str, Entry]:
    """The operators of the suite that was collected, by the key of their records."""
    return {expression_key(entry.make(), device): entry for entry in suite("collection").entries}


def rows_of(
    records: Sequence[dict[str, Any]], devices: dict[str, Device], stored: bool
) -> dict[str, list[dict[str, Any]]]:
    """What is compared, by operator.  Raises KeyError for a record of an operator that the suite does not have."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    entries = {spec: entries_on(device) for spec, device in devices.items()}
    for record in track(records, "predicting", console=Console(stderr=True)):
        times = record["result"]["times_ms"]
        middle = median(times)
        terms: dict[str, float] = record["pred"]["terms"]
        predicted = float(record["pred"]["micro_ms"])
        if not stored:
            said = predict(from_json(record["program"]["rprogram"]), devices[record["device"]["spec"]])
            predicted, terms = float(said.seconds) * 1e3, terms_of(said)
        entry = entries[record["device"]["spec"]][record["op"]["expr"]]
        found[record["group"]].append(
            {
                "predicted": predicted,
                "measured": middle,
                "noise": float(np.std(times) / middle / len(times) ** 0.5),
                "limiter": max(terms, key=lambda name: terms[name]) if terms else "",
                "kind": entry.kind,
                "rank": record["program"]["rank"],
                "name": entry.id,
            }
        )
    return found


def terms_of(said: Any) -> dict[str, float]:
    """Seconds of every term of every launch that a call pays for."""
    stages = [stage for stage in said.stages if not stage.once]
    return {f"{stage.name}.{one.name}": float(one.seconds) for stage in stages for one in stage.limiters}


def summary(operators: Sequence[dict[str, Any]]) -> dict[str, float]:
    regrets = np.array([one["regret"] for one in operators])
    return {
        "operators": len(operators),
        "programs": sum(one["programs"] for one in operators),
        "regret, geometric mean": float(np.exp(np.log1p(regrets).mean()) - 1),
        "regret, largest": float(regrets.max()),
        "regret of ten, geometric mean": float(
            np.exp(np.log1p([one["regret of ten"] for one in operators]).mean()) - 1
        ),
        "tau, mean": mean(one["tau"] for one in operators),
        "tau, median": median(one["tau"] for one in operators),
        "tau of all, mean": mean(one["tau of all"] for one in operators),
        "error, median": median(one["error"] for one in operators),
    }


def operators_of(path: Path, stored: bool) -> list[list[dict[str, Any]]]:
    """The compared rows of each operator."""
    records, devices = records_of(path)
    groups = rows_of(records, {key: with_present_costs(device) for key, device in devices.items()}, stored)
    return list(groups.values())


def residuals(rows: Sequence[dict[str, Any]], by: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
    """Predicted over measured time, by class or by what limits a program: its median, and the quartiles around it."""
    found = []
    for name in sorted({by(row) for row in rows}):
        ratios = [row["predicted"] / row["measured"] for row in rows if by(row) == name]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        found.append({"of": name, "programs": len(ratios), "median": middle, "first quartile": low, "third": high})
    return found


def layer_of(row: dict[str, Any]) -> str:
    """What limits the program, without the name of the stage."""
    return str(row["limiter"]).rpartition(".")[2]


def points(rows: Sequence[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """[predicted, measured] milliseconds by class, of so many programs drawn with a fixed seed: for plots."""
    kinds: dict[str, list[list[float]]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append([float(f"{row[name]:.4g}") for name in ("predicted", "measured")])
    return {kind: random.Random(0).sample(own, min(PLOTTED, len(own))) for kind, own in sorted(kinds.items())}


def by_class(operators: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    kinds = sorted({one["kind"] for one in operators})
    return {kind: summary([one for one in operators if one["kind"] == kind]) for kind in kinds}


def shown(title: str, operators: Sequence[dict[str, Any]]) -> Table:
    table = Table("operator", "programs", "tau", "of all", "regret", "error", "bias", "why", title=title)
    for one in operators:
        taus = f"{one['tau']:.2f}", f"{one['tau of all']:.2f}"
        figures = f"{one['regret']:.1%}", f"{one['error']:.0%}", f"{one['bias']:.2f}"
        table.add_row(one["operator"], str(one["programs"]), *taus, *figures, why(one))
    return table


def aims(total: dict[str, float]) -> tuple[Aim, ...]:
    where = DATA.name.split(".")[0]
    of = f"first choices of {total['operators']} operators, {total['programs']} programs measured ({where})"
    regret, order, error = (total[name] for name in ("regret, geometric mean", "tau, mean", "error, median"))
    return (
        Aim(f"What the model's choice lacks to the best program: {of}", f"{regret:.1%}", f"at most {MOST_REGRET:.0%}",
            regret <= MOST_REGRET),
        Aim("Kendall's tau of predicted and measured times, mean over these operators", f"{order:.3f}",
            f"at least {LEAST_TAU}", order >= LEAST_TAU),
        Aim("Error of the predicted time, median over these operators", f"{error:.1%}", f"at most {MOST_ERROR:.0%}",
            error <= MOST_ERROR),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stored", action="store_true", help="the predictions of the day of the collection")
    parser.add_argument("--keep", action="store_true", help="keep the figures under benches/results")
    arguments = parser.parse_args()
    groups = operators_of(DATA, arguments.stored)
    programs = [row for rows in groups for row in rows]
    everything = [judged(rows[0]["name"], rows) for rows in groups]
    operators = [one for one in everything if one["programs"] >= DRAWN]
    smaller = [one for one in everything if one["programs"] < DRAWN]
    large = [judged(rows[0]["name"], rows) for rows in operators_of(LARGE, arguments.stored)]
    worst = sorted(operators, key=lambda one: -one["regret"])[:WORST]
    total, kinds = summary(operators), by_class(operators)
    console = Console(width=170)
    console.print(shown("worst first choices", worst))
    console.print(shown("up to 500 programs", large))
    table = Table("class", "operators", "tau", "of all", "regret", "error", title="by class")
    beside = {"all": total, "smaller spaces": summary(smaller)} | {"up to 500 programs": summary(large)}
    for kind, one in (kinds | beside).items():
        taus = f"{one['tau, mean']:.2f}", f"{one['tau of all, mean']:.2f}"
        figures = f"{one['regret, geometric mean']:.1%}", f"{one['error, median']:.0%}"
        table.add_row(kind, str(one["operators"]), *taus, *figures)
    console.print(table)
    limits = Table("limited by", "programs", "predicted over measured", "quartiles", title="all programs")
    for line in residuals(programs, layer_of):
        quartiles = f"{line['first quartile']:.2f} to {line['third']:.2f}"
        limits.add_row(line["of"], str(line["programs"]), f"{line['median']:.2f}", quartiles)
    console.print(limits)
    console.print(
        f"{len(operators)} operators of at least {DRAWN} programs: regret {total['regret, geometric mean']:.1%} "
        f"(at most {MOST_REGRET:.0%}), tau {total['tau, mean']:.3f} (at least {LEAST_TAU}), "
        f"error {total['error, median']:.1%} (at most {MOST_ERROR:.0%})"
    )
    if arguments.keep:
        content = {
            "headlines": [one.headline() for one in aims(total)], "data": [DATA.name, LARGE.name],
            "predictions": "stored" if arguments.stored else "anew",
            "all": total, "classes": kinds, "worst": [one | {"why": why(one)} for one in worst], "operators": operators,
            "predicted over measured, by class": residuals(programs, lambda row: row["kind"]),
            "predicted over measured, by limiting layer": residuals(programs, layer_of),
            "milliseconds": points(programs), "up to 500 programs": large,
            "smaller spaces": smaller, "of smaller spaces": beside["smaller spaces"],
        }  # fmt: skip
        console.print(f"kept in {keep('model_truth', content)}")
    return verdict(aims(total))


if __name__ == "__main__":
    raise SystemExit(main())
