"""Are constants that were fitted on some cards right for another?  ``python benches/bench_leave_one_out.py DATA
[--sample N] [--keep]``.

Of the four measured spaces in the folder DATA one after the other is left out.  Each constant of the model that was
fitted on a GPU is then made larger and smaller, one at a time, while that is better for the cards that are left: tau
less the median error of the predicted times, |log(predicted / measured)|, on average.  What comes out ranks the whole
space of the card that was left out.  Beside that tau the one with the specs as they are.  Exits with 1 where the former
is more than the aim below the latter.  The ascent begins at the specs' constants, which were set by all four: it shows
whether the others pull away from them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from measured_spaces import measured_seconds, program_of, read_rows
from ranking import agreement
from rich.console import Console
from rich.table import Table
from space_terms import with_costs

from benches.aims import Aim, verdict
from benches.results import keep_at
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

HERE = Path(__file__).parent
SPACES = {
    "titan_rtx": "gemm_rtx_titan", "rtx_3060_laptop": "gemm_rtx_3060_laptop", "a100-pcie-40gb": "conv_a100",
    "mi50-hip": "conv_mi50",
}  # fmt: skip
"""Names of devices, and of the files with their spaces."""
FITTED = (
    "norm_exponent", "memory_exponent", "ahead_exponent", "loop_instructions", "staging_instructions",
    "fragment_registers", "reserved_registers", "spill_accesses", "exposed_staging_clocks", "exposed_direct_clocks",
    "exposed_managed_clocks", "window_step_clocks",
)  # fmt: skip
STEPS, ROUNDS, LEAST_GAIN = (0.7, 1.4), 3, 0.001
"""Times as large a constant is tried; how often all of them are; what the mean has to gain beyond noise."""
AIM = 0.02

Constants = Mapping[str, float]
"""Factors of the constants of a spec."""


class Space(NamedTuple):
    device: Device
    programs: Sequence[RProgram]
    seconds: Sequence[float]


def space_of(name: str, data: Path, sample: int) -> Space:
    """So many programs drawn with a fixed seed; 0: all."""
    device = load_device(str(HERE / "devices" / f"{name}.json"))
    rows = read_rows(data / f"{SPACES[name]}.csv.gz")
    if sample:
        rows = random.Random(0).sample(rows, min(sample, len(rows)))
    return Space(device, [program_of(row, device) for row in rows], [measured_seconds(row) for row in rows])


def predicted(space: Space, factors: Constants) -> np.ndarray:
    costs = dict(space.device.costs)
    device = with_costs(space.device, **{name: costs[name] * by for name, by in factors.items() if name in costs})
    return np.array([float(predict(program, device).seconds) for program in space.programs])


def tau(space: Space, factors: Constants) -> float:
    return agreement(predicted(space, factors), np.array(space.seconds))[0]


def worth(space: Space, factors: Constants) -> float:
    """Tau less the median error of the times."""
    said, measured = predicted(space, factors), np.array(space.seconds)
    return agreement(said, measured)[0] - float(np.median(np.abs(np.log(said / measured))))


def fitted(spaces: Sequence[Space]) -> dict[str, float]:
    """Factors of the constants that are best for these spaces, by coordinate ascent from the specs' own."""
    factors = dict.fromkeys(FITTED, 1.0)
    mean = lambda tried: sum(worth(space, tried) for space in spaces) / len(spaces)
    best = mean(factors)
    for _ in range(ROUNDS):
        before = best
        for name in FITTED:
            for step in STEPS:
                while (found := mean(tried := factors | {name: factors[name] * step})) > best + LEAST_GAIN:
                    factors, best = tried, found
        if best == before:
            break
    return {name: by for name, by in factors.items() if by != 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sample", type=int, default=500, help="programs of each space to fit on (0: all)")
    parser.add_argument("--keep", action="store_true", help="write benches/results/leave_one_out.json")
    options = parser.parse_args()
    if options.sample < 0:
        parser.error(f"--sample is {options.sample}; expected how many programs, 0: all")
    drawn = {name: space_of(name, options.data, options.sample) for name in SPACES}
    rows = []
    table = Table("left out", "tau with the specs", "fitted without it", "changed")
    for name in SPACES:
        others = [space for other, space in drawn.items() if other != name]
        factors = fitted(others)
        whole = space_of(name, options.data, 0)
        found = {"tau": tau(whole, {}), "fitted without it": tau(whole, factors)}
        rows.append({"left out": name, **found, "factors": factors})
        print(rows[-1], flush=True)
        table.add_row(name, f"{rows[-1]['tau']:.3f}", f"{rows[-1]['fitted without it']:.3f}",
                      ", ".join(f"{what} x {by:.2f}" for what, by in factors.items()))  # fmt: skip
    Console(width=140).print(table)
    judged = tuple(
        Aim(f"Constants fitted without {row['left out']}: Kendall's tau of its measured programs",
            f"{row['fitted without it']:.3f} ({row['tau']:.3f} with the specs)", f"at most {AIM} below",
            row["fitted without it"] >= row["tau"] - AIM)
        for row in rows
    )  # fmt: skip
    if options.keep:
        content = {"headlines": [one.headline() for one in judged], "sample": options.sample, "rows": rows}
        keep_at(HERE / "results" / "leave_one_out.json", content)
    return verdict(judged)


if __name__ == "__main__":
    sys.exit(main())
