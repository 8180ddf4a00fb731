"""Kernels on this machine's CPU: in place, timed, safe in threads, and clear about what fails."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import rollergen as rg
from rollergen.hal import runtime
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.load import load_device
from rollergen.hal.probes import microbench
from rollergen.hal.probes.host import complete
from rollergen.hal.probes.host_facts import cpu_model
from rollergen.hal.probes.microbench import best_seconds
from rollergen.hal.runtimes import pocl_cpu_name
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.runtimes.pocl_cpu_name import (
    UnknownProcessorError,
    best_name,
    host_flags,
    is_mistaken,
    mend_cpu_name,
)
from tests.costs import calls_of
from tests.threads import in_threads

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")

DOUBLE = "kernel void twice(global const float *x, global float *y) { y[get_global_id(0)] = 2 * x[get_global_id(0)]; }"


def test_a_compilers_warnings_do_not_reach_the_callers_standard_error(capfd):
    kernel = f"kernel void one_{time.time_ns()}(global float *y) {{ int unused; 2 == y[0]; }}"
    capfd.readouterr()
    OpenCLRuntime().compile(kernel)
    assert capfd.readouterr().err == ""


@pytest.fixture(scope="module")
def run():
    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

    return OpenCLRuntime()


@pytest.fixture(scope="module")
def twice(run):
    return run.compile(DOUBLE)


def in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("blocks, threads", [(64, 1), (4, 16), (1, 64)])
def test_a_kernel_reads_and_writes_the_arrays_themselves(run, twice, blocks, threads):
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    kernel = twice.kernel("twice")
    run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
    run.launch(kernel, blocks, threads)
    run.finish()
    assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize("offset", [0, 1, 3, 16])
def test_arrays_of_any_alignment_are_used_in_place(run, twice, offset):
    x, y = np.arange(80, dtype=np.float32)[offset:], np.zeros(80, np.float32)[offset:]
    kernel = twice.kernel("twice")
    run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
    run.launch(kernel, x.size, 1)
    run.finish()
    assert np.array_equal(y, 2 * x)


def test_read_only_and_empty_arrays_can_be_arguments(run, twice):
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    x.flags.writeable = False
    kernel = twice.kernel("twice")
    run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
    run.launch(kernel, 8, 1)
    run.finish()
    assert (y == 2).all()
    run.wrap(np.zeros((0, 3), np.float32))


def test_strided_arrays_are_refused(run):
    with pytest.raises(ValueError, match=r"shape \(4, 2\) has strides \(16, 8\); expected C-contiguous"):
        run.wrap(np.zeros((4, 4), np.float32)[:, ::2])


class SmallBuffers:
    """A device whose buffers have at most 64 bytes."""

    max_mem_alloc_size = 64

    def __init__(self, device, platform=None):
        self._device = device
        self.platform = platform or device.platform

    def __getattr__(self, name):
        return getattr(self._device, name)


def test_arrays_larger_than_the_devices_buffers_are_used_by_their_addresses(run, twice, monkeypatch):
    x, y = np.arange(17, dtype=np.float32), np.zeros(17, np.float32)
    x.flags.writeable = False
    monkeypatch.setattr(run, "device", SmallBuffers(run.device))
    kernel = twice.kernel("twice")
    run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
    run.launch(kernel, 17, 1)
    run.finish()
    assert np.array_equal(y, 2 * x)


def test_arrays_larger_than_buffers_are_refused_where_kernels_take_no_addresses(run, monkeypatch):
    other = SimpleNamespace(name="another", version="OpenCL 3.0")
    monkeypatch.setattr(run, "device", SmallBuffers(run.device, other))
    with pytest.raises(ValueError, match=r"\(17,\) has 68 bytes; another .* takes at most 64 \(CL_DEVICE_MAX_MEM"):
        run.wrap(np.zeros(17, np.float32))


def test_buffers_and_arrays_that_nobody_else_holds_live_until_finish(run):
    slow = run.compile(
        "kernel void slow(global const float *x, global float *y) {"
        " float s = 0; for (int r = 0; r < 2000; r++) for (int i = 0; i < 4096; i++) s += x[i]; y[0] = s; }"
    )
    kernel, results = slow.kernel("slow"), [np.zeros(16, np.float32) for _ in range(20)]
    for result in results:
        run.set_arguments(kernel, [run.wrap(np.ones(4096, np.float32)), run.wrap(result)])
        run.launch(kernel, 1, 1)
    run.finish()
    assert all(result[0] == 2000 * 4096 for result in results)  # below 2^24: exact in float32


def test_a_refused_source_shows_the_compilers_message(run):
    with pytest.raises(BuildError, match="undeclared_thing") as caught:
        run.compile("kernel void broken(global float *x) { x[0] = undeclared_thing; }")
    assert "Portable Computing Language" in str(caught.value)


def test_an_entry_that_does_not_exist_is_named_with_those_that_do(twice):
    with pytest.raises(KeyError, match="no kernel 'thrice'; the source has \\['twice'\\]"):
        twice.kernel("thrice")


def test_build_options_reach_the_compiler(run):
    module = run.compile("kernel void set(global float *x) { x[0] = VALUE; }", ["-DVALUE=7"])
    x, kernel = np.zeros(16, np.float32), module.kernel("set")
    run.set_arguments(kernel, [run.wrap(x)])
    run.launch(kernel, 1, 1)
    run.finish()
    assert x[0] == 7


def test_event_time_lies_within_the_wall_time(run):
    module = run.compile(
        "kernel void work(global float *x) {"
        " float s = x[0]; for (int i = 0; i < 3000000; i++) s = s * 0.5f + 1; x[0] = s; }"
    )
    kernel, x = module.kernel("work"), np.zeros(16, np.float32)
    run.set_arguments(kernel, [run.wrap(x)])
    run.launch(kernel, 1, 1)
    run.finish()
    start = time.perf_counter()
    launched = run.launch(kernel, 1, 1, timed=True)
    run.finish()
    wall = time.perf_counter() - start
    assert 0.5e-3 < launched.seconds() <= wall


ADD = "kernel void add(global const float *x, global float *y, global const float *z) {"
ADD += " size_t i = get_global_id(0); for (int r = 0; r < 200; r++) y[i] = x[i] + z[i] + r; }"


def test_a_launch_alone_writes_the_same_as_one_of_all_cores(run):
    module = run.compile(DOUBLE, alone=(True, False))
    for alone in (True, False):
        x, y = np.arange(640, dtype=np.float32), np.zeros(640, np.float32)
        kernel = module.kernel("twice")
        run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
        run.launch(kernel, 40, 16, alone=alone)
        run.finish()
        assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize("timed", [False, True])
def test_launches_alone_and_of_all_cores_run_in_the_order_given(run, timed):
    """Each reads what the one before wrote."""
    module = run.compile(ADD, alone=(True, False))
    values = [np.zeros(1 << 14, np.float32) for _ in range(9)]
    one = run.wrap(np.ones(1 << 14, np.float32))
    buffers = [run.wrap(value) for value in values]
    for _ in range(5):
        for value in values[1:]:
            value[:] = np.nan
        for step in range(8):
            kernel = module.kernel("add")
            run.set_arguments(kernel, [buffers[step], buffers[step + 1], one])
            run.launch(kernel, 64, 256, timed=timed, alone=step % 3 == 1)
        run.finish()
        assert [value[7] for value in values] == [200.0 * step for step in range(9)]
        assert all((value == value[0]).all() for value in values)


def test_prepared_launches_of_both_kinds_run_in_order(run):
    module = run.compile(ADD, alone=(True, False))
    values, one = [np.zeros(4096, np.float32) for _ in range(4)], np.ones(4096, np.float32)
    launches = []
    for step in range(3):
        kernel = module.kernel("add")
        run.set_arguments(kernel, [run.wrap(values[step]), run.wrap(values[step + 1]), run.wrap(one)])
        launches.append((kernel, 16, 256, step == 1))
    call = run.prepared(launches)
    for _ in range(20):
        values[0] += 1
        call()
        assert (values[3] == values[0][0] + 600).all()


DRIVERS = """
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.runtimes.opencl_platforms import POCL, present_devices
run = OpenCLRuntime()
names = [one.name for one, _ in present_devices() if one.platform == POCL]
print(run.units, run.has_caller, run.device.name.split("-")[0], [name.split("-")[0] for name in names])
"""


@pytest.mark.parametrize(
    "cores, drivers, told",
    [
        (1, None, "1 False basic ['basic']"),
        (2, None, "2 True pthread ['pthread']"),
        (2, "pthread", "2 False pthread ['pthread']"),
        (2, "basic", "1 False basic ['basic']"),
    ],
)
def test_small_launches_have_a_driver_of_their_own_beside_that_of_several_cores(monkeypatch, cores, drivers, told):
    if cores > (os.cpu_count() or 1) or cores > len(os.sched_getaffinity(0)):
        pytest.skip(f"{cores} cores are not here")
    for name, value in (("POCL_MAX_PTHREAD_COUNT", str(cores)), ("POCL_DEVICES", drivers)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    done = in_a_fresh_process(DRIVERS)
    assert done.stdout.strip() == told, done.stderr


@pytest.mark.parametrize("threads", ["-1", "99999999999"])
def test_numbers_of_threads_that_end_the_process_within_pocl_are_refused(threads, monkeypatch):
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", threads)
    done = in_a_fresh_process(DRIVERS)
    assert f"POCL_MAX_PTHREAD_COUNT is {threads}; expected a number of threads" in done.stderr


def test_threads_with_a_kernel_each_do_not_disturb_one_another(run, twice):
    wrong = []

    def work(seed):
        kernel = twice.kernel("twice")
        for i in range(200):
            x, y = np.full(64, seed * 1000 + i, np.float32), np.zeros(64, np.float32)
            run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])
            run.launch(kernel, 64, 1)
            run.finish()
            if not np.array_equal(y, 2 * x):
                wrong.append((seed, i))

    in_threads(work)
    assert wrong == []


def test_our_own_share_of_a_call_is_a_few_functions(run, twice):
    """Wrapping two arrays and setting them: 8 calls take 2 us."""
    x, y, kernel = np.zeros(64, np.float32), np.zeros(64, np.float32), twice.kernel("twice")
    assert calls_of(lambda: run.set_arguments(kernel, [run.wrap(x), run.wrap(y)])) <= 12


def test_without_pyopencl_the_error_says_what_to_install():
    found = in_a_fresh_process(
        "import sys; sys.modules['pyopencl'] = None\n"
        "from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime\n"
        "try: OpenCLRuntime()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    assert found.stdout.startswith("RuntimeUnavailableError pyopencl is missing"), found.stderr
    assert 'pip install "rollergen[cpu]"' in found.stdout and 'pip install "rollergen[opencl]"' in found.stdout


@pytest.mark.parametrize("name", ["v100", "mi50", "ipu"])
def test_an_absent_device_has_no_runtime_and_the_error_says_what_works_without(name):
    with pytest.raises(RuntimeUnavailableError, match=f"{name} .* not present on this machine.*interpreter"):
        runtime.runtime_for(load_device(name))


def test_a_spec_of_another_machine_is_refused_by_name():
    device = complete(load_device("cpu"))
    dialect = tuple((key, "Another CPU" if key == "completed" else text) for key, text in device.targets[0].dialect)
    other = replace(device, targets=(replace(device.targets[0], dialect=dialect),))
    expected = re.escape(f"completed on a machine with Another CPU; this one has {cpu_model()}")
    with pytest.raises(RuntimeUnavailableError, match=expected):
        runtime.runtime_for(other)


def test_a_spec_that_is_not_complete_is_refused():
    with pytest.raises(RuntimeUnavailableError, match="not complete"):
        runtime.runtime_for(load_device("cpu"))


def test_the_host_has_a_runtime_and_it_is_one():
    device = complete(load_device("cpu"))
    assert runtime.runtime_for(device) is runtime.runtime_for(device)


FULL = "avx2 fma bmi1 bmi2 movbe f16c adx avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    "flags, name",
    [
        (FULL, "skylake-avx512"),
        (FULL + " sse2", "skylake-avx512"),
        (FULL + " avx512_vnni", "cascadelake"),
        (FULL + " avx512_vnni avx512_bf16", "cooperlake"),
        (FULL + " avx512_bf16", "skylake-avx512"),
        ("avx2 avx512_vnni sse2", "x86-64"),
        (FULL.replace("avx512vl", "") + " sse2", "haswell"),
        ("sse2 avx2", "x86-64"),
        ("", None),
    ],
)
def test_the_cpu_name_assumes_no_feature_that_the_processor_lacks(flags, name):
    assert best_name(frozenset(flags.split())) == name


@pytest.mark.skipif(not host_flags(), reason="no /proc/cpuinfo")
def test_only_a_name_that_llvm_did_not_know_is_mended():
    assert mend_cpu_name(0, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-haswell") is None


@pytest.mark.parametrize(
    "name, flags, mistaken",
    [
        ("generic", "sse2", True),
        ("znver3", "avx2 avx512f", True),  # Zen 4, by LLVM 14
        ("znver3", "avx2", False),
        ("znver4", "avx2 avx512f", False),
        ("haswell", "avx2", False),
    ],
)
def test_a_name_is_mistaken_where_the_processor_has_what_its_bearers_lack(name, flags, mistaken):
    assert is_mistaken(name, frozenset(flags.split())) == mistaken


def test_roots_of_vectors_twice_as_wide_as_the_cpus_compile():
    """They end the process where PoCL's builtins and its compiler are of different processors."""
    x = rg.tensor("x", (64,), "bfloat16")
    kernel = rg.build(rg.ops.rsqrt(x), "cpu", profile=False, cache=False)
    np.testing.assert_array_equal(kernel(np.full(64, 4, ml_dtypes.bfloat16)), np.full(64, 0.5, ml_dtypes.bfloat16))


def test_a_name_that_cannot_be_found_is_an_error_and_no_crash(monkeypatch):
    monkeypatch.setattr(pocl_cpu_name.platform, "system", lambda: "Linux")
    monkeypatch.setattr(pocl_cpu_name.platform, "machine", lambda: "x86_64")
    with pytest.raises(UnknownProcessorError, match="does not know this processor"):
        mend_cpu_name(0, "pthread-x86_64-unknown-linux-gnu-generic")


def test_times_are_the_least_of_many_and_the_spread_says_how_many_were_worse(monkeypatch):
    naps, clock = iter([0.0, 0.004, 0.0, 0.02, 0.0, 0.02]), [0.0]
    monkeypatch.setattr(microbench, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def nap():
        clock[0] += next(naps)

    figure = best_seconds({"nap": nap}, rounds=3)["nap"]
    assert figure.value == pytest.approx(0.004) and figure.spread == pytest.approx(0.02 / 0.004 - 1)
