"""What each figure of a device spec moves: ``python benches/bench_sensitivity.py [--device NAME ...] [--quick]``.

Every numeric field is raised and lowered by a fifth, over two operators and a copy that fills the memory: which
predictions, first choices and ranks differ, by how much, and what is informational and why.  Fields of mechanisms that
these do not use (windows, other dtypes, functions) move nothing here: `--quick` looks for fields that move nothing at
all, over those of `rollergen.explain.representative` and a sample of all programs, each as far as its first effect.
Kept device by device in results/sensitivity_<cpu>_<day>.json: "table" and "dead fields".
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console

from benches.results import begun, keep, result_path
from rollergen.cli.device_sensitivity import effects_table
from rollergen.explain.representative import representative
from rollergen.explain.sensitivity import Effect, sensitivity, stated_figures
from rollergen.hal.load import load_device

NAME = "sensitivity"
TABLE = ("matmul", "softmax")


def effects_of(name: str, quick: bool, paths: list[str]) -> tuple[Effect, ...]:
    """Of these figures."""
    every, device = representative(), load_device(name)
    if quick:
        return sensitivity(device, every, thorough=False, paths=paths)
    return sensitivity(device, {one: every[one] for one in TABLE}, paths=paths, sampled=False)


def all_effects(name: str, quick: bool, jobs: int) -> tuple[Effect, ...]:
    """Of all figures, in their order, each process taking every so many."""
    stated = stated_figures(load_device(name))
    parts = [stated[first::jobs] for first in range(jobs)]
    with ProcessPoolExecutor(jobs) as pool:
        found = {e.path: e for part in pool.map(effects_of, [name] * jobs, [quick] * jobs, parts) for e in part}
    return tuple(found[path] for path in stated)


def summary(effects: tuple[Effect, ...]) -> dict[str, Any]:
    return {
        "figures": len(effects),
        "moving": sum(effect.moves for effect in effects),
        "informational": sum(bool(effect.informational) and not effect.moves for effect in effects),
        "no other value accepted": [effect.path for effect in effects if effect.refused and not effect.moves],
        "operators": list(representative()),
        "unexplained": [effect.path for effect in effects if effect.unexplained],
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "mi50", "ipu", "cpu"])
    words.add_argument("--quick", action="store_true")
    words.add_argument("--jobs", type=int, default=1, help="Processes.")
    given = words.parse_args()
    path = result_path(NAME)
    for name in given.device:
        effects = all_effects(name, given.quick, given.jobs)
        found = summary(effects)
        if not given.quick:
            found = {"operators": list(TABLE), "effects": [asdict(effect) for effect in effects]}
        Console().print(effects_table(name, effects))
        devices = begun(path).get("devices", {})
        part = {"dead fields" if given.quick else "table": found}
        devices[name] = {**devices.get(name, {}), **part}
        keep(NAME, {"devices": devices})


if __name__ == "__main__":
    main()
