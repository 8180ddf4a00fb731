"""What each way of writing a kernel is worth on GPUs: ``python benches/bench_cuda_ablation.py [--device NAME ...]``.

Operators of every class, on GPUs that need not be here: with everything on, and with each switch of
`rollergen.CodeShapes` and each alignment rule off, one at a time: the model's time of the first choice over that with
everything on, and what NVIDIA's compiler makes of the slowest kernel of it: instructions, the share of multiply-adds in
its main loop, registers, local memory; also with sums added up atomically, which is off unless the user allows it.
Switches that change nothing are left out of the table.  Nothing is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import repeat
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.results import keep
from rollergen.bench.suites import suite
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import compile_cuda, version
from rollergen.hal.compilers.sass import histogram, main_loops
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.measure.compile_report import compiled_target
from rollergen.program.model import predict
from rollergen.space.rules import SWITCHES
from rollergen.tile.rules import AlignmentRules

T = rg.tensor
Row = dict[str, Any]


def _half(m: int, n: int, k: int) -> Any:
    return rg.ops.matmul(T("A", (m, k), dtype="float16"), T("B", (k, n), dtype="float16"))


def _roller(id_: str) -> Any:
    return next(entry for entry in suite("roller").entries if entry.id == id_).make()


CASES: dict[str, Callable[[], Any]] = {
    "matmul 4096": lambda: rg.ops.matmul(T("A", (4096, 4096)), T("B", (4096, 4096))),
    "matmul 64x64x16384": lambda: rg.ops.matmul(T("A", (64, 16384)), T("B", (16384, 64))),
    "matmul 4096, float16": lambda: _half(4096, 4096, 4096),
    "conv 1x1 C12": lambda: _roller("C12"),
    "conv 3x3 C2": lambda: _roller("C2"),
    "depthwise 3x3 D13": lambda: _roller("D13"),
    "pooling P2": lambda: _roller("P2"),
    "softmax 4096x1024": lambda: rg.ops.softmax(T("X", (4096, 1024)), axis=-1),
    "softmax 256x65536": lambda: rg.ops.softmax(T("X", (256, 65536)), axis=-1),
    "sum of few long rows": lambda: rg.ops.sum(T("X", (16, 1 << 20)), axis=1),
    "relu": lambda: rg.ops.relu(T("X", (4096, 4096))),
    "transpose": lambda: rg.ops.permute(T("X", (4096, 4096)), (1, 0)),
}
ALL_ON = "all on"
ATOMICS = "(atomics allowed)"


def variants() -> dict[str, rg.BuildOptions]:
    """The options with everything on, with one thing off each, and with what the user must allow."""
    found = {ALL_ON: rg.BuildOptions()}
    found |= {f.name: rg.BuildOptions(shapes=rg.CodeShapes(**{f.name: False})) for f in fields(rg.CodeShapes)}
    found |= {f"{name} rule": rg.BuildOptions(alignment=AlignmentRules(**{name: False})) for name in SWITCHES}
    return found | {ATOMICS: rg.BuildOptions(atomics=True)}


def compiled(program: Any, on: Device) -> Row:
    """The compiler's figures of the kernel that the model expects to take longest."""
    source = emit(program, on, "cuda")
    code = compile_cuda(source.text, compiled_target(on)[0].arch)
    times = [float(stage.seconds) for stage in predict(program, on).stages]
    kernel = code.kernel(source.launches[times.index(max(times))].entry)
    found: Row = {"registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    counts, loops = histogram(code.code), main_loops(code.code)
    if counts is not None and loops is not None:
        loop = loops[kernel.entry]
        found["instructions"] = sum(counts[kernel.entry].values())
        found["multiply_add_share"] = round(loop.get("FFMA", 0) / max(1, sum(loop.values())), 4)
    return found


def rows_of(case: str, device: str) -> list[Row]:
    on, graph, rows = load_device(device), canonicalize(CASES[case]()), []
    first = None
    for name, options in variants().items():
        ranked = construct(graph, on, options, top_k=1)[0]
        first = first or ranked
        if name == ALL_ON or ranked.program != first.program:
            ratio = round(ranked.seconds / first.seconds, 4)
            one: Row = {"device": on.name, "case": case, "off": name, "seconds": ranked.seconds, "ratio": ratio}
            rows.append(one | {"form": "; ".join(ranked.variants)} | compiled(ranked.program, on))
    return rows


def show(rows: list[Row]) -> None:
    table = Table("device", "case", "off", "us", "times", "form", "registers", "local", "instructions", "FFMA")
    for one in rows:
        share = one.get("multiply_add_share")
        table.add_row(
            one["device"], one["case"], one["off"], f"{one['seconds'] * 1e6:.1f}", f"{one['ratio']:.3f}", one["form"],
            str(one["registers"]), str(one["stack_bytes"]), str(one.get("instructions", "-")),
            "-" if share is None else f"{share:.1%}",
        )  # fmt: skip
    Console(width=170).print(table)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "a100", "h200"])
    words.add_argument("--case", default="", help="only cases whose name contains this text")
    words.add_argument("--jobs", type=int, default=2, help="cases at a time, each in a process of its own")
    given = words.parse_args()
    names = [name for name in CASES if given.case in name]
    for device in given.device:
        with ProcessPoolExecutor(given.jobs) as pool:
            rows = [row for found in pool.map(rows_of, names, repeat(device)) for row in found]
        show(rows)
        if not given.case:
            content = {"compiler": f"NVRTC {version()}", "cases": names, "rows": rows}
            print(f"kept in {keep(f'cuda_ablation_{device}', content)}")


if __name__ == "__main__":
    main()
