"""What was measured, as one page: ``python benches/gpu/report.py [--device NAME]``.

First what is asked first, by class: the fraction of the peak, that of the best peer, how far the prediction is off;
then classes by dtype, then every operator.  The peak of an operator is the larger of its operations at the printed
dense rate of its dtype and its bytes (inputs and result once) at the printed bandwidth of the DRAM: launches and all
else count against the share.  Ratios are the best of the others' times over ours: above 1, ours is faster.  Shares and
predictions are of the cold L2, which the model is of.

Reads what the other scripts have kept, whatever there is.  Kept in results/gpu_report_<spec>.json, which ``rollergen
bench report`` shows, and as gpu_report_<spec>.md.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.cases import group, operations, traffic
from benches.gpu.rows import Row, key_of, rows_of
from benches.gpu.timer import STATES
from benches.results import keep_at
from rollergen.bench.results import text
from rollergen.bench.suites import Entry
from rollergen.hal.spec import Device

NAME = "report"
OURS = "rollergen"
_ERROR = "prediction off by"
"""Geometric mean of measured over predicted, or of its inverse where that is larger."""
ORIGIN = ("gpu", "driver", "compiler", "torch", "precision", "torch.compile", "predictions", "absent", "date", "commit")
"""Of the file of timings, that a report repeats."""


def counted(rows: Iterable[Row]) -> Row:
    """How many rows are in each state, by its first word."""
    found: Row = {}
    for one in rows:
        state = one["state"].partition(":")[0]
        found[state] = found.get(state, 0) + 1
    return found


def peak_s(entry: Entry, device: Device) -> tuple[float, str]:
    """(Seconds that the operator takes at the printed rates, which of the two binds: "arithmetic" or "memory")."""
    bytes_s = traffic(entry) / (1e9 * max(one.bandwidth_nominal_gb_s for one in device.layers[-1:]))
    done = operations(entry)
    rates = [rate(one, device) for one in device.instructions if one.dtype == entry.dtype] or [math.inf]
    done_s = done / (1e12 * max(rates))
    return (done_s, "arithmetic") if done_s > bytes_s else (bytes_s, "memory")


def rate(instruction: Any, device: Device) -> float:
    """TFLOP/s of all units: as printed, else as the spec's rate makes them."""
    own = 2e-6 * device.units * instruction.m * instruction.n * instruction.k * instruction.per_clock * device.clock_mhz
    return float(instruction.peak_dense_tflop_s or own)


def operator(entry: Entry, device: Device, timed: Row, beside: Row) -> Row:
    """One line of the last table; ``beside``: the same operator's row of the slow peers, or nothing."""
    both = [one for one in (timed, beside) if one]
    ours_us = timed["cold"][OURS]["median_us"]
    theirs = {n: us for row in both for n, us in row["cold"].items() if n != OURS and us["median_us"]}
    best = min(theirs, key=lambda name: theirs[name]["median_us"], default=None)
    least_s, binds = peak_s(entry, device)
    found = {
        "operator": entry.id, "class": group(entry), "dtype": entry.dtype, "us": ours_us, "peak": binds,
        "share": _short(1e6 * least_s / ours_us), "best peer": best or "none",
        "peer's share": _short(1e6 * least_s / theirs[best]["median_us"]) if best else None,
    }  # fmt: skip
    for state in STATES:
        ratios = [row[f"ratio_{state}"] for row in both if row.get(f"ratio_{state}")]
        found["ratio" if state == "cold" else f"ratio, {state}"] = min(ratios, default=None)
    predicted = timed["predicted_us"]
    off = _short(ours_us / predicted) if predicted else None
    found |= {"predicted us": predicted, "measured over predicted": off}
    return {**found, "rank": timed["rank"], "winograd": bool(timed["winograd"] or (beside or {}).get("winograd"))}


def classes(lines: Sequence[Row], by: Callable[[Row], str]) -> dict[str, Row]:
    """Means of the operators of each class; the ratios of those that somebody else offers too."""
    return {name: _means([one for one in lines if by(one) == name]) for name in dict.fromkeys(map(by, lines))}


