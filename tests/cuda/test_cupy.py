"""Kernels through CuPy: present GPUs, building, calls.  CuPy is `fake`, and runs the CUDA text on the CPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit import emit
from rollergen.errors import ArgumentError, DeviceError, ShapeError
from rollergen.hal import runtime as runtimes
from rollergen.hal.errors import BuildError
from rollergen.hal.load import load_device
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.program.assemble.matrix import MatrixPlan
from rollergen.runtime.cuda_session import CudaSession
from rollergen.targets import resolve
from tests.cuda.host import compiler
from tests.matrices import matmul, planned

candidates = importlib.import_module("rollergen.measure.candidates")
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
V100, H200 = "Tesla V100-PCIE-16GB|7|0|17179869184", "NVIDIA H200|9|0|150000000000"


@pytest.fixture
def cupy(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("fake")))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.setenv("FAKE_GPU", V100)
    _forget()
    runtimes._cuda_runtime.cache_clear()
    import cupy

    yield cupy
    runtimes._cuda_runtime.cache_clear()
    _forget()


def _forget():
    """Not by `monkeypatch`, which would put the module back at the end."""
    for name in [name for name in sys.modules if name == "cupy" or name.startswith("cupy.")]:
        del sys.modules[name]


def product():
    return rg.ops.matmul(rg.tensor("A", (37, 21)), rg.tensor("B", (21, 45)), name="C")


def inputs():
    random = np.random.default_rng(0)
    return random.integers(-3, 4, (37, 21)).astype("f4"), random.integers(-3, 4, (21, 45)).astype("f4")


@pytest.fixture
def kernel(cupy):
    return rg.build(product(), "cuda", profile=False, cache=False)


def test_cuda_is_the_spec_of_the_gpu_present(cupy, monkeypatch):
    assert resolve("cuda").name == "v100"
    for gpu, name in {"Tesla V100-SXM2-16GB|7|0|1": "v100-sxm2", "NVIDIA A100-SXM4-80GB|8|0|1": "a100", H200: "h200"}.items():
        monkeypatch.setenv("FAKE_GPU", gpu)
        assert resolve("cuda").name == resolve(None).name == name


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("no driver", "no CUDA driver answers .*; install NVIDIA's"),
        ("old driver", r"driver is of CUDA 11\.8, and CuPy 14\.2\.0 is made for CUDA 12\.9: .* uninstall cupy-cuda12x"),
        ("broken driver", "the CUDA driver does not count its devices .*; see nvidia-smi"),
        ("no device", "the CUDA driver has no device"),
        ("NVIDIA L40S|8|9|1", r"no device spec describes NVIDIA L40S \(sm_89.*v100 \(sm_70\).*\"extends\".*\"gpu\": \"NVIDIA L40S\""),
    ],
)
def test_what_is_missing_is_named(cupy, monkeypatch, gpu, message):
    monkeypatch.setenv("FAKE_GPU", gpu)
    with pytest.raises(DeviceError, match=message):
        resolve("cuda")


def test_a_cupy_without_nvrtc_is_told_what_to_install(cupy, monkeypatch):
    def missing():  # what CuPy 14 raises through cuda.pathfinder
        raise RuntimeError('Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file\n  listdir(...)')

    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", missing)
    message = r'CuPy 14\.2\.0 finds no NVRTC \(Failure finding.*\); pip install "rollergen\[cuda\]"'
    with pytest.raises(DeviceError, match=message):
        rg.build(product(), "v100", profile=True, cache=False)


def test_an_earlier_capability_is_refused(cupy):
    with pytest.raises(DeviceError, match=r"compute capability 9\.0, and the GPU present is Tesla V100"):
        rg.build(product(), "h200", profile=True, cache=False)


def test_a_later_capability_is_flagged(cupy, monkeypatch, kernel):
    assert "presence" not in kernel.explain(as_dict=True)
    monkeypatch.setenv("FAKE_GPU", H200)
    old = rg.build(product(), "v100", profile=False, cache=False)
    assert "made for v100 (sm_70)" in old.explain(as_dict=True)["presence"]
    assert "run on NVIDIA H200" in old.explain()


def test_a_build_checks_times_and_calls(cupy):
    built = rg.build(product(), "cuda", profile=True, top_k=2, cache=False)
    assert built.measured_time > 0 and all(one.compared for one in built.candidates)
    a, b = inputs()
    got = built(a, b)
    assert type(got) is np.ndarray and np.array_equal(got, a @ b)


@pytest.mark.parametrize(("device", "count"), [("cuda", 10), ("cpu", 4)])
def test_fewer_candidates_are_measured_only_where_compiling_is_slow(cupy, monkeypatch, device, count):
    measured = []

    def nothing_run(candidates, *others):
        measured.append(len(candidates))
        return candidates, candidates[0]

    monkeypatch.setattr(candidates, "measured", nothing_run)
    rg.build(rg.ops.matmul(rg.tensor("A", (64, 128)), rg.tensor("B", (128, 96))), device, profile=True, cache=False)
    assert measured == [count]


def test_device_arrays_are_neither_copied_nor_waited_for(cupy, kernel):
    a, b = inputs()
    on_gpu = cupy.asarray(a), cupy.asarray(b)
    out, stream = cupy.empty((37, 45), np.float32), cupy.cuda.Stream()
    with stream:
        kernel(*on_gpu, out=out)
    cupy.LOG.clear()
    with stream:
        assert kernel(*on_gpu, out=out) is out
    assert [what[0] for what in cupy.LOG] == ["launch"] * len(kernel.launches)
    assert cupy.LOG[0][4] == stream.ptr
    assert np.array_equal(out.get(), a @ b)


def test_a_stream_is_launched_in_and_waits_for_producers(cupy, kernel):
    a, b = map(cupy.asarray, inputs())
    stream = cupy.cuda.Stream()
    got = kernel(a, b, stream=stream)
    launches = [what for what in cupy.LOG if what[0] == "launch"]
    assert {what[4] for what in launches} == {stream.ptr}
    assert ("wait", stream.ptr) in cupy.LOG and not any(what[0] == "synchronize" for what in cupy.LOG)
    assert isinstance(got, cupy.ndarray)


class Exporter:
    """Has DLPack and nothing else."""

    def __init__(self, array):
        self.exported = lambda: array

    def __dlpack__(self, **settings):
        raise AssertionError("CuPy reads it")

    def __dlpack_device__(self):
        return (2, 0)


def test_any_array_with_dlpack_goes_in(cupy, kernel):
    a, b = inputs()
    got = kernel(Exporter(cupy.asarray(a)), Exporter(cupy.asarray(b)))
    assert np.array_equal(got.get(), a @ b)


def test_unsuitable_device_arrays_are_refused_with_advice(cupy, kernel):
    a, b = map(cupy.asarray, inputs())
    with pytest.raises(ArgumentError, match=r"B is in host memory.*cupy\.asarray\(B\)"):
        kernel(a, inputs()[1])
    with pytest.raises(ArgumentError, match=r"B has strides .*B\.copy\(\)"):
        kernel(a, cupy.asarray(np.zeros((21, 90), "f4"))[:, ::2])
    with pytest.raises(ArgumentError, match="no multiple of 16 bytes"):
        kernel(cupy.ndarray(cupy.empty((37 * 21 + 1,), np.float32)._memory[1:].reshape(37, 21)), b)
    with pytest.raises(ShapeError, match="A has shape"):
        kernel(b, b)
    with pytest.raises(ArgumentError, match="expected a stream"):
        kernel(a, b, stream="1")
    with pytest.raises(ArgumentError, match="host memory are waited for"):
        kernel(*inputs(), stream=cupy.cuda.Stream())


def test_an_output_over_an_input_is_refused(cupy):
    square = rg.build(rg.ops.relu(rg.tensor("A", (37, 21)), name="B"), "cuda", profile=False, cache=False)
    a = cupy.asarray(inputs()[0])
    with pytest.raises(ArgumentError, match="out=B overlaps"):
        square(a, out=a)


def test_text_that_nvrtc_refuses_is_a_build_error(cupy):
    with pytest.raises(BuildError, match=r"NVRTC 12\.8 refused the source for sm_70:\n.*nonsense"):
        CudaRuntime().compile('extern "C" __global__ void f(float *a) { nonsense; }')


def test_too_little_memory_says_how_much_there_is(cupy, monkeypatch):
    monkeypatch.setenv("FAKE_GPU", "Tesla V100-PCIE-16GB|7|0|1000")
    with pytest.raises(MemoryError, match="2000 bytes asked for, 500 of 1000 bytes are free"):
        CudaRuntime().empty(2000)


def test_shared_memory_above_48_kib_is_opted_into(cupy):
    runtime = CudaRuntime()
    module, memory = runtime.compile('extern "C" __global__ void f(float *a) { a[0] = 1; }'), runtime.empty(4)
    for _ in range(2):
        one = module.kernel("f", dynamic_bytes=64 << 10)
        runtime.set_arguments(one, [memory])
        for _ in range(3):
            runtime.launch(one, 1, 32)
            assert cupy.LOG[-1][-1] == 64 << 10
    assert [what[1:] for what in cupy.LOG if what[0] == "attribute"] == [("f", 64 << 10)]  # once for the function


@pytest.mark.parametrize("box_stores", [False, True])
def test_tensor_maps_take_the_addresses_of_each_call(cupy, monkeypatch, box_stores):
    """Of host arrays, of the GPU's, and where calls are prepared; that of the output, too, where it has a map."""
    monkeypatch.setenv("FAKE_GPU", H200)
    device = load_device("h200")
    plan = MatrixPlan("wgmma", 1, 8, 1, 1, 4, 3, boxes=True, box_stores=box_stores)
    made = planned(matmul(72, 200, 80), device, plan)
    source, runtime = emit(made, device, "cuda"), CudaRuntime()
    session = CudaSession(runtime, runtime.compile(source.text), source.launches)
    random = np.random.default_rng(0)
    for way in ("host", "device", "prepared"):
        a, b = (random.integers(-3, 4, shape).astype("f2") for shape in ((72, 200), (200, 80)))
        arrays = {"A": a, "B": b, "out": np.zeros((72, 80), "f2")}
        on_gpu = {name: cupy.asarray(array) for name, array in arrays.items()}
        if way == "host":
            session.set(arrays)
        elif way == "device":
            session.point(on_gpu)
        else:
            [setter(at, on_gpu[name].data.ptr) for name, slots in session.setters().items() for setter, at in slots]
        session.run()
        got = arrays["out"] if way == "host" else on_gpu["out"].get()
        assert np.array_equal(got, (a.astype("f4") @ b.astype("f4")).astype("f2")), way
        session.release(arrays)


