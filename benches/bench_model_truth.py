"""Predicted against measured on this kind of machine: ``python benches/bench_model_truth.py [--keep] [--stored]``.

Every program of the committed collection (`benches/data`: 90 operators; of each up to 60 programs drawn from the
aligned space and the model's best 30; checked and timed on one core) is predicted anew by the present model and
compared with its measured time, operator by operator:

- Kendall's tau over the programs that were drawn, and, where the space has too few for 60 of these, drafted ones (tau
  over all, of which a third are the model's best and lie close together, stands beside it);
- what the first choice lacks to the best measured of all (regret; the better of two as good as equal is nobody's
  merit, so ties are drawn at random);
- the error of the predicted time itself, of all.

The bars are for operators whose space has 60 programs; those of smaller spaces are listed beside them.  Of five
operators 500 programs were drawn: the same for these.  The machine's figures (clock, bandwidths, caches) are those of
the day of the collection, which lie beside its records; the model's constants are the present ones.  ``--stored``
takes the predictions of that day instead.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from ranking import rank
from results import ROOT, keep
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rollergen.hal.present_costs import with_present_costs
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.serial import from_json
from rollergen.store.record_files import read
from rollergen.verify.collect import SAMPLED

DATA = ROOT / "benches" / "data" / "collection_amd-epyc_2026-11-21.jsonl.xz"
LARGE = DATA.with_name("samples_amd-epyc_2026-11-21.jsonl.xz")
MOST_REGRET, LEAST_TAU, MOST_ERROR = 0.10, 0.6, 0.25
DRAWN = 60
"""Programs of the aligned space that an operator is judged by; those whose space has fewer are listed apart."""
WORST = 10


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


def rows_of(
    records: Sequence[dict[str, Any]], devices: dict[str, Device], stored: bool
) -> dict[str, list[dict[str, Any]]]:
    """What is compared, by operator."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in track(records, "predicting", console=Console(stderr=True)):
        times = record["result"]["times_ms"]
        middle = median(times)
        terms: dict[str, float] = record["pred"]["terms"]
        predicted = float(record["pred"]["micro_ms"])
        if not stored:
            said = predict(from_json(record["program"]["rprogram"]), devices[record["device"]["spec"]])
            predicted, terms = float(said.seconds) * 1e3, terms_of(said)
        found[record["group"]].append(
            {
                "predicted": predicted,
                "measured": middle,
                "noise": float(np.std(times) / middle / len(times) ** 0.5),
                "limiter": max(terms, key=lambda name: terms[name]) if terms else "",
                "kind": record["op"]["class"],
                "rank": record["program"]["rank"],
                "name": f"{record['op']['class']} {_extents(record['op']['extents'])}",
            }
        )
    return found


def terms_of(said: Any) -> dict[str, float]:
    """Seconds of every term of every launch that a call pays for."""
    stages = [stage for stage in said.stages if not stage.once]
    return {f"{stage.name}.{one.name}": float(one.seconds) for stage in stages for one in stage.limiters}


def _extents(extents: dict[str, int]) -> str:
    return "x".join(map(str, extents.values()))


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


def operators_of(path: Path, stored: bool) -> list[dict[str, Any]]:
    records, devices = records_of(path)
    groups = rows_of(records, {key: with_present_costs(device) for key, device in devices.items()}, stored)
    return [judged(rows[0]["name"], rows) for rows in groups.values()]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stored", action="store_true", help="the predictions of the day of the collection")
    parser.add_argument("--keep", action="store_true", help="keep the figures under benches/results")
    arguments = parser.parse_args()
    everything = operators_of(DATA, arguments.stored)
    operators = [one for one in everything if one["programs"] >= DRAWN]
    smaller = [one for one in everything if one["programs"] < DRAWN]
    large = operators_of(LARGE, arguments.stored) if LARGE.exists() else []
    worst = sorted(operators, key=lambda one: -one["regret"])[:WORST]
    total, kinds = summary(operators), by_class(operators)
    console = Console(width=170)
    console.print(shown("worst first choices", worst))
    if large:
        console.print(shown("500 programs drawn", large))
    table = Table("class", "operators", "tau", "of all", "regret", "error", title="by class")
    beside = {"all": total, "smaller spaces": summary(smaller)} | ({"500 programs": summary(large)} if large else {})
    for kind, one in (kinds | beside).items():
        taus = f"{one['tau, mean']:.2f}", f"{one['tau of all, mean']:.2f}"
        figures = f"{one['regret, geometric mean']:.1%}", f"{one['error, median']:.0%}"
        table.add_row(kind, str(one["operators"]), *taus, *figures)
    console.print(table)
    console.print(
        f"{len(operators)} operators of at least {DRAWN} programs: regret {total['regret, geometric mean']:.1%} "
        f"(at most {MOST_REGRET:.0%}), tau {total['tau, mean']:.3f} (at least {LEAST_TAU}), "
        f"error {total['error, median']:.1%} (at most {MOST_ERROR:.0%})"
    )
    if arguments.keep:
        content = {
            "data": [DATA.name, *([LARGE.name] if large else [])],
            "predictions": "stored" if arguments.stored else "anew",
            "all": total, "classes": kinds, "worst": [one | {"why": why(one)} for one in worst], "operators": operators,
            "500 programs": large, "smaller spaces": smaller, "of smaller spaces": beside["smaller spaces"],
        }  # fmt: skip
        console.print(f"kept in {keep('model_truth', content)}")


if __name__ == "__main__":
    main()
