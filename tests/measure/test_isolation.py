"""A candidate that hangs, crashes or is wrong fails alone; the caller and the other candidates go on."""

import os
import signal
from dataclasses import replace
from multiprocessing import Pipe

import pytest

import rollergen as rg
from rollergen.errors import CheckFailedError, DeviceError
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.bench import Lost
from rollergen.measure.isolation import IsolatedBench, Worker
from rollergen.measure.profiler import fastest, measure_on
from rollergen.measure.worker import Limits, Setup
from rollergen.runtime.session import Reading
from rollergen.store.records import status
from tests.measure import faulty
from tests.measure.faulty import CPU, RIGHT

LIMITS = Limits(compile_s=20.0, run_s=1.0)


def setup(limits=LIMITS, oracle=None, **how):
    expression = rg.ops.relu(rg.tensor("X", (1000,)), name="Y")
    return Setup(CPU, RIGHT, oracle or expression_oracle((expression,), RIGHT.outputs), limits=limits, **how)


def measured(*faults, limits=LIMITS):
    bench = IsolatedBench(setup(limits))
    try:
        return measure_on(bench, faulty.sources(*faults))
    finally:
        bench.close()


def only_the_first_fails(fault, limits=LIMITS):
    """Outcome of a fault; the right candidates before and after it are timed and one of them wins."""
    before, failed, after = measured(None, fault, None, limits=limits)
    assert [before.state, failed.state, after.state] == ["passed", "failed", "passed"], failed.problems
    assert fastest((before, failed, after)) in (before, after)
    return failed


def test_a_candidate_that_loops_forever_is_ended_at_its_limit():
    failed = only_the_first_fails(faulty.LOOP, Limits(compile_s=5.0, run_s=1.0))
    assert failed.problems == ("ended after 6 s while running",) and status(failed) == "timeout"


def test_a_candidate_that_is_never_compiled_is_ended_at_its_limit():
    failed = only_the_first_fails(faulty.never_compiles, Limits(compile_s=6.0, run_s=1.0))
    assert failed.problems == ("ended after 6 s while compiling",) and status(failed) == "timeout"


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_limits_beyond_what_timers_count_are_none(seconds):
    limits = Limits(compile_s=seconds, run_s=seconds, memory_bytes=10**30)
    assert [one.state for one in measured(None, limits=limits)] == ["passed"]


def test_a_candidate_that_writes_everywhere_until_its_process_dies_is_a_crash_of_its_own():
    failed = only_the_first_fails(faulty.FILL)
    assert "was ended by SIG" in failed.problems[0] and status(failed) == "launch"


def test_a_candidate_that_aborts_is_a_crash_of_its_own():
    failed = only_the_first_fails(faulty.TRAP)
    assert "was ended by SIGILL while running" in failed.problems[0] and failed.ended == "crash"


def test_a_candidate_that_is_silently_wrong_is_refused_by_the_gate():
    failed = only_the_first_fails(faulty.WRONG)
    assert "Y[999]" in failed.problems[0] and status(failed) == "wrong" and failed.ended == ""


def test_a_candidate_that_is_not_deterministic_is_refused_by_the_gate():
    failed = only_the_first_fails(faulty.RACE)
    assert status(failed) == "wrong" and "random inputs" in failed.problems[0]


def test_a_candidate_that_does_not_compile_fails_alone():
    failed = only_the_first_fails(lambda text: text.replace("get_group_id", "get_grip"))
    assert "OpenCL build failed" in failed.problems[0] and status(failed) == "compile"


def test_a_candidate_that_takes_more_memory_than_it_may_fails_alone():
    failed = only_the_first_fails(faulty.GREEDY, replace(LIMITS, memory_bytes=2**27))
    assert failed.ended != "time", failed.problems


