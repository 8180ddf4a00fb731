"""Counts beside the committed baseline: ``python benches/bench_counts.py [--rebase]``.

Calls of this package and of SymPy while fixed operators are built for fixed devices, candidates, bytes and time of the
model's first choice; instructions of construction (callgrind) and of machine code (NVIDIA's compiler), where these are
installed: figures that a busy machine does not move.  Exits with 1 where one is worse than the baseline by
more than its margin; ``--rebase`` makes what is found the new baseline (commit it with the change that explains it).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches import instructions
from benches.counts import BASELINE, BOUNDS, counted_anew, regressions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rebase", action="store_true", help="write the baseline anew")
    options = parser.parse_args()
    console = Console(width=130)
    now = counted_anew()
    table = Table("case", *BOUNDS, title="counts")
    for case, counts in now["counts"].items():
        table.add_row(case, *(f"{counts[name]:g}" for name in BOUNDS))
    console.print(table)
    counted = instructions.count()
    for kind, found in counted.items():
        for case, number in found["counts"].items():
            console.print(f"{kind} of {case}: {number:,} instructions ({found['tools']})", highlight=False)
    if options.rebase:
        renewed = {**instructions.baseline(), **counted}  # what cannot be counted here stays
        for path, content in ((BASELINE, now), (instructions.BASELINE, renewed)):
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            console.print(f"the baseline is now {path}")
        return
    base = instructions.baseline()
    for kind in sorted(instructions.MARGINS.keys() - set(instructions.comparable(base, counted))):
        console.print(f"{kind}: no baseline of these tools, or they are missing", highlight=False)
    worse = regressions(json.loads(BASELINE.read_text(encoding="utf-8")), now)
    worse += instructions.regressions(base, counted)
    for line in worse:
        console.print(line, highlight=False)
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
