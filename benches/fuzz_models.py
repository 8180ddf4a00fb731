"""Random networks against torch until the time is up: ``python benches/fuzz_models.py --seconds 900 --seed 1``.

Each is compiled for the CPU and called twice: every layer must be within the gate's bound of its float64 definition,
and every result as near to torch's in float64 as torch's own in float32, by `NEARNESS`.  Failures are printed and kept
with their seeds, from which `tests.fuzzing.networks.drawn` draws them again.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import rollergen as rg
from benches.results import keep
from tests.fuzzing.networks import drawn

NEARNESS = 8
"""Times the error of torch in float32 that a result's may be: their orders of summation differ."""
FLOOR = 2.0**-20
"""Of the largest value of a result: errors below are no sign of anything."""


def trial(seed: int) -> dict[str, Any]:
    """What became of one network: {"steps", "host", "error": 0 to 1, of what is allowed}; "failure" where it failed."""
    network, x = drawn(seed)
    row: dict[str, Any] = {"seed": seed}
    try:
        model = rg.compile(network, (x,), "cpu", profile=False)
        row |= {"steps": len(model.steps), "host": sum(one.kernel is None for one in model.layers)}
        model.check(x)
        x = torch.randn(x.shape)
        with torch.no_grad():
            single, double = network(x), copy.deepcopy(network).double()(x.double())
        row["error"] = max(map(_error, model(x), single, double))
        if not row["error"] <= 1:
            row["failure"] = f"{row['error']:.3g} times the error that is allowed"
    except Exception as error:  # what a failure is: the row tells it
        row["failure"] = f"{type(error).__name__}: {error}"
        row["where"] = traceback.format_exc().splitlines()[-4:]
    return row


def _error(made: torch.Tensor, single: torch.Tensor, double: torch.Tensor) -> float:
    allowed = NEARNESS * (single - double).abs().max() + FLOOR * double.abs().max()
    worst = (made - double).abs().max()
    return 0.0 if worst == 0 else float(worst / allowed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1, help="of the first network; the others follow")
    arguments = parser.parse_args()
    rows, end = [], time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        rows.append(trial(arguments.seed + len(rows)))
        if "failure" in rows[-1]:
            print(rows[-1], flush=True)
    failures = [row for row in rows if "failure" in row]
    found = {
        "first seed": arguments.seed, "networks": len(rows), "steps": sum(row.get("steps", 0) for row in rows),
        "host steps": sum(row.get("host", 0) for row in rows),
        "largest error, of what is allowed": max((row.get("error", 0.0) for row in rows), default=0.0),
        "kinds of failure": dict(Counter(row["failure"].split(":")[0] for row in failures)), "failures": failures,
    }  # fmt: skip
    keep("fuzz_models", found)
    print({key: value for key, value in found.items() if key != "failures"})
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
