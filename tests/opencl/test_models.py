"""Whole models on a device with memory of its own: values between steps stay there, host steps take and give copies."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import DeviceError
from rollergen.hal.load import load_device
from rollergen.importers.graph import Network, Node, Value
from rollergen.network.device_execution import DeviceExecution, execution_for
from rollergen.network.execution import Shared
from rollergen.network.partition import Step
from tests.opencl.devices import on_pocl

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")


def values(*shapes):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype("f4") for shape in shapes]


def softmax(x):
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def step(name, inputs, output, host=None):
    node = Node(name, name, inputs, (output,), None, host)
    return Step((node,), inputs, (output,))


@pytest.fixture(scope="module")
def made():
    """p = 2 x w, the doubling by the model's own library, and softmax(p)."""
    w, x = values((16, 10), (8, 16))
    steps = [
        step("double", ("x",), Value("d", (8, 16), "float32"), lambda given: [2 * given["x"]]),
        step("product", ("d", "w"), Value("p", (8, 10), "float32")),
        step("softmax", ("p",), Value("s", (8, 10), "float32")),
    ]
    nodes = tuple(node for one in steps for node in one.nodes)
    network = Network("three", (Value("x", (8, 16), "float32"),), ("p", "s"), {"w": w}, nodes, None, None)
    product = rg.ops.matmul(rg.tensor("a", (8, 16)), rg.tensor("b", (16, 10), constant=True))
    expressions = product, rg.ops.softmax(rg.tensor("y", (8, 10)), -1)
    kernels = [None, *(rg.build(one, on_pocl(), profile=False, cache=False) for one in expressions)]
    return execution_for(network, steps, kernels, on_pocl(), Shared()), x, w


def test_steps_pass_their_values_on_the_device_and_host_steps_take_copies(made):
    execution, x, w = made
    assert type(execution) is DeviceExecution
    for given in (x, -x):
        product, weights = execution.run([given])
        np.testing.assert_allclose(product, 2 * given @ w, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(weights, softmax(2 * given @ w), rtol=1e-4, atol=1e-6)


def test_steps_are_timed_and_traced(made):
    execution, x, w = made
    for _ in range(2):
        seconds = execution.timed([x])()
        assert len(seconds) == 3 and min(seconds) > 0
    (_, (doubled,)), (read, (product,)), _ = execution.traced([x])
    assert np.array_equal(doubled, 2 * x) and np.array_equal(read["w"], w)
    np.testing.assert_allclose(product, 2 * x @ w, rtol=1e-4, atol=1e-5)


def test_a_model_for_a_device_that_is_not_present_is_an_error_that_says_so():
    kernel = rg.build(rg.ops.relu(rg.tensor("x", (8,))), "mi210", profile=False, cache=False)
    with pytest.raises(DeviceError, match=r"mi210 .*is not present on this machine"):
        execution_for(None, [None], [kernel], load_device("mi210"), Shared())
