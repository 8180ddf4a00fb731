"""Caches are swept before every timed run where cold ones were asked for, and it is stated."""

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DeviceError
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.measure import eviction
from rollergen.measure.bench import LocalBench
from rollergen.measure.eviction import TIMES, Sweep, cached_bytes
from rollergen.measure.profiler import measure_on, propose
from rollergen.runtime.executor import executor_for
from tests.measure.faulty import CPU, RIGHT

EXPRESSION = rg.ops.relu(rg.tensor("X", (1000,)), name="Y")


def local(device=CPU):
    return LocalBench(executor_for(CPU), Gate(RIGHT, expression_oracle((EXPRESSION,), RIGHT.outputs)), device=device)


@pytest.mark.in_place
def test_a_sweep_writes_every_line_of_more_memory_than_the_caches_hold():
    sweep = Sweep(executor_for(CPU), CPU)
    assert sweep.memory.nbytes >= TIMES * cached_bytes(CPU) > max(layer.capacity_bytes for layer in CPU.layers[1:-1])
    sweep()
    sweep()
    line = min(layer.transaction_bytes for layer in CPU.layers[1:-1]) // 4
    assert (sweep.memory[::line] == 2).all()


@pytest.mark.parametrize(("caches", "least"), [("warm", 0), ("cold", 6)])
def test_every_timed_run_finds_swept_caches_where_asked_for(caches, least, monkeypatch):
    sweeps = []

    class Counting:
        def __init__(self, executor, device):
            pass

        def __call__(self):
            sweeps.append(1)

    monkeypatch.setattr(eviction, "Sweep", Counting)
    bench = local()
    (outcome,) = measure_on(bench, propose([RIGHT], CPU, caches=caches))
    assert outcome.caches == caches and outcome.state == "passed"
    assert (len(sweeps) == 0) if not least else len(sweeps) >= outcome.rounds
    before = len(sweeps)
    assert bench.repeat(outcome, 5) > 0
    assert len(sweeps) - before == (5 if least else 0)


def test_an_isolated_and_a_plain_build_state_how_they_were_timed():
    for isolate in (False, True):
        options = rg.BuildOptions(caches="cold", isolate=isolate)
        kernel = rg.build(EXPRESSION, "cpu", top_k=1, options=options)
        found = rg.build(EXPRESSION, "cpu", top_k=1, options=options)
        for one in (kernel, found):
            assert one.explain(as_dict=True)["profiling"]["caches"] == "cold" and "with cold caches" in one.explain()
    warm = rg.build(EXPRESSION, "cpu", top_k=1)
    assert warm.candidates[0].caches == "warm" and "with warm caches" in warm.explain()


def test_what_profiling_took_is_told_in_parts():
    kernel = rg.build(EXPRESSION, "cpu", top_k=2)
    facts, (first, *_) = kernel.explain(as_dict=True)["profiling"], kernel.candidates
    assert facts["candidates"] == len(kernel.candidates)
    assert facts["compile_seconds"] == pytest.approx(sum(one.compile_s for one in kernel.candidates))
    assert facts["check_seconds"] == pytest.approx(sum(one.check_s for one in kernel.candidates))
    assert "candidates: compile " in kernel.explain() and first.times_s
    assert rg.build(EXPRESSION, "cpu", profile=False).explain(as_dict=True)["profiling"] is None


def test_cold_measurements_are_marked_and_not_learned_from():
    from rollergen.store.collection import stored
    from rollergen.store.location import store_path
    from rollergen.verify.dataset import from_records

    rg.build(EXPRESSION, "cpu", top_k=1, options=rg.BuildOptions(caches="cold"))
    found = stored(store_path())
    assert [one["result"]["caches"] for one in found.records] == ["cold"] and len(from_records([found])) == 0


def test_other_caches_and_devices_without_any_are_refused():
    with pytest.raises(ArgumentError, match='caches is \'hot\'; expected "warm" or "cold"'):
        rg.BuildOptions(caches="hot")
    with pytest.raises(DeviceError, match="is for CPUs"):
        Sweep(executor_for(CPU), rg.load_device("v100"))
    (candidate,) = propose([RIGHT], CPU, caches="cold")
    bench = local(device=None)
    bench.check(candidate)
    with pytest.raises(ArgumentError, match="knows no device"):
        bench.time(candidate)
