"""What the model says, before anything is timed: ``python benches/gpu/predict.py [--device NAME] [--suite NAME ...]``.

For every operator the ten programs that would be measured: predicted time, its limiter, and a digest of the source, by
which a timing finds its prediction.  Needs no GPU where ``--device`` names a spec.  Kept in
results/gpu_predictions_<spec>.json, to be committed before `compare.py` runs: that one takes no others.  What other
code predicted is predicted anew.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.rows import Row, Rows
from rollergen.bench.origin import commit
from rollergen.construct import construct
from rollergen.construct.choose import Ranked, choice
from rollergen.emit import Source, emit
from rollergen.errors import DoesNotFitError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.suites import Entry

CANDIDATES = 10
NAME = "predictions"


def digest(source: Source) -> str:
    """Of the text and its launches."""
    return hashlib.sha256(repr((source.text, source.launches)).encode()).hexdigest()[:16]


def row(entry: Entry, device: Device) -> Row:
    """The programs of one operator, the model's first choice first."""
    choice.cache_clear()
    found: Row = {"suite": entry.suite, "id": entry.id, "kind": entry.kind, "dtype": entry.dtype, "commit": commit()}
    try:
        ranked = construct(canonicalize(entry.make()), device, top_k=CANDIDATES)
    except DoesNotFitError as error:
        return {**found, "state": f"does not fit: {error}", "programs": []}
    return {**found, "state": "predicted", "programs": [_program(one, device) for one in ranked]}


def _program(ranked: Ranked, device: Device) -> Row:
    return {
        "digest": digest(emit(ranked.program, device)),
        "us": round(1e6 * float(ranked.seconds), 4),
        "limiters": [str(stage.binding) for stage in predict(ranked.program, device).stages if not stage.once],
    }


def summary(rows: list[Row]) -> Row:
    return {
        "operators": len(rows),
        "programs": sum(len(one["programs"]) for one in rows),
        "do not fit": sum(not one["programs"] for one in rows),
    }


def main(words: list[str] | None = None) -> int:
    given = machine.parser(__doc__).parse_args(words)
    device, found = machine.spec(given.device), machine.entries(given)
    path = machine.path(given.results, NAME, device)
    rows = Rows(path, machine.key, {"spec": device.name}, summary)
    return rows.fill(found, lambda key: row(found[key], device), machine.budget(given), given.again)


if __name__ == "__main__":
    raise SystemExit(main())
