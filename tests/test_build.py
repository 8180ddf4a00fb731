"""`rg.build`: from an expression to a checked kernel; the research functions are its pieces."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DeviceError, ExpressionError


def relu_of_sum(m=64, n=80, k=48):
    A, B, bias = rg.tensor("A", (m, k)), rg.tensor("B", (k, n)), rg.tensor("bias", (n,))
    return rg.ops.relu(rg.ops.bias_add(rg.ops.matmul(A, B), bias), name="C")


@pytest.fixture(scope="module")
def kernel():
    return rg.build(relu_of_sum(), "cpu", top_k=2)


def inputs(m=64, n=80, k=48):
    rng = np.random.default_rng(0)
    return [rng.random(shape, dtype=np.float32) - 0.5 for shape in ((m, k), (k, n), (n,))]


def test_a_built_kernel_computes_its_expression(kernel):
    a, b, bias = inputs()
    np.testing.assert_allclose(kernel(a, b, bias), np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-5)


def test_every_candidate_was_checked_and_the_fastest_chosen(kernel):
    assert [c.state for c in kernel.candidates] == ["passed", "passed"]
    assert all(c.compared > 300 for c in kernel.candidates)
    assert kernel.measured_time == min(c.wall_s for c in kernel.candidates)
    assert [c.predicted_s for c in kernel.candidates] == sorted(c.predicted_s for c in kernel.candidates)


def test_the_best_device_present_is_the_default():
    kernel = rg.build(rg.ops.exp(rg.tensor("X", (100,))), profile=False)
    assert kernel.device.name == "cpu"


def test_inputs_may_be_ordered():
    A, B = rg.tensor("A", (8, 4)), rg.tensor("B", (4, 6))
    kernel = rg.build(rg.ops.matmul(A, B, name="C"), "cpu", inputs=[B, A], profile=False)
    assert [b.name for b in kernel.signature.inputs] == ["B", "A"]


def test_several_outputs_are_one_kernel():
    X = rg.tensor("X", (32, 48))
    kernel = rg.build([rg.ops.relu(X, name="P"), rg.ops.sum(X, axis=1, name="S")], "cpu", top_k=1)
    x = inputs()[0][:32]
    positive, total = kernel(x)
    assert np.array_equal(positive, np.maximum(x, 0))
    np.testing.assert_allclose(total, x.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_without_profiling_nothing_runs_and_the_first_choice_is_taken():
    kernel = rg.build(relu_of_sum(), "v100", profile=False, top_k=3)
    assert [c.state for c in kernel.candidates] == ["not run"] * 3
    assert kernel.program is kernel.candidates[0].program


def test_an_absent_device_is_not_profiled_unless_that_is_insisted_on():
    assert rg.build(relu_of_sum(), "v100", top_k=1).measured_time is None
    with pytest.raises(DeviceError, match="is not present"):
        rg.build(relu_of_sum(), "v100", top_k=1, profile=True)


SOURCE = """
import rollergen as rg, tests.test_build as t
for device in ("v100", "mi50"):
    print(rg.build(t.relu_of_sum(512, 384, 256), device, profile=False).source)
"""


def test_unprofiled_source_is_the_same_in_every_process():
    texts = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SOURCE], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    (text,) = texts
    assert text.count("__global__") >= 1 and text.count("kernel __attribute__") >= 1


def test_the_first_choice_does_not_depend_on_how_many_are_asked_for():
    few, many = (rg.build(relu_of_sum(), "v100", profile=False, top_k=k) for k in (1, 10))
    assert few.source == many.source


def test_construct_gives_programs_that_predict_and_profile_take():
    programs = rg.construct(relu_of_sum(), "cpu", top_k=2)
    assert rg.predict(programs[0], "cpu").seconds > 0
    outcomes = rg.profile(programs, "cpu", expr=relu_of_sum())
    assert [o.state for o in outcomes] == ["passed", "passed"]
    assert [o.program for o in rg.profile(programs, "cpu")] == list(programs)


def test_a_programs_own_oracle_honours_guards():
    X = rg.tensor("X", (100,))
    shifted = rg.compute((101,), lambda i: rg.select(i >= 1, X[i - 1], 0.5), name="Y")
    (outcome,) = rg.profile(rg.construct(shifted, "cpu", top_k=1), "cpu")
    assert outcome.state == "passed"


def test_the_space_is_counted_and_sampled():
    space = rg.space(relu_of_sum(), "cpu")
    sample = space.sample(3, seed=1)
    assert space.points >= 3 and len(set(sample)) == 3
    assert sample == rg.space(relu_of_sum(), "cpu").sample(3, seed=1)


def test_public_functions_stay_functions_when_modules_of_their_names_are_imported():
    import rollergen.build
    import rollergen.construct.choose  # noqa: F401

    assert callable(rg.build) and callable(rg.construct)


@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_profile_takes_truth_values_and_auto_only(value):
    product = rg.ops.matmul(rg.tensor("A", (4, 4)), rg.tensor("B", (4, 4)))
    with pytest.raises(ArgumentError, match="profile is"):
        rg.build(product, "v100", profile=value)


@pytest.mark.parametrize("take", [rg.build, rg.construct, rg.space])
@pytest.mark.parametrize("value", [None, 5, {}])
def test_what_is_no_expression_is_named(take, value):
    with pytest.raises(ExpressionError, match="expected a computed tensor"):
        take(value, "v100")


@pytest.mark.parametrize("switch", [gc.enable, gc.disable])
def test_the_garbage_collector_is_left_as_it_was_found(switch):
    A = rg.tensor("A", (8, 8))
    found = gc.isenabled()
    try:
        switch()
        before = gc.isenabled()
        rg.build(rg.ops.relu(A), "v100", profile=False, cache=False)
        assert gc.isenabled() == before
        with pytest.raises(rg.errors.RollergenError):
            rg.build(rg.ops.relu(rg.tensor("A", (1 << 14, 1 << 14))), "ipu", profile=False, cache=False)
        assert gc.isenabled() == before
    finally:
        (gc.enable if found else gc.disable)()
