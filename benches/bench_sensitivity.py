"""What each figure of a device spec moves: ``python benches/bench_sensitivity.py [--device NAME ...] [--quick]``.

Every numeric field is raised and lowered by a fifth, over six operators: which predictions, first choices and rankings
differ, by how much, and what is informational and why.  What moves none of them is tried on all fourteen of
`rollergen.representative`, as far as its first effect.  Kept device by device in results/sensitivity_<cpu>_<day>.json;
`--quick` goes so far only with every field, and keeps how many moved something, how many are declared informational,
and which are unexplained.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console

from benches.results import keep, result_path
from rollergen.cli.device_sensitivity import effects_table
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.representative import representative
from rollergen.sensitivity import Effect, sensitivity

NAME = "sensitivity"
TABLE = ("matmul", "matmul, float16", "conv2d", "depthwise conv2d", "sum of rows", "softmax")


def effects_of(device: Device, thorough: bool) -> tuple[Effect, ...]:
    every = representative()
    if not thorough:
        return sensitivity(device, every, thorough=False)
    found = sensitivity(device, {name: every[name] for name in TABLE})
    dead = [effect.path for effect in found if effect.unexplained]
    more = {effect.path: effect for effect in sensitivity(device, every, thorough=False, paths=dead)} if dead else {}
    return tuple(more.get(effect.path, effect) for effect in found)


def summary(effects: tuple[Effect, ...]) -> dict[str, Any]:
    return {
        "figures": len(effects),
        "moving": sum(effect.moves for effect in effects),
        "informational": sum(bool(effect.informational) and not effect.moves for effect in effects),
        "no other value accepted": [effect.path for effect in effects if effect.refused and not effect.moves],
        "unexplained": [effect.path for effect in effects if effect.unexplained],
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "mi50", "ipu", "cpu"])
    words.add_argument("--quick", action="store_true")
    given = words.parse_args()
    path = result_path(NAME)
    for name in given.device:
        effects = effects_of(load_device(name), not given.quick)
        found = summary(effects)
        Console().print(effects_table(name, effects), f"{name}: {found}")
        devices = json.loads(path.read_text())["devices"] if path.exists() else {}
        devices[name] = found if given.quick else {**found, "effects": [asdict(effect) for effect in effects]}
        keep(NAME, {"operators": list(TABLE), "tried then": list(representative()), "devices": devices})


if __name__ == "__main__":
    main()
