"""A short run of the fuzzer with fixed seeds, and the fuzzer itself: it repeats itself, and finds what is seeded."""

import re
import subprocess
import sys
from itertools import count, product

import pytest

import rollergen as rg
from rollergen.errors import DeviceError
from rollergen.hal.dtypes import DTYPES
from rollergen.measure.bench import Lost
from tests.fuzzing import trial
from tests.fuzzing.minimise import minimised
from tests.fuzzing.recipes import Line, Recipe, Writer, draw
from tests.fuzzing.steps import STEPS
from tests.fuzzing.trial import Trials

DEVICES = ("cpu", "v100", "cpu", "mi50", "cpu", "ipu")
SHAPES = ((7,), (5, 8), (3, 4, 5), (2, 4, 6, 5), (1, 4, 5, 4, 3))


@pytest.fixture(scope="module")
def trials():
    trials = Trials()
    yield trials
    trials.close()


def test_random_expressions_compute_their_definition_on_all_devices(trials):
    for seed, device in enumerate(DEVICES):
        recipe = draw(seed)
        failure = trials.failure(recipe, device)
        assert failure is None, f"seed {seed} on {device}: {failure}\n{recipe.text}"


def test_a_seed_always_gives_the_same_expression_and_seeds_differ():
    drawn = [draw(seed).text for seed in range(20)]
    assert [draw(seed).text for seed in range(20)] == drawn
    assert len(set(drawn)) == 20


def test_drawn_expressions_reach_many_operators_and_dtypes():
    text = "\n".join(draw(seed).text for seed in range(300))
    for word in ("matmul", "einsum", "conv2d", "max_pool2d", "softmax", "argmax", "reshape", "concat", "pad", "slice",
                 "transpose", "compute", "select", "int8", "bfloat16", "float16", "float64", "constant=True"):  # fmt: skip
        assert word in text


def test_the_steps_spell_every_operator_and_every_dtype():
    """Operators as torch calls them, of values of all ranks; dtypes of inputs, those of four bits among them."""
    text = "\n".join(draw(seed).text for seed in range(150))
    for number, (dtype, shape) in enumerate(product(("float32", "int8", "uint32", "bool"), SHAPES)):
        w = Writer(number)
        x = Line(w.given(shape, dtype), "", shape, dtype)
        w.lines[0] = x
        text += "\n".join(step(w, x) for step, _ in STEPS for _ in range(40))
        text += "\n".join(one.text for one in w.lines)
    assert not set(rg.ops.__all__) - set(re.findall(r"\bops\.(\w+)\(", text)) - {"einsum"}  # it is spelt `rg.einsum`
    missing = {name for name, row in DTYPES.items() if f'"{name}"' not in text and not row.matrix_only}
    assert not missing


def line(target, text, shape):
    return Line(target, text, shape, "float32")


def test_a_failure_is_made_as_small_as_it_goes():
    recipe = Recipe((
        line("x0", 'T("x0", (31, 17), "float32")', (31, 17)),
        line("v1", "ops.relu(x0)", (31, 17)),
        line("v2", "ops.exp(v1)", (31, 17)),
        line("v3", "ops.t(v2)", (17, 31)),
    ))  # fmt: skip
    small = minimised(recipe, lambda one: "exp" in one.text)
    assert small.text == 'v1 = T("v1", (1, 1), "float32")\nv2 = ops.exp(v1)'


def test_a_recipes_script_runs():
    script = draw(3).script('print(rg.build(outputs, "v100", profile=False).signature)')
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0 and ran.stdout.startswith("kernel(")


def test_a_wrong_result_is_a_failure(trials, monkeypatch):
    monkeypatch.setattr(trial, "expression_oracle", lambda *_: wrong_oracle)
    failure = trials.failure(Recipe((line("x0", 'T("x0", (31,), "float32")', (31,)), line("v1", "ops.relu(x0)", (31,)))), "cpu")
    assert failure is not None and failure.kind == "random inputs"


