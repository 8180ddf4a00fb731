"""Whole models on a CUDA GPU, which is `fake`: values between steps stay there, and so do arrays that lie there."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DtypeError, ShapeError
from rollergen.importers.graph import Network, Node, Value
from rollergen.network.device_execution import CudaExecution, execution_for
from rollergen.network.execution import Shared
from rollergen.network.model import Model
from rollergen.network.partition import Step
from rollergen.targets import resolve
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy  # noqa: F401 (a fixture)
from tests.opencl.test_models import softmax, step, values

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def of(array):
    """What lies in an array of the stand-in's device."""
    return array._memory


def model(dtype="float32", host=True):
    """p = 2 x w, the doubling by the model's own library or a kernel, and softmax(p)."""
    w, x = (one.astype(rg.expr.dtypes.numpy_dtype(dtype)) for one in values((16, 10), (8, 16)))
    doubling = (lambda given: [2 * given["x"]]) if host else None
    steps = [
        step("double", ("x",), Value("d", (8, 16), dtype), doubling),
        step("product", ("d", "w"), Value("p", (8, 10), dtype)),
        step("softmax", ("p",), Value("s", (8, 10), dtype)),
    ]
    nodes = tuple(node for one in steps for node in one.nodes)
    leaves = lambda arguments, named: list(arguments)
    network = Network("three", (Value("x", (8, 16), dtype),), ("p", "s"), {"w": w}, nodes, leaves, tuple)
    T = lambda name, *shape, **how: rg.tensor(name, shape, dtype, **how)
    product = rg.ops.matmul(T("a", 8, 16), T("b", 16, 10, constant=True))
    expressions = rg.ops.add(y := T("x", 8, 16), y), product, rg.ops.softmax(T("y", 8, 10), -1)
    kernels = [rg.build(one, "cuda", profile=False, cache=False) for one in expressions]
    return Model(network, steps, [None if host else kernels[0], *kernels[1:]], resolve("cuda")), x, w


@pytest.mark.parametrize("host", [True, False])
def test_arrays_of_the_host_are_copied_there_and_back(cupy, host):  # noqa: F811
    made, x, w = model(host=host)
    assert isinstance(made._execution, CudaExecution)
    first = made(x)
    made(-x)
    np.testing.assert_allclose(first[0], 2 * x @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first[1], softmax(2 * x @ w), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("host", [True, False])
def test_arrays_on_the_gpu_stay_there(cupy, host):  # noqa: F811
    made, x, w = model(host=host)
    there = cupy.asarray(x)
    made(there)
    cupy.LOG.clear()
    product, weights = made(there)
    assert isinstance(product, cupy.ndarray) and product.shape == (8, 10)
    if not host:
        assert not [one for one in cupy.LOG if one[0] in ("get", "set")]
    again = made(cupy.asarray(-x))
    np.testing.assert_allclose(of(product), 2 * x @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of(weights), softmax(2 * x @ w), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(of(again[0]), -2 * x @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, within", [("float16", 4e-3), ("bfloat16", 4e-2)])
def test_narrow_values_and_weights(cupy, dtype, within):  # noqa: F811
    made, x, w = model(dtype)
    product, _ = made(x)
    wanted = 2 * x.astype("f4") @ w.astype("f4")
    assert product.dtype == x.dtype and np.abs(product.astype("f4") - wanted).max() <= within * np.abs(wanted).max()


def test_a_call_is_captured_into_a_graph_and_replayed(cupy):  # noqa: F811
    made, x, w = model(host=False)
    stream, there = cupy.cuda.Stream(), cupy.asarray(x)
    with stream:
        made(there)
        outputs = made._execution.outputs([there])
        stream.begin_capture()
        made._execution.called(made._arranged([there]), [there], outputs)
        graph = stream.end_capture()
    of(there)[...] = -x
    graph.launch(stream)
    np.testing.assert_allclose(of(outputs[0]), -2 * x @ w, rtol=1e-4, atol=1e-5)


def test_a_call_that_needs_the_host_is_not_captured(cupy):  # noqa: F811
    made, x, _ = model(host=True)
    stream, there = cupy.cuda.Stream(), cupy.asarray(x)
    with stream:
        outputs = list(made(there))
        stream.begin_capture()
        with pytest.raises(ArgumentError, match="x is read on the host, by a check of ids or"):
            made._execution.called(made._arranged([there]), [there], outputs)
        stream.end_capture()


def test_steps_are_timed_traced_and_checked(cupy):  # noqa: F811
    made, x, w = model()
    assert len(made.benchmark(x, rounds=2).steps_s) == 3
    traced = [(read, outputs) for read, outputs in made._execution.traced([x])]
    np.testing.assert_allclose(traced[1][1][0], 2 * x @ w, rtol=1e-4, atol=1e-5)


def test_arguments_that_do_not_fit_are_refused_by_name(cupy):  # noqa: F811
    made, x, _ = model()
    with pytest.raises(ShapeError, match="x has shape"):
        made(cupy.asarray(x[:4]))
    with pytest.raises(DtypeError, match="x has dtype float64"):
        made(cupy.asarray(x.astype(float)))
    with pytest.raises(ArgumentError, match="x has strides"):
        made(cupy.asarray(np.repeat(x, 2, 1))[:, ::2])


def test_weights_are_let_go_once_they_are_packed(cupy):  # noqa: F811
    """They stay where launches of a call read them, and only there."""
    w = np.ones((512, 512), np.float32)
    node = Node("product", "product", ("x", "w"), (Value("p", (8, 512), "float32"),), None, None)
    network = Network(
        "one", (Value("x", (8, 512), "float32"),), ("p",), {"w": w}, (node,), lambda given, named: list(given), tuple
    )
    product = rg.ops.matmul(rg.tensor("a", (8, 512)), rg.tensor("b", (512, 512), constant=True))
    kernel = rg.build(product, "cuda", profile=False, cache=False)
    before = cupy.ALIVE["now"]
    execution = execution_for(network, [Step((node,), ("x", "w"), node.outputs)], [kernel], resolve("cuda"), Shared())
    execution.run([np.ones((8, 512), np.float32)])
    assert cupy.ALIVE["now"] - before < 1.2 * w.nbytes
