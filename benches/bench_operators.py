"""Every class of operators beside the libraries:
``python benches/bench_operators.py [--case TEXT] [--kind K] [--list] [--seconds S] [--all-cores] [--again]``.

Each case, in a process of its own (below `LOW` in `PROCESSES`, of which the one in the middle counts: where arrays lie
and what else the host runs stays as it is for a whole process), is built, checked against its float64 definition, then
timed:
``kernel(*arrays, out=y)`` and every library's call (`benches/peers`, whose results are compared with ours first) take
turns in this one process: a turn's first call, behind the others', is kept apart, a few milliseconds more are left
out, and the rest counts (`benches/timing`).  A case's ratio is the smallest, over the libraries, of the median of their
time over ours; a class' is the mean of its cases' (`benches/operator_cases` names each case's).  Every array begins at
a cache line, as those do that torch, JAX and TVM allocate; what ours takes in arrays as NumPy's allocator gives them,
beside libraries that keep theirs, is kept too (`led_ratio`).  The roofline's probes (`benches/roofline_probes`: the
case's multiply-adds and functions, and its bytes read and written) take turns with them: a case's share of the roofline
is their time over ours (in the mean at most 1: a probe need not be the fastest way; cases of other dtypes than float32
have none).
Libraries that are not here are listed with the reason, and one that takes `FAR` times as long as ours with its time: it
takes no turns.  One core; with ``--all-cores`` every core and as many threads, in turns in which the machine's host
gives each a core of its own (`roofline_probes.whole_cores`): run it where nothing else runs, under the usual scheduler
(at real-time priority a library's spinning threads keep everybody else's threads waiting).

All cases together are kept, in results/operators_<cpu>_<day>.json (operators_all_cores).  A run that was interrupted
goes on after the last case that ended, on the same day, with the same code, options and libraries; so does one after
it has ended, which measures nothing (``--again``: all anew).  Exits with 1 where an aim is missed.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.cores import bind

ALL_CORES = "--all-cores" in sys.argv
CORES = bind(every=ALL_CORES)

import argparse

from benches.operator_cases import CASES, Case


def asked() -> argparse.Namespace:
    """The command line's options.  A name that no case has ends the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--kind", default="", help="only classes whose name contains this text")
    parser.add_argument("--list", action="store_true", help="name the cases, each behind its class, and stop")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of timing for each case")
    parser.add_argument("--all-cores", action="store_true", help="every core and as many threads, instead of one")
    parser.add_argument("--again", action="store_true", help="measure what was measured today too")
    options = parser.parse_args()
    if not (chosen := list(wanted(options))):
        of = f"of a class with {options.kind!r} in its name " if options.kind else ""
        parser.error(f"no case {of}has {options.case!r} in its name; --list names them")
    if options.list:
        print(*(f"{case.kind}: {case.name}" for case in chosen), sep="\n")
        raise SystemExit(0)
    return options


def wanted(options: argparse.Namespace) -> Iterator[Case]:
    return (case for case in CASES if options.case in case.name and options.kind in case.kind)


if __name__ == "__main__":
    asked()  # help and errors come before the imports that take seconds

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean, mean, median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benches.aims import Aim, verdict
from benches.peers import CPU, EVERY, as_numpy, competitors, reasons
from benches.results import begun, keep, keep_at, result_path, unfinished
from benches.roofline_probes import bound_s, probes, whole_cores
from benches.timing import Calls, Turns, alone, checked, in_turns, thinned
from rollergen.expr.canonical import canonicalize
from rollergen.gate.arrays import aligned_empty
from rollergen.targets import resolve

MEAN_TARGET, LEAST_CLASS, LEAST_CASE, LEAST_SHARE = 1.3, 1.0, 0.8, 0.75
LOW, MOST_LOW = 0.9, 5
"""So many cases may be below it."""
PROCESSES = 3
"""Of a case that is below it; all their ratios are kept."""
LED = "rollergen, arrays led"
"""The turn of our kernel on arrays that NumPy's allocator leaves 16 bytes behind a cache line."""
TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 2e-2}
"""By the result's dtype, the difference relative to the largest element beyond which a library has computed something
else; integers are to be the same."""
FAR, LONG_S = 10, 0.05
"""A library that takes so many times as long as ours, and longer than so many seconds a call, takes no turns: it is
not the best one, and its rounds would take the bench's time."""