def wrong_oracle(arrays, output, points):
    return arrays["x0"].astype(float)[points] + 1


def test_an_error_that_is_not_ours_is_a_failure(trials):
    class Broken(Recipe):
        def outputs(self):
            raise ZeroDivisionError("division by zero")

    failure = trials.failure(Broken(draw(0).lines), "cpu")
    assert failure.kind == "raised: ZeroDivisionError"


def lost_worker(error, patient_too):
    """A worker that loses programs under the usual limits, and (``patient_too``) under those with patience."""

    class Late:
        def __init__(self, setup):
            self.limits = setup.limits

        def ask(self, operation, candidate):
            if self.limits == trial.LIMITS or patient_too:
                raise error
            return candidate

        def end(self):
            pass

    return Late


def tried(monkeypatch, worker, processor_s):
    """What becomes of one program whose workers need so many seconds of processor time each."""
    ended = count(0, 1)
    monkeypatch.setattr(trial, "Worker", worker)
    monkeypatch.setattr(trial, "_ended_s", lambda: (next(ended) + 1) // 2 * processor_s)
    monkeypatch.setattr(trial, "_processor_s", lambda worker: 0.0)
    monkeypatch.setattr(trial, "TOP_K", 1)
    trials = Trials()
    small = Recipe((line("x0", 'T("x0", (31,), "float32")', (31,)), line("v1", "ops.relu(x0)", (31,))))
    return trials.failure(small, "cpu"), trials


RUNNING, COMPILING = Lost("ended after 65 s while running", "time"), Lost("ended after 45 s while compiling", "time")
KILLED = Lost("its process was ended by SIGKILL while running", "crash")


@pytest.mark.parametrize(("lost", "processor_s"), [(RUNNING, 3.0), (RUNNING, 60.0), (COMPILING, 40.0), (KILLED, 3.0)])
def test_what_a_busy_machine_may_have_ended_is_tried_once_more_with_patience(lost, processor_s, monkeypatch):
    failure, trials = tried(monkeypatch, lost_worker(lost, patient_too=False), processor_s)
    assert failure is None and not trials.too_slow and not trials.never_compiled


@pytest.mark.parametrize("lost", [RUNNING, COMPILING])
def test_what_twice_got_less_processor_time_than_its_limit_is_skipped_and_counted(lost, monkeypatch):
    failure, trials = tried(monkeypatch, lost_worker(lost, patient_too=True), 3.0)
    assert failure is None and trials.too_slow == [str(lost)] and not trials.never_compiled


def test_a_worker_that_never_came_to_open_the_device_is_skipped_and_counted(monkeypatch):
    unopened = DeviceError("cpu cannot be opened by a process of its own: ended after 120 s while starting")
    unopened.__cause__ = Lost("ended after 120 s while starting", "time")
    failure, trials = tried(monkeypatch, lost_worker(unopened, patient_too=True), 3.0)
    assert failure is None and trials.too_slow == ["ended after 120 s while starting"]


@pytest.mark.parametrize(
    ("error", "processor_s", "text"),
    [
        (RUNNING, 70.0, f"lost: {RUNNING}"),
        (KILLED, 3.0, f"lost: {KILLED}"),
        (Lost("its process was ended by SIGSEGV while running", "crash"), 3.0, "lost: its process was ended by SIGSEGV"),
        (DeviceError("cpu cannot be opened"), 3.0, "DeviceError: cpu cannot be opened"),
    ],
)
def test_what_hangs_though_it_had_its_time_crashes_or_is_refused_is_a_failure(error, processor_s, text, monkeypatch):
    failure, trials = tried(monkeypatch, lost_worker(error, patient_too=True), processor_s)
    assert failure is not None and failure.text.startswith(text) and not trials.too_slow


def test_what_pocl_does_not_compile_in_its_time_is_counted(monkeypatch):
    failure, trials = tried(monkeypatch, lost_worker(COMPILING, patient_too=True), 50.0)
    assert failure is None and trials.never_compiled == 1 and not trials.too_slow
