"""Products of few rows beside their bounds: ``python benches/bench_rows.py [--devices NAMES] [--rows NUMBERS]``.

For each device a table: rows x 4096 x 4096, rows x 11008 x 4096 and rows x 4096 x 11008 (rows, reduced, columns) of
float16.  ``bound``: the larger of all operands and results once at the rate of memory that streams reach, and all
products at the rate of the fastest instruction for them in the spec.  ``work``: the first choice's predicted time but
for its launches, over that bound; ``whole``: with them.  ``binding``: the largest limiter of its longest stage.

``--keep``: benches/results/rows.json.  Exits with 1 where ``work`` is beyond 1.3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rollergen as rg
from benches.aims import Aim, verdict
from benches.results import RESULTS, keep_at
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.model.launching import launch_us
from rollergen.research import planned

ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SIDES = ((4096, 4096), (11008, 4096), (4096, 11008))
"""Reduced extent and columns."""
DTYPE, BYTES = "float16", 2
WITHIN, FEW = 1.3, 64


@dataclass(frozen=True, slots=True)
class Row:
    """A product's first choice: times in us."""

    device: str
    m: int
    k: int
    n: int
    memory_us: float
    compute_us: float
    predicted_us: float
    launches_us: float
    binding: str
    blocks: int
    threads: int
    chosen: str

    @property
    def bound_us(self) -> float:
        return max(self.memory_us, self.compute_us)

    @property
    def work(self) -> float:
        return (self.predicted_us - self.launches_us) / self.bound_us

    @property
    def whole(self) -> float:
        return self.predicted_us / self.bound_us

    @property
    def text(self) -> str:
        return (
            f"{self.m:4} {self.k:6} {self.n:6} {self.bound_us:7.2f} {self.predicted_us:7.2f} {self.launches_us:5.2f} "
            f"{self.work:6.2f} {self.whole:6.2f}  {self.binding:16} {self.chosen}; "
            f"{self.blocks} blocks of {self.threads}"
        )


def row(device: Device, m: int, k: int, n: int, options: BuildOptions = BuildOptions()) -> Row:
    product = rg.ops.matmul(rg.tensor("a", (m, k), DTYPE), rg.tensor("b", (k, n), DTYPE))
    first = construct(planned(product, device, options), device, options, 1)[0]
    prediction = predict(first.program, device)
    longest = max(prediction.stages, key=lambda stage: stage.seconds)
    fastest = max(one.at_once * one.per_clock for one in device.instructions if one.dtype == DTYPE)
    rate = device.units * fastest * device.clock_mhz * 1e6
    moved = BYTES * (m * k + k * n + m * n)
    return Row(
        device.name, m, k, n, moved / device.backing.bandwidth_gb_s / 1e3, m * n * k / rate * 1e6,
        prediction.seconds * 1e6, len(prediction.stages) * launch_us(device), longest.binding,
        int(longest.blocks), int(longest.threads), ", ".join(first.variants),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="a100,h200")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    found, built = [], BuildOptions()
    for name in options.devices.split(","):
        device = load_device(name)
        print(f"{name}\n   m      k      n   bound    time launch   work  whole  binding          chosen")
        for k, n in SIDES:
            for m in map(int, options.rows.split(",")):
                found.append(row(device, m, k, n, built))
                print(found[-1].text, flush=True)
    found_aims = list(aims(found))
    if options.keep:
        kept = {"headlines": [one.headline() for one in found_aims], "rows": [asdict(one) for one in found]}
        keep_at(RESULTS / "rows.json", kept)
    return verdict(found_aims)


def aims(found: Sequence[Row]) -> Iterator[Aim]:
    """Of each device that of few rows, and that of more."""
    for device in dict.fromkeys(one.device for one in found):
        own = [one for one in found if one.device == device]
        few, more = ([one for one in own if (one.m <= FEW) == which] for which in (True, False))
        for what, some in ((f"up to {FEW} rows", few), (f"more than {FEW}", more)):
            if some:
                beyond, most = sum(one.work > WITHIN for one in some), max(one.work for one in some)
                figure = f"{most:.2f} at most, {beyond} of {len(some)} beyond"
                name = f"{device}: float16 products of {what}, predicted time but launches over its bound"
                yield Aim(name, figure, f"at most {WITHIN}", not beyond)


if __name__ == "__main__":
    raise SystemExit(main())
