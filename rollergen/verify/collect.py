"""Measurements of many programs of one operator: drafted and sampled ones, checked, timed by `protocol`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from rollergen.construct import construct
from rollergen.construct.space import space
from rollergen.errors import RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.hal.spec import Device
from rollergen.measure.arrays import aligned_empty
from rollergen.measure.executor import RuntimeExecutor, Session
from rollergen.measure.gate import Gate
from rollergen.measure.oracle import expression_oracle
from rollergen.measure.profiler import Outcome, propose
from rollergen.options import BuildOptions
from rollergen.program.rprogram import RProgram
from rollergen.store.keys import key_of
from rollergen.store.records import records_of
from rollergen.verify.protocol import Protocol, spread, time_all

_PROTOCOL = Protocol()

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


def programs_of(graph: Graph, device: Device, count: int, drafted: int, seed: int) -> tuple[list[RProgram], int, int]:
    """(programs, how many of them are drafted, points of the aligned space): the model's best `drafted`, then
    others drawn uniformly from the aligned space until there are `count` or no more."""
    options = BuildOptions()
    first = [one.program for one in construct(graph, device, options, min(50, drafted))]
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
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Collected:
    """Up to `count` programs of `expr`, checked and timed; failing ones are recorded with what they failed at."""
    graph = canonicalize(expr)
    programs, first, points = programs_of(graph, device, count, drafted, seed)
    gate = Gate(programs[0], expression_oracle((expr,), graph.outputs))
    outcomes, runs = [], {}
    for number, outcome in enumerate(propose(programs, device)):
        outcome, session = _checked(replace(outcome, rank=number if number < first else SAMPLED), executor, gate)
        outcomes.append(outcome)
        if session is not None:
            runs[number] = session.run
        progress("compiled and checked", number + 1, len(programs))
    timings = time_all(runs, min(runs), protocol, seed)
    timed = [_with_times(one, timings.times_s.get(number)) for number, one in enumerate(outcomes)]
    key = key_of(graph, device, BuildOptions(), count, executor.driver)
    spreads = [spread(times) for times in timings.times_s.values() if len(times) > 1]
    records = tuple(records_of(tuple(timed), graph, device, key, time.time()))
    return Collected(records, points, timings.repeatability, median(spreads), timings.drifted)


def _checked(outcome: Outcome, executor: RuntimeExecutor, gate: Gate) -> tuple[Outcome, Session | None]:
    """The outcome with its compile time and verdict, and its launches, ready to be timed, if it passed."""
    program = outcome.program
    start = time.perf_counter()
    try:
        session = executor.prepare(outcome.source).session()
        compiled = time.perf_counter() - start

        def call(arrays: Any) -> None:
            session.set(arrays)
            session.once()
            session.run()

        verdict = gate.check(program, call)
    except RollergenError as error:
        return replace(outcome, problems=(f"{type(error).__name__}: {error}",)), None
    outcome = replace(outcome, compile_s=compiled, problems=verdict.problems, compared=verdict.compared)
    if not verdict.passed:
        return outcome, None
    made = {b.name: aligned_empty(b.shape, b.dtype) for b in program.temporaries}
    made |= {b.name: np.empty(b.shape, numpy_dtype(b.dtype)) for b in program.outputs}
    call({**gate.inputs, **made})
    return outcome, session


def _with_times(outcome: Outcome, times: tuple[float, ...] | None) -> Outcome:
    if times is None:
        return outcome
    return replace(outcome, wall_s=median(times), event_s=median(times), rounds=len(times), times_s=times)
