"""Kernels of a model are compiled while others are constructed, on a core beside the caller's."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import DeviceError
from rollergen.network import ahead
from rollergen.network.ahead import CompilingAhead
from rollergen.network.building import kernels_of
from rollergen.runtime.executor import RuntimeExecutor
from rollergen.targets import resolve


def kernel(device="cpu"):
    x, w = rg.tensor("x", (24, 40)), rg.tensor("w", (40, 56), constant=True)
    return rg.build(rg.ops.relu(rg.ops.matmul(x, w)), device, profile=False, cache=False)


def prepared(monkeypatch, cores):
    """The sources that are compiled on a machine of so many cores."""
    monkeypatch.setattr(ahead, "cores", lambda: cores)
    seen, real = [], RuntimeExecutor.prepare
    monkeypatch.setattr(RuntimeExecutor, "prepare", lambda self, source: seen.append(source) or real(self, source))
    return seen


@pytest.mark.parametrize("cores", [1, 2])
def test_the_first_call_compiles_only_what_was_not_compiled_ahead(monkeypatch, cores):
    seen, made = prepared(monkeypatch, cores), kernel()
    with CompilingAhead(made.device) as compiling:
        compiling.begin(made)
        while cores > 1 and not seen:
            pass
    assert len(seen) == (cores > 1)
    x, w = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 56)))
    np.testing.assert_allclose(made(x, w), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    assert len(seen) == 1


def test_what_cannot_be_compiled_ahead_is_told_at_the_first_call(monkeypatch):
    monkeypatch.setattr(ahead, "cores", lambda: 2)

    def refuse(self, source):
        raise DeviceError("no compiler today")

    monkeypatch.setattr(RuntimeExecutor, "prepare", refuse)
    made = kernel()
    with CompilingAhead(made.device) as compiling:
        compiling.begin(made)
    with pytest.raises(DeviceError, match="no compiler today"):
        made(np.zeros((24, 40), np.float32), np.zeros((40, 56), np.float32))


def test_kernels_are_compiled_ahead_when_they_are_to_be_used():
    x, w = rg.tensor("x", (24, 40)), rg.tensor("w", (40, 56), constant=True)
    step = SimpleNamespace(alike="product", defined=lambda: (rg.ops.matmul(x, w), (x, w)))
    begun = []
    kernel_of = kernels_of(resolve("v100"), {"profile": False, "cache": False}, SimpleNamespace(begin=begun.append))
    kernel_of(step, used=False)
    assert not begun
    assert begun == [kernel_of(step)]


def test_a_kernel_that_is_begun_again_is_made_ready_once(monkeypatch):
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    ready = []
    done = threading.Event()
    monkeypatch.setattr(ahead, "_made_ready", lambda one: ready.append(one) or (len(ready) == 2 and done.set()))
    first, second = kernel(), kernel()
    with CompilingAhead(first.device) as compiling:
        for one in (first, first, second):
            compiling.begin(one)
        assert done.wait(60)
    assert ready == [first, second]


def test_nothing_is_compiled_ahead_for_gpus(monkeypatch):
    seen, made = prepared(monkeypatch, 2), kernel("v100")
    with CompilingAhead(made.device) as compiling:
        compiling.begin(made)
    assert not seen
