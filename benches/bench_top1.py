"""How good the model's first choice is here: ``python benches/bench_top1.py [--samples N] [--case TEXT]``.

For each operator the first choice is compared with the best of programs sampled from the aligned
space.  All are checked, then timed in alternation with the first choice; the best of them are timed
again, so that the minimum of many noisy figures does not count as a program's time.  Exits with 1 where the worst
case misses its aim.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

os.environ.update({"POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"})
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import argparse
import time
from statistics import median
from typing import Any

from aims import Aim, verdict
from operators import CASES
from results import keep
from rich.console import Console
from rich.progress import track
from rich.table import Table

import rollergen as rg
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
TARGET = 1.1


def session_of(outcome: Outcome, executor: Any, gate: Gate) -> Session | None:
    """The candidate's launches on the gate's inputs; None where it is refused or wrong."""
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
    return session


def ratio(first: Session, other: Session, rounds: int) -> float:
    """Median over rounds of the first's wall seconds over the other's."""
    ratios = []
    for _ in range(rounds):
        times = []
        for session in (first, other):
            start = time.perf_counter()
            session.run()
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])
    return median(ratios)


def compare(case: Any, samples: int) -> dict[str, Any]:
    device = resolve("cpu")
    executor, tensor = executor_for(device), case.make()
    first_program = rg.construct(tensor, device, 1)[0]
    space = rg.space(tensor, device)
    outcomes = propose([first_program, *space.sample(samples)], device)
    graph_outputs = first_program.outputs
    gate = Gate(first_program, expression_oracle((tensor,), graph_outputs))
    first = session_of(outcomes[0], executor, gate)
    if first is None:
        raise SystemExit(f"{case.name}: the model's first choice is wrong")
    found, refused = [], 0
    for outcome in track(outcomes[1:], description=case.name, transient=True):
        session = session_of(outcome, executor, gate)
        if session is None:
            refused += 1
        else:
            found.append((ratio(first, session, ROUNDS), session))
    found.sort(key=lambda item: -item[0])
    best = max(ratio(first, session, FINAL_ROUNDS) for _, session in found[:FINALISTS])
    counts = {"space_points": space.points, "measured": len(found), "refused": refused}
    return {"case": case.name, **counts, "top1_over_best": best}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    arguments = parser.parse_args()
    console = Console(width=130)
    table = Table("case", "aligned space", "measured", "refused", "top-1 / best")
    found = []
    for case in CASES:
        if case.name.startswith(CHOSEN) and "constant" not in case.name and arguments.case in case.name:
            one = compare(case, arguments.samples)
            found.append(one)
            counts = (str(one[name]) for name in ("space_points", "measured", "refused"))
            table.add_row(one["case"], *counts, f"{one['top1_over_best']:.3f}")
    console.print(table)
    if not arguments.case:
        worst = max(found, key=lambda one: one["top1_over_best"])
        what = f"First choice over the best of {arguments.samples} programs drawn: worst of {len(found)} cases"
        shown, met = f"{worst['case']} {worst['top1_over_best']:.3f}", worst["top1_over_best"] <= TARGET
        aim = Aim(what, shown, f"at most {TARGET}", met)
        content = {"headlines": [aim.headline()], "target": TARGET, "samples": arguments.samples, "cases": found}
        console.print(f"kept in {keep('top1', content)}")
        return verdict([aim])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
