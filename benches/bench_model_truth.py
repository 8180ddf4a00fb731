"""Predicted against measured on this kind of machine: ``python benches/bench_model_truth.py [--keep] [--stored]``.

Every program of the committed collection (`benches/data`: 90 operators, up to 60 programs of the aligned space each,
checked and timed on one core) is predicted anew by the present model and compared with its measured time, operator by
operator: Kendall's tau, what the first choice lacks to the best measured (regret; the better of two as good as equal
is nobody's merit, so ties are drawn at random), and the error of the predicted time itself.

The machine's figures (clock, bandwidths, caches) are those of the day of the collection, which lie beside its records;
the model's constants are the present ones, but for functions whose code is another since: their programs were timed
with the code of that day, so they are priced as of that day.  ``--stored`` takes the predictions of that day instead.

``--again``: 16 programs of each operator, drawn with a fixed seed, as they were timed later the same day with masked
stores and the present functions, in real time on a core of its own (other work disturbed the first timing of
what memory limits by up to several times).  The operators' bars are meant for all programs; this tells the model's
errors from those of the clock.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
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

from rollergen.hal.load import parse_device
from rollergen.hal.present_costs import with_present_costs
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.serial import from_json
from rollergen.store.record_files import opened, read

DATA = ROOT / "benches" / "data" / "collection_amd-epyc_2026-11-21.jsonl.xz"
AGAIN = DATA.with_name("collection_again_amd-epyc_2026-11-21.jsonl.xz")
REWRITTEN = ("op_exp", "op_exp_below", "op_tanh", "op_erf")
"""Functions that are other code now than when the collection was measured."""
MOST_REGRET, LEAST_TAU, MOST_ERROR = 0.10, 0.6, 0.25
LEAST_PROGRAMS = 10
WORST = 10


def records_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, Device]]:
    """Records that passed the check, and the devices they name."""
    file = read(path)
    return [one for one in file.records if one["result"]["status"] == "ok"], dict(file.devices)


def timed_again() -> tuple[list[dict[str, Any]], dict[str, Device]]:
    """The records that were timed again, with these times, and the device as it was then."""
    with opened(AGAIN, "rt") as file:
        first, *lines = (json.loads(line) for line in file)
    every, device = read(DATA).records, parse_device(json.dumps(first["spec"]).encode(), str(AGAIN))
    found = []
    for line in lines:
        record = every[line["record"]]
        result = record["result"] | {"times_ms": line["times_ms"]}
        found.append(record | {"result": result, "device": record["device"] | {"spec": first["device"]}})
    return found, {first["device"]: device}


def judged(title: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One operator: ``rows`` have ``predicted``, ``measured`` (ms), ``noise``, ``limiter`` and ``kind``."""
    predicted = np.array([row["predicted"] for row in rows])
    measured = np.array([row["measured"] for row in rows])
    found = rank(predicted, measured)
    first, best = int(predicted.argmin()), int(measured.argmin())
    return {
        "operator": title,
        "kind": rows[0]["kind"],
        "programs": len(rows),
        "tau": found.tau,
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
        "error, median": median(one["error"] for one in operators),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stored", action="store_true", help="the predictions of the day of the collection")
    parser.add_argument("--again", action="store_true", help="the programs that were timed again, with those times")
    parser.add_argument("--keep", action="store_true", help="keep the figures under benches/results")
    arguments = parser.parse_args()
    if arguments.again:
        records, devices = timed_again()
    else:
        records, devices = records_of(DATA)
        devices = {key: with_present_costs(device, REWRITTEN) for key, device in devices.items()}
    groups = rows_of(records, devices, arguments.stored)
    few = Counter(len(rows) < LEAST_PROGRAMS for rows in groups.values())[True]
    operators = [judged(rows[0]["name"], rows) for rows in groups.values() if len(rows) >= LEAST_PROGRAMS]
    total = summary(operators)
    named = sorted({one["kind"] for one in operators})
    kinds = {kind: summary([one for one in operators if one["kind"] == kind]) for kind in named}
    worst = [one | {"why": why(one)} for one in sorted(operators, key=lambda one: -one["regret"])[:WORST]]
    console = Console(width=170)
    table = Table("operator", "programs", "tau", "regret", "error", "bias", "why", title="worst first choices")
    for one in worst:
        figures = f"{one['tau']:.2f}", f"{one['regret']:.1%}", f"{one['error']:.0%}", f"{one['bias']:.2f}"
        table.add_row(one["operator"], str(one["programs"]), *figures, one["why"])
    console.print(table)
    table = Table("class", "operators", "tau", "regret", "error", title="by class")
    for kind, one in (kinds | {"all": total}).items():
        figures = f"{one['tau, mean']:.2f}", f"{one['regret, geometric mean']:.1%}", f"{one['error, median']:.0%}"
        table.add_row(kind, str(one["operators"]), *figures)
    console.print(table)
    console.print(
        f"regret {total['regret, geometric mean']:.1%} (at most {MOST_REGRET:.0%}), tau {total['tau, mean']:.3f} "
        f"(at least {LEAST_TAU}), error {total['error, median']:.1%} (at most {MOST_ERROR:.0%}); {few} operators of "
        f"fewer than {LEAST_PROGRAMS} programs left out"
    )
    if arguments.keep:
        content = {
            "data": AGAIN.name if arguments.again else DATA.name,
            "predictions": "stored" if arguments.stored else "anew", "rewritten": REWRITTEN,
            "all": total, "classes": kinds, "worst": worst, "operators": operators, "left out": few,
        }  # fmt: skip
        console.print(f"kept in {keep('model_truth_again' if arguments.again else 'model_truth', content)}")


if __name__ == "__main__":
    main()