def test_more_shared_memory_than_the_gpu_has_is_refused_when_the_kernel_is_made(cupy):
    module = CudaRuntime().compile('extern "C" __global__ void f(float *a) { a[0] = 1; }')
    with pytest.raises(BuildError, match="f takes 98305 bytes of shared memory a block: CUDA_ERROR_INVALID_VALUE"):
        module.kernel("f", dynamic_bytes=(96 << 10) + 1)


def test_flushing_overwrites_more_than_the_l2_cache(cupy):
    CudaRuntime().flush()
    assert cupy.LOG[-1] == ("fill", 2 << 20)


def test_cupy_is_imported_only_where_a_cuda_device_is_used():
    import subprocess

    code = "import sys, rollergen as rg; rg.build(rg.ops.relu(rg.tensor('A', (8, 8))), 'cpu', profile=False); "
    code += "sys.exit('cupy' in sys.modules)"
    fake = str(Path(__file__).with_name("fake"))
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": fake, "FAKE_GPU": V100}).returncode == 0


def test_tensors_without_elements_are_arguments_like_others(cupy):
    none, some = rg.tensor("E", (0, 3)), rg.tensor("G", (2, 3))
    for outputs in ([rg.ops.relu(none), rg.ops.concat([none, some])], [rg.ops.relu(none)]):
        kernel = rg.build(outputs, "cuda", cache=False, top_k=1)
        given = [np.ones(b.shape, "f4") for b in kernel.program.inputs]
        there = list(map(cupy.asarray, given))
        for made in (kernel(*given), kernel(*there), kernel(*there)):
            nothing, *rest = made if len(outputs) > 1 else (made,)
            assert nothing.shape == (0, 3) and type(nothing) in (np.ndarray, cupy.ndarray)
            assert all(np.array_equal(one if type(one) is np.ndarray else one.get(), np.ones((2, 3))) for one in rest)
