"""How good the model's first choice is here: ``python benches/bench_top1.py [--samples N] [--case TEXT]
[--unseen N [--seed N] [--log FILE]] [--busy]``.

For each operator the first choice is compared with the best of programs sampled from the aligned
space.  All are checked, then timed in alternation with the first choice; the best of them are timed
again, so that the minimum of many noisy figures does not count as a program's time.  Exits with 1 where the worst
case misses its aim.

``--unseen``: so many operators of all classes with extents drawn at random (`unseen`), instead of the chosen ones.
``--log``: a line for each as it is done; the same command goes on behind these.
``--busy``: seconds of the processor instead of the clock's, on a machine that does other work, where medians of ratios
are off by more than ten.  Nothing is kept then.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

os.environ.update({"POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"})
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aims import Aim, verdict
from operators import CASES
from results import keep
from rich.console import Console
from rich.progress import track
from rich.table import Table

import rollergen as rg
from benches.unseen import unseen
from rollergen.errors import RollergenError
from rollergen.gate.arrays import aligned_empty
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.outcome import Outcome
from rollergen.measure.profiler import propose
from rollergen.runtime.executor import executor_for
from rollergen.runtime.session import Session
from rollergen.targets import resolve

CHOSEN = ("matmul 1024x1024x1024", "matmul 997x997x997", "matmul 128x4096x4096", "conv 3x3")
FINALISTS = 10
ROUNDS, FINAL_ROUNDS = 3, 15
ROUND_SECONDS = 1e-3
"""Of a program that takes less, one call after another for so long is timed."""
TARGET = 1.1
UNSEEN_MEAN, UNSEEN_WORSE, UNSEEN_COUNT, UNSEEN_ERROR = 1.05, 1.25, 2, 0.2
"""Of unseen operators: the geometric mean at most, how many may be above which ratio, and the median error of the
predicted time."""


class Calls(NamedTuple):
    """The launches of a candidate as a kernel's calls make them; the session keeps the arrays."""

    run: Callable[[], object]
    session: Session


def calls_of(outcome: Outcome, executor: Any, gate: Gate) -> Calls | None:
    """The candidate's launches on the gate's inputs; None where it is refused or wrong.

    Without OpenCL's queue where calls do without: it takes 2.3 us more, which is no program's time."""
    try:
        session = executor.prepare(outcome.source).session()

        def run(arrays: Any) -> None:
            session.set(arrays)
            session.once()
            session.run()

        if not gate.check(outcome.program, run).passed:
            return None
    except RollergenError:
        return None
    made = {b.name: aligned_empty(b.shape, b.dtype) for b in outcome.program.temporaries + outcome.program.outputs}
    run({**gate.inputs, **made})
    prepared = session.prepare()
    return Calls(prepared.run if prepared else session.run, session)


Clock = Callable[[], float]


def seconds(timed: Calls, calls: int, clock: Clock) -> float:
    """Seconds of one call of so many in a row."""
    start = clock()
    for _ in range(calls):
        timed.run()
    return (clock() - start) / calls


def ratio(first: Calls, other: Calls, rounds: int, calls: int, clock: Clock) -> float:
    """Median over rounds of the first's seconds over the other's."""
    return median(seconds(first, calls, clock) / seconds(other, calls, clock) for _ in range(rounds))


def compare(case: Any, samples: int, clock: Clock) -> dict[str, Any]:
    device = resolve("cpu")
    executor, tensor = executor_for(device), case.make()
    first_program = rg.construct(tensor, device, 1)[0]
    space = rg.space(tensor, device)
    outcomes = propose([first_program, *space.sample(samples)], device)
    gate = Gate(first_program, expression_oracle((tensor,), first_program.outputs))
    first = calls_of(outcomes[0], executor, gate)
    if first is None:
        raise SystemExit(f"{case.name}: the model's first choice is wrong")
    took = median(seconds(first, 1, clock) for _ in range(FINAL_ROUNDS))
    calls, found, refused = max(1, round(ROUND_SECONDS / took)), [], 0
    for outcome in track(outcomes[1:], description=case.name, transient=True):
        other = calls_of(outcome, executor, gate)
        if other is None:
            refused += 1
        else:
            found.append((ratio(first, other, ROUNDS, calls, clock), other, outcome))
    found.sort(key=lambda item: -item[0])
    again = [(ratio(first, other, FINAL_ROUNDS, calls, clock), outcome) for _, other, outcome in found[:FINALISTS]]
    best, winner = max(again, key=lambda item: item[0])
    took = median(seconds(first, calls, clock) for _ in range(FINAL_ROUNDS))
    return {
        "case": case.name, "space_points": space.points, "measured": len(found), "refused": refused,
        "top1_over_best": best, "seconds": took, "predicted_over_measured": outcomes[0].predicted_s / took,
        "best_predicted_over_measured": winner.predicted_s * best / took,
    }  # fmt: skip