def _means(lines: Sequence[Row]) -> Row:
    errors = [one["measured over predicted"] for one in lines if one["measured over predicted"]]
    return {
        "operators": len(lines),
        "share of the peak": _mean(one["share"] for one in lines),
        "best peer's share": _mean(one["peer's share"] for one in lines),
        "ratio": _mean(one["ratio"] for one in lines),
        "ratio, warm": _mean(one["ratio, warm"] for one in lines),
        "least ratio": min((one["ratio"] for one in lines if one["ratio"]), default=None),
        _ERROR: _mean(max(one, 1 / one) for one in errors),
        "measured over predicted": median(errors) if errors else None,
        "first choices that won": sum(one["rank"] == 0 for one in lines),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Geometric, of those that are there."""
    logs = [math.log(value) for value in values if value]
    return _short(math.exp(sum(logs) / len(logs))) if logs else None


def _short(value: float) -> float:
    """To four digits."""
    return float(f"{value:.4g}")


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Tau-a: a pair tied in either counts for neither."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs)


def headline(name: str, means: Row) -> Row:
    """One class, in the order in which it is asked."""
    share, theirs, ratio, error = map(text, map(means.get, ("share of the peak", "best peer's share", "ratio", _ERROR)))
    figure = f"{share} of the peak"
    if ratio:
        figure += f" (best peer {theirs}), {ratio} times as fast as the best peer"
    if error:
        figure += f", prediction off by a factor of {error}"
    return {"what": f"{name}, {means['operators']} operators", "figure": figure}


def report(entries: dict[tuple[str, str], Entry], device: Device, files: dict[str, Path]) -> Row:
    """The page's content; ``files``: of the correctness, the timings and the peers."""
    timed = {key_of(one): one for one in rows_of(files["timings"])}
    beside = {key_of(one): one for one in rows_of(files["peers"]) if one["state"] == "timed"}
    lines = [
        operator(entry, device, timed[key], beside.get(key, {}))
        for key, entry in entries.items()
        if timed.get(key, {}).get("state") == "timed"
    ]
    checked = rows_of(files["correctness"])
    states = counted(checked)
    by_class = classes(lines, lambda one: one["class"])
    right = f"{states.get('right', 0)} of {len(entries)} operators ({text(states)})" if checked else "not checked yet"
    first = {"what": "right in every element, beside torch in float64", "figure": right}
    pairs = [(one["predicted us"], one["us"]) for one in lines if one["predicted us"]]
    points = {name: [(p / 1e3, m / 1e3) for p, m in _pairs(lines, name)] for name in by_class}
    return {
        **_origin(files["timings"]),
        "headlines": [first, *(headline(name, means) for name, means in by_class.items())],
        "correctness": states, "timed": counted(timed.values()), "beside compilers": counted(rows_of(files["peers"])),
        "tau of predictions": round(kendall_tau(pairs), 4) if len(pairs) > 1 else None,
        "peaks": {
            "TFLOP/s": {d: max(rate(i, device) for i in device.instructions if i.dtype == d)
                        for d in dict.fromkeys(i.dtype for i in device.instructions)},
            "GB/s": {device.layers[-1].name: device.layers[-1].bandwidth_nominal_gb_s},
        },
        "classes": by_class,
        "classes by dtype": classes(lines, lambda one: f"{one['class']}, {one['dtype']}"),
        "milliseconds": {name: own for name, own in points.items() if own},
        "not right, or not timed": [
            {"operator": f"{one['suite']}:{one['id']}", "state": one["state"]}
            for one in (*checked, *timed.values()) if one["state"] not in ("right", "timed")
        ],
        "operators": lines,
    }  # fmt: skip


def _pairs(lines: Sequence[Row], name: str) -> list[tuple[float, float]]:
    return [(one["predicted us"], one["us"]) for one in lines if one["class"] == name and one["predicted us"]]


def _origin(path: Path) -> Row:
    """Device, driver, libraries and day of the timings, as ``measured``."""
    if not path.exists():
        return {"measured": "nothing yet"}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {"measured": {name: kept[name] for name in ORIGIN if name in kept}}


def page(content: Row, device: Device) -> str:
    """Markdown."""
    said = [f"- **{one['what']}**: {one['figure']}" for one in content["headlines"]]
    measured = content["measured"]
    where = measured if isinstance(measured, str) else "; ".join(f"{k}: {text(v)}" for k, v in measured.items())
    parts = [f"# {device.title}", *said, "", where, "", (__doc__ or "").split("\n\n")[1]]
    for name in ("classes", "classes by dtype", "not right, or not timed", "operators"):
        rows = content[name]
        rows = [{name: key, **one} for key, one in rows.items()] if isinstance(rows, dict) else rows
        if rows:
            parts += ["", f"## {name}", "", *_table(rows)]
    return "\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    columns = list(rows[0])
    lines = [[text(row.get(name)).replace("|", "/") for name in columns] for row in rows]
    return [f"| {' | '.join(one)} |" for one in (columns, ["---"] * len(columns), *lines)]


def main(words: list[str] | None = None) -> int:
    given = machine.parsed(machine.parser(__doc__), words)
    device = machine.machine(given).device
    files = {what: machine.path(given.results, what, device) for what in ("correctness", "timings", "peers")}
    content = report(machine.entries(given), device, files)
    out = machine.path(given.results, NAME, device)
    keep_at(out, content)
    out.with_suffix(".md").write_text(page(content, device), encoding="utf-8")
    for one in content["headlines"]:
        print(f"{one['what']}: {one['figure']}")
    print(out.with_suffix(".md"))
    return 0


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
