"""What the gate costs: ``python benches/bench_gate_cost.py [--every N] [--against FILE]``.

ROLLER's operators, cut to sizes of a few milliseconds here, four candidates each: processor seconds of making the gate
and checking all of them, compiled before, the lesser of two trips after a first one (processor time, since others may
use the machine; it still grows by what they push out of its caches).  ``--against``: rows of another checkout, which
ran the same command with ``--keep FILE``: the median ratio over the operators is printed, the aim is at most 1.3.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click

from rollergen.bench.suites import Entry, suite
from rollergen.construct import construct
from rollergen.construct.planning import row_limits
from rollergen.emit import Source
from rollergen.expr.canonical import canonicalize
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.hal.spec import Device
from rollergen.measure.bench import LocalBench
from rollergen.measure.profiler import propose
from rollergen.runtime.executor import Compiled, Executor, executor_for
from rollergen.targets import resolve
from tests.agreement.cutting import cut

POINTS, BYTES, CANDIDATES, TRIPS, AIM = 1 << 26, 1 << 25, 4, 3, 1.3


class Known:
    """An executor that compiles every source once."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.memory, self._compiled = executor, executor.memory, dict[str, Compiled]()

    def prepare(self, source: Source) -> Compiled:
        if source.text not in self._compiled:
            self._compiled[source.text] = self._executor.prepare(source)
        return self._compiled[source.text]


def seconds(entry: Entry, device: Device) -> float:
    """Of the processor.  Raises AssertionError where the gate refuses a candidate."""
    expression = entry.build(cut(entry, POINTS, BYTES, images=True))
    graph = canonicalize(expression, rows=row_limits(device))
    programs = [ranked.program for ranked in construct(graph, device, top_k=CANDIDATES)]
    outcomes, oracle = propose(programs, device), expression_oracle((expression,), graph.outputs)
    executor, found = Known(executor_for(device)), []
    for _ in range(TRIPS):
        start = time.process_time()
        bench = LocalBench(executor, Gate(programs[0], oracle))
        checked = [bench.check(outcome) for outcome in outcomes]
        assert not any(one.problems for one in checked), (entry.id, checked[0].problems)
        found.append(time.process_time() - start)
    return min(found[1:])


@click.command()
@click.option("--every", default=1, help="One in so many of the operators.")
@click.option("--first", default=0, help="Of them, beginning with this one.")
@click.option("--keep", type=Path, help="Where the rows are written, as JSON.")
@click.option("--against", type=Path, help="Rows of another checkout.")
def main(every: int, first: int, keep: Path | None, against: Path | None) -> None:
    device, rows = resolve("cpu"), dict[str, float]()
    before = json.loads(against.read_text()) if against else {}
    for entry in suite("roller").entries[first::every]:
        rows[entry.id] = round(seconds(entry, device), 4)
        ratio = f"{rows[entry.id] / before[entry.id]:.2f} times" if entry.id in before else ""
        click.echo(f"{entry.id:5}{rows[entry.id]:8.3f} s  {ratio}")
        if keep:
            keep.write_text(json.dumps(rows))
    if ratios := [rows[name] / before[name] for name in rows if name in before]:
        click.echo(f"median of {len(ratios)}: {median(ratios):.2f} times (at most {AIM})")
        sys.exit(median(ratios) > AIM)


if __name__ == "__main__":
    main()
