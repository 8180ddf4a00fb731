"""Rankers on published GPU spaces, across devices: ``python benches/bench_verifier_spaces.py --spaces DIRECTORY``.

DIRECTORY holds gemm_rtx_titan.csv.gz, gemm_rtx_3060_laptop.csv.gz, conv_a100.csv.gz and conv_mi50.csv.gz (see
data/README.md); of each a sample of rows, drawn with a fixed seed, is mapped to rPrograms.  Convolutions: those that
stage their window (use_shmem = 1), the slower of the two replicates of a program, as the others hang on clocks.

Transfer: trained on all rows of one device, used on another (the same operator and shape: what is held out is the
device), with 0 to 100 rows of it measured; judged on the rows that were not.  Search: measurements until within 2 %
of the best of the sampled programs, trained rankers from the other device.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from measured_spaces import program_of
from ranking import regret
from results import ROOT, keep_at
from rich.console import Console
from rich.table import Table

from benches.verify.metrics import tau, trials_to
from benches.verify.pool import Pool
from benches.verify.rankers import columns_of
from benches.verify.replay import measured_order
from benches.verify.search import SEARCHES, Annealed
from benches.verify.transfer import METHODS, drawn
from rollergen.features import matrix
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.verify.dataset import Dataset
from rollergen.verify.rankers import Boosted

DEVICES = ROOT / "benches" / "devices"
SPACES = {
    "gemm TITAN RTX": ("gemm_rtx_titan", str(DEVICES / "titan_rtx.json")),
    "gemm RTX 3060": ("gemm_rtx_3060_laptop", str(DEVICES / "rtx_3060_laptop.json")),
    "conv A100": ("conv_a100", str(DEVICES / "a100-pcie-40gb.json")),
    "conv MI50": ("conv_mi50", str(DEVICES / "mi50-hip.json")),
}
PAIRS = (
    ("gemm TITAN RTX", "gemm RTX 3060"), ("gemm RTX 3060", "gemm TITAN RTX"),
    ("conv A100", "conv MI50"), ("conv MI50", "conv A100"),
)  # fmt: skip
LOCAL = (0, 10, 30, 100)
BATCH, MOST = 16, 400


def rows_of(path: Path, count: int) -> list[Mapping[str, str]]:
    """`count` rows of a space, drawn with a fixed seed, without replicates."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    if "MWG" in rows[0]:
        inert = lambda r: ("MDIMA",) * (r["SA"] == "0") + ("NDIMB",) * (r["SB"] == "0")
        same = lambda r: tuple(v for k, v in r.items() if k not in ("time_ms", "rel_iqr", *inert(r)))
    else:
        rows = [r for r in rows if r["status"] == "ok" and r["use_shmem"] == "1"]
        same = lambda r: tuple(v for k, v in r.items() if k.startswith(("block", "tile", "use")))
    slowest: dict[tuple[str, ...], Mapping[str, str]] = {}
    for row in rows:
        known = slowest.get(same(row))
        if known is None or float(known["time_ms"]) < float(row["time_ms"]):
            slowest[same(row)] = row
    distinct = list(slowest.values())
    return random.Random(0).sample(distinct, min(count, len(distinct)))


def dataset(rows: Sequence[Mapping[str, str]], device: Device, number: int, title: str) -> Dataset:
    programs = [program_of(row, device) for row in rows]
    said = [predict(program, device) for program in programs]
    every = np.ones(len(rows), dtype=np.int64)
    return Dataset(
        matrix(programs, device, said),
        np.array([float(row["time_ms"]) for row in rows]),
        np.array([float(one.seconds) * 1e3 for one in said]),
        number * every, number * every, every, 0.0 * every, every > 1, (title,),
    )  # fmt: skip


