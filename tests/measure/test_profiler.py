"""The profiler runs only what passes, reports what fails, and picks the fastest."""

from dataclasses import replace

import pytest

import rollergen as rg
from rollergen.errors import CheckFailedError, DeviceError
from rollergen.expr.values import Binary, Const, Load, transform
from rollergen.gate.gate import Gate
from rollergen.gate.oracle import expression_oracle
from rollergen.gate.program_oracle import program_oracle
from rollergen.measure.bench import LocalBench
from rollergen.measure.profiler import cache_state, fastest, measure, measure_on, propose
from rollergen.runtime.executor import executor_for
from rollergen.runtime.session import Reading
from rollergen.targets import resolve
from tests import programs
from tests.measure.faulty import sources
from tests.opencl.devices import on_pocl

CPU = resolve("cpu")
RIGHT = programs.relu(1000)


def wrong():
    """The same kernel with max(x, 1)."""
    stage = RIGHT.stages[0]
    one = transform(stage.op.result, lambda v: replace(v, value=1.0) if isinstance(v, Const) else None)
    return replace(RIGHT, stages=(replace(stage, op=replace(stage.op, result=one)),))


def gate():
    expr = rg.ops.relu(rg.tensor("X", (1000,)), name="Y")
    return Gate(RIGHT, expression_oracle((expr,), RIGHT.outputs))


class Told(LocalBench):
    """The host's CPU, whose clock is told: the candidate of one number takes 1 ms, the others 4 ms."""

    def __init__(self, fast):
        super().__init__(executor_for(CPU), gate())
        self.fast = fast

    def time(self, candidate):
        super().time(candidate)
        return Reading(0.001 if candidate.rank == self.fast else 0.004, None)


@pytest.fixture(params=["in place", "by buffers"])
def executor(request):
    """The host's CPU, on the arrays themselves and as a device with memory of its own."""
    return executor_for(CPU if request.param == "in place" else on_pocl())


def test_a_wrong_candidate_is_reported_and_never_chosen(executor):
    outcomes = measure(propose([wrong(), RIGHT], CPU), executor, gate())
    assert [o.state for o in outcomes] == ["failed", "passed"]
    assert "are wrong, such as Y[" in outcomes[0].problems[0]
    assert outcomes[0].wall_s is None and outcomes[0].compile_s > 0
    assert fastest(outcomes) is outcomes[1]


def test_the_fastest_is_held_to_the_gates_other_runs_and_the_next_one_if_it_fails():
    """What loses a NaN is found by none of the first runs, nor in a candidate that is not chosen."""
    loses = "for (int k = 0; k < 1000; ++k) { if (isnan(Y[k])) { Y[k] = 0.0f; } }"
    candidates = sources(loses, None, loses)
    outcomes = measure_on(Told(fast=0), candidates, sparing=True)
    assert fastest(outcomes) is outcomes[1]
    assert outcomes[0].state == "failed" and outcomes[0].problems[0].startswith("infinities and NaN: ")
    assert outcomes[0].wall_s is None and outcomes[1].compared > 0
    with pytest.raises(CheckFailedError, match="infinities and NaN"):
        measure_on(LocalBench(executor_for(CPU), gate()), sources(loses), sparing=True)
    assert [one.state for one in measure(candidates, executor_for(CPU), gate())] == ["failed", "passed", "failed"]


def test_when_no_candidate_passes_each_ones_problems_are_named():
    with pytest.raises(CheckFailedError) as caught:
        measure(propose([wrong()], CPU), executor_for(CPU), gate())
    assert "no candidate passed" in str(caught.value) and "candidate 1: random inputs: " in str(caught.value)


def test_source_that_does_not_compile_is_a_failed_candidate_not_a_crash(executor):
    broken, right = propose([RIGHT, RIGHT], CPU)
    broken = replace(broken, source=replace(broken.source, text=broken.source.text.replace("get_group_id", "get_grip")))
    outcomes = measure([broken, right], executor, gate())
    assert outcomes[0].state == "failed" and "DeviceError: OpenCL build failed" in outcomes[0].problems[0]


def test_the_fastest_wins_whatever_the_model_said(monkeypatch):
    monkeypatch.setattr("rollergen.measure.timing.SHORT_S", float("inf"))  # none is given up, however slow this machine
    outcomes = measure_on(Told(fast=1), propose([RIGHT, RIGHT, RIGHT], CPU))
    assert fastest(outcomes).rank == 1 and [one.wall_s for one in outcomes] == [0.004, 0.001, 0.004]


def test_an_exhausted_time_budget_starts_no_further_candidate_once_one_has_passed(executor):
    outcomes = measure(propose([wrong(), RIGHT, RIGHT], CPU), executor, gate(), time_budget_s=1e-9)
    assert [o.state for o in outcomes] == ["failed", "passed", "not run"]


def test_progress_is_told_for_every_candidate_and_round():
    told = []
    measure(propose([RIGHT], CPU), executor_for(CPU), gate(), progress=lambda *what: told.append(what))
    assert told[0] == ("compiled and checked", 1, 1)
    assert told[-1][0] == "timed"


def test_proposals_have_source_and_prediction_and_nothing_measured():
    (outcome,) = propose([programs.gpu_matmul()], resolve("v100"))
    assert "__global__" in outcome.source.text and outcome.predicted_s > 0
    assert outcome.state == "not run" and outcome.wall_s is None


def test_an_absent_device_is_refused_with_what_is_missing():
    with pytest.raises(DeviceError, match=r"v100 .* is not present"):
        executor_for(resolve("v100"))


def test_a_spec_completed_on_another_cpu_is_not_taken_for_this_machine():
    targets = (replace(CPU.targets[0], dialect=(("completed", "Some Other CPU"),)),)
    with pytest.raises(DeviceError, match="completed on a machine with Some Other CPU; this one has"):
        executor_for(replace(CPU, targets=targets))


def test_the_cache_state_states_the_sizes():
    assert "operands as the previous launch left them (0.00763 MiB in all" in cache_state(RIGHT, CPU)  # 8000 bytes


CPU_PROGRAMS = [name for name, program in programs.ALL.items() if program.device == "cpu"]


@pytest.mark.parametrize("name", CPU_PROGRAMS)
def test_a_programs_own_definitions_serve_as_its_oracle(name):
    program = programs.ALL[name]
    (outcome,) = measure(propose([program], CPU), executor_for(CPU), Gate(program, program_oracle(program)))
    assert outcome.state == "passed", outcome.problems


def test_the_oracle_of_a_program_finds_a_changed_epilogue():
    program = programs.ALL["cpu_matmul_bias"]
    stage = program.stages[-1]
    drop = lambda v: v.a if isinstance(v, Binary) and v.op == "add" and isinstance(v.b, Load) else None
    mutant = replace(stage, op=replace(stage.op, result=transform(stage.op.result, drop)))
    mutant = replace(program, stages=(*program.stages[:-1], mutant))
    with pytest.raises(CheckFailedError):
        measure(propose([mutant], CPU), executor_for(CPU), Gate(program, program_oracle(program)))
