"""Libraries that kernels are compared with: they compute what ours is defined as, or say why they do not."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from benches.operator_cases import CASES, Case
from benches.peers import CPU, EVERY, Library, as_numpy, competitors, reasons
from benches.peers.interface import AbsentError, NotOfferedError, Operation, missing, no_threads
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.stages import cut

TOLERANCE = {"float32": (1e-3, 2e-4), "float16": (1e-2, 1e-2), "bfloat16": (1e-2, 1e-2)}
"""Relative and absolute, by the result's dtype; integers are the same."""
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


def _linear_of_the_call():
    return rg.ops.linear(rg.tensor("X", (7, 33)), rg.tensor("W", (9, 33)))


CHECKED = [one for one in CASES if one.name in SMALL]
CHECKED += [Case("contraction", "small matmul", _product, Operation("matmul", (33, 17)))]
of_the_call = Operation("linear", (7, 9))
CHECKED += [Case("few rows", "small linear, weights of the call", _linear_of_the_call, of_the_call)]
CHECKED += [Case("contraction", "small linear", _linear, Operation("linear", (7, 9), weights=(1, 2)))]


def _small(name, shapes, out, settings=None, constant=(), ours=None, dtype="float32"):
    """``ours(*tensors)``: the definition, where it is not called as ``name`` with the settings."""

    def make():
        tensors = [rg.tensor(f"X{n}", shape, constant=n in constant) for n, shape in enumerate(shapes)]
        return ours(*tensors) if ours else getattr(rg.ops, name)(*tensors, **(settings or {}))

    return Case("small", f"{name} {shapes}", make, Operation(name, out, settings or {}, constant, dtype))


def _narrow(name, dtype, result):
    shapes = (24, 64), (64, 16)
    make = lambda: rg.ops.matmul(*(rg.tensor(f"X{n}", shape, dtype) for n, shape in enumerate(shapes)))
    return Case("small", f"{name} {dtype}", make, Operation(name, (24, 16), dtype=result))


