"""Memory that builds keep: ``python benches/check_memory.py``.

Kernels of this machine's CPU are built (``profile=False``), called and dropped; then another process compiles and calls
the same texts with nothing but pyopencl.  Both begin with an empty cache of PoCL, and both are asked for their resident
memory after the first ten and after the last kernel.  Fails where ours grows by over 4 MiB more.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from results import keep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rollergen as rg

MOST_MIB = 4.0
WARM_UP = 10
"""Kernels after which both have loaded what they need."""


def expression(number: int) -> rg.Tensor:
    """One of five operators, of a size of its own."""
    kind, size = number % 5, 32 + number // 5
    if kind == 0:
        return rg.ops.matmul(rg.tensor("a", (size, 48)), rg.tensor("b", (48, size + 8)))
    if kind == 1:
        return rg.ops.softmax(rg.tensor("x", (17, size)))
    if kind == 2:
        return rg.ops.relu(rg.tensor("x", (size, size)))
    if kind == 3:
        return rg.ops.sum(rg.tensor("x", (size, size)), 1)
    return rg.ops.conv2d(rg.tensor("x", (1, 4, 12, size)), rg.tensor("w", (8, 4, 3, 3)))


def resident_mib() -> float:
    """Of this process, from Linux."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def ours(kernels: int, texts: Path) -> Iterator[float]:
    with texts.open("w") as file:
        for number in range(kernels):
            kernel = rg.build(expression(number), "cpu", profile=False, cache=False)
            kernel(*(np.ones(b.shape, np.float32) for b in kernel.signature.inputs))
            launches = [[one.entry, one.blocks, one.threads, one.alone, one.arguments] for one in kernel.launches]
            sizes = {b.name: b.elements for b in kernel.program.buffers()}
            file.write(json.dumps([kernel.source, launches, sizes]) + "\n")
            del kernel
            yield resident_mib()


def plain(texts: Path) -> Iterator[float]:
    """pyopencl alone, on the devices that rollergen opens."""
    from rollergen.hal.opencl_runtime import OpenCLRuntime

    runtime = OpenCLRuntime()
    with texts.open() as file:
        for line in file:
            _compile_and_call(runtime, *json.loads(line))
            yield resident_mib()


def _compile_and_call(runtime: Any, text: str, launches: list[Any], sizes: dict[str, int]) -> None:
    import pyopencl

    queues = {alone: runtime._queue(alone, False) for alone in (False, True)}
    devices = [queues[alone].device for alone in {one[3] for one in launches}]
    program = pyopencl.Program(runtime.context, text).build(devices=devices)
    buffers = {name: runtime.wrap(np.ones(size, np.float32)) for name, size in sizes.items()}
    for entry, blocks, threads, alone, arguments in launches:
        kernel = pyopencl.Kernel(program, entry)
        kernel.set_args(*(buffers[name] for name in arguments))
        pyopencl.enqueue_nd_range_kernel(queues[alone], kernel, (blocks * threads,), (threads,))
        queues[alone].finish()


def _measured(side: str, kernels: int, texts: Path) -> list[float]:
    """Resident MiB after each kernel, in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        words = [sys.executable, __file__, "--side", side, "--kernels", str(kernels), "--texts", str(texts)]
        environment = {**os.environ, "POCL_CACHE_DIR": cache}
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout)


@click.command()
@click.option("--kernels", default=300, show_default=True, type=click.IntRange(min=WARM_UP + 1))
@click.option("--side", type=click.Choice(["ours", "plain"]), hidden=True)
@click.option("--texts", type=click.Path(path_type=Path), hidden=True)
def main(kernels: int, side: str | None, texts: Path | None) -> None:
    if side is not None and texts is not None:
        gc.collect()
        click.echo(json.dumps(list(ours(kernels, texts) if side == "ours" else plain(texts))))
        return
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: _measured(name, kernels, Path(folder) / "texts.jsonl") for name in ("ours", "plain")}
    grown = {name: values[-1] - values[WARM_UP - 1] for name, values in sides.items()}
    more = grown["ours"] - grown["plain"]
    for name, values in sides.items():
        early = f"{values[0]:.1f} MiB after 1, {values[WARM_UP - 1]:.1f} after {WARM_UP}"
        click.echo(f"{name}: {early}, {values[-1]:.1f} in the end")
    click.echo(f"{kernels} kernels: rollergen grows by {more:.1f} MiB more; expected at most {MOST_MIB}")
    click.echo(f"kept in {keep('check_memory', {'kernels': kernels, 'grown_mib': grown, 'resident_mib': sides})}")
    sys.exit(more > MOST_MIB)


if __name__ == "__main__":
    main()
