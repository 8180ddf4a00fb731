"""What the model says, before anything is timed: ``python benches/gpu/predict.py --device v100 [--suite NAME ...]``.

For every operator the ten programs that would be measured: a digest of the source, by which a timing finds its
prediction, and the predicted time; and the limiters of the first.  Needs no GPU.  Kept in
results/gpu_predictions_<spec>.json, to be committed before `compare.py` runs: that one takes no others.  What other
code predicted is predicted anew, in a tenth of a second each; where nothing else comes out, the commit still holds.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.gpu import machine
from benches.gpu.cases import Key
from benches.gpu.rows import Row, Rows, key_of, of_this_code, rows_of, stamp_of
from rollergen.bench.origin import commit
from rollergen.bench.suites import Entry
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.emit import Source, emit
from rollergen.errors import DoesNotFitError, RollergenError
from rollergen.expr.canonical import canonicalize
from rollergen.hal.spec import Device
from rollergen.program.model import predict
from rollergen.program.rprogram import RProgram

CANDIDATES = 10
NAME = "predictions"


def digest(source: Source) -> str:
    """Of the text and its launches."""
    return hashlib.sha256(repr((source.text, source.launches)).encode()).hexdigest()[:16]


def row(entry: Entry, device: Device) -> Row:
    """The programs of one operator as (digest, predicted microseconds), the model's first choice first."""
    choice.cache_clear()
    found: Row = {**machine.facts_of(entry), "commit": commit()}
    try:
        ranked = construct(canonicalize(entry.make()), device, top_k=CANDIDATES)
    except DoesNotFitError as error:
        return {**found, "state": f"does not fit: {error}", "programs": []}
    programs = [(digest(emit(one.program, device)), round(1e6 * float(one.seconds), 4)) for one in ranked]
    return {**found, "state": "predicted", "limiters": limiters(ranked[0].program, device), "programs": programs}


def limiters(program: RProgram, device: Device) -> list[str]:
    """What binds each launch of a call."""
    return [str(stage.binding) for stage in predict(program, device).stages if not stage.once]


def summary(rows: list[Row]) -> Row:
    programs = [len(one.get("programs", ())) for one in rows]
    return {"operators": len(rows), "programs": sum(programs), "without programs": programs.count(0)}


def predicted(path: Path, keys: list[Key]) -> dict[Key, Row]:
    """The rows of these operators.  Raises RollergenError where some are missing, or of other code."""
    found = {key_of(one): one for one in rows_of(path)}
    missing = [":".join(key) for key in keys if key not in found]
    advice = "benches/gpu/predict.py makes it anew, and it is to be committed"
    if missing:
        raise RollergenError(f"{path} has no prediction for {', '.join(missing[:5])} ({len(missing)} in all): {advice}")
    if any(found[key]["stamp"] != of_this_code(key) for key in keys):
        raise RollergenError(f"{path} is of other code than this checkout's: {advice}")
    return found


def stamps(known: dict[Key, Row]) -> Callable[[Key], str]:
    """Of what is measured: it stands as long as the same programs are the candidates."""
    return lambda key: stamp_of([one for one, _ in known.get(key, {}).get("programs", ())])


def main(words: list[str] | None = None) -> int:
    given = machine.parsed(machine.parser(__doc__), words)
    on, found = machine.machine(given), machine.entries(given)
    rows = Rows(machine.path(given.results, NAME, on.device), {"spec": on.device.name}, summary)
    return rows.fill(found, lambda key: row(found[key], on.device), machine.budget(given), again=given.again)


if __name__ == "__main__":
    raise SystemExit(machine.ended(main))
