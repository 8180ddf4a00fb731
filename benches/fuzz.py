"""Random expressions on all devices until the time is up: ``python benches/fuzz.py --seconds 900 --seed 1``.

Every expression is constructed for a device, its best programs are written as OpenCL C, run on this machine's CPU and
passed through the gate; one in `SIZED` is built once more with one of its extents known at the call.  A failure is made
as small as it goes and printed as a script that shows it.  Programs to which a busy machine twice gave less processor
time than their limits are skipped, told apart and counted; wrong values never are.  What is known is kept every minute,
and the same command goes on from there: ended at any moment, it loses a minute.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from results import begun, keep, result_path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollergen.construct.options import BuildOptions
from tests.fuzzing.minimise import minimised
from tests.fuzzing.recipes import Recipe, draw
from tests.fuzzing.sizes import SizedRecipe, sized
from tests.fuzzing.trial import Failure, Trials, drawn_options

DEVICES = ("cpu", "cpu", "v100", "mi50", "ipu", "a100", "k80", "cpu", "h200", "ipu2")
SIZED, SIZED_ON = 6, ("cpu", "mi50")
"""One expression of so many gets a kernel for all sizes, on the one device or the other: their text runs here."""
SAVED_EVERY_S = 60.0
_CHECK = """from rollergen.construct import construct
from tests.fuzzing.trial import cut
from rollergen.runtime.executor import executor_for
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.bench import LocalBench
from rollergen.measure.outcome import Outcome
from rollergen.emit import emit
from rollergen.construct.options import BuildOptions
from rollergen.tile.rules import AlignmentRules, CodeShapes

device, options = rg.load_device("{device}"), {options}
graph = cut(outputs, device, options)
for ranked in construct(graph, device, options, 2):
    gate = Gate(ranked.program, expression_oracle(outputs, graph.outputs))
    candidate = Outcome(0, ranked.program, emit(ranked.program, device, "opencl"), 0.0)
    print(LocalBench(executor_for(rg.load_device("cpu")), gate).check(candidate).problems)"""


@dataclass
class Run:
    """What is known of the expressions from ``first`` on; kept in benches/results, from where the next run goes on."""

    first: int
    expressions: int = 0
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)
    never_compiled: int = 0
    uncompiled: list[int] = field(default_factory=list)
    too_slow: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def begun(first: int) -> Run:
        """Where today's run of this code with that seed was left, else a new one."""
        known = begun(result_path(f"fuzz_{first}"))
        if not known:
            return Run(first)
        spent, count, slow = known["spent_s"], known["expressions"], known.get("skipped_too_slow", [])
        never, seeds = known["sources_never_compiled"], known.get("seeds_never_compiled", [])
        return Run(first, count, known["seconds"], known["failures"], never, seeds, slow, spent)

    def kept(self) -> Path:
        facts = {"first_seed": self.first, "expressions": self.expressions, "seconds": self.seconds}
        facts |= {"failures": self.failures, "sources_never_compiled": self.never_compiled}
        facts["seeds_never_compiled"] = self.uncompiled
        facts["skipped_too_slow"] = self.too_slow
        return keep(f"fuzz_{self.first}", {**facts, "devices": sorted(set(DEVICES)), "spent_s": self.spent})


@click.command()
@click.option("--seconds", default=120.0, show_default=True, help="Of all runs together that go on from each other.")
@click.option("--seed", default=0, show_default=True, help="Number of the first expression.")
@click.option("--count", default=None, type=int, help="So many expressions instead of a time.")
@click.option("--minimise/--no-minimise", default=True, show_default=True)
@click.option("--resume/--anew", default=True, show_default=True, help="Go on where today's run was left.")
def main(seconds: float, seed: int, count: int | None, minimise: bool, resume: bool) -> None:
    run = Run.begun(seed) if resume else Run(seed)
    trials, begun, saved = Trials(), time.monotonic() - run.seconds, time.monotonic()
    trials.spent, trials.never_compiled = dict(run.spent), run.never_compiled
    while run.expressions < count if count is not None else run.seconds < seconds:
        found = _tried(trials, seed + run.expressions, minimise)
        run.failures += found
        run.too_slow += [{"seed": seed + run.expressions, "why": why} for why in trials.too_slow]
        trials.too_slow.clear()
        if trials.never_compiled > run.never_compiled:
            run.uncompiled.append(seed + run.expressions)
        run.expressions, run.seconds = run.expressions + 1, time.monotonic() - begun
        run.spent, run.never_compiled = trials.spent, trials.never_compiled
        if found or time.monotonic() - saved > SAVED_EVERY_S:
            run.kept()
            saved = time.monotonic()
    trials.close()
    click.echo(
        f"{run.expressions} expressions from seed {seed}, {len(run.failures)} failures, {len(run.too_slow)} programs "
        f"skipped: too slow, {run.never_compiled} never compiled, {run.seconds:.0f} s"
    )
    click.echo(f"kept in {run.kept()}")
    sys.exit(bool(run.failures))


def _tried(trials: Trials, seed: int, minimise: bool) -> list[dict[str, Any]]:
    """The failure of an expression, if it is one."""
    device, options = DEVICES[seed % len(DEVICES)], drawn_options(seed)
    try:
        recipe = draw(seed)
    except Exception as error:  # the language is to say itself what it refuses
        text = f"{type(error).__name__}: {error}"
        click.echo(f"seed {seed}: drawn: {text[:300]}")
        return [{"seed": seed, "device": device, "kind": f"drawn: {type(error).__name__}", "text": text, "script": ""}]
    failure = trials.failure(recipe, device, options)
    if failure is not None:
        return [_reported(trials, recipe, (device, options), failure, seed, minimise)]
    sizes = sized(recipe, seed) if seed % SIZED == 0 else None
    return [] if sizes is None else _sized_failures(trials, sizes, seed)


def _sized_failures(trials: Trials, sizes: SizedRecipe, seed: int) -> list[dict[str, Any]]:
    """The failure of a kernel for all sizes, if there is one."""
    device = SIZED_ON[seed // SIZED % len(SIZED_ON)]
    failure = trials.sized_failure(sizes, device)
    if failure is None:
        return []
    click.echo(f"seed {seed} on {device}: {failure.kind}: {failure.text[:300]}\n{sizes.opened.text}\n")
    script = sizes.opened.script(f'print(rg.build(outputs, "{device}", profile=False).explain())')
    return [{"seed": seed, "device": device, "kind": failure.kind, "text": failure.text[:2000], "script": script}]


def _reported(
    trials: Trials, recipe: Recipe, where: tuple[str, BuildOptions], failure: Failure, seed: int, minimise: bool
) -> dict[str, Any]:
    device, options = where
    click.echo(f"seed {seed} on {device}: {failure.kind}: {failure.text[:300]}")
    if minimise:

        def fails(candidate: Recipe) -> bool:
            found = trials.failure(candidate, device, options)
            return found is not None and found.kind == failure.kind

        recipe = minimised(recipe, fails)
        failure = trials.failure(recipe, device, options) or failure
    script = recipe.script(_CHECK.replace("{device}", device).replace("{options}", repr(options)))
    click.echo(f"{recipe.text}\n  -> {failure.text[:300]}\n", nl=True)
    return {"seed": seed, "device": device, "kind": failure.kind, "text": failure.text[:2000], "script": script}


if __name__ == "__main__":
    main()
