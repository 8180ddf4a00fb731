"""Memory that builds keep: ``python benches/check_memory.py``.

Kernels of this machine's CPU are built (``profile=False``), called and dropped; then another process compiles and calls
the same texts with nothing but pyopencl.  Both begin with an empty cache of PoCL, and both are asked for their resident
memory after the first ten and after each further kernel.  Fails where ours grows by over 4 MiB more.  ``--mix wide``
takes kernels that have less in common: ten operators, seven dtypes, axes and windows at random.
"""

from __future__ import annotations

import gc
import json
import os
import random
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
from rollergen.expr.dtypes import numpy_dtype

MOST_MIB = 4.0
WARM_UP = 10
"""Kernels after which both have loaded what they need."""


def few(number: int) -> rg.Tensor:
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


DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int8", "int64")


def wide(number: int) -> rg.Tensor:
    """One of ten operators, with sizes, axes and a dtype drawn for the number."""
    draw = random.Random(number)
    dtype, a_float = draw.choice(DTYPES), draw.choice(DTYPES[:4])
    a, b, c = shape = tuple(draw.randrange(3, 40) for _ in range(3))
    axis, order = draw.randrange(3), tuple(draw.sample(range(3), 3))
    x, y = rg.tensor("x", shape, dtype), rg.tensor("y", shape, a_float)
    image = rg.tensor("image", (1, 4, a + 8, b + 8))
    window, stride = (draw.randrange(1, 5), draw.randrange(2, 5)), draw.randrange(1, 4)
    swapped = "".join(draw.sample("ijl", 3))
    made = (
        lambda: rg.ops.matmul(rg.tensor(f"a{number}", (a, b), dtype), rg.tensor(f"b{number}", (b, c), dtype)),
        lambda: rg.ops.softmax(y, axis),
        lambda: rg.ops.permute(x, order),
        lambda: rg.ops.sum(x, axis),
        lambda: rg.ops.conv2d(image, rg.tensor("weights", (8, 4, *window)), stride=stride),
        lambda: rg.ops.relu(rg.ops.mul(rg.ops.sigmoid(y) if axis else rg.ops.tanh(y), stride / 2)),
        lambda: rg.ops.argmax(x, axis),
        lambda: rg.ops.concat([x, rg.tensor("z", (a, stride, c), dtype)], 1),
        lambda: rg.ops.max_pool2d(image, window[1], stride=stride),
        lambda: rg.einsum(f"ijk,jkl->{swapped}", y, rg.tensor("z", (b, c, stride), a_float)),
    )
    return made[number % len(made)]()


MIXES = {"few": few, "wide": wide}


def resident_mib() -> float:
    """Of this process, from Linux."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def ours(kernels: int, mix: str, texts: Path) -> Iterator[float]:
    with texts.open("w") as file:
        for number in range(kernels):
            kernel = rg.build(MIXES[mix](number), "cpu", profile=False, cache=False)
            kernel(*(np.ones(b.shape, numpy_dtype(b.dtype)) for b in kernel.signature.inputs))
            launches = [[one.entry, one.blocks, one.threads, one.alone, one.arguments] for one in kernel.launches]
            sizes = {b.name: (b.elements, b.dtype) for b in kernel.program.buffers()}
            file.write(json.dumps([kernel.source, launches, sizes]) + "\n")
            del kernel
            yield resident_mib()


def plain(texts: Path) -> Iterator[float]:
    """pyopencl alone, on the devices that rollergen opens."""
    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

    runtime = OpenCLRuntime()
    with texts.open() as file:
        for line in file:
            _compile_and_call(runtime, *json.loads(line))
            yield resident_mib()


def _compile_and_call(runtime: Any, text: str, launches: list[Any], sizes: dict[str, Any]) -> None:
    import pyopencl

    queues = {alone: runtime._queue(alone, False) for alone in (False, True)}
    devices = [queues[alone].device for alone in {one[3] for one in launches}]
    program = pyopencl.Program(runtime.context, text).build(devices=devices)
    buffers = {name: runtime.wrap(np.ones(size, numpy_dtype(dtype))) for name, (size, dtype) in sizes.items()}
    for entry, blocks, threads, alone, arguments in launches:
        kernel = pyopencl.Kernel(program, entry)
        kernel.set_args(*(buffers[name] for name in arguments))
        pyopencl.enqueue_nd_range_kernel(queues[alone], kernel, (blocks * threads,), (threads,))
        queues[alone].finish()


def _measured(side: str, kernels: int, mix: str, texts: Path) -> list[float]:
    """Resident MiB after each kernel, in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        words = [sys.executable, __file__, "--side", side, "--kernels", kernels, "--mix", mix, "--texts", texts]
        environment = {**os.environ, "POCL_CACHE_DIR": cache}
        run = subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, env=environment)
        return json.loads(run.stdout)


@click.command()
@click.option("--kernels", default=300, show_default=True, type=click.IntRange(min=WARM_UP + 1))
@click.option("--mix", type=click.Choice(list(MIXES)), default="few", show_default=True)
@click.option("--side", type=click.Choice(["ours", "plain"]), hidden=True)
@click.option("--texts", type=click.Path(path_type=Path), hidden=True)
def main(kernels: int, mix: str, side: str | None, texts: Path | None) -> None:
    if side is not None and texts is not None:
        gc.collect()
        click.echo(json.dumps(list(ours(kernels, mix, texts) if side == "ours" else plain(texts))))
        return
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: _measured(name, kernels, mix, Path(folder) / "texts.jsonl") for name in ("ours", "plain")}
    grown = {name: values[-1] - values[WARM_UP - 1] for name, values in sides.items()}
    more = grown["ours"] - grown["plain"]
    for name, values in sides.items():
        early = f"{values[0]:.1f} MiB after 1, {values[WARM_UP - 1]:.1f} after {WARM_UP}"
        half = values[-1] - values[kernels // 2 - 1]
        click.echo(f"{name}: {early}, {values[-1]:.1f} in the end; {half:.1f} MiB in the second half")
    click.echo(f"{kernels} kernels ({mix}): rollergen grows by {more:.1f} MiB more; expected at most {MOST_MIB}")
    content = {"kernels": kernels, "mix": mix, "grown_mib": grown, "resident_mib": sides}
    click.echo(f"kept in {keep(f'check_memory_{mix}', content)}")
    sys.exit(more > MOST_MIB)


if __name__ == "__main__":
    main()
