"""Every candidate of a build on the GPU, beside torch: ``python benches/gpu/candidates.py --core``.

The programs that a build would measure are compiled, each is held to torch in float64 in whole, and all are timed in
turns with torch's own call, warm and cold (`timer.py`), on torch's arrays.  No gate, so that the core takes two minutes
where `compare.py` takes many; and every program is kept with its prediction, so that one sees what the model ranks
wrongly: ``first`` is its first choice, ``best`` the fastest.  ``--warm PART OF``: only compile (part of the list, for
several processes at once), so that a run after it finds machine code.  Predictions need not be there, for every row has
its own.  Rows are kept in results/gpu_candidates_<spec>.json.  Exits with 3 where time ran out: call it again.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rollergen as rg
from benches.gpu import machine
from benches.gpu.check import reference, wrong_elements
from benches.gpu.machine import Machine
from benches.gpu.peers import fix_precision, libraries
from benches.gpu.rows import Row, Rows
from benches.gpu.timer import STATES, Timer
from rollergen.bench.suites import Entry
from rollergen.build import Terms, terms_of
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.expr.language import Tensor
from rollergen.expr.stages import Graph
from rollergen.gate.narrowing import program_accuracies
from rollergen.measure.candidates import proposed
from rollergen.measure.outcome import Outcome
from rollergen.program.model import predict

NAME = "candidates"
COUNT = 10


class Makes(Protocol):
    """What makes an expression, such as an `Entry`."""

    def make(self) -> Tensor: ...


def drafted(entry: Makes, on: Machine, count: int = COUNT) -> tuple[Terms, Graph, tuple[Outcome, ...]]:
    """What a build would measure, ``count`` programs at most."""
    options = BuildOptions()
    terms = replace(terms_of(on.device, count, "auto", options), varied=True)
    graph = planned(entry.make(), on.device, options)
    return terms, graph, proposed(partial(terms.drafted, graph), terms.count, on.device, options)


def row(entry: Entry, on: Machine, timer: Timer) -> Row:
    started = time.perf_counter()
    terms, graph, found = drafted(entry, on)
    kernels = {one.rank: terms.kernel(found, one, graph.cuts, _undefined) for one in found if not one.problems}
    with on.only_for_a_while():
        inputs = on.inputs(next(iter(kernels.values())))
        arrays = on.arrays(inputs)
        want, _ = reference(entry, inputs)
        programs = [facts(one, on) for one in found]
        calls: dict[str, Any] = {}
        for rank, kernel in kernels.items():
            got = on.tensor(kernel(*arrays))
            (out,) = kernel.program.outputs
            programs[rank]["wrong"] = wrong_elements(got, want, program_accuracies(kernel.program)[out.name], out.dtype)
            (into,) = on.arrays([on.empty(kernel)])
            calls[str(rank)] = partial(kernel, *arrays, out=into)
        del want
        peers, refused = libraries(entry, inputs, got, {})
        times = {state: timer.alternate({**calls, **peers}, 0.0, state) for state in STATES}
    for state, each in times.items():
        for one in programs:
            if took := each.get(str(one["rank"])):
                one[state] = took.median_us
    torch = {state: took.median_us for state, each in times.items() for name in peers if (took := each[name])}
    right = [one for one in programs if one.get("wrong") == 0 and "warm" in one]
    state = "timed" if right and not any(one.get("wrong") for one in programs) else "wrong: see its programs"
    seconds = round(time.perf_counter() - started, 2)
    shown: Row = {**machine.facts_of(entry), "state": state, "torch": torch, "refused": refused, "seconds": seconds}
    if right:
        first, best = right[0]["warm"], min(one["warm"] for one in right)
        shown |= {"first": first, "best": best, "ratio": torch["warm"] / best if torch else None}
    return {**shown, "programs": programs}


def _undefined() -> Any:
    raise AssertionError("asked for only where a kernel is explained or saved")


def facts(one: Outcome, on: Machine) -> Row:
    limiters = [
        [(limit.name, round(1e6 * float(limit.seconds), 2)) for limit in stage.limiters]
        for stage in predict(one.program, on.device).stages
        if not stage.once
    ]
    launches = [(launch.blocks, launch.threads, launch.dynamic_bytes) for launch in one.source.launches]
    found: Row = {"rank": one.rank, "predicted_us": round(1e6 * one.predicted_s, 3), "launches": launches}
    return {**found, "limiters": limiters, "problems": one.problems}


def mean(values: list[float]) -> float | None:
    """Geometric, of what there is."""
    return round(exp(sum(map(log, values)) / len(values)), 4) if values else None


def summary(rows: list[Row]) -> Row:
    """``ratio``: torch's time over the fastest candidate's; ``regret``: the first choice's over the fastest's."""
    timed = [one for one in rows if "best" in one]
    programs = [program for one in timed for program in one["programs"]]
    return {
        "operators": len(rows), "timed": len(timed), "programs": len(programs),
        "wrong": sum(bool(one.get("wrong")) for one in programs),
        "ratio": mean([one["ratio"] for one in timed if one["ratio"]]),
        "regret": mean([one["first"] / one["best"] for one in timed]),
        "predicted over measured": mean([one["predicted_us"] / one["warm"] for one in programs if "warm" in one]),
    }  # fmt: skip


def warm(found: list[Entry], on: Machine) -> None:
    """Has the candidates compiled."""
    for entry in found:
        for one in drafted(entry, on)[2]:
            if not one.problems:
                on.runtime.compile(one.source.text)


def main(words: list[str] | None = None) -> int:
    parser = machine.parser(__doc__)
    parser.add_argument("--warm", nargs=2, type=int, metavar=("PART", "OF"), help="only compile this part")
    given = machine.parsed(parser, words)
    on, found = machine.machine(given), machine.entries(given)
    if given.warm:
        part, of = given.warm
        warm(list(found.values())[part::of], on)
        return 0
    facts = {**on.facts(), "precision": fix_precision(), "rollergen": rg.__version__}
    rows = Rows(machine.path(given.results, NAME, on.device), facts, summary)
    timer = Timer(on.runtime)
    return rows.fill(
        found, lambda key: row(found[key], on, timer), machine.budget(given), again=given.again, retry=given.retry,
        alive=on.alive,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
