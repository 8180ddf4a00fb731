"""Predicted times against rates that others published: ``python benches/bench_published.py [--keep]``.

First choices, constructed now.  Products beside cuBLAS on the same card, which must be met within 15 %; streams of
64 M elements of float32 beside the rate that a streaming kernel of the same reads and writes reaches, within 5 %.
Nothing was fitted to the products that users of PyTorch measured.  The A100 of these is a PCIe card of 250 W, whose own
rate falls by a fifth from 4096 to 8192, as it does where power is capped: the model knows no such cap, and misses it.
``--keep``: benches/results/published_rates.json.  Exits with 1 where a rate is missed.
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
USERS = "torch.matmul: zzc0721/torch-performance-test-data, issue"


@dataclass(frozen=True, slots=True)
class Published:
    """``rate`` of a device, in TFLOP/s of products (m, n, k) and GB/s of a map of one tensor, and who says so."""

    device: str
    sizes: tuple[int, ...]
    rate: float
    source: str
    dtype: str = "float32"

    @property
    def unit(self) -> str:
        return "TFLOP/s" if len(self.sizes) == 3 else "GB/s"

    @property
    def within(self) -> float:
        return 0.15 if len(self.sizes) == 3 else 0.05

    def predicted(self) -> float:
        if len(self.sizes) == 3:
            m, n, k = self.sizes
            expression = rg.ops.matmul(rg.tensor("a", (m, k), self.dtype), rg.tensor("b", (k, n), self.dtype))
            work = 2 * prod(self.sizes) / 1e12
        else:
            expression, work = rg.ops.relu(rg.tensor("x", self.sizes)), 2 * 4 * prod(self.sizes) / 1e9
        return work / rg.build(expression, self.device, top_k=1, profile=False, cache=False).predicted_time


MAP = (64 * 1024 * 1024,)
MEASURED_BY_USERS = (  # device, dtype, rates of 4096 x 4096 x 4096 and 8192 x 8192 x 8192, the issue that has them
    ("v100-sxm2", "float32", (13.85, 14.38), 140),
    ("v100-sxm2", "float16", (95.73, 97.36), 140),
    ("a100", "float32", (15.52, 17.56), 108),  # PCIe, 40 GB
    ("a100", "float16", (241.49, 197.51), 108),
    ("a100", "bfloat16", (234.14, 215.26), 108),
    ("h100", "float32", (51.88, 51.81), 79),  # SXM
    ("h100", "float16", (760.04, 736.19), 79),
    ("h100", "bfloat16", (788.72, 797.51), 79),
)
RATES = (
    Published("v100-sxm2", (8192, 8192, 8192), 100, f"cuBLAS: {CUTLASS} 169 (CUTLASS 93)", "float16"),
    Published("a100", (3456, 4096, 8192), 250, f"cuBLAS, read off a figure: {CUTLASS} 105 (CUTLASS 240)", "float16"),
    *(
        Published(device, (side,) * 3, rate, f"{USERS} {issue}", dtype)
        for device, dtype, rates, issue in MEASURED_BY_USERS
        for side, rate in zip((4096, 8192), rates, strict=True)
    ),
    Published("v100", MAP, 809, STREAMS),
    Published("a100", MAP, 1737, STREAMS),
    Published("mi210", MAP, 1362, STREAMS),
    Published("mi300x", MAP, 3997, STREAMS),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    aims, rows = [], []
    for one in RATES:
        predicted = one.predicted()
        near = abs(predicted / one.rate - 1) <= one.within
        kind = f"{one.dtype} product" if len(one.sizes) == 3 else "relu"
        what = f"{one.device}: {kind} of {' x '.join(map(str, one.sizes))}"
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
