"""The machine code of chosen kernels, counted: ``python benches/bench_sass.py [--device NAME ...]``.

For a 4096 x 4096 x 4096 product and 3 x 3 convolutions: what share of the main loop are multiply-adds, in the code and
by the model, and how wide its loads are.  For kernels bound by memory: instructions for each output.  Beside each case
its aim, and whether it is met.  Products of each dtype: instructions for each multiply-add (of matrix units: for
each of their instructions' share of a thread) in the main loop, beside the model's count of all that a thread issues.
Needs NVIDIA's compiler and a disassembler that reads the architecture (for sm_70
`setup_nvdisasm.py` fetches one); nothing is run, and nothing timed.  Ends with an error where an aim is missed, or
where no disassembler could tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
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
from rollergen.errors import DeviceError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.compilers.nvrtc import compile_cuda, version
from rollergen.hal.compilers.sass import histogram, main_loops
from rollergen.hal.errors import SpecError
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device, Instruction
from rollergen.measure.compile_report import compiled_target
from rollergen.program.model import multiply_add_share
from rollergen.program.model.costs import costs_of
from rollergen.program.model.limiters.issue import instructions_of
from rollergen.program.model.price import worked
from rollergen.program.rprogram import Stage

T = rg.tensor
Row = dict[str, Any]
GLOBAL = ("LDG", "LDG.64", "LDG.128", "LDGSTS", "LDGSTS.64", "LDGSTS.128")
SHARED = ("LDS", "LDS.64", "LDS.128")
LOADS = (*GLOBAL, *SHARED, "LDL", "STL")
LEAST_SHARE = {"matmul": 0.85, "conv": 0.80}
"""Multiply-adds among the instructions of the main loop, by the first word of a case."""
MOST_OFF = 0.03
"""Of the model's share from that of the code."""
WIDE = {"matmul": (*GLOBAL, *SHARED), "conv": SHARED}
"""Loads that are to be of 128 bits."""

ARITHMETIC = {"FFMA": 1, "DFMA": 1, "HFMA2": 2, "IDP": 1}
"""Multiply-adds of an instruction; of IDP those of words."""
MATRIX = ("HMMA", "IMMA", "DMMA", "QMMA")
BESIDE = ("HGMMA", "IGMMA", "QGMMA")
"""Run beside the program, for tiles as wide as a thread's group has columns."""
DTYPES = ("float32", "tf32", "float64", "float16", "bfloat16", "int8")
MOST_OFF_PRODUCTS = 0.3
"""Of the model's count from the code's, but of products that run beside the program, whose issue never binds."""

LOOPS: dict[str, Callable[[], Any]] = {
    "matmul 4096": lambda: rg.ops.matmul(T("A", (4096, 4096)), T("B", (4096, 4096))),
    **{f"conv 3x3 {id_}": (lambda id_=id_: _roller(id_)) for id_ in ("C2", "C38")},
}
STRAIGHT: dict[str, Callable[[], Any]] = {
    "depthwise 3x3": lambda: _roller("D13"),
    "depthwise 3x3, stride 2": lambda: rg.ops.depthwise_conv2d(
        T("X", (64, 144, 56, 56)), T("W", (144, 1, 3, 3)), stride=2, padding=1
    ),
    "pooling 2x2, stride 2": lambda: rg.ops.max_pool2d(T("X", (64, 128, 56, 56)), 2, stride=2),
    "pooling 3x3": lambda: _roller("P2"),
    "pooling 3x3, stride 2": lambda: _roller("P4"),
    "bias of a channel": lambda: rg.ops.bias_add(T("X", (64, 256, 56, 56)), T("b", (256,)), axis=1),
    "transpose": lambda: rg.ops.permute(T("X", (4096, 4096)), (1, 0)),
    "softmax": lambda: rg.ops.softmax(T("X", (4096, 1024)), axis=-1),
    "relu": lambda: rg.ops.relu(T("X", (4096, 4096))),
    "sum of rows": lambda: rg.ops.sum(T("X", (4096, 4096)), axis=1),
}


@dataclass(frozen=True)
class Aim:
    """At most so many instructions for so many outputs."""

    instructions: int
    outputs: int = 1

    def __str__(self) -> str:
        return f"at most {self.instructions}" + (f" for {self.outputs}" if self.outputs > 1 else "")

    def each(self, row: Mapping[str, Any]) -> float:
        """The instructions of a row for as many outputs."""
        return float(self.outputs * row["instructions"] / row["outputs"])


ONLINE = "online softmax"
AIMS = {
    "depthwise 3x3": Aim(21),
    "depthwise 3x3, stride 2": Aim(32),
    "pooling 2x2, stride 2": Aim(72),
    "pooling 3x3": Aim(72),
    "pooling 3x3, stride 2": Aim(72),
    "bias of a channel": Aim(24, 4),
    "transpose": Aim(136, 16),
    ONLINE: Aim(110, 16),
}
"""Of the whole kernel, or of the loop that reads a row, as kernels written by hand have them; of stride 2 more, since
an output then has four elements that it reads first.  The others are to have no loads but of 128 bits."""


