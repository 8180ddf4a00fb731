"""Random expressions on all devices until the time is up: ``python benches/fuzz.py --seconds 900 --seed 1``.

Every expression is constructed for a device, its best programs are written as OpenCL C, run on this machine's CPU and
passed through the gate.  A failure is made as small as it goes and printed as a script that shows it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from results import keep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzzing.minimise import minimised
from tests.fuzzing.recipes import Recipe, draw
from tests.fuzzing.trial import Failure, Trials

DEVICES = ("cpu", "cpu", "v100", "mi50", "ipu", "a100", "k80")
_CHECK = """from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.measure.executor import executor_for
from rollergen.measure.gate import Gate
from rollergen.measure.oracle import expression_oracle
from rollergen.measure.bench import LocalBench
from rollergen.measure.outcome import Outcome
from rollergen.emit import emit

device, graph = rg.load_device("{device}"), canonicalize(expression)
plain = rg.BuildOptions(shapes=rg.CodeShapes(matrix_instructions=False))
for ranked in construct(graph, device, plain, 2):
    gate = Gate(ranked.program, expression_oracle((expression,), graph.outputs))
    candidate = Outcome(0, ranked.program, emit(ranked.program, device, "opencl"), 0.0)
    print(LocalBench(executor_for(rg.load_device("cpu")), gate).check(candidate).problems)"""


@click.command()
@click.option("--seconds", default=120.0, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Number of the first expression.")
@click.option("--count", default=None, type=int, help="So many expressions instead of a time.")
@click.option("--minimise/--no-minimise", default=True, show_default=True)
def main(seconds: float, seed: int, count: int | None, minimise: bool) -> None:
    trials, failures, start, number = Trials(), [], time.monotonic(), 0
    while number < count if count is not None else time.monotonic() - start < seconds:
        recipe, device = draw(seed + number), DEVICES[(seed + number) % len(DEVICES)]
        failure = trials.failure(recipe, device)
        if failure is not None:
            failures.append(_reported(trials, recipe, device, failure, seed + number, minimise))
        number += 1
    trials.close()
    click.echo(f"{number} expressions from seed {seed}, {len(failures)} failures, {time.monotonic() - start:.0f} s")
    facts = {"first_seed": seed, "expressions": number, "seconds": time.monotonic() - start, "failures": failures}
    facts["sources_never_compiled"] = trials.never_compiled
    click.echo(f"kept in {keep(f'fuzz_{seed}', {**facts, 'devices': sorted(set(DEVICES)), 'spent_s': trials.spent})}")
    sys.exit(bool(failures))


def _reported(trials: Trials, recipe: Recipe, device: str, failure: Failure, seed: int, minimise: bool) -> dict:
    click.echo(f"seed {seed} on {device}: {failure.kind}: {failure.text[:300]}")
    if minimise:

        def fails(candidate: Recipe) -> bool:
            found = trials.failure(candidate, device)
            return found is not None and found.kind == failure.kind

        recipe = minimised(recipe, fails)
        failure = trials.failure(recipe, device) or failure
    script = recipe.script(_CHECK.replace("{device}", device))
    click.echo(f"{recipe.text}\n  -> {failure.text[:300]}\n", nl=True)
    return {"seed": seed, "device": device, "kind": failure.kind, "text": failure.text[:2000], "script": script}


if __name__ == "__main__":
    main()
