"""Whether a limit on padding ever helps: ``python benches/bench_epsilon.py [--devices a,b] [--sizes N]``.

For products of random sizes and each device: the predicted time of the first choice within no limit over that of the
best of the paper's limits (epsilon).  Padding is priced, so the default should be the best of all.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from aims import Aim, verdict
from results import keep
from rich.progress import track

import rollergen as rg
from rollergen.construct.choose import choice
from rollergen.construct.options import BuildOptions
from rollergen.errors import RollergenError
from rollergen.hal.spec import Device
from rollergen.research import planned
from rollergen.targets import resolve

LIMITS = (0.0, 0.05, 0.25, 0.5, 1.0)
LARGEST = 4096
TARGET = 1.01
SEED = 1


def seconds(size: tuple[int, int, int], device: Device, options: BuildOptions) -> float:
    """Predicted by the model of the first choice; infinite where the limit admits none."""
    m, n, k = size
    op = planned(rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n))), device, options).tensor_ops[0]
    choice.cache_clear()
    try:
        found = choice(op, device, options.rules, 10).candidates
    except RollergenError:
        return float("inf")
    return found[0].seconds if found else float("inf")


def row(size: tuple[int, int, int], device: Device) -> dict[str, Any]:
    """A product's line: time within no limit over the best of the limits, and which that is."""
    limited = {limit: seconds(size, device, BuildOptions(epsilon=limit)) for limit in LIMITS}
    best = min(LIMITS, key=lambda limit: limited[limit])
    return {"size": size, "ratio": seconds(size, device, BuildOptions()) / limited[best], "best epsilon": best}


@click.command()
@click.option("--devices", default="v100,a100,h200,mi50", show_default=True)
@click.option("--sizes", default=200, show_default=True, help="Random sizes of each device.")
def main(devices: str, sizes: int) -> None:
    chance = random.Random(SEED)
    drawn = [tuple(int(LARGEST ** chance.uniform(0.25, 1)) for _ in "mnk") for _ in range(sizes)]
    found, aims = {}, []
    for name in devices.split(","):
        device = resolve(name)
        found[name] = rows = [row(size, device) for size in track(drawn, description=name, transient=True)]
        worst = max(rows, key=lambda one: one["ratio"])
        shown = f"{worst['ratio']:.4f} at {'x'.join(map(str, worst['size']))}"
        aims.append(
            Aim(f"{name}: default over the best epsilon, worst", shown, f"at most {TARGET}", worst["ratio"] <= TARGET)
        )
        click.echo(f"{name}: worst {shown}, {sum(one['ratio'] > TARGET for one in rows)} above {TARGET}")
    content = {"headlines": [aim.headline() for aim in aims], "sizes": sizes, "seed": SEED, "rows": found}
    click.echo(f"kept in {keep('epsilon', content)}")
    raise SystemExit(verdict(aims))


if __name__ == "__main__":
    main()
