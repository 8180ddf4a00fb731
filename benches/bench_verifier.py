"""What the verifier is worth and what it costs: ``python benches/bench_verifier.py [--keep | --everything]``.

``--everything`` is the whole evaluation: costs and regret (below), then ``rollergen verify evaluate`` (orders,
searches, operators one after another) and ``ablate`` of the collection with all rankers and five seeds, into
results/verifier; interrupted, the same command goes on.

Costs, in CPU seconds of one core (medians of `ROUNDS`; of operators met first, of as many of these), with the collector
paused, as a build has it: the features of 50 drafted candidates, their reranking with these, training on 5,000 records,
and the size of the file.  Every round computes all features anew, of the same programs; kept from round to round is
what depends on the definition and the device alone (positions of axes, roles, the operator's class), and the model's
predictions with their limiters.  Of operators met first nothing of the features was found before, the predictions
were.  Straight after the draft, as in a build, these are missing too: a draft is priced without its limiters.

Regret: operators of the collection by what the best of
the model's first three lacks, with the model's error on its first choice and on the measured best: where it takes the
best for slower than it is, its price is wrong, and the limiters say which.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from results import ROOT, keep_at
from rich.console import Console
from rich.table import Table

import rollergen as rg
from benches.verify.command import ablate, evaluate
from benches.verify.metrics import top_k
from benches.verify.report import write_tables
from rollergen.features import matrix, names
from rollergen.hal.changes import with_present_costs
from rollergen.hal.spec import Device
from rollergen.measure.candidates import paused_collector
from rollergen.program.model import Prediction, predict
from rollergen.program.rprogram import RProgram
from rollergen.store.record_files import read
from rollergen.verify import verifier as verifiers
from rollergen.verify.dataset import Dataset, joined, load
from rollergen.verify.rankers import scores_of

DATA = ROOT / "benches" / "data" / "collection_amd-epyc_2026-11-21.jsonl.xz"
REPORT = ROOT / "benches" / "results" / "verifier"
ROUNDS = 31
RECORDS, CANDIDATES = 5000, 50
FIRST_MET = range(320, 832, 32)
"""Rows of matmuls that are new: what is found once for an operator is found for each of them."""


def seconds(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median CPU seconds of a call."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return median(found)


def costs(data: Dataset, path: Path) -> dict[str, float]:
    """On the device that the records are of: of another a verifier would abstain, which takes no time."""
    (measured,) = read(path).devices.values()
    device = with_present_costs(measured)
    more = np.resize(np.arange(len(data)), RECORDS)
    many = joined(data.of(more[: len(data)]), data.of(more[len(data) :]))
    start = time.process_time()
    made = verifiers.train(many, "cpu", {"of": "a bench"})
    training = time.process_time() - start
    with tempfile.TemporaryDirectory() as directory:
        verifiers.save(made, Path(directory) / "verifier.json")
        size = (Path(directory) / "verifier.json").stat().st_size
    programs, said = drafted(512, device)
    abstained = made.rerank(programs, device, 10, False).abstained
    assert abstained is None, abstained

    def asked(x: np.ndarray, predicted: np.ndarray) -> None:
        made.support.objection(x)
        scores_of(made.objective, made.booster.predict(x, num_threads=1), predicted)

    def whole(programs: Sequence[RProgram], said: Sequence[Prediction]) -> None:
        asked(matrix(programs, device, said), milliseconds(said))

    x, predicted = matrix(programs, device, said), milliseconds(said)
    with paused_collector():
        return {
            "candidates": len(programs),
            "features ms": 1e3 * seconds(lambda: matrix(programs, device, said)),
            "support and scores ms": 1e3 * seconds(lambda: asked(x, predicted)),
            "features, support and scores ms": 1e3 * seconds(lambda: whole(programs, said)),
            "features, support and scores ms, operator met first": 1e3 * median(
                seconds(lambda one=one: whole(*one), rounds=1) for one in [drafted(n, device) for n in FIRST_MET]
            ),
            "rerank ms, straight after the draft": 1e3 * median(
                seconds(lambda one=one: made.rerank(one, device, 10, False), rounds=1)
                for one in (programs_of(n + 16, device) for n in FIRST_MET)
            ),
            "rerank ms, kept predictions looked up": 1e3 * seconds(lambda: made.rerank(programs, device, 10, False)),
            "rerank ms, with what moved (SHAP)": 1e3 * seconds(lambda: made.rerank(programs, device, 10)),
            "training s": training,
            "records": len(many),
            "file bytes": size,
        }


def milliseconds(said: Sequence[Prediction]) -> np.ndarray:
    return np.array([float(one.seconds) * 1e3 for one in said])


def programs_of(rows: int, device: Device) -> list[RProgram]:
    """The first `CANDIDATES` of a matmul."""
    expr = rg.ops.matmul(rg.tensor("A", (rows, 512)), rg.tensor("B", (512, 512)))
    return list(rg.construct(expr, device, CANDIDATES))


def drafted(rows: int, device: Device) -> tuple[list[RProgram], list[Prediction]]:
    """Programs, and the model's predictions."""
    programs = programs_of(rows, device)
    return programs, [predict(program, device) for program in programs]


