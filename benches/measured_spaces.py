"""Does the model rank programs that it has never run?  Predictions against published and own measurements.

    python benches/measured_spaces.py --data cpu_gemm_avx512.csv.gz --device benches/devices/cpu_avx512_2mb.json

Each row of a space is mapped to the rProgram that was measured; nothing is fitted here.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from rollergen.expr.combiners import named_combiner
from rollergen.expr.definition import Axis, Definition, Reduction
from rollergen.expr.index import Index
from rollergen.expr.packing import pack_operand
from rollergen.expr.values import Binary, Buffer, Load, Partial
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import Accumulator, Compute, Loop, RProgram, Stage

try:
    from benches.ranking import Ranking, rank
except ImportError:  # run as a script: benches/ itself is on the path
    from ranking import Ranking, rank

Row = Mapping[str, str]
ix = Index.axis


def read_rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def matmul(m: int, n: int, k: int) -> Definition:
    a, b = Buffer("A", (m, k)), Buffer("B", (k, n))
    body = Binary("mul", Load(a, (ix("i"), ix("k"))), Load(b, (ix("k"), ix("j"))), "float32")
    return Definition(
        Buffer("C", (m, n), kind="output"),
        (Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        (ix("i"), ix("j")),
        Partial("r", "float32"),
        (Reduction("r", named_combiner("sum", "float32"), ("k",), (body,)),),
    )


def cpu_program(row: Row) -> RProgram:
    """The rProgram of one row of the CPU space: packing stages, then items of MP x NP register tiles."""
    m, n, k = (int(row[c]) for c in "MNK")
    mr, nv, lanes, mp, np_, unroll = (int(row[c]) for c in ("MR", "NV", "VW", "MP", "NP", "KU"))
    kc, nr = min(int(row["KC"]), k), nv * lanes
    definition, stages, temporaries = matmul(m, n, k), [], []
    loads = dict(zip("AB", definition.loads(), strict=True))
    if row["pb"] == "1":
        copy, definition = pack_operand(definition, loads["B"], "j", nr)
        stages.append(_pack_b(copy, nv, lanes))
    if row["pa"] == "1":
        copy, definition = pack_operand(definition, loads["A"], "i", mr)
        stages.append(_pack_a(copy, mr))
    temporaries = [stage.definition.output for stage in stages]
    panels = [Loop("j", np_, nr, "serial"), Loop("i", mp, mr, "serial")]
    loops = (
        Loop("j", -(-n // (np_ * nr)), np_ * nr, "grid"),
        Loop("i", -(-m // (mp * mr)), mp * mr, "grid"),
        Loop("k", -(-k // kc), kc, "serial"),
        *(panels if row["order"] == "ji" else reversed(panels)),
        Loop("k", -(-kc // unroll), unroll, "serial"),
        *([Loop("k", unroll, 1, "unroll")] if unroll > 1 else []),
        Loop("i", mr, 1, "unroll"),
        Loop("j", nv, lanes, "unroll"),
        Loop("j", lanes, 1, "lane"),
    )
    guards = tuple((a, "peel") for a, extent, tile in (("i", m, mr), ("j", n, nr)) if extent % tile)
    stages.append(
        Stage("matmul", definition, loops, Compute("vfma", lanes), Accumulator(5, "float32", kc < k), guards=guards)
    )
    buffers = {load.buffer.name: load.buffer for stage in stages for load in stage.definition.loads()}
    inputs = tuple(b for b in buffers.values() if b.kind == "input")
    return RProgram("cpu", inputs, (definition.output,), tuple(stages), tuple(temporaries))


def _pack_b(copy: Definition, nv: int, lanes: int) -> Stage:
    panel, k, column = copy.axes
    loops = (
        Loop(panel.name, panel.extent, 1, "grid"),
        Loop(k.name, k.extent, 1, "serial"),
        Loop(column.name, nv, lanes, "unroll"),
        Loop(column.name, lanes, 1, "lane"),
    )
    return Stage("pack_B", copy, loops, Compute("vfma", lanes), Accumulator(2, "float32"))


def _pack_a(copy: Definition, mr: int) -> Stage:
    panel, k, row = copy.axes
    loops = (
        Loop(panel.name, panel.extent, 1, "grid"),
        Loop(k.name, k.extent, 1, "serial"),
        Loop(row.name, mr, 1, "unroll"),
    )
    return Stage("pack_A", copy, loops, Compute("vfma", 1), Accumulator(2, "float32"))


def predictions(rows: Iterable[Row], device: Device) -> list[float]:
    return [predict(cpu_program(row), device).seconds for row in rows]


def spill_misses(rows: Iterable[Row], device: Device, slots: float = 3.0) -> list[tuple[Row, float]]:
    """Disassembled rows whose spilled registers the model misses by more than `slots`."""
    wrong = []
    for row in rows:
        if row["stack_stores"]:
            said = predict(cpu_program(row), device).stages[-1].spilled
            if abs(said - float(row["stack_stores"])) > slots:
                wrong.append((row, said))
    return wrong


def by_shape(rows: Iterable[Row]) -> dict[str, list[Row]]:
    shapes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        shapes[f"{row['M']}x{row['N']}x{row['K']}"].append(row)
    return shapes


def report(rows: list[Row], device: Device, sets: tuple[str, ...] = ("main", "heldout")) -> dict[str, Ranking]:
    """Ranking of each shape of the chosen sets."""
    chosen = [row for row in rows if row["set"] in sets]
    return {
        shape: rank(predictions(own, device), [float(row["ms"]) / 1e3 for row in own])
        for shape, own in by_shape(chosen).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--sets", nargs="+", default=["main", "heldout"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from rollergen.hal.load import load_device

    device = load_device(options.device)
    found = report(read_rows(options.data), device, tuple(options.sets))
    if options.json:
        print(json.dumps({shape: asdict(r) for shape, r in found.items()}, indent=1))
        return
    print_table(found)


def print_table(found: Mapping[str, Ranking]) -> None:
    print(f"{'shape':18} {'n':>5} {'tau':>6} {'>10%':>6} {'top-1':>6} {'top-10':>6} {'error':>6} {'bias':>6}")
    for shape, r in found.items():
        figures = (r.tau, r.ordered, r.top1, r.top10, r.error, r.bias)
        print(f"{shape:18} {r.programs:5d} " + " ".join(f"{x:6.3f}" for x in figures))


if __name__ == "__main__":
    main()
