"""What the gate asks of a GPU's memory is answered there, as in the host's memory, and little is copied."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.errors import DeviceError
from rollergen.expr.dtypes import is_float
from rollergen.expr.values import Buffer
from rollergen.gate.arrays import random_array
from rollergen.gate.gate import Gate
from rollergen.gate.memory import HOST, SUSPECTS, Tolerance
from rollergen.gate.reference import Reference
from rollergen.hal.compilers import nvrtc
from rollergen.hal.runtimes.cuda_runtime import CudaRuntime
from rollergen.runtime.cuda_kernels import kernels_text
from rollergen.runtime.cuda_memory import CudaMemory
from tests import programs
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy  # noqa: F401 (a fixture)
from tests.gate import test_gate as on_host

COUNTS = 1 << 16
"""Bytes of the hostile elements, zones, rules and counts of three candidates, whatever their arrays take."""

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture
def memory(cupy):  # noqa: F811
    return CudaMemory(CudaRuntime())


def seen(array):
    """The elements of an array of the stand-in's device, which lie in host memory."""
    return array.part._memory.view(array.dtype).reshape(array.shape)


def placed(memory, values):
    zone = memory.guarded([Buffer("X", values.shape, values.dtype.name, "input")])["X"]
    memory.write(zone.array, values)
    return zone.array


def alike(dtype):
    """(an array, another with bits that differ here and there: by little, by much, in specials)."""
    random = np.random.default_rng(3)
    one = random_array((9, 1111), dtype, random)
    other = one.copy()
    flat, few = other.reshape(-1), random.permutation(one.size)[:900]
    if is_float(dtype):
        flat[few[:400]] = np.nextafter(one.reshape(-1)[few[:400]].astype("f4"), np.float32(9)).astype(one.dtype)
        flat[few[400:700]] += np.asarray(random.normal(0, 0.1, 300), one.dtype)
        specials = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-42, 1e-7, 6e4, 1.0]
        for array, turn in ((one, 0), (other, 3)):
            array.reshape(-1)[few[700:]] = np.resize(np.roll(specials, turn), 200).astype(one.dtype)
    else:
        flat[few] = ~flat[few]
    return one, other


