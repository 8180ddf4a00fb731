"""`rg.profile` over executors of the standard library: the same outcomes, whoever does the work."""

import multiprocessing
import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.errors import CheckFailedError, DeviceError
from rollergen.gate.oracle import expression_oracle
from rollergen.measure.distributed import Job, measure_through
from rollergen.measure.profiler import fastest
from tests.measure.faulty import CPU, RIGHT, TRAP, WRONG, sources

EXPRESSION = rg.ops.matmul(rg.tensor("A", (60, 70)), rg.tensor("B", (70, 80)))


def job(**options):
    oracle = expression_oracle((rg.ops.relu(rg.tensor("X", (1000,)), name="Y"),), RIGHT.outputs)
    return Job(CPU, RIGHT, oracle, BuildOptions(**options))


class Inline(Executor):
    """Runs tasks at once, on copies that have been through a pickle, as a cluster would."""

    def __init__(self, lose=()):
        self.tasks, self.lose = [], lose

    def submit(self, function, /, *arguments, **named):
        self.tasks.append(function.__name__)
        future = Future()
        try:
            if len(self.tasks) in self.lose:
                raise BrokenProcessPool("a worker died")
            function, arguments = pickle.loads(pickle.dumps((function, arguments)))
            future.set_result(pickle.loads(pickle.dumps(function(*arguments, **named))))
        except Exception as error:
            future.set_exception(error)
        return future


def test_every_candidate_is_a_task_and_the_timing_is_one():
    executor = Inline()
    programs = rg.construct(EXPRESSION, "cpu", 3)
    outcomes = rg.profile(programs, "cpu", executor=executor, expr=EXPRESSION)
    assert executor.tasks == ["check_one"] * len(programs) + ["time_passed"]
    assert [one.state for one in outcomes] == ["passed"] * len(programs)
    assert [one.program for one in outcomes] == list(programs)
    assert all(one.compile_s > 0 and one.check_s > 0 and one.wall_s > 0 for one in outcomes)


def test_threads_and_processes_do_the_work_as_well():
    programs = rg.construct(EXPRESSION, "cpu", 2)
    spawning = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    for pool in (ThreadPoolExecutor(2), spawning):
        with pool:
            outcomes = rg.profile(programs, "cpu", executor=pool, expr=EXPRESSION)
        assert fastest(outcomes).wall_s > 0


def test_a_wrong_candidate_fails_alone():
    outcomes = measure_through(Inline(), job(), sources(None, WRONG))
    assert [one.state for one in outcomes] == ["passed", "failed"] and "Y[999]" in outcomes[1].problems[0]


def test_a_candidate_that_aborts_fails_alone_where_the_tasks_isolate():
    outcomes = measure_through(Inline(), job(isolate=True), sources(TRAP, None))
    assert [one.state for one in outcomes] == ["failed", "passed"] and outcomes[0].ended == "crash"


def test_a_lost_worker_fails_the_candidate_that_it_worked_on():
    outcomes = measure_through(Inline(lose=(1,)), job(), sources(None, None))
    assert outcomes[0].problems == ("its worker was lost: BrokenProcessPool: a worker died",)
    assert outcomes[1].state == "passed"


def test_a_worker_lost_while_timing_is_told_for_all_that_it_timed():
    with pytest.raises(CheckFailedError, match="candidate 2: its worker was lost"):
        measure_through(Inline(lose=(3,)), job(), sources(None, None))


def test_when_all_fail_the_reasons_are_told():
    with pytest.raises(CheckFailedError, match="candidate 1: random inputs"):
        measure_through(Inline(), job(), sources(WRONG))


def test_a_worker_without_the_device_is_an_error_of_the_caller():
    with pytest.raises(DeviceError, match=r"v100 .* is not present"):
        rg.profile(rg.construct(EXPRESSION, "v100", 1), "v100", executor=Inline(), expr=EXPRESSION)
