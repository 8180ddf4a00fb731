"""A bench of many candidates keeps the arrays of few."""

import pytest

import rollergen as rg
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.bench import LocalBench
from rollergen.measure.isolation import bench_for
from rollergen.measure.profiler import propose
from rollergen.runtime.executor import executor_for
from rollergen.runtime.opencl_session import OpenCLSession
from rollergen.verify import collect as collecting
from rollergen.verify.protocol import Protocol
from tests.measure.faulty import CPU, RIGHT

ORACLE = expression_oracle((rg.ops.relu(rg.tensor("X", (1000,)), name="Y"),), RIGHT.outputs)


def with_arrays(bench):
    """Ranks whose session has an output."""
    arrays = lambda session: session._set if isinstance(session, OpenCLSession) else session._arrays
    return {rank for rank, session in bench._ready.items() if "Y" in arrays(session)}


def test_outputs_of_those_used_last_are_kept_and_the_others_get_new_ones_when_they_are_timed():
    bench = LocalBench(executor_for(CPU), Gate(RIGHT, ORACLE), kept=2)
    outcomes = [bench.check(one) for one in propose([RIGHT] * 5, CPU)]
    assert not any(one.problems for one in outcomes) and with_arrays(bench) == {3, 4}
    assert bench.repeat(outcomes[3], 2) > 0 and with_arrays(bench) == {3, 4}
    assert bench.repeat(outcomes[0], 2) > 0 and with_arrays(bench) == {0, 3}, "4 was used longest ago"
    assert bench.time(outcomes[1]).wall_s > 0 and with_arrays(bench) == {0, 1}
    bench.close()


def test_a_bench_of_a_build_keeps_all_for_it_times_them_in_turn():
    bench = LocalBench(executor_for(CPU), Gate(RIGHT, ORACLE))
    for one in propose([RIGHT] * 5, CPU):
        bench.check(one)
    assert with_arrays(bench) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("isolate", [False, True])
def test_a_collection_keeps_few_and_times_all(isolate, monkeypatch):
    asked = []

    def spied(*words):
        asked.append(words[-1])
        return bench_for(*words)

    monkeypatch.setattr(collecting, "bench_for", spied)
    expr = rg.ops.depthwise_conv2d(rg.tensor("X", (1, 8, 20, 20)), rg.tensor("W", (8, 1, 3, 3)), padding=1)
    found = collecting.collect(
        expr, CPU, executor_for(CPU), count=14, drafted=6, protocol=Protocol(samples=2, seconds=0.001, warm_ups=1),
        options=rg.BuildOptions(isolate=isolate),
    )  # fmt: skip
    assert asked == [4] and len(found.records) > 8
    assert {one["result"]["status"] for one in found.records} == {"ok"}
