"""One JSON record for each profiled candidate: what verifiers learn from.

    {"v": 1, "group": "op_hash/device_id/dtype",
     "op": {"class", "expr", "extents", "dtype"}, "device": {"id", "family", "spec"},
     "program": {"v": 2, "rprogram": {...}, "kernel_sha256", "rank"},
     "pred": {"micro_ms", "draft_ms", "terms": {...}}, "feat": {"ver", "vec", "seq"},
     "result": {"status": "ok | compile | launch | wrong | timeout", "times_ms", "compile_s"},
     "env": {"driver", "compiler", "rollergen"}, "ts"}

``op.expr`` is the expression's hash (table ``expressions``), ``op.class`` one of `features.structure.CLASSES`
(records made before 2026-11-22 have construction's: contraction, reduction, row, elementwise; who asks for the class
takes it from the program), ``op.extents`` those of its largest tensor op.  ``device.spec`` is the spec's hash (table
``devices``), ``device.family`` says whether its programs have thread loops (gpu) or not (cpu).
``pred.terms``: milliseconds by ``stage.limiter``.
``feat``: the features that verifiers see (`features`) and the dataflow blocks that attention does
(`features.dataflow`; [] for a block that the program lacks), with their version.  ``env.driver`` and ``env.compiler``:
as the runtime describes itself.
``ts``: seconds since 1970.  ``result.caches`` "cold": they were swept before every run; ``result.noisy``: why the times
look like those of a busy machine.  Neither is learned from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rollergen.dropped import at_once
from rollergen.expr.stages import Graph
from rollergen.features import VERSION, matrix
from rollergen.features.dataflow import sequences
from rollergen.features.structure import operator_of as operator_computed
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.program.model import Prediction, predict
from rollergen.program.rprogram import RProgram
from rollergen.program.serial import to_json
from rollergen.store.keys import Key, sha256


def records_of(
    candidates: tuple[Outcome, ...], graph: Graph, device: Device, key: Key, now: float
) -> Iterator[dict[str, Any]]:
    """Records of the candidates that were tried; those for which no time was left have none."""
    operator, identity = operator_of(graph, key), identity_of(device, key)
    driver, _, compiler = key.driver.partition(" | ")
    tried = [outcome for outcome in candidates if outcome.state != "not run"]
    told = at_once(tried, lambda some: _described(some, device), lambda one: f"record of candidate {one.rank + 1}")
    for outcome, (prediction, feat) in told:
        yield {
            "v": 1,
            "group": f"{key.expression[:16]}/{identity}/{operator['dtype']}",
            "op": dict(operator),
            "device": {"id": identity, "family": device.kind.family, "spec": key.device},
            "program": {
                "v": 2,
                "rprogram": to_json(outcome.program),
                "kernel_sha256": sha256(outcome.source.text),
                "rank": outcome.rank,
            },
            "pred": {
                "micro_ms": outcome.predicted_s * 1e3,
                "draft_ms": None,
                "terms": model_terms(outcome.program, prediction),
            },
            "feat": feat,
            "result": {
                "status": status(outcome),
                "times_ms": [seconds * 1e3 for seconds in outcome.times_s],
                "compile_s": outcome.compile_s,
                **({} if outcome.caches == "warm" else {"caches": outcome.caches}),
                **({"noisy": outcome.noisy} if outcome.noisy else {}),
            },
            "env": {"driver": driver, "compiler": compiler, "rollergen": key.rollergen},
            "ts": now,
        }


def _described(outcomes: Sequence[Outcome], device: Device) -> list[tuple[Prediction, dict[str, Any]]]:
    """Each one's prediction and ``feat``."""
    said = [predict(outcome.program, device) for outcome in outcomes]
    return list(zip(said, features_of([outcome.program for outcome in outcomes], device, said), strict=True))


def status(outcome: Outcome) -> str:
    """``compile``: it was never ready to run; ``wrong``: it ran and the gate refused it; ``launch``: its process
    ended with it; ``timeout``: it was ended."""
    if not outcome.problems:
        return "ok"
    if outcome.ended:
        return "timeout" if outcome.ended == "time" else "launch"
    return "compile" if outcome.compile_s is None else "wrong"


def operator_of(graph: Graph, key: Key) -> dict[str, Any]:
    """The ``op`` of a record."""
    largest = max(graph.tensor_ops, key=lambda op: op.points)
    return {
        "class": operator_computed(graph.tensor_ops).kind,
        "expr": key.expression,
        "extents": {axis.name: axis.extent for axis in largest.axes},
        "dtype": largest.output.dtype,
    }


def identity_of(device: Device, key: Key) -> str:
    """The ``device.id`` of a record."""
    return f"{device.name}-{key.device[:12]}"


def features_of(
    programs: Sequence[RProgram], device: Device, predictions: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    """The ``feat`` of each program's record; ``vec`` and ``seq`` are empty where the model's figures are not finite."""
    x = matrix(programs, device, predictions)
    for row, blocks, mask in zip(x, *sequences(x), strict=True):
        finite = bool(np.isfinite(row).all())
        seq = [block.tolist() if there else [] for block, there in zip(blocks, mask, strict=True)]
        yield {"ver": VERSION, "vec": row.tolist() if finite else [], "seq": seq if finite else []}


def model_terms(program: RProgram, prediction: Prediction) -> dict[str, float]:
    """The ``pred.terms`` of a record."""
    return {
        f"{stage.name}.{limiter.name}": float(limiter.seconds) * 1e3
        for stage, one in zip(program.stages, prediction.stages, strict=True)
        for limiter in one.limiters
    }
