"""What building costs: ``python benches/bench_cost.py``.

Import time and the first build are taken in fresh processes (medians); ten sources of further shapes
of one structure in this one, built and then found in a cache.  Nothing is compiled or run: ``profile=False``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import mean, median
from typing import Any

from results import keep
from rich.console import Console
from rich.table import Table

PROCESSES = 5
SHAPES = 20

IMPORT = "import rollergen"
FIRST = """
import rollergen as rg
product = rg.ops.matmul(rg.tensor('A', (1024, 512)), rg.tensor('B', (512, 768)))
kernel = rg.build(product, {device!r}, profile=False, cache={cache})
assert kernel.source
"""


def fresh(code: str) -> float:
    """Median seconds of the code in a fresh process, without the interpreter's own start."""
    timed = f"import time; start = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    command = [sys.executable, "-c", timed]
    runs = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(PROCESSES))
    return median(float(run.stdout.split()[-1]) for run in runs)


def further_shapes(*, cache: bool) -> tuple[float, float]:
    """Mean seconds from an expression to (up to) ten sources for v100, over shapes of a structure seen before,
    and how many sources that were on average."""
    import rollergen as rg

    def sources(m: int, n: int, k: int) -> tuple[float, int]:
        start = time.perf_counter()
        product = rg.ops.matmul(rg.tensor("A", (m, k)), rg.tensor("B", (k, n)))
        kernel = rg.build(product, "v100", top_k=10, profile=False, cache=cache)
        return time.perf_counter() - start, len({candidate.source.text for candidate in kernel.candidates})

    sources(1024, 1024, 1024)
    found = [sources(256 + 96 * i, 512 + 64 * i, 128 + 32 * i) for i in range(SHAPES)]
    return mean(seconds for seconds, _ in found), mean(count for _, count in found)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["ROLLERGEN_CACHE_DIR"] = directory
        figures = measured()
    found: list[dict[str, Any]] = [{"what": w, "seconds": s, "target_seconds": t} for w, s, t in figures]
    table = Table("what", "seconds", "target", "met", title="cost of building, profile=False")
    for one in found:
        met = one["met"] = one["seconds"] <= one["target_seconds"]
        table.add_row(one["what"], f"{one['seconds']:.3f}", f"{one['target_seconds']}", "yes" if met else "no")
    console = Console(width=130)
    console.print(table)
    console.print(f"kept in {keep('cost', {'figures': found})}")


def measured() -> list[tuple[str, float, float]]:
    """(what, seconds, target)."""
    further, count = further_shapes(cache=False)
    further_shapes(cache=True)
    found, _ = further_shapes(cache=True)
    first = {
        (device, cache): fresh(FIRST.format(device=device, cache=cache))
        for cache in (False, True)
        for device in ("v100", "cpu")
    }
    return [
        ("import rollergen", fresh(IMPORT), 0.5),
        ("import of all that a build needs", fresh(f"{IMPORT}.build"), 0.5),
        ("first build for v100, imports included", first["v100", False], 2.0),
        ("first build for cpu, imports included", first["cpu", False], 2.0),
        ("the same for v100, found in the cache", first["v100", True], 1.0),
        ("the same for cpu, found in the cache", first["cpu", True], 1.0),
        (f"further shape, expression to {count:g} sources for v100", further, 0.05),
        ("the same, found in the cache", found, 0.02),
    ]


if __name__ == "__main__":
    main()
