"""All that a machine with an NVIDIA GPU is to measure, in order: ``python benches/gpu/run.py [--budget-s SECONDS]``.

Checks that predictions are there and committed, then correctness, timings, and the means by class, each a script of
this folder in a process of its own.  Stops after so many seconds (default: under ten minutes) and exits with 3 where
something is left: call it again, until it exits with 0.  Options that are not every script's go to `compare.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.rows import UNFINISHED

STEPS = ("predict.py", "check.py", "compare.py", "summary.py")
HERE = Path(__file__).resolve().parent


def main(words: list[str] | None = None) -> int:
    given, others = machine.parser(__doc__).parse_known_args(words)
    end, worst = time.perf_counter() + given.budget_s, 0
    for step in STEPS:
        left = end - time.perf_counter()
        if left <= 0:
            print(f"no time left for {step}; call it again")
            return worst or UNFINISHED
        print(f"== {step}", flush=True)
        command = [sys.executable, str(HERE / step), *options(step, given, others), "--budget-s", f"{left:.0f}"]
        code = subprocess.run(command, check=False).returncode
        if code == UNFINISHED:
            return worst or UNFINISHED
        worst = max(worst, code)
    return worst


def options(step: str, given: argparse.Namespace, others: list[str]) -> list[str]:
    """Those of a step: only `compare.py` has others than the common ones; predictions are where they are committed."""
    words = ["--device", given.device, "--suite", *given.suite]
    words += ["--only", *given.only] if given.only else []
    if step == "predict.py":
        return words
    words += ["--results", str(given.results)] + ["--again"] * (given.again and step != "summary.py")
    return words + (others if step == "compare.py" else [])


if __name__ == "__main__":
    raise SystemExit(main())
