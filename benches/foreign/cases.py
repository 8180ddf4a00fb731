"""One foreign case: is the definition right, is what is built and run on cpu, is what is interpreted for a V100?"""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import rollergen as rg
from benches.results import begun, keep, keep_at, unfinished
from rollergen.dropped import every_drop_raises
from rollergen.errors import ConstructionError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.reads import given_tensors
from rollergen.importers.refusals import REASONS

STAGES = ("definition", "cpu", "v100")
OTHERS = ("mi50", "ipu", "nvrtc")
"""Stages of some cases: interpreted for other devices, and compiled for a V100 by NVIDIA's compiler."""
REFUSALS = ("moves data between its tiles in exchanges decided before the call", "has no tiles of one")
"""Why a machine of tiles refuses places that are read, and scans."""
KEPT_EVERY = 20
Row = dict[str, Any]
Compare = Callable[[str, Sequence[np.ndarray]], None]


def examined(
    outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray], compare: Compare, stages: Iterable[str] = STAGES
) -> Row:
    """The row of an expression: for each stage "right", "refused: ...", "wrong: ..." or "crash: ...", and its seconds.

    ``compare(stage, arrays)`` raises AssertionError where the arrays (of the tensors' dtypes) are not what is expected.
    """
    row: Row = {}
    for stage in stages:
        begun = time.perf_counter()
        try:
            with every_drop_raises():
                compare(stage, _STAGES[stage](outputs, arrays))
            row[stage] = "right"
        except ConstructionError as error:
            known = next((text for text in REFUSALS if text in str(error)), "")
            row[stage] = f"refused: {known}" if known else crash(error)
        except AssertionError as error:
            row[stage] = "wrong: " + " ".join(str(error).split())[:400]
        except Exception as error:  # what a crash is: the row tells it, and the run ends with 1
            row[stage] = crash(error)
        row[f"{stage}_s"] = round(time.perf_counter() - begun, 2)
    return row


def crash(error: Exception) -> str:
    """The kind and text of an exception, and the innermost line of rollergen that raised it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/rollergen/" in f.filename]
    where = f" at {frames[-1].filename.rsplit('/rollergen/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"crash: {type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def _defined(outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    made = []
    for tensor in outputs:
        named = {one.buffer.name: arrays[one.buffer.name] for one in given_tensors((tensor,))}
        with np.errstate(all="ignore"):
            made.append(np.asarray(tensor.evaluate(**named)).astype(numpy_dtype(tensor.dtype)))
    return made


def _run(outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    kernel = rg.build(list(outputs), "cpu", profile=False, cache=False, top_k=1)
    return _several(kernel(**_named(kernel, arrays)))


def _interpreted(
    outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray], device: str, compiled: bool = False
) -> list[np.ndarray]:
    options = rg.BuildOptions(compile_check=compiled)
    kernel = rg.build(list(outputs), device, profile=False, cache=False, top_k=1, options=options)
    with np.errstate(all="ignore"):
        return _several(kernel.interpret(**_named(kernel, arrays)))


def _named(kernel: rg.Kernel, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {b.name: arrays[b.name] for b in kernel.program.inputs}


def _several(made: Any) -> list[np.ndarray]:
    return list(made) if isinstance(made, tuple) else [made]


_STAGES = {
    "definition": _defined, "cpu": _run, "nvrtc": partial(_interpreted, device="v100", compiled=True),
    **{device: partial(_interpreted, device=device) for device in ("v100", "mi50", "ipu")},
}  # fmt: skip


def faulty(row: Row) -> bool:
    return any(str(row.get(stage, "")).startswith(("wrong", "crash")) for stage in ("import", *STAGES, *OTHERS))


def in_processes(examine: Callable[[str], Row], names: Sequence[str], jobs: int) -> Iterator[Row]:
    """Rows as they come; a case that ends its process is a crash, and the others go on one at a time."""
    left = list(names)
    while left:
        finished: set[str] = set()
        with ProcessPoolExecutor(jobs) as pool:
            futures = {pool.submit(examine, name): name for name in left}
            try:
                for future in as_completed(futures):
                    row = future.result()
                    finished.add(futures[future])
                    yield row
            except BrokenProcessPool:
                pass
        left = [name for name in left if name not in finished]
        if left and jobs == 1:  # they ran in this order, so the first one left ended the process
            yield {"name": left[0], "import": "crash: the process ended"}
            left = left[1:]
        jobs = 1


@dataclass
class Rows:
    """The rows of one bench by name: kept while it runs, from where the next run goes on; a table when it is whole."""

    bench: str
    known: dict[str, Row]

    @staticmethod
    def begun(bench: str, whole: bool) -> Rows:
        """What an interrupted run of this code has kept, of all cases alone."""
        kept = begun(unfinished(bench)).get("rows", []) if whole else []
        return Rows(bench, {row["name"]: row for row in kept})

    def examine(self, examiner: Callable[[str], Row], names: Sequence[str], jobs: int, whole: bool) -> None:
        """Adds the rows of `names`; faulty ones are printed as they come."""
        for number, row in enumerate(in_processes(examiner, names, jobs), 1):
            self.known[row["name"]] = row
            if faulty(row):
                print(json.dumps(row), flush=True)
            if whole and (number % KEPT_EVERY == 0 or number == len(names)):
                keep_at(unfinished(self.bench), {"rows": list(self.known.values())})

    def told(self, names: Sequence[str], group: Callable[[Row], str], whole: bool) -> int:
        """Prints the summary of `names` and, where they are all, keeps the table; 1 where one is faulty, else 0."""
        found = [self.known[name] for name in names]
        print(json.dumps(summary(found), indent=1))
        if whole:
            groups: dict[str, list[Row]] = {}
            for row in found:
                groups.setdefault(group(row), []).append(row)
            table = [{"of": of, **counts(rows)} for of, rows in sorted(groups.items())]
            keep(self.bench, {"summary": summary(found), "table": table, "refused": refusals(found),
                              "faulty": [row for row in found if faulty(row)]})  # fmt: skip
            unfinished(self.bench).unlink(missing_ok=True)
        return 1 if any(map(faulty, found)) else 0


def counts(rows: Sequence[Row]) -> dict[str, Any]:
    """Of some rows: how many cases there are, are expressed, and are right at each stage."""
    begins = lambda row, what, *stages: any(str(row.get(stage, "")).startswith(what) for stage in stages)
    return {
        "cases": len(rows),
        "expressed": sum("refused" not in row for row in rows),
        **{f"{stage} right": sum(row.get(stage) == "right" for row in rows) for stage in STAGES},
        **{f"{stage} {what}": found for stage in OTHERS for what in ("right", "refused")
           if (found := sum(begins(row, what, stage) for row in rows))},
        "wrong": sum(begins(row, "wrong", *STAGES, *OTHERS) for row in rows),
        "crashes": sum(begins(row, "crash", "import", *STAGES, *OTHERS) for row in rows),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """`counts`, and how many were refused for which reason."""
    refused = Counter(row["refused"] for row in rows if "refused" in row)
    reasons = {REASONS[reason]: count for reason, count in refused.most_common()}
    return {**counts(rows), "refused": sum(refused.values()), "reasons": reasons}


def refusals(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Names of the refused, by what refuses them."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if "refused" in row:
            found.setdefault(": ".join(filter(None, (REASONS[row["refused"]], row["detail"]))), []).append(row["name"])
    return dict(sorted(found.items()))
