"""Does the model rank programs that it has never run?  Predictions against measured tuning spaces.

    python benches/measured_spaces.py
    python benches/measured_spaces.py --data gemm_rtx_titan.csv.gz --device benches/devices/titan_rtx.json --terms 2000
    python benches/measured_spaces.py --data conv_mi50.csv.gz --device benches/devices/mi50-hip.json --terms 2000

Each row of a space is mapped to the rProgram that was measured (`space_cpu`, `space_gpu`, `space_conv`: of these the
rows that stage their window, the slower of two replicates).  Nothing is fitted here; but constants of the model were
set on some of these spaces (the TITAN RTX's, the A100's convolutions: `sources` of the specs say it).  Without
options: the CPU space that lies in benches/data, on the core that measured it.  ``--terms``: also what each term of
the model is worth there, on so many rows (`space_terms`, `space_terms_cpu`).  Exits with 1 where a whole space misses
its bar (`space_bars`).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import space_terms_cpu
from ranking import Ranking, rank
from space_conv import AS_WRITTEN, compiled_by, conv_program, slower_of_pairs
from space_cpu import cpu_program
from space_gpu import gpu_program
from space_terms import roller_seconds, without

from benches.aims import Aim, verdict
from benches.results import keep_at
from benches.space_bars import BARS
from rollergen.hal.errors import SpecError
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

Row = Mapping[str, str]
HERE = Path(__file__).parent
CPU, GPU = "a CPU", "a GPU"
OF = {"MR": CPU, "MWG": GPU, "tile_size_x": GPU}
"""By a column of the space what ran its programs."""


def read_rows(path: Path) -> list[Row]:
    """Raises SystemExit for what is no measured space."""
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} cannot be read: {error}; expected a measured space (.csv.gz)") from None
    if not rows or not OF.keys() & rows[0].keys():
        raise SystemExit(f"{path} is no measured space; expected rows with a column {' or '.join(OF)}")
    return slower_of_pairs(rows) if "tile_size_x" in rows[0] else rows


def device_for(name: str, rows: Sequence[Row]) -> Device:
    """Raises SystemExit for an unknown device, and for one that cannot have run the rows' programs."""
    try:
        device = load_device(name)
    except SpecError as error:
        raise SystemExit(f"--device: {error}") from None
    (of,) = {what for column, what in OF.items() if column in rows[0]}
    if (of == CPU) == device.kind.lockstep:
        raise SystemExit(f"--device is {device.name}; expected {of}, whose programs the rows are (benches/devices)")
    return device


def program_of(row: Row, device: Device) -> RProgram:
    """The rProgram that a row describes, compiled for `device`; the columns tell which space it is of."""
    if "tile_size_x" in row:
        return conv_program(row, compiled_by(device))
    return cpu_program(row) if "MR" in row else gpu_program(row)


def measured_seconds(row: Row) -> float:
    return float(row["ms"] if "ms" in row else row["time_ms"]) / 1e3


def predictions(rows: Iterable[Row], device: Device) -> list[float]:
    return [float(predict(program_of(row, device), device).seconds) for row in rows]


def spill_misses(rows: Iterable[Row], device: Device, slots: float = 3.0) -> list[tuple[Row, float]]:
    """Disassembled rows whose spilled registers the model misses by more than `slots`."""
    wrong = []
    for row in rows:
        if row["stack_stores"]:
            said = predict(cpu_program(row), device).stages[-1].spilled
            if abs(said - float(row["stack_stores"])) > slots:
                wrong.append((row, said))
    return wrong


def shape_of(row: Row) -> str:
    whole = "15x15-over-4096x4096" if "tile_size_x" in row else "4096x4096x4096"
    name = f"{row['M']}x{row['N']}x{row['K']}" if "M" in row else whole
    return f"{name} {row['set']}" if row.get("set") == "heldout" else name