def neighbours(rows: Sequence[Mapping[str, str]], most: int = 16) -> np.ndarray:
    """Of each row those that differ in the fewest parameters."""
    measured = ("time_ms", "rel_iqr", "rep_ratio", "status")
    table = np.array([[int(v) for k, v in row.items() if k not in measured] for row in rows])
    found = []
    for number, row in enumerate(table):
        differ = (table != row).sum(axis=1)
        differ[number] = table.shape[1] + 1
        found.append(np.argsort(differ, kind="stable")[:most])
    return np.array(found)


def judged(scores: np.ndarray, data: Dataset) -> dict[str, float]:
    """Kendall's tau, regret of the first 1, 3 and 10 (ties at random), and the centred error of log time."""
    log = -scores - np.log(data.ms)
    return {
        "tau": tau(data.ms, scores),
        **{f"regret {k}": regret(-scores, data.ms, k) for k in (1, 3, 10)},
        "error": float(np.median(np.abs(log - np.median(log)))),
    }


def transfer(source: Dataset, target: Dataset, seeds: Sequence[int]) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, method in METHODS.items():
        fixed = name in ("analytical",) or name.startswith("source")
        for count in (0,) if fixed else LOCAL:
            lines = []
            for seed in seeds:
                local = drawn(target, count, seed)
                ranker = method(source, target.of(local), seed)
                lines.append(judged(ranker.scores(target.of(~local)), target.of(~local)))
            line = {k: fmean(one[k] for one in lines) for k in lines[0]}
            spread = {f"tau {what.__name__}": what(one["tau"] for one in lines) for what in (min, max)}
            found.setdefault(name, {})[str(count)] = {**line, **spread}
    return found


def searched(source: Dataset, pool: Pool, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Measurements to within 2 % of the best (at most `MOST` are made), by search."""
    chosen = {name: SEARCHES[name] for name in ("random", "draft (Pruner)", "analytical", "verifier")}
    chosen |= {
        "residual": lambda: Annealed(Boosted("residual"), "residual", "CDEFGH", epsilon=0.0),
        "verifier, online residual": SEARCHES["verifier, online residual"],
        "AutoTVM": SEARCHES["AutoTVM"],
        "AutoTVM, diverse batches": SEARCHES["AutoTVM, diverse batches"],
        "AutoTVM, transfer": lambda: Annealed(Boosted("lambdarank", columns_of("C", "E", "F"))),
    }
    found = {}
    for name, make in chosen.items():
        trials = []
        for seed in seeds:
            search = make()
            search.fit(source, seed)
            order = measured_order(search, pool, seed, BATCH, MOST)
            times = pool.data.ms
            near = (times[order] <= 1.02 * times.min()).any()
            trials.append(trials_to(times, order) if near else len(order) + 1)
        found[name] = {"mean": fmean(trials), "seeds": trials, "never": sum(n > MOST for n in trials)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1500, help="of each space")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write benches/results/verifier/spaces.json")
    options = parser.parse_args()
    console = Console()
    rows = {name: rows_of(options.spaces / f"{file}.csv.gz", options.rows) for name, (file, _) in SPACES.items()}
    data = {
        name: dataset(rows[name], load_device(device), number, name)
        for number, (name, (_, device)) in enumerate(SPACES.items())
    }
    content: dict[str, Any] = {"rows": {k: len(v) for k, v in rows.items()}, "seeds": options.seeds, "batch": BATCH}
    for name, target in PAIRS:
        lines = transfer(data[name], data[target], range(options.seeds))
        table = Table("method", "measured", *next(iter(lines["analytical"].values())), title=f"{name} -> {target}")
        for method, by_count in lines.items():
            for count, line in by_count.items():
                table.add_row(method, count, *(f"{value:.3f}" for value in line.values()))
        console.print(table)
        found = searched(data[name], Pool(data[target], neighbours(rows[target])), range(options.seeds))
        console.print({key: line["mean"] for key, line in found.items()})
        content[f"{name} -> {target}"] = {"transfer": lines, "measurements to within 2%": found}
    if options.keep:
        keep_at(ROOT / "benches" / "results" / "verifier" / "spaces.json", content)
    else:
        console.print_json(json.dumps(content))


if __name__ == "__main__":
    main()
