"""Hopper's machine code of products, side by side: ``python benches/bench_products_beside.py [--keep]``.

float16 and bfloat16, 4096^3 and 8192^3, for sm_90a: our first choice, and kernels in Triton and TileLang with the same
tile and step.  Nothing is run.  For a step of 128 x 256 x 64: instructions of the loop that multiplies, and of the one
that copies where it is another; of the whole kernel: loads and stores of local memory, which spills are.

Needs NVRTC and nvdisasm (`pip install nvidia-cuda-nvrtc triton`); TileLang's headers also need `pip install tilelang
nvidia-cuda-runtime nvidia-cuda-cccl`.  A library that is not here is said to be absent.
``--keep``: benches/results/products_beside.json.  Exits with 1 where our loop has more than 70 instructions a step, or
spills.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benches.aims import Aim, verdict
from benches.peers.offline import ARCH, COMPILERS, Offline, Product
from benches.results import RESULTS, keep_at
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.errors import DeviceError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import compile_cuda
from rollergen.hal.compilers.sass import counted, disassembled, loops_counted
from rollergen.hal.load import load_device
from tests.matrices import matmul

SIDES, DTYPES = (4096, 8192), ("float16", "bfloat16")
TILE, CONSUMERS = (128, 256, 64), 2
"""Rows, columns and reduced extent of a step, and the warpgroups that share its multiplications."""
MOST = 70
LOCAL = ("LDL", "STL")
OURS = "rollergen"


def ours(side: int, dtype: str) -> Offline:
    """The first choice.  Raises DeviceError where its tile is another one."""
    device = load_device("h200")
    made = construct(canonicalize(matmul(side, side, side, dtype)), device, top_k=1)[0].program
    stage = made.stages[-1]
    tile = tuple(prod(loop.extent for _, loop in stage.of_axis(axis.name) if loop.kind not in ("grid", "serial"))
                 for axis in stage.op.axes)  # fmt: skip
    if tile != TILE:
        raise DeviceError(f"the first choice for {dtype} {side}^3 has a tile of {tile}; expected {TILE}")
    done = compile_cuda(emit(made, device, "cuda").text, f"sm_{ARCH}a")
    return Offline(OURS, done.compiler, done.code)


def row(product: Product, kernel: Offline) -> dict[str, Any]:
    """What its machine code has, for a step of the tile."""
    listing = disassembled(kernel.code)
    if listing is None:
        raise SystemExit(f"no disassembler here reads sm_{ARCH}; pip install triton")
    shape = re.search(r"HGMMA\.64x(\d+)x16", listing)
    if shape is None:
        raise SystemExit(f"{kernel.kernel} for {product} has no HGMMA")
    (loop,), (copies,) = loops_counted(listing).values(), loops_counted(listing, ("UTMALDG", "LDGSTS.128")).values()
    (whole,) = counted(listing).values()
    steps = loop["HGMMA"] * 64 * int(shape[1]) * 16 * CONSUMERS / prod(TILE)
    return {
        "dtype": product.dtype, "side": product.side, "kernel": kernel.kernel, "made_with": kernel.made_with,
        "products": f"{loop['HGMMA']} of 64x{shape[1]}x16", "steps": steps, "instructions": sum(loop.values()) / steps,
        "copying": 0 if copies == loop else sum(copies.values()),
        "local": sum(whole.get(name, 0) for name in whole if name.split(".")[0] in LOCAL),
        "stores": {name: whole[name] for name in whole if name.split(".")[0] in ("STG", "STSM", "UTMASTG")},
        "counts": loop,
    }  # fmt: skip


def kernels(product: Product) -> Iterator[Offline]:
    yield ours(product.side, product.dtype)
    for name, (absent, made) in COMPILERS.items():
        reason = absent()
        if reason is None:
            yield from made(product)
        else:
            print(f"{name} is absent: {reason}")


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("dtype", "side", "kernel", "made with", "in its loop", "a step", "copies' loop", "local", "stores")
    for one in rows:
        stores = " ".join(f"{name} {count}" for name, count in one["stores"].items())
        table.add_row(
            one["dtype"], str(one["side"]), one["kernel"], one["made_with"], one["products"],
            f"{one['instructions']:g}", str(one["copying"] or "the same"), str(one["local"]), stores,
        )  # fmt: skip
    Console(width=160).print(table)


def aims(rows: list[dict[str, Any]]) -> Iterator[Aim]:
    """The most that any of its products takes: of our kernels; of the others the figures alone."""
    for name in dict.fromkeys(one["kernel"] for one in rows):
        own = [one for one in rows if one["kernel"] == name]
        most, local = max(one["instructions"] for one in own), sum(one["local"] for one in own)
        figure = f"{most:g} instructions a step of 128 x 256 x 64, {local} of local memory"
        what = f"{name}: {len(own)} half-precision products on sm_{ARCH}a, machine code"
        if name == OURS:
            yield Aim(what, figure, f"at most {MOST}, none", most <= MOST and not local)
        else:
            yield Aim(what, figure, "", True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    products = [Product(side, TILE, dtype) for dtype in DTYPES for side in SIDES]
    rows = [row(product, kernel) for product in products for kernel in kernels(product)]
    show(rows)
    found = list(aims(rows))
    for one in found:
        print(f"{one.what}: {one.figure}")
    if options.keep:
        keep_at(RESULTS / "products_beside.json", {"headlines": [one.headline() for one in found], "rows": rows})
    return verdict(found)


if __name__ == "__main__":
    raise SystemExit(main())