def regrets(data: Dataset, path: Path, count: int) -> list[dict[str, Any]]:
    """The operators whose first three lack most, worst first."""
    titles = {one["group"]: _title(one["op"]) for one in read(path).records}
    lines = [_line(data, rows, titles) for rows in data.operators()]
    return sorted(lines, key=lambda line: (line["top-3"], line["top-1"]))[:count]


def _title(op: dict[str, Any]) -> str:
    extents = " ".join(f"{name}={extent}" for name, extent in op["extents"].items())
    return f"{extents} {op['dtype']}"


def _line(data: Dataset, rows: np.ndarray, titles: dict[str, str]) -> dict[str, Any]:
    times, predicted = data.ms[rows], data.predicted_ms[rows]
    order = np.argsort(predicted, kind="stable")
    best, first = int(times.argmin()), int(order[0])
    limiters = [n for n, name in enumerate(names()) if name.startswith("H.") and name.endswith(" share")]
    share = lambda at: {names()[n][2:-6]: round(float(data.x[rows[at], n]), 2) for n in limiters}
    told = lambda at: {
        "measured ms": float(times[at]),
        "predicted over measured": float(predicted[at] / times[at]),
    }
    heaviest = lambda at: dict(sorted(share(at).items(), key=lambda pair: -pair[1])[:3])
    return {
        "operator": titles[data.titles[int(data.operator[rows[0]])]],
        "class": data.class_of(rows),
        "programs": len(rows),
        "top-1": top_k(times, order, 1),
        "top-3": top_k(times, order, 3),
        "rank of the best": int(np.flatnonzero(order == best)[0]) + 1,
        "noise of the best": float(data.noise[rows[best]]),
        "best": told(best),
        "first": told(first),
        "limiters of the best": heaviest(best),
        "limiters of the first": heaviest(first),
        "decisions that differ": [
            names()[n]
            for n in np.argsort(-np.abs(data.x[rows[best]] - data.x[rows[first]]), kind="stable")
            if names()[n][0] in "CG" and data.x[rows[best], n] != data.x[rows[first], n]
        ][:6],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worst", type=int, default=15)
    parser.add_argument("--data", type=Path, default=DATA, help="another collection")
    parser.add_argument("--report", type=Path, default=REPORT, help="another directory")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write costs.json and regret.json")
    parser.add_argument("--everything", action="store_true", help="and evaluate, and ablate")
    options = parser.parse_args()
    console, data = Console(), load([options.data])
    found, worst = costs(data, options.data), regrets(data, options.data, options.worst)
    console.print_json(json.dumps(found))
    columns = ("operator", "top-1", "top-3", "rank of the best", "best: predicted / measured", "first")
    table = Table(*columns, "limiters of the best", "of the first")
    for line in worst:
        figures = (line["top-1"], line["top-3"], line["best"]["predicted over measured"])
        shown = [f"{value:.2f}" for value in (*figures, line["first"]["predicted over measured"])]
        shown.insert(2, str(line["rank of the best"]))
        table.add_row(line["operator"], *shown, str(line["limiters of the best"]), str(line["limiters of the first"]))
    console.print(table)
    if options.keep or options.everything:
        options.report.mkdir(parents=True, exist_ok=True)
        keep_at(options.report / "costs.json", found)
        keep_at(options.report / "regret.json", {"worst": worst})
        write_tables(options.report)
    if options.everything:
        words = [str(options.data), "--seeds", str(options.seeds), "--report", str(options.report)]
        evaluate.main(words, standalone_mode=False)
        ablate.main(words, standalone_mode=False)


if __name__ == "__main__":
    main()
