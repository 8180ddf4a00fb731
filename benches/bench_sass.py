"""The machine code of chosen kernels, counted: ``python benches/bench_sass.py [--device NAME ...]``.

For a 4096 x 4096 x 4096 product and 3 x 3 convolutions: what share of the main loop are multiply-adds, in the code and
by the model, how wide its loads are, and which of our aims it misses.  For kernels bound by memory: instructions for
each output.  Needs NVIDIA's compiler and a disassembler that reads the architecture (for sm_70 `setup_nvdisasm.py`
fetches one); nothing is run, and nothing timed.  `--check` ends with an error where a main loop misses an aim.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.results import keep
from rollergen.compile_report import cuda_arch
from rollergen.construct import construct
from rollergen.emit import emit
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.hal.nvrtc import compile_cuda, version
from rollergen.hal.sass import histogram, main_loops
from rollergen.hal.spec import Device
from rollergen.program.model import multiply_add_share
from rollergen.program.rprogram import Stage
from rollergen.suites import suite

T = rg.tensor
Row = dict[str, Any]
GLOBAL = ("LDG", "LDG.64", "LDG.128", "LDGSTS", "LDGSTS.64", "LDGSTS.128")
SHARED = ("LDS", "LDS.64", "LDS.128")
LOADS = (*GLOBAL, *SHARED, "LDL", "STL")
LEAST_SHARE = {"matmul": 0.85, "conv": 0.80}
"""Multiply-adds among the instructions of the main loop, by the first word of a case."""
MOST_OF_A_WALK = 110
"""Instructions for 16 elements of a row whose largest element and sum of exponentials are found in one walk."""
WIDE = {"matmul": (*GLOBAL, *SHARED), "conv": SHARED}
"""Loads that are to be of 128 bits."""

LOOPS: dict[str, Callable[[], Any]] = {
    "matmul 4096": lambda: rg.ops.matmul(T("A", (4096, 4096)), T("B", (4096, 4096))),
    **{f"conv 3x3 {id_}": (lambda id_=id_: _roller(id_)) for id_ in ("C2", "C38")},
}
STRAIGHT: dict[str, Callable[[], Any]] = {
    "depthwise 3x3": lambda: _roller("D13"),
    "pooling": lambda: _roller("P2"),
    "bias of a channel": lambda: rg.ops.bias_add(T("X", (64, 256, 56, 56)), T("b", (256,)), axis=1),
    "transpose": lambda: rg.ops.transpose(T("X", (4096, 4096)), (1, 0)),
    "softmax": lambda: rg.ops.softmax(T("X", (4096, 1024)), axis=-1),
    "relu": lambda: rg.ops.relu(T("X", (4096, 4096))),
    "sum of rows": lambda: rg.ops.sum(T("X", (4096, 4096)), axis=1),
}


def _roller(id_: str) -> Any:
    return next(entry for entry in suite("roller").entries if entry.id == id_).make()


def loop_row(name: str, on: Device) -> Row:
    """The main loop of the first choice."""
    program = construct(canonicalize(LOOPS[name]()), on, top_k=10)[0].program
    compiled = compile_cuda(emit(program, on, "cuda").text, cuda_arch(on))
    counts = main_loops(compiled.cubin)
    kernel, stage = compiled.kernels[-1], program.stages[-1]
    found: Row = {"case": name, "device": on.name, "registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    found["model_share"] = float(multiply_add_share(stage, on))
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    loop = counts[kernel.entry]
    found["instructions"], found["share"] = sum(loop.values()), loop.get("FFMA", 0) / sum(loop.values())
    found["misses"] = misses(name.split()[0], found["share"], loop)
    return {**found, "loads": {w: loop[w] for w in LOADS if w in loop}, "counts": dict(loop)}


def walk_row(on: Device) -> Row:
    """The walk of softmax over rows that are not kept: instructions for 16 elements, everything of the loop counted."""
    options = rg.BuildOptions(shapes=rg.CodeShapes(rows_in_registers=False))
    graph = canonicalize(rg.ops.softmax(T("X", (4096, 32768)), axis=-1))
    walks = (one.program for one in construct(graph, on, options, top_k=10) if one.forms == ("online",))
    program = next(one for one in walks if prod(_unrolled(one.stages[-1])) == 16)
    compiled = compile_cuda(emit(program, on, "cuda").text, cuda_arch(on))
    counts, kernel = main_loops(compiled.cubin, ("MUFU",)), compiled.kernels[-1]
    found: Row = {"case": "online softmax", "device": on.name, "registers": kernel.registers}
    found["stack_bytes"] = kernel.stack_bytes
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    loop = counts[kernel.entry]
    found |= {"instructions": sum(loop.values()), "outputs": 4 * loop["LDG.128"], "counts": dict(loop)}
    each = 16 * found["instructions"] / found["outputs"]
    found["misses"] = [f"{each:.0f} instructions for 16 elements"] if each > MOST_OF_A_WALK else []
    return {**found, "loads": {w: loop[w] for w in LOADS if w in loop}}


def _unrolled(stage: Stage) -> list[int]:
    return [loop.extent for _, loop in stage.of_kind("unroll")]


def misses(kind: str, share: float, loop: Mapping[str, int]) -> list[str]:
    """What the main loop of a `kind` of case lacks of our aims."""
    found = [f"multiply-adds below {LEAST_SHARE[kind]:.0%}"] if share < LEAST_SHARE[kind] else []
    found += [f"{loop[name]} {name}" for name in WIDE[kind] if name in loop and not name.endswith(".128")]
    return found + [f"{loop[name]} {name}" for name in ("LDL", "STL") if name in loop]


def straight_row(name: str, on: Device) -> Row:
    """Instructions of the whole kernel over the outputs of a thread: loops count once, paths of edges count too."""
    program = construct(canonicalize(STRAIGHT[name]()), on, top_k=10)[0].program
    compiled = compile_cuda(emit(program, on, "cuda").text, cuda_arch(on))
    counts, kernel, stage = histogram(compiled.cubin), compiled.kernels[-1], program.stages[-1]
    outputs = 1
    for loop in stage.loops:
        if loop.kind in ("unroll", "lane") and stage.definition.axis(loop.axis).role != "reduce":
            outputs *= loop.extent
    found: Row = {"case": name, "device": on.name, "registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    whole = counts[kernel.entry]
    found |= {"instructions": sum(whole.values()), "outputs": outputs}
    return {**found, "loads": {w: whole[w] for w in LOADS if w in whole}, "counts": dict(whole)}


def show(rows: list[Row]) -> None:
    table = Table("device", "case", "registers", "local memory", "instructions", "FFMA (model)", "loads", "misses")
    for one in rows:
        share = f"{one['share']:.1%} ({one['model_share']:.1%})" if "share" in one else ""
        each = str(one.get("instructions", "-")) + (f" for {one['outputs']}" if "outputs" in one else "")
        loads = " ".join(f"{name} {count}" for name, count in one.get("loads", {}).items())
        lacks = ", ".join(one.get("misses", []))
        table.add_row(
            one["device"], one["case"], str(one["registers"]), str(one["stack_bytes"]), each, share, loads, lacks
        )
    Console(width=180).print(table)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "a100", "h200"])
    words.add_argument("--loops", action="store_true", help="main loops only")
    words.add_argument("--check", action="store_true", help="fail where a main loop misses an aim")
    given = words.parse_args()
    rows = []
    for name in given.device:
        on = load_device(name)
        rows += [loop_row(case, on) for case in LOOPS]
        rows += [] if given.loops else [walk_row(on), *(straight_row(case, on) for case in STRAIGHT)]
    show(rows)
    if not given.loops:
        keep("sass", {"compiler": f"NVRTC {version()}", "rows": rows})
    lacking = [f"{one['device']} {one['case']}: {', '.join(one['misses'])}" for one in rows if one.get("misses")]
    if given.check and lacking:
        raise SystemExit("main loops miss: " + "; ".join(lacking))


if __name__ == "__main__":
    main()
