"""A device with memory of its own, from the build to the call: PoCL's CPU by buffers, for which GPU text is written."""

import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import Launch, Source
from rollergen.errors import DeviceError
from rollergen.hal.errors import BuildError
from rollergen.measure.eviction import Sweep
from rollergen.runtime.executor import executor_for
from tests.opencl.devices import on_pocl

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")


@pytest.fixture(scope="module")
def device():
    return on_pocl()


@pytest.fixture(scope="module")
def executor(device):
    return executor_for(device)


def product():
    return rg.ops.matmul(rg.tensor("A", (37, 21)), rg.tensor("B", (21, 45)), name="C")


@pytest.fixture(scope="module")
def kernel(device):
    return rg.build(product(), device, profile=True, top_k=2, cache=False)


def inputs():
    random = np.random.default_rng(0)
    return random.integers(-3, 4, (37, 21)).astype("f4"), random.integers(-3, 4, (21, 45)).astype("f4")


def test_a_build_checks_and_times_and_a_call_computes(kernel):
    assert kernel.measured_time > 0 and all(one.compared for one in kernel.candidates)
    a, b = inputs()
    assert np.array_equal(kernel(a, b), a @ b)


def test_out_is_written_and_a_benchmark_has_both_clocks(kernel, monkeypatch):
    a, b = inputs()
    out = np.full((37, 45), np.nan, "f4")
    assert kernel(a, b, out=out) is out and np.array_equal(out, a @ b)
    monkeypatch.setattr("rollergen.hal.runtimes.opencl_buffers.Launched.seconds", lambda self: 7e-9)
    timing = kernel.benchmark(a, b, rounds=2)
    assert timing.event_s == pytest.approx(7e-9 * len(kernel.launches)) and timing.event_s < timing.wall_s


def test_cold_caches_are_swept_by_a_kernel_of_the_device(device, executor):
    sweep = Sweep(executor, device)
    sweep()
    assert sweep.memory.max() == 1  # brought back by the first run
    cold = rg.build(product(), device, top_k=1, cache=False, options=rg.BuildOptions(caches="cold"))
    assert cold.measured_time > 0


def test_packed_constants_and_temporaries_stay_on_the_device(device):
    x, w = rg.tensor("x", (64, 96)), rg.tensor("w", (96, 32), constant=True)
    kernel = rg.build(rg.ops.softmax(rg.ops.matmul(x, w), -1), device, top_k=1, cache=False)
    values = np.random.default_rng(1).standard_normal((64, 96)).astype("f4"), np.eye(96, 32, dtype="f4")
    raised = np.exp(values[0][:, :32] - values[0][:, :32].max(1, keepdims=True))
    want = raised / raised.sum(1, keepdims=True)
    for _ in range(2):
        assert np.allclose(kernel(*values), want, rtol=1e-5)


@pytest.mark.parametrize("at", [-1, 64])
def test_what_is_written_outside_an_array_is_found(executor, at):
    text = f"kernel void f(global float *a) {{ a[{at}] = 1; }}"
    session = executor.prepare(Source(text, (Launch("f", 1, 1, ("a",)),), "opencl")).session()
    session.set({"a": np.zeros(64, "f4")})
    with pytest.raises(DeviceError, match="bytes were written outside a"):
        session.run()


def test_a_launch_beyond_the_devices_limits_is_refused_before_it_is_made(executor):
    huge = Launch("f", 1, executor.limits.threads + 1, (), local_bytes=executor.limits.local_bytes + 1)
    with pytest.raises(DeviceError, match=r"not launched: f takes \d+ threads in a block.* shared by a block, the runtime at most"):
        executor.prepare(Source("kernel void f() {}", (huge,), "opencl"))


def test_one_bad_candidate_ends_no_build(device, executor, monkeypatch, drops_allowed):
    assert executor.driver  # what it compiles to know its clock comes before
    from rollergen.hal.runtimes import opencl_buffers

    compile_, seen = opencl_buffers.BufferRuntime.compile, []

    def refusing(self, text, options=()):
        seen.append(text)
        if len(seen) == 1:
            raise BuildError("refused")
        return compile_(self, text, options)

    monkeypatch.setattr(opencl_buffers.BufferRuntime, "compile", refusing)
    built = rg.build(product(), device, top_k=2, cache=False)
    assert sorted(one.state for one in built.candidates) == ["failed", "passed"]


def test_events_that_count_nothing_are_noticed(executor, monkeypatch):
    runtime = executor.runtime
    assert runtime.events_tell and "host's clock" not in executor.driver
    from rollergen.hal.runtimes import opencl_buffers

    monkeypatch.setattr(opencl_buffers.Launched, "seconds", lambda self: 1e-9)
    blind = opencl_buffers.BufferRuntime(runtime.facts, runtime.device)
    assert not blind.events_tell and "timed by the host's clock" in blind.description
    session = type(executor)(blind).prepare(Source("kernel void f(global int *a) { a[0] = 1; }", (Launch("f", 1, 1, ("a",)),), "opencl")).session()
    session.set({"a": np.zeros(1, "i4")})
    read = session.reading(None)
    assert read.wall_s > 1e-8 and read.event_s is None


def test_a_delay_of_the_host_is_no_fault_of_events(executor, monkeypatch):
    """As on a busy machine: two launches of microseconds, the second and the fourth, end a second late."""
    from rollergen.hal.runtimes import opencl_buffers

    readings = count()

    def late():
        number = next(readings)  # two of them for each launch
        return time.perf_counter() + (number > 2) + (number > 6)

    monkeypatch.setattr(opencl_buffers, "time", SimpleNamespace(perf_counter=late))
    assert opencl_buffers.BufferRuntime(executor.runtime.facts, executor.runtime.device).events_tell


def test_without_events_a_kernel_says_that_its_times_are_by_the_hosts_clock(device, executor, monkeypatch):
    monkeypatch.setattr(executor.runtime, "events_tell", False)
    kernel = rg.build(product(), device, top_k=2, cache=False)
    assert kernel.measured_time > 0 and {one.event_s for one in kernel.candidates} == {None}
    assert "(by the host's clock)" in kernel.explain() and "device's own" not in kernel.explain()
    timing = kernel.benchmark(*(np.zeros(b.shape, b.dtype) for b in kernel.signature.inputs), rounds=2)
    assert timing.wall_s > 0 and timing.event_s is None


def test_more_memory_than_a_buffer_may_have_is_an_error_of_memory(executor):
    runtime = executor.runtime
    with pytest.raises(MemoryError, match="CL_DEVICE_MAX_MEM_ALLOC_SIZE"):
        runtime.empty(int(runtime.device.max_mem_alloc_size) + 1)


def test_a_device_placed_elsewhere_is_not_present(device):
    moved = replace(device, targets=tuple(replace(one, dialect=(("place", "Another"),)) for one in device.targets))
    with pytest.raises(DeviceError, match=r"is not present on this machine.*OpenCL devices present: opencl:\d:0"):
        rg.build(product(), moved, profile=True, cache=False)