def _each():
    """Every operation at least once: odd extents, and axes of each place."""
    yield from CHECKED[-3:]
    yield _small("matmul", [(1, 65), (65, 17)], (1, 17))
    yield _small("batch_matmul", [(3, 7, 18), (3, 18, 5)], (3, 7, 5))
    for channels, filters, groups in ((6, 5, 1), (6, 6, 6), (6, 12, 6), (6, 4, 2)):
        settings = {"stride": 2, "padding": 1, "groups": groups}
        shapes = [(2, channels, 9, 11), (filters, channels // groups, 3, 3)]
        yield _small("conv2d", shapes, (2, filters, 5, 6), settings, (1,))
    window = {"kernel_size": 3, "stride": 2, "padding": 1}
    for name in ("max_pool2d", "avg_pool2d"):
        ours = lambda x, name=name: getattr(rg.ops, name)(x, 3, 2, 1)
        yield _small(name, [(2, 3, 9, 11)], (2, 3, 5, 6), window, ours=ours)
    shape = (5, 7, 9)
    for name in ("sum", "amax", "mean"):
        axes = ((0, (7, 9)), (1, (5, 9)), (2, (5, 7)), ((1, 2), (5,)))
        for dim, out in axes if name == "sum" else axes[::3]:
            ours = lambda x, name=name, dim=dim: getattr(rg.ops, name)(x, dim)
            yield _small(name, [shape], out, {"dim": dim}, ours=ours)
    for name in ("softmax", "log_softmax"):
        yield _small(name, [(5, 33)], (5, 33), {"dim": -1}, ours=lambda x, name=name: getattr(rg.ops, name)(x))
    yield _small("layer_norm", [(5, 33)], (5, 33), {"normalized_shape": (33,)}, ours=lambda x: rg.ops.layer_norm(x, 33))
    yield _small("rms_norm", [(5, 33)], (5, 33), {"normalized_shape": (33,)}, ours=lambda x: rg.ops.rms_norm(x, 33))
    for name in ("relu", "gelu", "silu", "sigmoid", "tanh", "hardswish"):
        yield _small(name, [(101,)], (101,))
    yield _small("group_norm", [(2, 6, 5, 7)], (2, 6, 5, 7), {"num_groups": 3})
    yield _small("interpolate", [(1, 3, 5, 7)], (1, 3, 9, 11), {"size": (9, 11), "mode": "bilinear"})
    for side in (2, 4):
        yield _small("adaptive_avg_pool2d", [(2, 3, 6, 6)], (2, 3, side, side), {"output_size": side})
    settings = {"stride": 2, "padding": 1}
    yield _small("conv_transpose1d", [(2, 6, 9), (6, 5, 4)], (2, 5, 18), settings, (1,))
    yield _small("conv_transpose2d", [(2, 6, 5, 7), (6, 5, 4, 4)], (2, 5, 10, 14), settings, (1,))
    for name in ("add", "mul"):
        yield _small(name, [(101,), (101,)], (101,))
    for dim, out in ((0, (33,)), (1, (7,))):
        ours = lambda x, dim=dim: rg.ops.argmax(x, dim)
        yield _small("argmax", [(7, 33)], out, {"dim": dim}, ours=ours, dtype="int64")
    yield _narrow("int_matmul", "int8", "int32")
    for dtype in ("float16", "bfloat16"):
        yield _narrow("matmul", dtype, dtype)
    for dims in ((1, 0, 2), (2, 1, 0)):
        ours = lambda x, dims=dims: rg.ops.permute(x, dims)
        yield _small("transpose", [shape], tuple(shape[n] for n in dims), {"dims": dims}, ours=ours)


EACH = tuple(_each())


def compute_the_definition(case, names):
    """How many of the libraries did; others have said why not."""
    tensor = case.make()
    rng = np.random.default_rng(0)
    scale = {"int8": 255}
    arrays = [
        ((rng.random(one.shape) - 0.5) * scale.get(one.dtype, 1)).astype(numpy_dtype(one.dtype))
        for one in cut(tensor, None).inputs
    ]
    expected = tensor.evaluate(*arrays).astype(np.float64)
    rtol, atol = TOLERANCE.get(case.operation.dtype, (0, 0))
    found = 0
    for one in competitors(case.operation, arrays, [library for library in CPU if library.name in names]):
        if one.call is None:
            assert one.reason  # not here (continuous integration has NumPy alone), or without this operation
        else:
            result = as_numpy(one.call(), case.operation.shape).astype(np.float64)
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
            found += 1
    return found


@pytest.mark.parametrize("case", CHECKED, ids=lambda one: one.name)
def test_libraries_compute_the_definition(case):
    compute_the_definition(case, QUICK)


COMPILERS = {"JAX": "jax", "TVM, untuned": "tvm"}


@pytest.mark.parametrize("name", COMPILERS)
def test_compilers_compute_the_definition_of_every_operation(name):
    """In a process of its own: their threads outlive a call, and a process that has them is not to be forked."""
    if importlib.util.find_spec(COMPILERS[name]) is None:
        pytest.skip(f"{COMPILERS[name]} is not installed")
    script = (
        "from tests.benches.test_peers import EACH, compute_the_definition as one\n"
        f"print(sum(one(case, [{name!r}]) for case in EACH))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) == len(EACH)


def test_every_case_is_offered_by_some_library():
    names = {"matmul", "batch_matmul", "linear", "conv2d", "max_pool2d", "avg_pool2d", "mean", "sum", "amax", "softmax"}
    names |= {"hardswish", "group_norm", "interpolate", "adaptive_avg_pool2d", "conv_transpose1d"}
    names |= {"int_matmul", "argmax", "conv_transpose2d", "mul", "rms_norm", "log_softmax", "layer_norm", "relu", "add", "gelu", "silu", "sigmoid", "tanh", "transpose"}
    assert {case.operation.name for case in CASES} == {case.operation.name for case in EACH} == names


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
