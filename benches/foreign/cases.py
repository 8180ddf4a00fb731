"""One foreign case: is the definition right, is what is built and run on cpu, is what is interpreted for a V100?"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.dropped import every_drop_raises
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.inputs import given_tensors
from rollergen.expr.language import Tensor

STAGES = ("definition", "cpu", "v100")
Row = dict[str, Any]
Compare = Callable[[str, Sequence[np.ndarray]], None]


def examined(
    outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray], compare: Compare, stages: Iterable[str] = STAGES
) -> Row:
    """The row of an expression: for each stage "right", "wrong: ..." or "crash: ...", and the seconds it took.

    ``compare(stage, arrays)`` raises AssertionError where the arrays (of the tensors' dtypes) are not what is expected.
    """
    row: Row = {}
    for stage in stages:
        begun = time.perf_counter()
        try:
            with every_drop_raises():
                compare(stage, _STAGES[stage](outputs, arrays))
            row[stage] = "right"
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


def _interpreted(outputs: Sequence[Tensor], arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    kernel = rg.build(list(outputs), "v100", profile=False, cache=False, top_k=1)
    with np.errstate(all="ignore"):
        return _several(kernel.interpret(**_named(kernel, arrays)))


def _named(kernel: rg.Kernel, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {b.name: arrays[b.name] for b in kernel.program.inputs}


def _several(made: Any) -> list[np.ndarray]:
    return list(made) if isinstance(made, tuple) else [made]


_STAGES = {"definition": _defined, "cpu": _run, "v100": _interpreted}


def faulty(row: Row) -> bool:
    return any(str(row.get(stage, "")).startswith(("wrong", "crash")) for stage in ("import", *STAGES))


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
