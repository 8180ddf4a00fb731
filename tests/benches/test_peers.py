"""Libraries that kernels are compared with: they compute what ours is defined as, or say why they do not."""

import numpy as np
import pytest

import rollergen as rg
from benches.operator_cases import CASES, Case
from benches.peers import CPU, EVERY, Library, as_numpy, competitors, reasons
from benches.peers.interface import AbsentError, NotOfferedError, Operation, missing, no_threads
from rollergen.expr.stages import cut

SMALL = {
    "global average 8x512x7x7", "max over axis 0 of 257x1021", "softmax 384x384", "layer_norm 2048x768",
    "relu of 256 KB", "transpose 1009x997 to (1, 0)",
}  # fmt: skip
QUICK = ("NumPy", "PyTorch", "ONNX Runtime")


def _product():
    return rg.ops.matmul(rg.tensor("A", (33, 65)), rg.tensor("B", (65, 17)))


def _linear():
    tensors = rg.tensor("X", (7, 33)), rg.tensor("W", (9, 33), constant=True), rg.tensor("b", (9,), constant=True)
    return rg.ops.linear(*tensors)


CHECKED = [one for one in CASES if one.name in SMALL]
CHECKED += [Case("contraction", "small matmul", _product, Operation("matmul", (33, 17)))]
CHECKED += [Case("contraction", "small linear", _linear, Operation("linear", (7, 9), weights=(1, 2)))]


@pytest.mark.parametrize("case", CHECKED, ids=lambda one: one.name)
def test_libraries_compute_the_definition(case):
    tensor = case.make()
    rng = np.random.default_rng(0)
    arrays = [rng.random(one.shape, dtype=np.float32) - 0.5 for one in cut(tensor, None).inputs]
    expected = tensor.evaluate(*arrays)
    libraries = [library for library in CPU if library.name in QUICK]
    for one in competitors(case.operation, arrays, libraries):
        if one.call is None:
            assert one.reason  # not here (continuous integration has NumPy alone), or without this operation
        else:
            np.testing.assert_allclose(as_numpy(one.call(), case.operation.shape), expected, rtol=1e-3, atol=2e-4)


def test_every_case_is_offered_by_some_library():
    names = {"matmul", "batch_matmul", "linear", "conv2d", "max_pool2d", "avg_pool2d", "mean", "sum", "max", "softmax"}
    names |= {"log_softmax", "layer_norm", "relu", "add", "gelu", "silu", "sigmoid", "tanh", "transpose"}
    assert {case.operation.name for case in CASES} == names


def library(absent=lambda: None, call=lambda operation, arrays: lambda: 1):
    return Library("L", "cpu", absent, no_threads, call)


def refuses(error):
    def call(operation, arrays):
        raise error

    return call


def test_a_missing_library_is_reported_with_the_reason():
    absent = library(lambda: missing("no_such_module"))
    (one,) = competitors(Operation("relu", (1,)), [], [absent])
    assert one.call is None and "no_such_module cannot be imported" in one.reason and one.offered
    assert reasons([absent, library()]) == {"L": one.reason}


def test_a_library_that_fails_is_missing_and_one_without_the_operation_does_not_compete():
    (fails,) = competitors(Operation("relu", (1,)), [], [library(call=refuses(AbsentError("no compiler")))])
    assert fails.offered and fails.reason == "no compiler"
    (lacks,) = competitors(Operation("relu", (1,)), [], [library(call=refuses(NotOfferedError("no relu")))])
    assert not lacks.offered and lacks.call is None


def test_every_library_has_a_name_of_its_own():
    assert len({one.name for one in EVERY}) == len(EVERY)