def results(cases: list[Any], samples: int, clock: Clock, log: Path | None) -> Iterator[dict[str, Any]]:
    """Of each case, as it is done; those that the log has are not measured again."""
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    logged = {one["case"]: one for one in map(json.loads, lines)}
    for case in cases:
        if case.name not in logged:
            logged[case.name] = compare(case, samples, clock)
            if log is not None:
                with log.open("a") as file:
                    file.write(json.dumps(logged[case.name]) + "\n")
        yield logged[case.name]


def aims_of_chosen(found: list[dict[str, Any]], samples: int) -> list[Aim]:
    worst = max(found, key=lambda one: one["top1_over_best"])
    what = f"First choice over the best of {samples} programs drawn: worst of {len(found)} cases"
    shown, met = f"{worst['case']} {worst['top1_over_best']:.3f}", worst["top1_over_best"] <= TARGET
    return [Aim(what, shown, f"at most {TARGET}", met)]


def aims_of_unseen(found: list[dict[str, Any]], samples: int) -> list[Aim]:
    ratios = [max(1.0, one["top1_over_best"]) for one in found]
    mean, worse = geometric_mean(ratios), sum(one > UNSEEN_WORSE for one in ratios)
    error = median(abs(one["predicted_over_measured"] - 1) for one in found)
    what = f"First choice over the best of {samples} programs drawn, {len(found)} operators never looked at"
    return [
        Aim(f"{what}: geometric mean", f"{mean:.3f}", f"at most {UNSEEN_MEAN}", mean <= UNSEEN_MEAN),
        Aim(f"{what}: above {UNSEEN_WORSE}", str(worse), f"at most {UNSEEN_COUNT}", worse <= UNSEEN_COUNT),
        Aim(f"Error of the predicted time, median over these {len(found)}", f"{error:.1%}",
            f"at most {UNSEEN_ERROR:.0%}", error <= UNSEEN_ERROR),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--unseen", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--busy", action="store_true")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.busy else time.perf_counter
    console = Console(width=130)
    chosen = [case for case in CASES if case.name.startswith(CHOSEN) and "constant" not in case.name]
    listed: list[Any] = unseen(arguments.unseen, arguments.seed) if arguments.unseen else list(chosen)
    cases = [case for case in listed if arguments.case in case.name]
    table = Table("case", "aligned space", "measured", "refused", "top-1 / best", "predicted / measured", "of the best")
    found = []
    for one in results(cases, arguments.samples, clock, arguments.log):
        found.append(one)
        counts = (str(one[name]) for name in ("space_points", "measured", "refused"))
        ratios = ("top1_over_best", "predicted_over_measured", "best_predicted_over_measured")
        table.add_row(one["case"], *counts, *(f"{one[name]:.3f}" for name in ratios))
        print(one, flush=True)
    console.print(table)
    if arguments.case:
        return 0
    judged = (aims_of_unseen if arguments.unseen else aims_of_chosen)(found, arguments.samples)
    content = {"headlines": [aim.headline() for aim in judged], "samples": arguments.samples, "cases": found}
    content |= {"seed": arguments.seed} if arguments.unseen else {"target": TARGET}
    if not arguments.busy:
        console.print(f"kept in {keep('top1_unseen' if arguments.unseen else 'top1', content)}")
    return verdict(judged)


if __name__ == "__main__":
    raise SystemExit(main())
