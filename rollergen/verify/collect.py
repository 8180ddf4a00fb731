"""Measurements of many programs of one operator: drafted and sampled ones, checked, timed by `protocol`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.construct.space import space
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.measure.bench import Bench
from rollergen.measure.isolation import bench_for
from rollergen.measure.outcome import Outcome, Progress
from rollergen.measure.profiler import propose
from rollergen.measure.timing import lost_when_timed
from rollergen.program.rprogram import RProgram
from rollergen.runtime.executor import RuntimeExecutor
from rollergen.store.keys import expression_text, key_of, sha256
from rollergen.store.record_files import read
from rollergen.store.records import records_of
from rollergen.verify.protocol import Protocol, Run, Timings, spread, time_all

_PROTOCOL = Protocol()

_KEPT = 4
"""Programs whose arrays are kept: that which is timed, the control program, and some to spare."""

SAMPLED = -1
"""The rank of a program that was drawn from the aligned space rather than drafted."""


@dataclass(frozen=True, slots=True)
class Collected:
    """One operator's records (`store.records`), one for each program that was tried, and how the timing went."""

    records: tuple[dict[str, Any], ...]
    points: int
    repeatability: tuple[float, ...]
    spread: float
    drifted: int


def expression_key(expr: Tensor, device: Device) -> str:
    """What the records of `expr` on the device name it by (their ``op.expr``)."""
    return sha256(expression_text(planned(expr, device)))


def recorded(path: Path) -> frozenset[str]:
    """`expression_key` of every operator that the file has records of; none where there is no file yet."""
    return frozenset(record["op"]["expr"] for record in read(path).records) if path.exists() else frozenset()


def programs_of(graph: Graph, device: Device, count: int, drafted: int, seed: int) -> tuple[list[RProgram], int, int]:
    """(programs, how many of them are drafted, points of the aligned space): the model's best `drafted`, then
    others drawn uniformly from the aligned space until there are `count` or no more."""
    options = BuildOptions()
    first = [one.program for one in construct(graph, device, options, min(50, drafted, count))]
    everything = space(graph, device, options)
    known = set(first)
    others: list[RProgram] = []
    for program in everything.sample(min(everything.points, 4 * count), seed):
        if program not in known and len(first) + len(others) < count:
            known.add(program)
            others.append(program)
    return first + others, len(first), everything.points


def collect(
    expr: Tensor,
    device: Device,
    executor: RuntimeExecutor,
    *,
    count: int = 60,
    drafted: int = 30,
    protocol: Protocol = _PROTOCOL,
    seed: int = 0,
    options: BuildOptions = BuildOptions(),
    alone: Callable[[bool], AbstractContextManager[object]] = lambda timing: nullcontext(),
    progress: Progress = lambda what, done, of: None,
) -> Collected:
    """Up to `count` programs of `expr`, checked and timed; failing ones are recorded with what they failed at.

    ``options``: of how safely they are run (``isolate`` and its limits).  ``alone``: entered around the checking
    (with False) and the timing (with True), by which several that share a device agree on who times.
    """
    graph = planned(expr, device)
    programs, first, points = programs_of(graph, device, count, drafted, seed)
    oracle = expression_oracle((expr,), graph.outputs)
    with bench_for(device, executor, programs[0], oracle, options, _KEPT) as bench:
        with alone(False):
            outcomes = []
            for number, candidate in enumerate(propose(programs, device)):
                outcomes.append(candidate if candidate.problems else bench.check(candidate))
                progress("compiled and checked", number + 1, len(programs))
        with alone(True):
            timed, timings = _timed(outcomes, bench, protocol, seed)
    ranked = tuple(one if one.rank < first else replace(one, rank=SAMPLED) for one in timed)
    key = key_of(graph, device, BuildOptions(), count, executor.driver)
    spreads = [spread(one.times_s) for one in ranked if len(one.times_s) > 1]
    records = tuple(records_of(ranked, graph, device, key, time.time()))
    return Collected(
        records, points, timings.repeatability, median(spreads) if spreads else 0.0, timings.drifted
    )


def _timed(
    outcomes: Sequence[Outcome], bench: Bench, protocol: Protocol, seed: int
) -> tuple[list[Outcome], Timings]:
    """The outcomes, those that passed with their times; one that is lost while it is timed has failed."""
    lost: dict[int, Outcome] = {}

    def run_of(outcome: Outcome) -> Run:
        def run(calls: int) -> float:
            if outcome.rank in lost:
                return inf
            try:
                return bench.repeat(outcome, calls)
            except Exception as error:  # also what runtimes raise: it is this program's
                lost[outcome.rank] = lost_when_timed(outcome, error)
                return inf

        return run

    runs = {one.rank: run_of(one) for one in outcomes if not one.problems}
    if not runs:
        return list(outcomes), Timings({}, (), 0)
    timings = time_all(runs, min(runs), protocol, seed)
    return [lost.get(one.rank, _with_times(one, timings.times_s.get(one.rank))) for one in outcomes], timings


def _with_times(outcome: Outcome, times: tuple[float, ...] | None) -> Outcome:
    if times is None:
        return outcome
    return replace(outcome, wall_s=median(times), event_s=median(times), rounds=len(times), times_s=times)
