"""Kernels of tensors without elements: built, called, interpreted, explained, saved and kept like any other."""

import numpy as np
import pytest

import rollergen as rg
from rollergen import ops
from rollergen.errors import ShapeError
from rollergen.hal.compilers import nvrtc
from tests.expr.test_empties import CASES, DATA, E, F, G, arrays

SINGLE = {name: array.astype("float32") for name, array in DATA.items()}


def called(kernel, run):
    names = [one.name for one in kernel.program.inputs]
    return run(*(arrays_of(kernel)[name] for name in names))


def arrays_of(kernel):
    return {b.name: SINGLE.get(b.name, np.zeros(b.shape)).astype(b.dtype) for b in kernel.program.inputs}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_computes_what_the_definition_says(case):
    make, wanted = CASES[case]
    kernel = rg.build(make(), "cpu", cache=False)
    np.testing.assert_array_equal(called(kernel, kernel), wanted(DATA).astype(kernel.program.outputs[0].dtype))


@pytest.mark.parametrize("device", ["v100", "mi50", "ipu"])
@pytest.mark.parametrize("case", ["product with a term", "border around nothing", "broadcast", "any of nothing"])
def test_the_interpreters_agree(case, device):
    make, wanted = CASES[case]
    kernel = rg.build(make(), device, cache=False)
    np.testing.assert_array_equal(called(kernel, kernel.interpret), wanted(DATA))


@pytest.mark.parametrize("device", ["cpu", "v100", "ipu"])
def test_an_output_without_elements_takes_no_launch_and_no_time(device):
    kernel = rg.build(ops.relu(E), device, cache=False)
    assert kernel.launches == () and kernel.predicted_time == 0 and kernel.measured_time is None
    assert "no output has elements: nothing is launched" in kernel.explain()


@pytest.mark.skipif(not nvrtc.is_installed(), reason=nvrtc.INSTALL)
def test_a_compile_check_has_nothing_to_compile():
    kernel = rg.build(ops.relu(E), "v100", cache=False, options=rg.BuildOptions(compile_check=True))
    assert kernel.launches == ()


def test_calls_without_launches_take_what_others_take():
    kernel = rg.build(ops.relu(E), "cpu", cache=False)
    given, out = np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32")
    assert kernel(given).shape == (0, 3) and kernel(E=given).shape == (0, 3)
    assert kernel(given, out=out) is out
    assert kernel.benchmark(given).event_s == 0
    with pytest.raises(ShapeError, match=r"E has shape \(1, 3\); expected \(0, 3\)"):
        kernel(np.zeros((1, 3), "float32"))


@pytest.mark.parametrize("device", ["cpu", "ipu"])
def test_outputs_with_and_without_elements_come_side_by_side(device):
    kernel = rg.build([ops.relu(E), ops.matmul(F, E), ops.relu(G)], device, cache=False)
    for run in [kernel.interpret] + [kernel] * (device == "cpu"):
        nothing, product, positive = called(kernel, run)
        assert nothing.shape == (0, 3)
        np.testing.assert_array_equal(product, np.zeros((2, 3)))
        np.testing.assert_array_equal(positive, DATA["G"])


@pytest.mark.parametrize("outputs", ["none with elements", "one without"])
def test_a_saved_kernel_is_the_same(outputs, tmp_path):
    expressions = [ops.relu(E)] if outputs == "none with elements" else [ops.concat([E, G]), ops.relu(E)]
    kernel = rg.build(expressions, "cpu", cache=False)
    loaded = rg.load(kernel.save(tmp_path / "kernel"))
    assert loaded.explain() == kernel.explain() and loaded.source == kernel.source
    for ours, theirs in zip(listed(called(loaded, loaded)), listed(called(kernel, kernel)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def listed(made):
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("expression", [lambda: ops.relu(E), lambda: ops.matmul(F, E)], ids=["no launch", "one"])
def test_the_cache_keeps_it(expression, tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLERGEN_CACHE_DIR", str(tmp_path))
    first, again = (rg.build(expression(), "cpu") for _ in range(2))
    assert again.source == first.source and again.predicted_time == first.predicted_time
    np.testing.assert_array_equal(called(again, again), called(first, first))


def test_arguments_are_those_of_the_expression():
    kernel = rg.build(CASES["product with a term"][0](), "cpu", cache=False)
    assert str(kernel.signature) == "kernel(F: float32[2, 0], E: float32[0, 3], G: float32[2, 3]) -> out: float32[2, 3]"
    assert arrays(CASES["product with a term"][0]()).keys() == {"F", "E", "G"}
