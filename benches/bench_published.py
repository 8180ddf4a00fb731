"""Predicted times against rates that others published: ``python benches/bench_published.py [--keep]``.

First choices, constructed now.  Products beside cuBLAS on the same card, which must be met within 15 %; streams of
64 M elements of float32 beside the rate that a streaming kernel of the same reads and writes reaches, within 5 %.
All that was found is here, nothing was fitted to what users of PyTorch measured, and nothing left out for being missed.
The model knows no cap of power, under which clocks fall while a card is busy.  The spec of the A100 is the SXM card's
(400 W): a PCIe card (250 W) makes 8 to 18 % less in tf32, bfloat16 and float16 at 8192 than at 4096.  The best of many
shapes, which is what `MAMF` is, is a bound that first choices keep.
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
MAMF = "torch.matmul, the best of many shapes: stas00/ml-engineering, compute/accelerator at 744d01e"
TRITON = "cuBLAS: triton-lang/triton, issue"
USERS = "torch.matmul: zzc0721/torch-performance-test-data, issue"


@dataclass(frozen=True, slots=True)
class Published:
    """``rate`` of a device, in TFLOP/s of products (m, n, k) and GB/s of a map of one tensor, and who says so; tf32:
    of float32."""

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
            held = "float32" if self.dtype == "tf32" else self.dtype
            expression = rg.ops.matmul(rg.tensor("a", (m, k), held), rg.tensor("b", (k, n), held))
            work = 2 * prod(self.sizes) / 1e12
        else:
            expression, work = rg.ops.relu(rg.tensor("x", self.sizes)), 2 * 4 * prod(self.sizes) / 1e9
        options = rg.BuildOptions(allow_tf32=self.dtype == "tf32")
        how = {"device": self.device, "options": options, "top_k": 1, "profile": False, "cache": False}
        return work / rg.build(expression, **how).predicted_time


MAP = (64 * 1024 * 1024,)
MEASURED_BY_USERS = (  # device, dtype, rates of 4096 x 4096 x 4096 and 8192 x 8192 x 8192, the issue that has them
    ("v100-sxm2", "float32", (13.85, 14.38), 140),
    ("v100-sxm2", "float16", (95.73, 97.36), 140),
    ("a100", "float32", (15.52, 17.56), 108),  # PCIe, 40 GB
    ("a100", "tf32", (108.32, 97.32), 108),
    ("a100", "float16", (241.49, 197.51), 108),
    ("a100", "bfloat16", (234.14, 215.26), 108),
    ("h100", "float32", (51.88, 51.81), 79),  # SXM
    ("h100", "tf32", (402.15, 372.05), 79),
    ("h100", "float16", (760.04, 736.19), 79),
    ("h100", "bfloat16", (788.72, 797.51), 79),
    ("rtx4090", "float32", (53.02, 53.41), 78),
    ("rtx4090", "tf32", (84.44, 85.65), 78),
    ("rtx4090", "float16", (168.38, 155.50), 78),
    ("rtx4090", "bfloat16", (151.50, 160.17), 78),
)
RATES = (
    Published("v100-sxm2", (8192, 8192, 8192), 100, f"cuBLAS: {CUTLASS} 169 (CUTLASS 93)", "float16"),
    Published("a100", (3456, 4096, 8192), 250, f"cuBLAS, read off a figure: {CUTLASS} 105 (CUTLASS 240)", "float16"),
    *(
        Published(device, (side,) * 3, rate, f"{USERS} {issue}", dtype)
        for device, dtype, rates, issue in MEASURED_BY_USERS
        for side, rate in zip((4096, 8192), rates, strict=True)
    ),
    Published("v100-sxm2", (4096,) * 3, 84.1, f"{TRITON} 1648 (V100, 32 GB)", "float16"),
    Published("a100", (5120, 4096, 4096), 18.88, "cuBLAS: Yinghan-Li/YHs_Sample, issue 4 (PCIe, 80 GB)"),
    Published("a100", (1024, 10240, 5120), 271.2, f"{MAMF} (SXM)", "bfloat16"),
    Published("a100", (2048, 5120, 6144), 252.9, f"{MAMF} (PCIe)", "bfloat16"),
    Published("h100", (2048, 2048, 13312), 794.5, MAMF, "bfloat16"),
    Published("mi300x", (10240, 15360, 8192), 668.4, MAMF, "bfloat16"),
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
