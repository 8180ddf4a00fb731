"""What building costs: ``python benches/bench_cost.py``.

Import time and the first build are taken in fresh processes (medians); ten sources of further shapes
of one structure in this one, built and then found in a cache.  Of these nothing is compiled or run (``profile=False``).

One operator is built with its measurements: a product of 1024 x 1024 matrices in float32 on this machine's CPU, in
fresh processes that have everything imported and the runtime open.  Cold: with an empty compiler cache; compiled
before: with what the cold one left there.  Then a process of its own finds the kernel in the cache, and is timed from
its start to its end; so is one that calls it, too, which opens the runtime.  The next build finds it in the same
process.
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
FOUND_AGAIN = 200

IMPORT = "import rollergen"
FIRST = """
import rollergen as rg
product = rg.ops.matmul(rg.tensor('A', (1024, 512)), rg.tensor('B', (512, 768)))
kernel = rg.build(product, {device!r}, profile=False, cache={cache})
assert kernel.source
"""


PRODUCT = """
import rollergen as rg
product = lambda: rg.ops.matmul(rg.tensor('A', (1024, 1024)), rg.tensor('B', (1024, 1024)))
"""
OPENED = f"{PRODUCT}\nrg.build(rg.ops.relu(rg.tensor('x', (64,))), 'cpu', cache=False)"
PROFILED = "rg.build(product(), 'cpu', profile=True, cache=False)"
FIND = f"{PRODUCT}\nrg.build(product(), 'cpu')"
CALL = f"""
import numpy as np
{PRODUCT}
ones = np.ones((1024, 1024), 'float32')
assert rg.build(product(), 'cpu')(ones, ones)[0, 0] == 1024
"""
FIND_AGAIN = f"made = [product() for _ in range({FOUND_AGAIN})]"


def fresh(code: str, before: str = "", processes: int = PROCESSES) -> float:
    """Median seconds of the code in a fresh process, without the interpreter's own start and what runs ``before``."""
    timed = f"import time\n{before}\nstart = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    command = [sys.executable, "-c", timed]
    runs = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(processes))
    return median(float(run.stdout.split()[-1]) for run in runs)


def whole(code: str) -> float:
    """Median seconds of a process that runs the code."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return time.perf_counter() - start

    return median(once() for _ in range(PROCESSES))


def profiled() -> list[tuple[str, float, float]]:
    """(what, seconds, target) of the product that is measured on this machine's CPU."""
    with tempfile.TemporaryDirectory(prefix="rollergen-compiled-") as directory:
        os.environ["POCL_CACHE_DIR"] = directory
        cold, warm = fresh(PROFILED, OPENED, 1), fresh(PROFILED, OPENED)
        subprocess.run([sys.executable, "-c", FIND], capture_output=True, check=True)
        again = fresh("for one in made: rg.build(one, 'cpu')", f"{FIND}\n{FIND_AGAIN}") / FOUND_AGAIN
        found, called = whole(FIND), whole(CALL)
    return [
        ("product of 1024 for cpu, measured, cold", cold, 2.5),
        ("the same, compiled before", warm, 0.8),
        ("a process that finds it in the cache", found, 0.15),
        ("a process that finds it and calls it", called, 0.15),
        ("found again in the same process", again, 0.0005),
    ]


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
    shares = {"process": whole("pass"), "import of NumPy": fresh("import numpy")}  # which no call does without
    table = Table("what", "seconds", "target", "met", title="cost of building")
    for one in found:
        met = one["met"] = one["seconds"] <= one["target_seconds"]
        table.add_row(one["what"], f"{one['seconds']:.4g}", f"{one['target_seconds']}", "yes" if met else "no")
    console = Console(width=130)
    console.print(table)
    console.print(f"kept in {keep('cost', {'figures': found, 'shares_s': shares})}")


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
        ("import of all that a build needs", fresh(f"{IMPORT}.build"), 0.12),
        ("first build for v100, imports included", first["v100", False], 2.0),
        ("first build for cpu, imports included", first["cpu", False], 2.0),
        ("the same for v100, found in the cache", first["v100", True], 1.0),
        ("the same for cpu, found in the cache", first["cpu", True], 1.0),
        (f"further shape, expression to {count:g} sources for v100", further, 0.05),
        ("the same, found in the cache", found, 0.02),
        *profiled(),
    ]


if __name__ == "__main__":
    main()
