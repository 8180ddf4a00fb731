"""Records made without measuring: programs of small operators with times that a known rule gives."""

from functools import cache

import numpy as np

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.features import features
from rollergen.hal.load import device_hash
from rollergen.measure.profiler import Outcome
from rollergen.store.keys import key_of
from rollergen.store.record_files import RecordFile
from rollergen.store.records import records_of

OPERATORS = {
    **{
        f"matmul {m}": rg.ops.matmul(rg.tensor("A", (m, 64)), rg.tensor("B", (64, 96))) for m in (32, 48, 80, 100, 130)
    },
    **{f"sum {n}": rg.ops.sum(rg.tensor("X", (64, n)), axis=1) for n in (256, 320, 500)},
    **{f"column {n}": rg.ops.sum(rg.tensor("X", (n, 64)), axis=0) for n in (200, 300, 400)},
}


def outcome(rank, program, device, times_s, problems=()):
    from rollergen.measure.profiler import propose

    one = propose([program], device)[0]
    return Outcome(rank, program, one.source, one.predicted_s, 0.1, times_s[0], times_s[0], 1, 1, problems=problems, times_s=times_s)


@cache
def recorded(count=30, device_name="v100", failing=0):
    """A `RecordFile`: a program's time is its prediction times a factor that its register tile decides."""
    device = rg.load_device(device_name)
    records = []
    for expr in OPERATORS.values():
        graph = canonicalize(expr)
        key = key_of(graph, device, rg.BuildOptions(), count, "a runtime | a compiler")
        outcomes = []
        for rank, program in enumerate(rg.construct(expr, device, count)):
            found = features(program, device)
            factor = 1.0 + 0.5 * found["C.col register tile"] + 0.1 * found["C.block threads"]
            seconds = float(rg.predict(program, device).seconds) * factor
            problems = ("wrong",) if rank < failing else ()
            outcomes.append(outcome(rank, program, device, (seconds, seconds * 1.01, seconds * 0.99), problems))
        records += records_of(tuple(outcomes), graph, device, key, 1000.0 + len(records))
    return RecordFile({device_hash(device): device}, tuple(records))


def times_of(file):
    return np.array([r["result"]["times_ms"][0] for r in file.records])
