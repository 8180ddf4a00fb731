"""GPU-shaped kernels under Oclgrind: ``python benches/check_oclgrind.py [--kernel TEXT]``.

Oclgrind interprets OpenCL C and reports invalid accesses, data races and divergent barriers.  Its exit status is 0
even then, so its log is parsed.  Kernels with seeded faults come first: they must be reported.  Exits with 1 when
one of them is not, when anything else is reported, or when a kernel did not run.  (Debian: package oclgrind.)
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "oclgrind"
FAULTS = {"invalid": "invalid", "races": "data race", "barriers": "divergence", "fatal": "fatal error"}
"""What a report of each kind says in the log of Oclgrind 21.10."""

SEEDED: dict[str, tuple[str, str]] = {
    "seeded out of bounds": ("invalid", "kernel void f(global float *a) { a[get_local_id(0) + 1] = 1; }"),
    "seeded divergent barrier": (
        "barriers",
        "kernel void f(global float *a) { if (get_local_id(0) < 32) barrier(CLK_LOCAL_MEM_FENCE); a[0] = 1; }",
    ),
    "seeded missing barrier": (
        "races",
        "kernel void f(global float *a) { local float t[64]; int i = get_local_id(0); t[i] = i; a[i] = t[63 - i]; }",
    ),
}
"""Kernels for 64 threads and 64 floats, and the kind of report that they must cause."""


def cases() -> dict[str, tuple[str, Callable[[], Any]]]:
    """Device and expression of every kernel, by name."""
    import rollergen as rg

    def x(name: str, *shape: int, dtype: str = "float32") -> Any:
        return rg.tensor(name, shape, dtype)

    makers: dict[str, Callable[[], Any]] = {
        "matmul 64x64x32": lambda: rg.ops.matmul(x("a", 64, 32), x("b", 32, 64)),
        "matmul 37x41x29": lambda: rg.ops.matmul(x("a", 37, 29), x("b", 29, 41)),
        "matmul 5x7x1031": lambda: rg.ops.matmul(x("a", 5, 1031), x("b", 1031, 7)),
        "matmul int8": lambda: rg.ops.matmul(x("a", 17, 32, dtype="int8"), x("b", 32, 19, dtype="int8")),
        "conv2d 3x3": lambda: rg.ops.conv2d(x("x", 1, 5, 9, 9), x("w", 7, 5, 3, 3), padding=1),
        "depthwise 3x3": lambda: rg.ops.depthwise_conv2d(x("x", 1, 7, 9, 9), x("w", 7, 1, 3, 3), padding=1),
        "max_pool 3x3": lambda: rg.ops.max_pool2d(x("x", 1, 5, 11, 11), 3, 2, 1),
        "sum of rows": lambda: rg.ops.sum(x("x", 7, 301), axis=1),
        "sum of all": lambda: rg.ops.sum(x("x", 1021)),
        "argmax": lambda: rg.ops.argmax(x("x", 5, 131), axis=1),
        "softmax": lambda: rg.ops.softmax(x("x", 5, 131)),
        "layer_norm": lambda: rg.ops.layer_norm(x("x", 5, 67), 67),
        "transpose": lambda: rg.ops.t(x("x", 37, 45)),
        "relu of a sum": lambda: rg.ops.relu(rg.ops.add(x("x", 1009), x("y", 1009))),
    }
    return {f"{device} {name}": (device, make) for name, make in makers.items() for device in ("v100", "mi50")}


def launch(text: str, launches: Any, arrays: dict[str, Any]) -> None:
    """Runs the kernels on the first platform there is: inside Oclgrind, Oclgrind."""
    import pyopencl as cl

    platform = cl.get_platforms()[0]
    if "oclgrind" not in platform.name.lower():
        raise SystemExit(f"the platform is {platform.name}, not Oclgrind")
    context = cl.Context(platform.get_devices())
    queue = cl.CommandQueue(context)
    module = cl.Program(context, text).build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {name: cl.Buffer(context, flags, hostbuf=array) for name, array in arrays.items()}
    for entry, blocks, threads, arguments in launches:
        kernel = cl.Kernel(module, entry)
        kernel.set_args(*(buffers[name] for name in arguments))
        cl.enqueue_nd_range_kernel(queue, kernel, (blocks * threads,), (threads,))
        queue.finish()


def work(name: str) -> None:
    """Inside Oclgrind: builds the kernel and launches it once."""
    import numpy as np

    if name in SEEDED:
        launch(SEEDED[name][1], [("f", 1, 64, ("a",))], {"a": np.zeros(64, np.float32)})
        return
    import rollergen as rg
    from rollergen.emit import emit
    from rollergen.expr.dtypes import numpy_dtype
    from rollergen.hal.load import load_device

    device, make = cases()[name]
    program = rg.build(make(), device, profile=False, cache=False).program
    source = emit(program, load_device(device), dialect="opencl")
    arrays = {b.name: np.ones(b.shape, numpy_dtype(b.dtype)) for b in program.buffers()}
    launch(source.text, [(s.entry, s.blocks, s.threads, s.arguments) for s in source.launches], arrays)


@dataclass(frozen=True, slots=True)
class Finding:
    """Lines of each kind in the log, and why the kernel did not run, if it did not."""

    kernel: str
    counts: dict[str, int]
    problem: str = ""

    @property
    def as_it_should(self) -> bool:
        if self.kernel in SEEDED:
            return self.counts[SEEDED[self.kernel][0]] > 0
        return not self.problem and not any(self.counts.values())


def parse(log: str) -> dict[str, int]:
    """How many lines of a log report each kind of fault."""
    lines = [line.lower() for line in log.splitlines()]
    return {kind: sum(words in line for line in lines) for kind, words in FAULTS.items()}


def examine(name: str, seconds: float = 120.0) -> Finding:
    """One kernel in a process of its own under Oclgrind."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ["oclgrind", "--data-races", "--max-wgsize", "1024", "--local-mem-size", "98304", "--log", str(log)]
        command += [sys.executable, __file__, "--work", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return Finding(name, dict.fromkeys(FAULTS, 0), f"took more than {seconds:g} s")
        counts = parse(log.read_text(errors="replace") if log.exists() else "")
        return Finding(name, counts, done.stderr.strip()[-300:] if done.returncode else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this text")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    if shutil.which("oclgrind") is None:
        raise SystemExit("oclgrind is not installed (Debian: apt-get install oclgrind)")
    from results import keep
    from rich.console import Console
    from rich.table import Table

    console, table = Console(width=130), Table("kernel", *FAULTS, "as it should", title="Oclgrind")
    found = []
    for name in (*SEEDED, *cases()):
        if arguments.kernel in name:
            one = examine(name)
            found.append(one)
            table.add_row(name, *(str(one.counts[kind]) for kind in FAULTS), "yes" if one.as_it_should else "NO")
            if one.problem:
                console.print(f"{name}: {one.problem}")
    console.print(table)
    if not arguments.kernel:
        console.print(f"kept in {keep(NAME, {'kernels': [asdict(one) for one in found]})}")
    if not all(one.as_it_should for one in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