@pytest.mark.parametrize(
    ("fault", "says", "kind"),
    [("Y[k] = 0.0f;", "infinities and NaN: ", "wrong"), ("__builtin_trap();", "was ended by SIGILL", "launch")],
)
def test_the_fastest_gives_way_to_the_next_where_only_nan_shows_that_it_is_wrong(fault, says, kind):
    class FirstIsFastest(IsolatedBench):
        def time(self, candidate):
            super().time(candidate)
            return Reading(1e-3 * (1 + candidate.rank), None)

    bench = FirstIsFastest(setup())
    wrong = f"for (int k = 0; k < 1000; ++k) if (isnan(X[k])) {{ {fault} }}"
    candidates = faulty.sources(wrong, None)
    outcomes = measure_on(bench, candidates, sparing=True)
    bench.close()
    assert [one.state for one in outcomes] == ["failed", "passed"] and fastest(outcomes) is outcomes[1]
    assert outcomes[1].program is candidates[1].program  # not what a process says in which candidates ran
    assert says in outcomes[0].problems[0] and status(outcomes[0]) == kind and outcomes[0].wall_s is None


@pytest.mark.parametrize("already_gone", [True, False])
def test_a_candidate_lost_while_it_is_timed_is_reported_and_the_others_are_timed_on(already_gone):
    class Dies(IsolatedBench):
        def time(self, candidate):
            if candidate.rank == 1 and self._worker is not None:
                os.kill(self._worker._process.pid, 9)
                if already_gone:
                    self._worker._process.wait()
            return super().time(candidate)

    bench = Dies(setup())
    outcomes = measure_on(bench, faulty.sources(None, None))
    bench.close()
    assert [one.state for one in outcomes] == ["passed", "failed"]
    assert "when timed: its process was ended by SIGKILL" in outcomes[1].problems[0]


def test_when_every_candidate_is_lost_all_reasons_are_told():
    with pytest.raises(CheckFailedError, match="candidate 1: its process was ended by SIGILL"):
        measured(faulty.TRAP)


def confused(arrays, output, points):
    raise SystemExit("the oracle's own fault")


def test_a_process_that_ends_by_an_error_of_python_says_so():
    with pytest.raises(CheckFailedError, match=r"ended with status 1 while comparing; its last words: [\s\S]*own fault"):
        measure_on(IsolatedBench(setup(oracle=confused)), faulty.sources(None))


def test_a_process_whose_own_alarm_comes_first_reached_its_limit():
    """On a busy machine, before the process that waits for it gets to end it."""
    worker = Worker(setup())
    os.kill(worker.pid, signal.SIGALRM)
    with pytest.raises(Lost, match="ended itself after 26 s") as lost:
        worker.ask("check", faulty.sources(None)[0])
    worker.end()
    assert lost.value.cause == "time"


@pytest.mark.parametrize("garbage", [b"zzzz", b"0.", b"\x80\x04h\x05.", b"\x82\x05.", b"I1\n."])
def test_a_process_whose_answer_was_overwritten_is_lost_and_its_caller_goes_on(garbage):
    worker = Worker(setup())
    worker._connection.close()
    worker._connection, theirs = Pipe()
    theirs.send_bytes(garbage)
    with pytest.raises(Lost, match="its process garbled its answer") as lost:
        worker.ask("check", faulty.sources(None)[0])
    worker.end()
    assert lost.value.cause == "crash"


def no_device(device):
    raise DeviceError(f"{device.name} is on holiday")


def test_a_device_that_the_process_cannot_open_is_an_error_of_the_caller():
    bench = IsolatedBench(setup(opens=no_device))
    with pytest.raises(DeviceError, match="cannot be opened by a process of its own: DeviceError: cpu is on holiday"):
        measure_on(bench, faulty.sources(None))
    bench.close()


def test_an_isolated_build_gives_the_kernel_of_a_plain_one():
    C = rg.ops.softmax(rg.tensor("X", (40, 70)))
    isolated = rg.build(C, "cpu", top_k=2, cache=False, options=rg.BuildOptions(isolate=True))
    plain = rg.build(C, "cpu", top_k=2, cache=False)
    assert [one.state for one in isolated.candidates] == ["passed", "passed"]
    assert [one.source for one in isolated.candidates] == [one.source for one in plain.candidates]
    assert isolated.measured_time > 0


def test_no_process_is_left_behind():
    bench = IsolatedBench(setup())
    measure_on(bench, faulty.sources(None))
    pid = bench._worker._process.pid
    bench.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
