"""Geometric means by class of what `compare.py` measured: ``python benches/gpu/summary.py [--device NAME]``.

Ratios are the best of the others' times over ours: above 1, ours is faster.  Also how the predictions did: the median
of measured over predicted, and Kendall's tau over the operators; and the classes to improve next, the worst first.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table

from benches.gpu import machine
from benches.gpu.rows import Row
from benches.gpu.timer import STATES

WORST = 3


def summary(rows: list[Row]) -> Row:
    """By suite: means of each class and of all, in both states of the cache; the worst classes; the predictions."""
    found: Row = {}
    for name in sorted({row["suite"] for row in rows}):
        timed = [row for row in rows if row["suite"] == name and row["state"] == "timed"]
        kinds = sorted(set(map(_class, timed)))
        classes = {kind: _means([row for row in timed if _class(row) == kind]) for kind in kinds}
        worst = sorted(classes, key=lambda kind: classes[kind]["ratio_warm"])[:WORST]
        not_timed = [row["id"] for row in rows if row["suite"] == name and row["state"] != "timed"]
        found[name] = {
            "all": _means(timed) if timed else None, "classes": classes, "worst": worst, "not timed": not_timed,
            "predictions": _predictions(timed),
        }  # fmt: skip
    return found


def _class(row: Row) -> str:
    return f"{row['kind']} {row['dtype']}"


def _means(rows: list[Row]) -> Row:
    made: Row = {"operators": len(rows)}
    for state in STATES:
        ratios = [row[f"ratio_{state}"] for row in rows]
        made |= {f"ratio_{state}": round(geometric_mean(ratios), 4), f"least_{state}": min(ratios)}
        made[f"faster_{state}"] = sum(ratio >= 1 for ratio in ratios)
    made["against winograd"] = sum(bool(row["winograd"]) for row in rows)
    return made


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _predictions(rows: list[Row]) -> Row | None:
    """Of the programs that won: those that were among the predicted ones, against their cold times, which the model
    is of."""
    pairs = [(row["predicted_us"], row["cold"]["rollergen"]["median_us"]) for row in rows if row["predicted_us"]]
    if len(pairs) < 2:
        return None
    return {
        "operators": len(pairs),
        "measured over predicted": round(median(b / a for a, b in pairs), 4),
        "tau": round(kendall_tau(pairs), 4),
        "first choices that won": sum(row["rank"] == 0 for row in rows),
    }


def kendall_tau(pairs: list[tuple[float, float]]) -> float:
    """Tau-a: a pair tied in either counts for neither."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs)


def show(found: Row) -> None:
    for name, one in found.items():
        table = Table("class", "operators", "warm", "cold", "least, warm", "faster, warm", "Winograd", title=name)
        for kind, means in [*one["classes"].items(), ("all", one["all"])]:
            if means:
                keys = "operators", "ratio_warm", "ratio_cold", "least_warm", "faster_warm", "against winograd"
                table.add_row(kind, *(str(means[key]) for key in keys))
        Console(width=120).print(table)
        Console().print_json(json.dumps({key: one[key] for key in ("worst", "not timed", "predictions")}))


def main(words: list[str] | None = None) -> int:
    given = machine.parser(__doc__).parse_args(words)
    path = machine.path(given.results, "timings", machine.spec(given.device))
    if not path.exists():
        print(f"{path} is missing; expected it made by benches/gpu/compare.py")
        return 2
    show(summary(json.loads(path.read_text())["rows"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
