"""What a kernel took is given back when it is dropped, at once: nothing waits for the collector of cycles."""

from __future__ import annotations

import gc
from functools import _lru_cache_wrapper
from types import FunctionType

import numpy as np
import pytest

import rollergen as rg

CASES = {
    "matmul": lambda m: rg.ops.matmul(rg.tensor("A", (m, 48)), rg.tensor("B", (48, 50))),
    "softmax": lambda m: rg.ops.softmax(rg.tensor("X", (17, m))),
    "convolution": lambda m: rg.ops.conv2d(rg.tensor("X", (1, 4, 12, m)), rg.tensor("W", (8, 4, 3, 3), constant=True)),
    "argmax": lambda m: rg.ops.argmax(rg.tensor("X", (17, m)), 1),
    "attention": lambda m: rg.ops.attention(*(rg.tensor(name, (2, m, 16)) for name in "QKV")),
    "concatenation": lambda m: rg.ops.concat([rg.tensor(name, (m, 16)) for name in "ABC"]),
}


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_cycles(work):
    """The objects that `work` leaves for the collector."""
    work(0)  # imports and memos
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work(1)
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    ("case", "device"),
    [*((case, "v100") for case in CASES), ("matmul", "h200"), ("softmax", "ipu"), ("argmax", "cortex-a53")],
)
@pytest.mark.every(3)
def test_a_build_leaves_no_cycles(without_collector, case, device):
    work = lambda n: rg.build(CASES[case](34 + n), device, profile=False, cache=False)
    assert in_cycles(work) == []


def test_a_kernel_that_ran_leaves_none_but_pyopencls(without_collector):
    def work(n):
        kernel = rg.build(CASES["matmul"](34 + n), "cpu", profile=False, cache=False)
        arrays = [np.zeros(b.shape, np.float32) for b in kernel.signature.inputs]
        out = np.empty(kernel.signature.outputs[0].shape, np.float32)
        for _ in range(3):
            kernel(*arrays, out=out)

    left = in_cycles(work)
    functions = [one for one in left if isinstance(one, FunctionType)]
    assert len(left) <= 8 and all("pyopencl" in one.__code__.co_filename for one in functions)


def test_a_profiled_build_leaves_none_but_pyopencls(without_collector):
    work = lambda n: rg.build(CASES["matmul"](34 + n), "cpu", top_k=1, cache=False)
    left = in_cycles(work)
    assert len(left) <= 16, [(type(one).__name__, repr(one)[:120]) for one in left]


MOST_REMEMBERED = 256
"""Twice what any operator of `CASES`, and of the networks' sizes, asks a memo for (128)."""


@pytest.mark.parametrize("device", ["cpu", "v100"])
def test_memos_hold_few_values(device):
    """A memo that holds thousands grows with each kernel that is built, and its values lie between those of builds."""
    rg.build(CASES["convolution"](34), device, profile=False, cache=False)
    gc.unfreeze()  # what was there before the first test is told, too
    memos = [one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper)]
    own = {f"{one.__module__}.{one.__qualname__}": one for one in memos if one.__module__.startswith("rollergen.")}
    limits = {name: one.cache_info().maxsize for name, one in own.items()}
    of_types = "rollergen.emit.unrolling._parts"  # one value for each class of nodes
    assert "rollergen.expr.index.linear" in limits
    assert [name for name, limit in limits.items() if limit is None] == [of_types]
    assert [name for name, limit in limits.items() if limit is not None and limit > MOST_REMEMBERED] == []
