"""A short run of the fuzzer with fixed seeds, and the fuzzer itself: it repeats itself, and finds what is seeded."""

import subprocess
import sys
import time

import pytest

from rollergen.measure.bench import Lost
from tests.fuzzing import trial
from tests.fuzzing.minimise import minimised
from tests.fuzzing.recipes import Line, Recipe, draw
from tests.fuzzing.trial import Failure, Trials

DEVICES = ("cpu", "v100", "cpu", "mi50", "cpu", "ipu")
SECONDS, MOST = 15.0, 12


@pytest.fixture(scope="module")
def trials():
    trials = Trials()
    yield trials
    trials.close()


def test_random_expressions_compute_their_definition_on_all_devices(trials):
    """Seeds from 0 on, as many as fit the time; at least one for each device."""
    start = time.monotonic()
    for seed in range(MOST):
        if seed >= len(DEVICES) and time.monotonic() - start > SECONDS:
            break
        recipe, device = draw(seed), DEVICES[seed % len(DEVICES)]
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


def line(target, text, shape):
    return Line(target, text, shape, "float32")


def test_a_failure_is_made_as_small_as_it_goes():
    recipe = Recipe((
        line("x0", 'T("x0", (31, 17), "float32")', (31, 17)),
        line("v1", "ops.relu(x0)", (31, 17)),
        line("v2", "ops.exp(v1)", (31, 17)),
        line("v3", "ops.transpose(v2)", (17, 31)),
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


@pytest.mark.parametrize(("processor_s", "failure"), [(3.0, None), (60.0, Failure("lost", "lost: ended after 65 s"))])
def test_what_reaches_a_limit_in_little_processor_time_is_tried_once_more_with_patience(
    processor_s, failure, monkeypatch
):
    ended = iter([0.0, processor_s, processor_s, processor_s])

    class Late:
        """A worker that needs more than the usual limits."""

        def __init__(self, setup):
            self.limits = setup.limits

        def ask(self, operation, candidate):
            if self.limits == trial.LIMITS:
                raise Lost("ended after 65 s", "time")
            return candidate

        def end(self):
            pass

    monkeypatch.setattr(trial, "Worker", Late)
    monkeypatch.setattr(trial, "_ended_s", lambda: next(ended))
    monkeypatch.setattr(trial, "_processor_s", lambda worker: 0.0)
    monkeypatch.setattr(trial, "TOP_K", 1)
    small = Recipe((line("x0", 'T("x0", (31,), "float32")', (31,)), line("v1", "ops.relu(x0)", (31,))))
    assert Trials().failure(small, "cpu") == failure