TOLERANCES = None, Tolerance(0.0), Tolerance(1e-4), Tolerance(1e-4, exact=True), Tolerance(1e-6, everywhere=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_a_gpu_finds_the_elements_that_the_host_finds(dtype, memory):
    one, other = alike(dtype)
    a, b = placed(memory, one), placed(memory, other)
    for tolerance in TOLERANCES:
        want, got = HOST.unequal(one, other, tolerance), memory.unequal(a, b, tolerance)
        assert got.count == want.count and np.array_equal(got.some, want.some), tolerance
    assert (got.count < HOST.unequal(one, other).count and len(HOST.unequal(one, other).some) == SUSPECTS) or not is_float(dtype)
    for memory_of, x, y in ((HOST, one, other), (memory, a, b)):
        memory_of.poison(x, 0)
        memory_of.poison(y, 2)
    one.reshape(-1)[5000:] = 1
    memory.scatter(a, np.arange(5000, one.size), np.ones(one.size - 5000))
    assert memory.unwritten(a, b, (0, 2)).count == HOST.unwritten(one, other, (0, 2)).count == 5000
    assert memory.unequal(a, b, unless=0).count == HOST.unequal(one, other, unless=0).count == one.size - 5000


def test_sampled_elements_travel_and_no_others(memory, cupy):  # noqa: F811
    one = random_array((300, 400), "float32", np.random.default_rng(0))
    array = placed(memory, one)
    memory.traffic.taken()
    where = np.arange(3)[:, None], np.array([[5, 7]])
    assert np.array_equal(memory.gather(array, where), one[where].reshape(-1))
    assert memory.traffic.taken() == (8 * 7, 4 * 6)  # their number and places; their values


def test_an_array_of_equal_elements_travels_as_one(memory):
    values = np.broadcast_to(np.full((1, 1), 0.1, "float32"), (300, 400))
    memory.traffic.taken()
    assert np.array_equal(seen(placed(memory, values)), values)
    assert sum(memory.traffic.taken()) < 100


def test_an_input_that_changed_in_one_bit_is_told_from_its_fingerprint(memory):
    zones = memory.guarded([Buffer(name, (777,), "float32", "input") for name in "XY"])
    pristine = {name: random_array((777,), "float32", np.random.default_rng(0)) for name in "XY"}
    for name in "XY":
        memory.write(zones[name].array, pristine[name])
    assert memory.changed(zones, pristine) == []
    seen(zones["Y"].array).view(np.uint32)[776] ^= 1
    assert memory.changed(zones, pristine) == ["Y"]


@pytest.mark.skipif(not nvrtc.is_installed(), reason="rollergen[nvrtc] is not installed")
@pytest.mark.parametrize(("dtype", "arch"), [("float16", "sm_70"), ("int64", "sm_90")])
def test_nvidias_compiler_takes_the_kernels(dtype, arch):
    compiled = nvrtc.compile_cuda(kernels_text(dtype), arch, ("--std=c++17", "-ftz=true"))
    assert {one.entry for one in compiled.kernels} == {
        "tally", "nth", "gather", "scatter", "fill", "fingerprint", "touched",
    }  # fmt: skip


def on_device(run):
    """A candidate that the tests of the gate know, on arrays of the stand-in's device."""
    return lambda arrays: run({name: seen(array) for name, array in arrays.items()})


def gate_of(memory, program=on_host.PROGRAM):
    return Gate(program, on_host.oracle, memory=memory)


def damaged(damage):
    def run(arrays):
        on_host.matmul(arrays)
        damage(arrays)

    return run


def kept(arrays):
    was = arrays["C"][33, 44]
    on_host.matmul(arrays)
    arrays["C"][33, 44] = was


FAULTS = {
    "C: 4 bytes written after the last element, the nearest 0 bytes away": damaged(on_host.write("C", on_host.beyond, 1, 3.0)),
    "C: 4 bytes written before the first element, the nearest 252 bytes away": damaged(on_host.write("C", on_host.before, 64, 3.0)),
    "A: 4 bytes written after the last element, the nearest 4 bytes away": damaged(on_host.write("A", on_host.beyond, 2, 0.0)),
    "input B was changed": damaged(lambda arrays: arrays["B"].__setitem__((3, 4), 7.5)),
    "1 of 7000 elements of C were never written, such as C[33, 44]": kept,
    "C[69, 99]": damaged(lambda arrays: arrays["C"].__setitem__((69, 99), 9.0)),
}  # fmt: skip


@pytest.mark.parametrize("text", FAULTS)
def test_faults_are_told_on_a_gpu_in_the_hosts_words(text, memory):
    gate = gate_of(memory)
    assert any(text in problem for problem in gate.check(on_host.PROGRAM, on_device(FAULTS[text])).problems)
    assert gate.check(on_host.PROGRAM, on_device(on_host.matmul)).passed, "all is made good again"


def test_a_result_that_differs_between_two_runs_is_refused(memory):
    runs = []

    def run(arrays):
        on_host.matmul(arrays)
        runs.append(1)
        if len(runs) == 2:
            arrays["C"][5, 6] = np.nextafter(arrays["C"][5, 6], np.float32(np.inf))

    problems = gate_of(memory).check(on_host.PROGRAM, on_device(run)).problems
    assert problems == ("two runs on the same inputs differ in 1 of 7000 elements of C, such as C[5, 6]",)


def test_an_element_that_only_the_full_comparison_meets_is_found(memory, monkeypatch):
    monkeypatch.setattr(Reference, "examine", lambda self, seconds, *, sample: "")
    wrong, gate = on_device(on_host.wrong_inside), gate_of(memory)
    assert gate.check(on_host.PROGRAM, wrong, number=4).passed, "no sample meets it"
    assert gate.check(on_host.PROGRAM, on_device(on_host.matmul), number=5).passed
    assert list(gate.revoked()) == [4] and "C[20, 30]" in gate.revoked()[4]
    assert "C[20, 30]" in "; ".join(gate.check(on_host.PROGRAM, wrong, number=6).problems)


def test_temporaries_that_a_later_run_does_not_make_anew_are_found(memory):
    program = programs.ALL["cpu_matmul_in_blocks"]

    def stale(arrays):
        (packed,) = (arrays[buffer.name].reshape(-1)[: arrays["B"].size] for buffer in program.temporaries)
        if np.isnan(packed[0]):  # poison: packed by the first run only
            packed[...] = arrays["B"].reshape(-1)
        on_host.matmul({**arrays, "B": packed.reshape(arrays["B"].shape)})

    gate = gate_of(memory, program)
    assert gate.check(program, on_device(on_host.matmul)).passed
    problems = gate.check(program, on_device(stale)).problems
    assert problems and not any(problem.startswith("random inputs") for problem in problems)


def test_a_build_copies_inputs_once_for_each_kind_of_trial_then_samples(cupy):  # noqa: F811
    cupy.LOG.clear()
    built = rg.build(split_product(), "cuda", profile=True, top_k=3, cache=False)
    sent, fetched = (sum(size for what, size, *_ in cupy.LOG if what == kind) for kind in ("set", "get"))
    inputs, compared = 4 * 2048 * (48 + 40), sum(one.compared for one in built.candidates)
    assert all(one.program.temporaries for one in built.candidates)
    assert 2 * inputs <= sent <= 2 * inputs + 8 * compared + COUNTS  # equal inputs travel as one element
    assert 4 * compared <= fetched <= 4 * compared + COUNTS
    assert sent == sum(one.sent_bytes for one in built.candidates)
    assert fetched == sum(one.fetched_bytes for one in built.candidates)


def with_memory(monkeypatch, free_bytes):
    monkeypatch.setenv("FAKE_GPU", f"Tesla V100-PCIE-16GB|7|0|{2 * free_bytes}")  # half of it is free


def split_product():
    return rg.ops.matmul(rg.tensor("A", (48, 2048)), rg.tensor("B", (2048, 40)), name="C")


def test_a_build_allocates_no_more_than_was_planned(cupy):  # noqa: F811
    built = rg.build(split_product(), "cuda", profile=True, top_k=3, cache=False)
    planned = sum(built.explain(as_dict=True)["profiling"]["memory_bytes"].values())
    assert planned / 2 < cupy.ALIVE["peak"] < planned + COUNTS


def test_a_build_that_does_not_fit_says_what_it_needs_before_it_allocates(cupy, monkeypatch):  # noqa: F811
    with_memory(monkeypatch, 1 << 21)
    with pytest.raises(DeviceError, match=r"checking candidates of C takes 5\.\d+ MiB \(3 sets of inputs 2\.062 MiB, .*of "
                       r"Tesla V100.*'s memory, which has 2 MiB free; .*profile=False"):  # fmt: skip
        rg.build(split_product(), "cuda", profile=True, top_k=3, cache=False)
    assert cupy.ALIVE["peak"] == 0


def test_arrays_of_candidates_that_are_timed_give_way_where_memory_is_short(cupy, monkeypatch):  # noqa: F811
    built = rg.build(split_product(), "cuda", profile=True, top_k=3, cache=False)
    planned, timed = built.explain(as_dict=True)["profiling"]["memory_bytes"], "what all are timed on"
    cupy.ALIVE["peak"] = cupy.ALIVE["now"]
    with_memory(monkeypatch, cupy.ALIVE["now"] + sum(planned.values()) - planned[timed] // 3)
    again = rg.build(split_product(), "cuda", profile=True, top_k=3, cache=False)
    assert all(one.wall_s for one in again.candidates)


def test_a_call_tells_its_temporaries(cupy):  # noqa: F811
    facts = rg.build(split_product(), "cuda", profile=False, cache=False).explain(as_dict=True)["memory_bytes"]
    assert facts["inputs"] == 4 * 2048 * (48 + 40) and facts["outputs"] == 4 * 48 * 40
    assert facts["temporaries"] % (4 * 48 * 40) == 0 < facts["temporaries"]


def test_a_kernel_that_reads_nothing_is_checked(cupy):  # noqa: F811
    kernel = rg.build(rg.ops.sum(rg.tensor("x", (3, 0)), axis=1), "cuda", cache=False)
    assert np.array_equal(kernel(np.empty((3, 0), np.float32)), np.zeros(3, np.float32))
    assert all(one.state == "passed" for one in kernel.candidates)


def test_arrays_that_are_timed_begin_where_the_allocators_begin_them(memory):
    (zone,) = memory.guarded([Buffer("X", (777,), "float32", "input")], memory.leads[0]).values()
    assert zone.array.address % 256 == 0
    (zone,) = memory.guarded([Buffer("X", (777,), "float32", "input")], memory.leads[1]).values()
    assert zone.array.address % 256 == ARGUMENT_BYTES
