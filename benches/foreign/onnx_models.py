"""ONNX's model tests against `rg.compile`: ``python benches/foreign/onnx_models.py [TEXT ...] [--kind KIND]``.

The tests that come with the package onnx and need no download: nine networks without their weights (light), small
models of its authors (simple), and operators and layers as PyTorch once exported them.  Its own runner gives each model
its inputs, and holds its results to those that are stored, within the tolerances of the test.  Each is compiled for
this machine's CPU, unprofiled; what has no counterpart in rollergen runs in ONNX's reference evaluator, and is counted.

TEXT: only tests whose names contain it; KIND: only light, simple, operators or layers.  Of all together the table is
results/onnx_models_<cpu>_<day>.json.  Exits with 1 where one is wrong or raises anything but a refusal.  The
environment is that of onnx_nodes.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

import rollergen as rg
from benches.foreign.cases import crash
from benches.results import keep
from rollergen.errors import ArgumentError

KINDS = {
    "OnnxBackendRealModelTest": "light",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchOperatorModelTest": "operators of PyTorch",
    "OnnxBackendPyTorchConvertedModelTest": "layers of PyTorch",
}
RESULTS = ("right", "skipped", "refused", "wrong", "crash")


class Compiled(BackendRep):  # type: ignore[misc]
    """A compiled model; ``latest``: of the last one that ran, what became of its steps."""

    latest: ClassVar[dict[str, int]] = {}

    def __init__(self, source: ModelProto) -> None:
        self.source = source

    def run(self, inputs: Sequence[np.ndarray], **_: Any) -> tuple[np.ndarray, ...]:
        model = rg.compile(self.source, tuple(inputs), "cpu", profile=False)
        made = model(*inputs)
        host = sum(layer.kernel is None for layer in model.layers)
        Compiled.latest = {"steps": len(model.layers), "host steps": host}
        return made if isinstance(made, tuple) else (made,)


class Rollergen(Backend):  # type: ignore[misc]
    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> Compiled:
        return Compiled(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def tests(texts: Sequence[str], kind: str) -> Iterator[tuple[str, unittest.TestCase]]:
    """(kind, test) of a kind, those whose names contain a text."""
    groups = BackendTest(Rollergen, __name__).test_cases
    for name in (name for name in KINDS if KINDS[name].startswith(kind)):
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(groups[name]):
            assert isinstance(test, unittest.TestCase)
            called = test.id().rsplit(".", 1)[-1]
            if called.endswith("_cpu") and (not texts or any(text in called for text in texts)):
                yield KINDS[name], test


def examine(kind: str, test: unittest.TestCase) -> dict[str, Any]:
    """The row of one test: "right", "skipped: ...", "refused: ...", "wrong: ..." or "crash: ..."."""
    Compiled.latest, begun = {}, time.perf_counter()
    called = test.id().rsplit(".", 1)[-1]
    try:
        getattr(test, called)()
        result = "right"
    except unittest.SkipTest as reason:
        result = f"skipped: {reason}"
    except ArgumentError as error:
        result = f"refused: {error}"
    except AssertionError as error:
        result = "wrong: " + " ".join(str(error).split())[:300]
    except Exception as error:  # what a crash is: the row tells it, and the run ends with 1
        result = crash(error)
    return {"name": called, "kind": kind, "result": result, **Compiled.latest,
            "seconds": round(time.perf_counter() - begun, 2)}  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each kind: how many tests, how many of them are right, have host steps, are wrong or crash."""
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS.values()}
    counted = lambda some: {what: sum(row["result"].startswith(what) for row in some) for what in RESULTS}
    host = lambda some: sum(bool(row.get("host steps")) for row in some)
    return [
        {"kind": kind, "tests": len(some), **counted(some), "with host steps": host(some)} for kind, some in of.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="only tests whose names contain it")
    parser.add_argument("--kind", default="", help=f"how its name begins: {', '.join(KINDS.values())}")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        os.environ["ONNX_HOME"] = directory  # where the runner puts the inputs that it makes
        for kind, test in tests(given.texts, given.kind):
            rows.append(examine(kind, test))
            if rows[-1]["result"] != "right" or kind == "light":
                print(rows[-1], flush=True)
    for line in table(rows):
        print(line)
    if not (given.texts or given.kind):
        keep("onnx_models", {"table": table(rows), "rows": rows})
    return int(any(row["result"].startswith(("wrong", "crash")) for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
