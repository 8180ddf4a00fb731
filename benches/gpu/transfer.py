"""What learned rankers make of the programs collected on a GPU: ``python benches/gpu/transfer.py --device NAME``.

Operators come one after another (`benches.verify.stream`): a ranker orders an operator's programs, is judged, and is
updated by the ten that would be measured.  Boosted trees, frozen and grown; PaCM, frozen, fine-tuned, and updated by
momentum; beside the model.  They begin trained on the other half of the GPU's structures ("half"), and on the
committed collection of a CPU ("cpu"), whose programs cost what they cost for other reasons.  Needs no GPU, and minutes
of a CPU.  Kept in results/gpu_transfer_<spec>.json; interrupted, the same command goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import collect, machine
from benches.gpu.rows import Row
from benches.results import ROOT, keep_at
from benches.verify.stream import MEASURED, streams
from benches.verify.unfinished import Unfinished
from rollergen.errors import RollergenError
from rollergen.verify.dataset import Dataset, load
from rollergen.verify.objectives import DEFAULT_OBJECTIVE

NAME = "transfer"
CPU = ROOT / "benches" / "data" / "collection_amd-epyc_2026-11-21.jsonl.xz"
SEEDS = 3


def evaluated(own: Dataset, source: Dataset | None, seeds: int, kept: Unfinished) -> tuple[Row, Row]:
    """(a line for each method, what was left out)."""
    found, left_out = streams(own, DEFAULT_OBJECTIVE, range(seeds), kept=kept, source=source)
    return {name: {key: _mean(value) for key, value in line.items()} for name, line in found.items()}, left_out


def _mean(value: Any) -> Any:
    return value["mean"] if isinstance(value, dict) and "mean" in value else value


def main(words: list[str] | None = None) -> int:
    parser = machine.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--source", type=Path, default=CPU, help="records of another device that rankers begin with")
    given = machine.parsed(parser, words)
    device = machine.machine(given).device
    records = machine.path(given.results, collect.RECORDS, device).with_suffix(".jsonl.xz")
    if not records.exists():
        print(f"{records} is missing; expected it made by benches/gpu/collect.py")
        return 2
    data = load([records, given.source])
    own, other = data.of_family("gpu"), data.of_family("cpu")
    out = machine.path(given.results, NAME, device)
    kept = Unfinished.at(out.with_suffix(".unfinished.jsonl"), data)
    content: Row = {"operators": len(own.operators()), "programs": len(own), "measured of each": MEASURED}
    content["left out"] = {}
    for name, source in (("half", None), ("cpu", other)):
        try:
            content[f"trained on {name}"], left_out = evaluated(own, source, given.seeds, kept)
        except RollergenError as error:  # too few records
            left_out = {f"trained on {name}": str(error)}
        content["left out"] |= left_out
    for what, why in content["left out"].items():
        print(f"{what}: {why}")
    keep_at(out, content)
    kept.done()
    print(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