def measure(case: Case, seconds: float) -> dict[str, Any]:
    expression = case.make()
    ours = checked(case.name, expression)
    calls: Calls = {"rollergen": ours.call}
    missing, not_offered = {}, []
    for library in CPU:
        library.threads(len(CORES))
    for one in competitors(case.operation, ours.arrays):
        if one.call is not None:
            _require_same(case, one.name, as_numpy(one.call(), ours.out.shape), ours.out)
            calls[one.name] = one.call
        elif one.offered:
            missing[one.name] = one.reason
        else:
            not_offered.append(one.name)
    if len(calls) == 1:
        absent = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise SystemExit(f"no library is here that offers it ({absent}); pip install 'rollergen[bench]' brings some")
    slower = _far_slower(calls)
    calls = {name: call for name, call in calls.items() if name not in slower}
    probed = all(array.dtype == np.float32 for array in (*ours.arrays, ours.out))
    out = aligned_empty(ours.out.shape, "float32")
    graph, cpu = canonicalize(expression), resolve("cpu")
    roofline = probes(graph, cpu, ours.arrays, out, len(CORES)) if probed else {}
    probing = {name: probe.call for name, probe in roofline.items()}
    whole = whole_cores(len(CORES)) if ALL_CORES else lambda: True
    turns = in_turns({**calls, LED: ours.call_led(), **probing}, seconds, len(CORES), whole)
    times = {name: each.again for name, each in turns.items()}
    own, led = times.pop("rollergen"), times.pop(LED)
    binds, at_least = bound_s(roofline, {name: times.pop(name) for name in roofline}) if probed else ("", None)
    shares = {name: _shares(own, theirs) for name, theirs in times.items()}
    ratios = {name: median(values) for name, values in shares.items()}
    best = min(ratios, key=lambda name: ratios[name])
    return {
        "kind": case.kind, "case": case.name, "ratio": ratios[best], "ratios": ratios, "missing": missing,
        "not offered": not_offered, "far slower": slower,
        "ours_seconds": median(own), "seconds": {n: median(t) for n, t in times.items()},
        "predicted_seconds": ours.kernel.predicted_time, "rounds": len(own), "build_seconds": ours.build_seconds,
        "roofline_seconds": at_least, "bound": binds, "roofline_share": at_least and at_least / median(own),
        "best_peer_share": at_least and at_least / min(median(t) for t in times.values()),
        "first_ratio": _first_ratio({name: turns[name] for name in calls}),
        "led_seconds": median(led), "led_ratio": min(median(_shares(led, theirs)) for theirs in times.values()),
        "launches": len(ours.kernel.launches), "woken": _woken(ours.kernel.launches), "samples": thinned(shares[best]),
    }  # fmt: skip