def by_shape(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of the same problem: those can be ranked."""
    shapes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        shapes[shape_of(row)].append(row)
    return shapes


def report(rows: Iterable[Row], device: Device) -> dict[str, Ranking]:
    return {
        shape: rank(predictions(own, device), [measured_seconds(row) for row in own])
        for shape, own in by_shape(rows).items()
    }


def print_table(found: Mapping[str, Ranking]) -> None:
    heads = ("tau", ">10%", "top-1", "top-10", "error", "bias", "best")
    print(f"{'':36} {'n':>6} " + " ".join(f"{head:>6}" for head in heads))
    for name, r in found.items():
        figures = (r.tau, r.ordered, r.top1, r.top10, r.error, r.bias, r.best)
        print(f"{name:36} {r.programs:6d} " + " ".join(f"{x:6.3f}" for x in figures))


def terms(rows: Iterable[Row], device: Device) -> dict[str, Ranking]:
    """The whole model, the model without each of its terms, and two older ones, on the same rows of a space."""
    own = list(rows)
    programs, measured = [program_of(row, device) for row in own], [measured_seconds(row) for row in own]
    if "MR" in own[0]:
        return _terms_of_cpu(own, programs, measured, device)
    found = {"nothing": rank([float(predict(p, device).seconds) for p in programs], measured)}
    found |= {term: rank(said, measured) for term, said in without(programs, device)}
    if "tile_size_x" in own[0] and compiled_by(device) != AS_WRITTEN:
        as_written = [conv_program(row) for row in own]
        found["what the compiler made of it"] = rank([float(predict(p, device).seconds) for p in as_written], measured)
    found["all (ROLLER's maximum instead)"] = rank([roller_seconds(row, device) for row in own], measured)
    found["all (a roofline instead)"] = rank([1.0] * len(own), measured)
    return found


def _terms_of_cpu(
    rows: Sequence[Row], programs: Sequence[RProgram], measured: Sequence[float], device: Device
) -> dict[str, Ranking]:
    shapes = [shape_of(row) for row in rows]
    predicted = {
        "nothing": [float(predict(program, device).seconds) for program in programs],
        **dict(space_terms_cpu.without(programs, device)),
        "all (ROLLER's maximum instead)": [space_terms_cpu.roller_seconds(row, device) for row in rows],
        "all (a roofline instead)": [1.0] * len(rows),
    }
    return {term: space_terms_cpu.ranked(said, measured, shapes) for term, said in predicted.items()}


def points(rows: Sequence[Row], device: Device, most: int = 300) -> dict[str, list[list[float]]]:
    """[predicted, measured] milliseconds of each shape, of so many rows drawn with a fixed seed: for a plot."""
    return {
        shape: [
            [float(f"{x * 1e3:.4g}") for x in pair]
            for pair in zip(predictions(own, device), map(measured_seconds, own), strict=True)
        ]
        for shape, every in by_shape(rows).items()
        for own in [random.Random(0).sample(every, min(most, len(every)))]
    }


def aims(found: Mapping[str, Ranking], device: Device) -> tuple[Aim, ...]:
    """One for each shape; those that were held back have no bar."""
    return tuple(
        Aim(f"Measured programs of {shape} on {device.name}: Kendall's tau; best of the model's first, first ten",
            f"{one.tau:.3f}; {one.top1:.3f}, {one.top10:.3f} of the best time ({one.programs} programs)",
            str(bar or ""), bar is None or bar.met(one))
        for shape, one in found.items() for bar in [BARS.get((device.name, shape))]
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "data" / "cpu_gemm_avx512.csv.gz")
    parser.add_argument("--device", default=str(HERE / "devices" / "cpu_avx512_2mb.json"))
    parser.add_argument("--sample", type=int, default=0, help="that many rows, drawn with a fixed seed (0: all)")
    parser.add_argument("--terms", type=int, default=0, help="rank so many rows without each term of the model")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write benches/results/measured_spaces_<device>.json")
    options = parser.parse_args()
    if min(options.sample, options.terms) < 0:
        parser.error("--sample or --terms is below 0; expected how many rows, 0: all, or no terms")
    rows = read_rows(options.data)
    device = device_for(options.device, rows)
    if options.sample:
        rows = random.Random(0).sample(rows, min(options.sample, len(rows)))
    found = report(rows, device)
    drawn = f"{len(rows)} rows drawn with a fixed seed" if options.sample else "all rows"
    shapes = {shape: asdict(ranking) for shape, ranking in found.items()}
    judged = aims(found, device)
    content = {"headlines": [one.headline() for one in judged], "data": options.data.name, "device": device.name,
               "rows": drawn, "shapes": shapes}  # fmt: skip
    if "stack_stores" in rows[0]:
        looked = sum(bool(row["stack_stores"]) for row in rows)
        content["spills"] = {"disassembled": looked, "missed by more than 3": len(spill_misses(rows, device))}
    worth: dict[str, Ranking] = {}
    if options.terms:
        worth = terms(random.Random(1).sample(rows, min(options.terms, len(rows))), device)
        content["left out"] = {name: asdict(ranking) for name, ranking in worth.items()}
    content["milliseconds"] = points(rows, device)
    if options.keep:
        keep_at(HERE / "results" / f"measured_spaces_{device.name}.json", content)
    if options.json:
        print(json.dumps(content, indent=1))
        return 0
    print_table(found)
    if worth:
        print_table(worth)
    print("" if "spills" not in content else f"spilled registers: {content['spills']}")
    return 0 if options.sample else verdict(judged)


if __name__ == "__main__":
    raise SystemExit(main())
