"""Random formulas, the second fuzzer: ``python benches/fuzz_formulas.py --seed 1 --count 5000``.

A program of a seed is a few tensors made by `rg.compute` (tests/fuzzing/formulas draws them): quasi-affine reads,
shared values, integers, casts, conditions, reductions of all kinds, several outputs.  It is built for this machine's
CPU and run, interpreted for five other devices, now and then run as it is written for another device, and now and then
built through the whole gate; results are held to a NumPy evaluation of its own, never to `evaluate`.  A failure is made
small and printed as a script that shows it.  What is known is kept every minute, and the same command goes on from
there.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from results import begun, hash_of, keep, result_path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzzing.formulas.cases import Tried, tried
from tests.fuzzing.formulas.trials import INTERPRETED, OWN, RUN

KINDS = (*OWN, *INTERPRETED, *RUN, "gate")
GENERATOR = ("tests/fuzzing",)
SAVED_EVERY_S = 60.0
RENEWED_AFTER = 100
"""Programs that one process runs before another takes over: PoCL keeps memory of every kernel."""
LIMIT_S = 1800.0
"""Of one program on all devices: on a machine that others use, what takes longer hangs."""


@dataclass
class Run:
    """What is known of the programs from ``first`` on; kept in benches/results, from where the next run goes on."""

    first: int
    programs: int = 0
    outputs: int = 0
    seconds: float = 0.0
    elements: int = 0
    exact_elements: int = 0
    unknown_elements: int = 0
    least_distinct: float = 1.0
    distinct: float = 0.0
    runs: dict[str, int] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def begun(first: int) -> Run:
        """Where today's run of this code and generator with that seed was left, else a new one."""
        known = begun(result_path(f"fuzz_formulas_{first}"))
        return Run(**known["run"]) if known.get("generator") == hash_of(GENERATOR) else Run(first)

    def kept(self) -> Path:
        shown: dict[str, Any] = {"programs": self.programs, "outputs": self.outputs, "failed": len(self.failures)}
        shown |= {"summary": self.summary, "generator": hash_of(GENERATOR)}
        return keep(f"fuzz_formulas_{self.first}", {**shown, "run": asdict(self)})

    @property
    def summary(self) -> str:
        elements = max(1, self.elements)
        return (
            f"{self.programs} programs with {self.outputs} outputs from seed {self.first}, {len(self.failures)} "
            f"failures, {self.seconds:.0f} s; different values: {self.distinct:.0%} of elements in the mean, "
            f"{self.least_distinct:.0%} at least; {self.exact_elements / elements:.0%} of {self.elements} elements "
            f"compared exactly, {self.unknown_elements / elements:.1%} not at all"
        )

    def add(self, found: Tried) -> None:
        self.distinct = (self.distinct * self.outputs + sum(found.distinct)) / (self.outputs + len(found.distinct))
        self.least_distinct = min(self.least_distinct, *found.distinct)
        self.programs, self.outputs = self.programs + 1, self.outputs + len(found.distinct)
        self.elements += found.elements
        self.exact_elements += found.exact_elements
        self.unknown_elements += found.unknown_elements
        for device, seconds in found.spent_s.items():
            self.spent_s[device] = self.spent_s.get(device, 0.0) + seconds
            if device != "drawn":
                self.runs[device] = self.runs.get(device, 0) + 1
        self.failures += found.failures


class Worker:
    """A process that tries seeds, so that one that ends or hangs it is a failure like others."""

    def __init__(self, devices: tuple[str, ...], minimise: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, devices, minimise), daemon=True)
        self.process.start()
        theirs.close()
        self.tries = 0

    def ask(self, seed: int) -> Tried | str:
        """What became of the seed, or how the process ended."""
        self.tries += 1
        self.pipe.send(seed)
        try:
            if self.pipe.poll(LIMIT_S):
                found: Tried = self.pipe.recv()
                return found
        except EOFError:
            self.process.join()
            return f"its process ended with status {self.process.exitcode}"
        return f"nothing after {LIMIT_S:.0f} s"

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def serve(pipe: Any, devices: tuple[str, ...], minimise: bool) -> None:
    """Answers seeds until the pipe is closed."""
    while True:
        pipe.send(tried(pipe.recv(), devices, minimise))


@click.command()
@click.option("--seed", default=0, show_default=True, help="Number of the first program.")
@click.option("--count", default=None, type=int, help="So many programs.")
@click.option("--seconds", default=60.0, show_default=True, help="Of all runs that go on from each other.")
@click.option("--devices", default="", help=f"Comma-separated: {', '.join(KINDS)}; default: all.")
@click.option("--minimise/--no-minimise", default=True, show_default=True)
@click.option("--resume/--anew", default=True, show_default=True, help="Go on where today's run was left.")
def main(seed: int, count: int | None, seconds: float, devices: str, minimise: bool, resume: bool) -> None:
    run = Run.begun(seed) if resume else Run(seed)
    chosen = tuple(filter(None, devices.split(",")))
    start, saved, worker = time.monotonic() - run.seconds, time.monotonic(), Worker(chosen, minimise)
    while run.programs < count if count is not None else run.seconds < seconds:
        found = worker.ask(seed + run.programs)
        if isinstance(found, str):
            found = Tried.lost(seed + run.programs, found)
        if found.was_lost or worker.tries >= RENEWED_AFTER:
            worker.end()
            worker = Worker(chosen, minimise)
        for one in found.failures:
            click.echo(f"seed {one['seed']} on {one['device']}: {one['kind']}: {one['text'][:300]}\n{one['script']}\n")
        run.add(found)
        run.seconds = time.monotonic() - start
        if found.failures or time.monotonic() - saved > SAVED_EVERY_S:
            run.kept()
            saved = time.monotonic()
    worker.end()
    click.echo(run.summary)
    click.echo(f"kept in {run.kept()}")
    sys.exit(bool(run.failures))


if __name__ == "__main__":
    main()
