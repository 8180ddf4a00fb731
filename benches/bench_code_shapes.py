"""What each way of writing a kernel is worth: ``python benches/bench_code_shapes.py [--case TEXT] [--device NAME]``.

For operators that reduce or map much, on GPUs that need not be here: the model's time of the first choice with
everything on and with each switch of `rollergen.CodeShapes` off, beside what NVIDIA's compiler makes of that choice:
registers, spills, shared memory, and (where a disassembler reads the architecture) instructions.  For kernels
without rolled loops, also the instructions for 16 elements, everything in the kernel counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from math import prod
from typing import Any

from results import keep
from rich.console import Console
from rich.table import Table

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.measure.compile_report import compile_report
from rollergen.program.rprogram import SERIAL, UNROLL, Stage

DEVICES = ("v100", "a100", "h200")
T = rg.tensor

CASES: dict[str, Callable[[], Any]] = {
    "sum of rows 4096x1024": lambda: rg.ops.sum(T("X", (4096, 1024)), axis=1),
    "sum of few long rows 16x1048576": lambda: rg.ops.sum(T("X", (16, 1048576)), axis=1),
    "sum of all 4096x4096": lambda: rg.ops.sum(T("X", (4096, 4096))),
    "mean of short rows 65536x56": lambda: rg.ops.mean(T("X", (65536, 56)), axis=1),
    "argmax 4096x1024": lambda: rg.ops.argmax(T("X", (4096, 1024)), axis=1),
    "softmax 65536x64": lambda: rg.ops.softmax(T("X", (65536, 64)), axis=-1),
    "softmax 4096x1024": lambda: rg.ops.softmax(T("X", (4096, 1024)), axis=-1),
    "softmax 1024x12288": lambda: rg.ops.softmax(T("X", (1024, 12288)), axis=-1),
    "softmax 256x65536": lambda: rg.ops.softmax(T("X", (256, 65536)), axis=-1),
    "layer norm 4096x1024": lambda: rg.ops.layer_norm(T("X", (4096, 1024)), 1024, T("g", (1024,)), T("b", (1024,))),
    "rms norm 4096x4096": lambda: rg.ops.rms_norm(T("X", (4096, 4096)), 4096, T("g", (4096,))),
    "relu 32x64x56x56": lambda: rg.ops.relu(T("X", (32, 64, 56, 56))),
    "bias of channels 32x64x56x56": lambda: rg.ops.bias_add(T("X", (32, 64, 56, 56)), T("b", (64,)), axis=1),
}
SWITCHES = tuple(field.name for field in fields(rg.CodeShapes))


def first_choice(make: Callable[[], Any], device: str, shapes: rg.CodeShapes) -> Any:
    return construct(canonicalize(make()), load_device(device), rg.BuildOptions(shapes=shapes), top_k=1)[0]


def share_of_a_thread(stage: Stage) -> int:
    """Elements that a thread takes; 0 where it goes round a rolled loop."""
    if any(loop.kind == SERIAL for loop in stage.loops):
        return 0
    return prod(loop.extent for loop in stage.loops if loop.kind == UNROLL)


def compiled(ranked: Any, device: str) -> dict[str, Any]:
    """The compiler's figures of the stage that reads the input."""
    report = compile_report(ranked.program, load_device(device)).kernels[0]
    stage = ranked.program.stages[0]
    counts = dict(report.instructions or {})
    share = share_of_a_thread(stage)
    return {
        "combine": stage.accumulator.combine, "threads": report.threads, "registers": report.registers,
        "predicted_registers": report.predicted_registers, "spill_bytes": report.spill_bytes,
        "stack_bytes": report.stack_bytes, "shared_bytes": report.shared_bytes,
        "predicted_shared_bytes": report.predicted_shared_bytes, "instructions": sum(counts.values()) or None,
        "for_16_elements": round(16 * sum(counts.values()) / share, 1) if share and counts else None,
        "loads_of_16_bytes": counts.get("LDG.128"), "exchanges": counts.get("SHFL"), "barriers": counts.get("BAR"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--device", choices=DEVICES, help="only this device")
    arguments = parser.parse_args()
    console = Console(width=160)
    rows: list[dict[str, Any]] = []
    for device in (arguments.device,) if arguments.device else DEVICES:
        heads = ("off: " + name for name in SWITCHES)
        figures = ("combine", "registers (model)", "spills", "instructions", "for 16", "LDG.128", "SHFL", "BAR")
        table = Table("case", "us", *heads, *figures, title=f"{device}: predicted time, and compiled for it")
        for name, make in CASES.items():
            if arguments.case not in name:
                continue
            best = first_choice(make, device, rg.CodeShapes())
            off = {s: first_choice(make, device, rg.CodeShapes(**{s: False})).seconds for s in SWITCHES}
            one = compiled(best, device)
            rows.append({"case": name, "device": device, "seconds": best.seconds, "seconds_without": off} | one)
            texts = [f"{best.seconds * 1e6:.1f}", *(f"{off[s] / best.seconds:.2f}" for s in SWITCHES), one["combine"]]
            texts += [f"{one['registers']} ({one['predicted_registers']:.0f})", str(one["spill_bytes"])]
            keys = ("instructions", "for_16_elements", "loads_of_16_bytes", "exchanges", "barriers")
            table.add_row(name, *texts, *(str(one[key] or "-") for key in keys))
        console.print(table)
    if not (arguments.case or arguments.device):
        console.print(f"kept in {keep('code_shapes', {'rows': rows})}")


if __name__ == "__main__":
    main()
