"""Predicted times against rates that others published: ``python benches/bench_published.py [--keep]``.

First choices, constructed now.  Products of float16 beside cuBLAS on the same card, which must be met within 15 %;
streams of 64 M elements of float32 beside the rate that a streaming kernel of the same reads and writes reaches,
within 5 %.  ``--keep``: benches/results/published_rates.json.  Exits with 1 where a rate is missed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aims import Aim, verdict

import rollergen as rg
from benches.results import RESULTS, keep_at

CUTLASS = "NVIDIA/cutlass, issue"
STREAMS = "RRZE-HPC/gpu-benches, gpu-stream, scale"


@dataclass(frozen=True, slots=True)
class Published:
    """``rate`` of a device, in TFLOP/s of products (m, n, k) and GB/s of a map of one tensor, and who says so."""

    device: str
    sizes: tuple[int, ...]
    rate: float
    source: str

    @property
    def unit(self) -> str:
        return "TFLOP/s" if len(self.sizes) == 3 else "GB/s"

    @property
    def within(self) -> float:
        return 0.15 if len(self.sizes) == 3 else 0.05

    def predicted(self) -> float:
        if len(self.sizes) == 3:
            m, n, k = self.sizes
            expression = rg.ops.matmul(rg.tensor("a", (m, k), "float16"), rg.tensor("b", (k, n), "float16"))
            work = 2 * prod(self.sizes) / 1e12
        else:
            expression, work = rg.ops.relu(rg.tensor("x", self.sizes)), 2 * 4 * prod(self.sizes) / 1e9
        return work / rg.build(expression, self.device, top_k=1, profile=False, cache=False).predicted_time


MAP = (64 * 1024 * 1024,)
RATES = (
    Published("v100-sxm2", (8192, 8192, 8192), 100, f"cuBLAS: {CUTLASS} 169 (CUTLASS 93)"),
    Published("a100", (3456, 4096, 8192), 250, f"cuBLAS, read off a figure: {CUTLASS} 105 (CUTLASS 240)"),
    Published("v100", MAP, 809, STREAMS),
    Published("a100", MAP, 1737, STREAMS),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    aims, rows = [], []
    for one in RATES:
        predicted = one.predicted()
        near = abs(predicted / one.rate - 1) <= one.within
        what = f"{one.device}: {'product' if len(one.sizes) == 3 else 'relu'} of {' x '.join(map(str, one.sizes))}"
        figure, aim = f"{predicted:.0f} {one.unit}", f"{one.rate:g} within {one.within:.0%} ({one.source})"
        aims.append(Aim(what, figure, aim, near))
        rows.append({"what": what, "predicted": round(predicted, 1), "published": one.rate, "unit": one.unit,
                     "source": one.source})  # fmt: skip
        print(f"{what}: {figure}; {aim}", flush=True)
    if options.keep:
        keep_at(RESULTS / "published_rates.json", {"headlines": [one.headline() for one in aims], "rates": rows})
    return verdict(aims)


if __name__ == "__main__":
    raise SystemExit(main())