def _shares(own: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Theirs over ours, round by round."""
    return [t / o for o, t in zip(own, theirs, strict=True)]


def _first_ratio(turns: Mapping[str, Turns]) -> float:
    """The best library's time over ours, of the calls behind everybody else's: with the caches as these left them."""
    own = turns["rollergen"].first
    return min(
        median(_shares(own, theirs.first))
        for name, theirs in turns.items()
        if name != "rollergen"
    )


def _woken(launches: Sequence[Any]) -> int:
    """Launches of a call for which the threads of other cores are woken."""
    return sum(not (one.once or one.alone) for one in launches) if len(CORES) > 1 else 0


def _far_slower(calls: Calls) -> dict[str, float]:
    """Seconds of a call of those that take no turns; never the fastest library."""
    found = {name: min(_seconds(call) for _ in range(3)) for name, call in calls.items()}
    limit = max(FAR * found.pop("rollergen"), LONG_S, min(found.values()))
    return {name: seconds for name, seconds in found.items() if seconds > limit}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _require_same(case: Case, library: str, theirs: np.ndarray, ours: np.ndarray) -> None:
    theirs, ours = theirs.astype(np.float64), ours.astype(np.float64)
    apart = float(np.abs(theirs - ours).max() / max(np.abs(ours).max(), 1e-30))
    if not apart <= TOLERANCE.get(case.operation.dtype, 0.0):
        raise SystemExit(f"{case.name}: {library} computes something else (largest difference {apart:.2g})")


def measured(case: Case, seconds: float, *more: str) -> dict[str, Any]:
    """A case's row, of the process in the middle where several were needed; ``more``: options of each."""
    runs = [alone(__file__, case.name, seconds, *more)]
    while runs[0]["ratio"] < LOW and len(runs) < PROCESSES:
        runs.append(alone(__file__, case.name, seconds, *more))
    middle = sorted(runs, key=lambda one: one["ratio"])[len(runs) // 2]
    return {**middle, "processes": [one["ratio"] for one in runs]}


NAME = "operators_all_cores" if ALL_CORES else "operators"


def measured_before(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cases, by name, of a run of today that was interrupted, else of one that ended, if it had these options."""
    for path in (unfinished(NAME), result_path(NAME)):
        kept = begun(path)
        if kept.get("options") == options:
            return {one["case"]: one for one in kept["cases"]}
    return {}


def class_means(cases: Sequence[Mapping[str, Any]], figure: Callable[[Mapping[str, Any]], float]) -> dict[str, float]:
    """The mean figure of the cases of each class, classes in the order of the cases."""
    found: dict[str, list[float]] = {}
    for one in cases:
        found.setdefault(one["kind"], []).append(figure(one))
    return {kind: mean(figures) for kind, figures in found.items()}


def share_of(found: Sequence[Mapping[str, Any]], figure: str) -> float:
    """The geometric mean of the cases' shares, each at most 1; NaN where no case has one."""
    return geometric_mean(min(one[figure], 1.0) for one in found) if found else float("nan")


def aims(found: list[dict[str, Any]], classes: dict[str, float], shares: dict[str, float]) -> tuple[Aim, ...]:
    threads = "one core" if len(CORES) == 1 else f"{len(CORES)} cores"
    overall, low = geometric_mean(one["ratio"] for one in found), sum(one["ratio"] < LOW for one in found)
    least, worst = min(classes, key=lambda kind: classes[kind]), min(found, key=lambda one: one["ratio"])
    of_peers = f"{shares['roofline']:.3f}; the best library of each case {shares['best_peer']:.3f}"
    return (
        Aim(f"The best library's time over ours, {len(found)} operators on {threads}, geometric mean",
            f"{overall:.3f}", f"at least {MEAN_TARGET}", overall >= MEAN_TARGET),
        Aim(f"The lowest class of them, {threads}", f"{least} {classes[least]:.3f}", f"at least {LEAST_CLASS}",
            classes[least] >= LEAST_CLASS),
        Aim(f"The lowest case of them, {threads}", f"{worst['case']} {worst['ratio']:.2f}", f"at least {LEAST_CASE}",
            worst["ratio"] >= LEAST_CASE),
        Aim(f"Cases of them below {LOW}, {threads}", f"{low}", f"at most {MOST_LOW}", low <= MOST_LOW),
        Aim(f"Share of the roofline, geometric mean, {threads}", of_peers, f"at least {LEAST_SHARE}",
            shares["roofline"] >= LEAST_SHARE),
    )  # fmt: skip


def main() -> int:
    arguments = asked()
    for case in CASES:
        if case.name == arguments.alone:
            print(json.dumps(measure(case, arguments.seconds)))
            return 0
    absent, whole = reasons(EVERY), not arguments.case and not arguments.kind
    options = {"seconds": arguments.seconds, "cores": CORES, "absent": absent}
    known = measured_before(options) if whole and not arguments.again else {}
    before = len(known)
    more = ["--all-cores"] if ALL_CORES else []
    console = Console(width=150)
    columns = ("class", "case", "ours", "best peer", "its time", "ratio", "of the roofline", "all ratios")
    table = Table(*columns, title=f"cores {CORES}")
    found = []
    for case in wanted(arguments):
        if case.name not in known:
            known[case.name] = measured(case, arguments.seconds, *more)
            if whole:
                keep_at(unfinished(NAME), {"options": options, "cases": list(known.values())})
        one = known[case.name]
        found.append(one)
        best = min(one["ratios"], key=lambda name: one["ratios"][name])
        every = " ".join(f"{name} {ratio:.2f}" for name, ratio in one["ratios"].items())
        console.print(f"{case.name}: {one['ratio']:.3f} ({every})")
        times = f"{one['ours_seconds'] * 1e3:.3f} ms", best, f"{one['seconds'][best] * 1e3:.3f} ms"
        share = f"{one['roofline_share']:.2f} ({one['bound']})" if one["bound"] else ""
        table.add_row(case.kind, case.name, *times, f"{one['ratio']:.3f}", share, every)
    console.print(table)
    for name, reason in absent.items():
        console.print(f"absent: {name}: {reason}", highlight=False)
    classes = class_means(found, lambda one: one["ratio"])
    overall = mean(classes.values())
    for kind, ratio in classes.items():
        console.print(f"{kind}: {ratio:.3f} (at least {LEAST_CLASS})")
    of_cases = geometric_mean(one["ratio"] for one in found)
    console.print(f"geometric mean of the cases: {of_cases:.3f} (at least {MEAN_TARGET})")
    console.print(f"mean of class means: {overall:.3f}")
    first = mean(class_means(found, lambda one: one["first_ratio"]).values())
    console.print(f"of first calls, behind those of the others: {first:.3f}")
    led = mean(class_means(found, lambda one: one["led_ratio"]).values())
    console.print(f"where ours alone has arrays as NumPy allocates them, 16 bytes behind a cache line: {led:.3f}")
    below = [one["case"] for one in found if one["ratio"] < LOW]
    console.print(f"cases below {LOW} (at most {MOST_LOW}): {', '.join(below) or 'none'}")
    bounded = [one for one in found if one["bound"]]
    shares = {who: share_of(bounded, f"{who}_share") for who in ("roofline", "best_peer")}
    console.print(f"share of the roofline, geometric mean: {shares['roofline']:.3f} (at least {LEAST_SHARE}), "
                  f"the best library of each case {shares['best_peer']:.3f}")
    if not whole:
        return 0
    judged = aims(found, classes, shares)
    if before < len(found):
        content = {
            "headlines": [one.headline() for one in judged], "cache": "warm", "threads": len(CORES), "absent": absent,
            "options": options, "cases": found, "classes": classes, "mean": overall,
            "geometric_mean": of_cases, "first_mean": first,
            "led_mean": led,
            "roofline_share": shares["roofline"], "best_peer_share": shares["best_peer"],
        }  # fmt: skip
        keep(NAME, content)
        unfinished(NAME).unlink(missing_ok=True)
    console.print(f"{before} of {len(found)} cases were measured before; kept in {result_path(NAME)}", highlight=False)
    return verdict(judged)


if __name__ == "__main__":
    raise SystemExit(main())
