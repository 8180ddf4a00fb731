"""What one element more costs: ``python benches/bench_odd.py [--device NAME ...] [--dtype NAME ...] [--sizes N]
[--jobs N]``.

For N random products, whose three extents are multiples of 64 from 512 to 4,096, and those with one more row, column
and step: the predicted times of the first choices, and their ratio.  No row of the second begins at a multiple of 16
bytes, and every tile overhangs.  Beside it for how many of them a copy of the smaller factor, or of both, into aligned
rows takes more than the aim allows by itself: these can't meet it that way.  Nothing is run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
from typing import Any

import numpy as np
from results import keep
from rich.console import Console
from rich.table import Table

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.options import BuildOptions
from rollergen.construct.planning import planned
from rollergen.errors import DeviceError
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.program.model.costs import costs_of
from rollergen.targets import resolve

DEVICES, DTYPES = ("v100", "a100", "h200", "mi50"), ("float32", "float16", "bfloat16", "int8")
LEAST, MOST, STEP = 512, 4096, 64
AIM = 1.25
"""Times as long one element more along each axis may take."""

Size = tuple[int, int, int]


def drawn(count: int, seed: int) -> list[Size]:
    draw = random.Random(seed)
    extent = lambda: draw.randrange(LEAST, MOST + 1, STEP)
    return [(extent(), extent(), extent()) for _ in range(count)]


def seconds(size: Size, dtype: str, device: Any) -> float:
    """Predicted time of the first choice."""
    m, n, k = size
    product = rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype))
    return construct(planned(product, device), device, BuildOptions(), top_k=1)[0].seconds


def copied(size: Size, dtype: str, device: Any) -> tuple[float, float]:
    """Seconds that copies of the smaller factor and of both take at least: a launch for each, and its bytes read at the
    rate of memory, and written, unless a spec says how the last cache keeps them."""
    m, n, k = size
    seconds_a_byte = (1 if costs_of(device).warm_above else 2) / (device.backing.bandwidth_gb_s * 1e9)
    factors = [device.launch_us * 1e-6 + count * ITEMSIZE[dtype] * seconds_a_byte for count in (m * k, k * n)]
    return min(factors), sum(factors)


def row(asked: tuple[list[Size], str, str]) -> dict[str, Any]:
    sizes, dtype, name = asked
    device = resolve(name)
    even = np.array([seconds(size, dtype, device) for size in sizes])
    odd = np.array([seconds((size[0] + 1, size[1] + 1, size[2] + 1), dtype, device) for size in sizes])
    ratios = odd / even
    copies = np.array([copied(size, dtype, device) for size in sizes]) / even[:, None]
    worst = [f"{'x'.join(map(str, sizes[at]))}: {ratios[at]:.2f}" for at in np.argsort(-ratios)[:3]]
    return {
        "device": name, "dtype": dtype, "sizes": len(sizes), "geomean": float(np.exp(np.log(ratios).mean())),
        "p95": float(np.percentile(ratios, 95)), "max": float(ratios.max()),
        f"at most {AIM}": float((ratios <= AIM).mean()), "one copy beyond": float((copies[:, 0] > AIM - 1).mean()),
        "both beyond": float((copies[:, 1] > AIM - 1).mean()), "worst": ", ".join(worst),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="+", default=DEVICES)
    parser.add_argument("--dtype", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if min(given.sizes, given.jobs) < 1:
        parser.error("--sizes or --jobs is below 1; expected how many")
    try:
        for name in given.device:
            resolve(name)
    except DeviceError as error:
        parser.error(str(error))
    sizes, rows = drawn(given.sizes, given.seed), []
    asked = [(sizes, dtype, name) for dtype in given.dtype for name in given.device]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for one in pool.imap(row, asked):
            rows.append(one)
            print(one, flush=True)
    table = Table(*rows[0])
    for one in rows:
        table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in one.values()))
    Console(width=160).print(table)
    keep("odd" if given.dtype == DTYPES else f"odd_{'_'.join(given.dtype)}", {"seed": given.seed, "rows": rows})


if __name__ == "__main__":
    main()