def _roller(id_: str) -> Any:
    return next(entry for entry in suite("roller").entries if entry.id == id_).make()


def loop_row(name: str, on: Device) -> Row:
    """The main loop of the first choice."""
    program = construct(canonicalize(LOOPS[name]()), on, top_k=10)[0].program
    compiled = compile_cuda(emit(program, on, "cuda").text, compiled_target(on)[0].arch)
    counts = main_loops(compiled.code)
    kernel, stage = compiled.kernels[-1], program.stages[-1]
    found: Row = {"case": name, "device": on.name, "registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    found["model_share"] = float(multiply_add_share(stage, on))
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    loop = counts[kernel.entry]
    found["instructions"], found["share"] = sum(loop.values()), loop.get("FFMA", 0) / sum(loop.values())
    found["aim"] = f"at least {LEAST_SHARE[name.split()[0]]:.0%} multiply-adds"
    found["misses"] = misses(name.split()[0], found["share"], loop)
    if abs(found["share"] - found["model_share"]) > MOST_OFF:
        found["misses"].append(f"the model says {found['model_share']:.1%}")
    return {**found, "loads": {w: loop[w] for w in LOADS if w in loop}, "counts": dict(loop)}


def product_row(dtype: str, on: Device) -> Row:
    """The first choice of a 4096 x 4096 x 4096 product: instructions that a thread issues for each multiply-add."""
    held = "float32" if dtype == "tf32" else dtype
    options = rg.BuildOptions(allow_tf32=dtype == "tf32")
    graph = canonicalize(rg.ops.matmul(T("A", (4096, 4096), held), T("B", (4096, 4096), held)))
    program = construct(graph, on, options, top_k=10)[0].program
    compiled = compile_cuda(emit(program, on, "cuda").text, compiled_target(on)[0].arch)
    stage = program.stages[-1]
    instruction = on.instruction(stage.compute.instruction)
    found: Row = {"case": f"product, {dtype}", "device": on.name, "instruction": instruction.name}
    names = (*MATRIX, *BESIDE) if instruction.is_matrix else tuple(ARITHMETIC)
    counts = main_loops(compiled.code, names)
    if counts is None:
        kernel = compiled.kernels[-1]
        found |= {"registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
        return {**found, "note": "no disassembler here reads this architecture"}
    entry = max(counts, key=lambda one: sum(counts[one].get(name, 0) for name in names))
    loop, kernel = counts[entry], next(one for one in compiled.kernels if one.entry == entry)
    found |= {"registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    nest, work = worked(stage, on)
    share = _share(instruction, stage)
    done = sum(loop.get(name, 0) * (share if instruction.is_matrix else ARITHMETIC[name]) for name in names)
    blocks = prod(one.extent for one in stage.loops if one.kind == "grid")
    points = prod(one.extent for one in stage.op.axes) / (blocks * float(nest.threads))
    model = float(instructions_of(nest, on, costs_of(on), work)) / points
    code = sum(loop.values()) / done
    found |= {"instructions": sum(loop.values()), "code_each": code, "model_each": model}
    found["ratio"] = round(model / code, 3)
    beside = instruction.is_asynchronous
    found["aim"] = "its issue binds nothing" if beside else f"model within {MOST_OFF_PRODUCTS:.0%}"
    off = not beside and abs(found["ratio"] - 1) > MOST_OFF_PRODUCTS
    found["misses"] = [f"the model counts {found['ratio']:.2f} of the code"] if off else []
    return {**found, "counts": dict(loop)}


def _share(instruction: Instruction, stage: Stage) -> float:
    """Multiply-adds of one thread in one machine instruction of the matrix unit's."""
    columns = instruction.n
    if instruction.is_asynchronous:  # tiles along n, up to 32 of them, are one
        along = [one.extent for one in stage.loops if one.kind == "unroll" and one.axis == stage.op.axes[1].name]
        columns = min(prod(along), 32 * instruction.n)
    return instruction.m * columns * instruction.k / instruction.lanes / instruction.issued


def walk_row(on: Device) -> Row:
    """The walk of softmax over rows that are not kept: instructions for 16 elements, everything of the loop counted."""
    options = rg.BuildOptions(shapes=rg.CodeShapes(rows_in_registers=False))
    graph = canonicalize(rg.ops.softmax(T("X", (4096, 32768)), axis=-1))
    walks = (one.program for one in construct(graph, on, options, top_k=10) if one.variants == ("online",))
    program = next(one for one in walks if prod(_unrolled(one.stages[-1])) == 16)
    compiled = compile_cuda(emit(program, on, "cuda").text, compiled_target(on)[0].arch)
    counts, kernel = main_loops(compiled.code, ("MUFU",)), compiled.kernels[-1]
    found: Row = {"case": ONLINE, "device": on.name, "registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    loop = counts[kernel.entry]
    return counted(found, loop, 4 * loop["LDG.128"])


def _unrolled(stage: Stage) -> list[int]:
    return [loop.extent for _, loop in stage.of_kind("unroll")]


def misses(kind: str, share: float, loop: Mapping[str, int]) -> list[str]:
    """What the main loop of a `kind` of case lacks of our aims."""
    found = [f"multiply-adds below {LEAST_SHARE[kind]:.0%}"] if share < LEAST_SHARE[kind] else []
    return found + _narrow(loop, WIDE[kind]) + _local(loop)


def _narrow(code: Mapping[str, int], loads: tuple[str, ...]) -> list[str]:
    return [f"{code[name]} {name}" for name in loads if name in code and not name.endswith(".128")]


def _local(code: Mapping[str, int]) -> list[str]:
    return [f"{code[name]} {name}" for name in code if name.split(".")[0] in ("LDL", "STL")]


def straight_row(name: str, on: Device) -> Row:
    """Instructions of the whole kernel over the outputs of a thread: loops count once, paths of edges count too."""
    program = construct(canonicalize(STRAIGHT[name]()), on, top_k=10)[0].program
    compiled = compile_cuda(emit(program, on, "cuda").text, compiled_target(on)[0].arch)
    counts, kernel, stage = histogram(compiled.code), compiled.kernels[-1], program.stages[-1]
    outputs = 1
    for loop in stage.loops:
        if loop.kind in ("unroll", "lane") and stage.op.axis(loop.axis).role != "reduce":
            outputs *= loop.extent
    found: Row = {"case": name, "device": on.name, "registers": kernel.registers, "stack_bytes": kernel.stack_bytes}
    if counts is None:
        return {**found, "note": "no disassembler here reads this architecture"}
    return counted(found, counts[kernel.entry], outputs)


def counted(found: Row, code: Mapping[str, int], outputs: int) -> Row:
    """A row with what its code has, for so many outputs, its aim and how that is missed."""
    found |= {"instructions": sum(code.values()), "outputs": outputs}
    aim = AIMS.get(found["case"])
    if aim is None:
        found |= {"aim": "loads of 128 bits", "misses": _narrow(code, GLOBAL)}
    else:
        each = aim.each(found)
        found |= {"each": round(each, 1), "aim": str(aim)}
        found["misses"] = [f"{each:.1f}"] if each > aim.instructions else []
    found["misses"] += _local(code)
    return {**found, "loads": {w: code[w] for w in LOADS if w in code}, "counts": dict(code)}


def show(rows: list[Row]) -> None:
    heads = ("device", "case", "registers", "local memory", "instructions", "FFMA (model)", "loads", "aim", "it is")
    table = Table(*heads)
    for one in rows:
        share = f"{one['share']:.1%} ({one['model_share']:.1%})" if "share" in one else ""
        each = str(one.get("instructions", "-")) + (f" for {one['outputs']}" if "outputs" in one else "")
        each += f": {one['each']}" if "each" in one else ""
        each += f", model {one['ratio']:.2f} of it" if "ratio" in one else ""
        loads = " ".join(f"{name} {count}" for name, count in one.get("loads", {}).items())
        table.add_row(
            one["device"], one["case"], str(one["registers"]), str(one["stack_bytes"]), each, share, loads,
            one.get("aim", "-"), verdict(one),
        )  # fmt: skip
    Console(width=200).print(table)


def verdict(row: Row) -> str:
    """met, missed and by what, or why that is not known."""
    if "misses" not in row:
        return f"not known: {row['note']}"
    return "missed: " + ", ".join(row["misses"]) if row["misses"] else "met"


def main(given_words: list[str] | None = None) -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", nargs="+", default=["v100", "a100", "h200"])
    words.add_argument("--loops", action="store_true", help="the loops of `LOOPS` only")
    given = words.parse_args(given_words)
    rows = []
    try:
        devices = [load_device(name) for name in given.device]
        for on in devices:
            compiled_target(on)
    except (SpecError, DeviceError) as error:
        words.error(str(error))
    for on in devices:
        rows += [loop_row(case, on) for case in LOOPS]
        if not given.loops:
            rows += [walk_row(on), *(straight_row(case, on) for case in STRAIGHT)]
            rows += [product_row(dtype, on) for dtype in DTYPES]
    show(rows)
    if not given.loops:
        keep("sass", {"compiler": f"NVRTC {version()}", "rows": rows})
    lacking = [f"{one['device']} {one['case']} {verdict(one)}" for one in rows if verdict(one) != "met"]
    if lacking:
        raise SystemExit("aims: " + "; ".join(lacking))


if __name__ == "__main__":
    main()
