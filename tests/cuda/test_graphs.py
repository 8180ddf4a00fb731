"""Calls with arrays of the GPU do nothing but launch: so they wait for nothing, and CUDA graphs can capture them.

CuPy is `fake`: while a stream is captured it refuses, as CUDA does, to allocate, copy, synchronize, or wait for what is
not captured.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, RollergenError
from rollergen.runtime.gpu_calls import GpuCalls
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
T = rg.tensor

CASES = {
    "one kernel": lambda: rg.ops.matmul(T("A", (37, 21)), T("B", (21, 45))),
    "a split sum and its second kernel": lambda: rg.ops.matmul(T("A", (8, 2048)), T("B", (2048, 8))),
    "rows of few blocks": lambda: rg.ops.sum(T("X", (4, 65536)), axis=1),
    "constant weights": lambda: rg.ops.matmul(T("A", (64, 256)), T("B", (256, 64), constant=True)),
    "a window": lambda: rg.ops.depthwise_conv2d(T("X", (2, 5, 9, 9)), T("W", (5, 1, 3, 3)), padding=1),
}
WITH_TEMPORARIES = {"a split sum and its second kernel", "rows of few blocks", "constant weights"}
OVER_48_KIB = 64 << 10


def built(case):
    return rg.build(CASES[case](), "cuda", profile=False, cache=False)


def whole_numbers(kernel, seed=0):
    """Inputs for which every sum is exact."""
    random = np.random.default_rng(seed)
    return [random.integers(-3, 4, one.shape).astype(one.dtype) for one in kernel.signature.inputs]


def on_gpu(cupy, kernel):  # noqa: F811
    """A stream, the inputs there, and an array for the output."""
    (output,) = kernel.signature.outputs
    given = [cupy.asarray(one) for one in whole_numbers(kernel)]
    return cupy.cuda.Stream(), given, cupy.empty(output.shape, output.dtype)


def kinds(cupy):  # noqa: F811
    return [what[0] for what in cupy.LOG]


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_its_launches_and_nothing_else(cupy, case):  # noqa: F811
    kernel = built(case)
    stream, given, out = on_gpu(cupy, kernel)
    assert bool(kernel.program.temporaries) == (case in WITH_TEMPORARIES)
    with stream:
        kernel(*given, out=out)
        cupy.LOG.clear()
        assert kernel(*given, out=out) is out
        assert kinds(cupy) == ["launch"] * len(kernel.launches)
        cupy.LOG.clear()
        new = kernel(*given)
    assert kinds(cupy) == ["empty", *["launch"] * len(kernel.launches)] and cupy.LOG[0] == ("empty", out.nbytes)
    assert {what[4] for what in cupy.LOG[1:]} == {stream.ptr}
    want = CASES[case]().evaluate(*whole_numbers(kernel))
    assert np.array_equal(out.get(), want) and np.array_equal(new.get(), want)


@pytest.mark.parametrize("case", CASES)
def test_calls_that_follow_with_other_arrays_are_prepared(cupy, case, monkeypatch):  # noqa: F811
    kernel = built(case)
    stream, given, out = on_gpu(cupy, kernel)
    with stream:
        kernel(*given)
        monkeypatch.setattr(GpuCalls, "call", lambda *_: pytest.fail("not prepared"))
        assert kernel(*given, out=out) is out
        assert np.array_equal(out.get(), CASES[case]().evaluate(*whole_numbers(kernel)))
        if case == "constant weights":  # other constants would have to be packed
            given[0] = cupy.asarray(whole_numbers(kernel, seed=1)[0])
            others = [given[0].get(), whole_numbers(kernel)[1]]
        else:
            others = whole_numbers(kernel, seed=1)
            given = [cupy.asarray(one) for one in others]
        cupy.LOG.clear()
        new = kernel(*given)
        assert kinds(cupy) == ["empty", *["launch"] * len(kernel.launches)]
        assert {what[4] for what in cupy.LOG[1:]} == {stream.ptr}
    assert new is not out and np.array_equal(new.get(), CASES[case]().evaluate(*others))


def test_each_stream_has_prepared_calls_of_its_own(cupy):  # noqa: F811
    kernel = built("one kernel")
    first, given, out = on_gpu(cupy, kernel)
    second = cupy.cuda.Stream()
    for stream in (first, second, first, second):
        with stream:
            cupy.LOG.clear()
            kernel(*given, out=out)
        assert {what[4] for what in cupy.LOG if what[0] == "launch"} == {stream.ptr}


def test_what_a_prepared_call_cannot_take_is_told_by_the_general_one(cupy):  # noqa: F811
    kernel = built("one kernel")
    _, (a, b), out = on_gpu(cupy, kernel)
    kernel(a, b, out=out)
    wide = cupy.asarray(np.zeros((21, 90), "f4"))[:, ::2]
    elsewhere, doubles = cupy.asarray(b.get()), cupy.asarray(b.get().astype("f8"))
    elsewhere.data.device_id = elsewhere.device.id = 1
    shifted = cupy.ndarray(cupy.empty((37 * 21 + 1,), np.float32)._memory[1:].reshape(37, 21))
    for arrays, message in {
        (a, wide): "B has strides", (a, elsewhere): "B is on GPU 1, the current one is 0", (shifted, b): "no multiple of",
        (a,): "1 arrays given", (a, doubles): "B has dtype float64", (b, a): "A has shape",
    }.items():  # fmt: skip
        with pytest.raises(RollergenError, match=message):
            kernel(*arrays, out=out)
    square = rg.build(rg.ops.relu(T("A", (37, 21)), name="B"), "cuda", profile=False, cache=False)
    square(a)
    with pytest.raises(ArgumentError, match="out=B overlaps"):
        square(a, out=a)


def test_prepared_calls_leave_the_temporaries_of_a_graph_alone(cupy):  # noqa: F811
    kernel = built("a split sum and its second kernel")
    stream, given, out = on_gpu(cupy, kernel)
    want = CASES["a split sum and its second kernel"]().evaluate(*whole_numbers(kernel))
    with stream:
        kernel(*given, out=out)
        kernel(*given, out=out)
        stream.begin_capture()
        kernel(*given, out=out)
        graph = stream.end_capture()
        cupy.LOG.clear()
        kernel(*given, out=out)
        assert [what for what in kinds(cupy) if what == "empty"] == ["empty"] * len(kernel.program.temporaries)
        cupy.LOG.clear()
        kernel(*given, out=out)
    assert kinds(cupy) == ["launch"] * len(kernel.launches)
    out.fill(0)
    graph.launch()
    assert np.array_equal(out.get(), want)


def test_threads_have_prepared_calls_of_their_own(cupy):  # noqa: F811
    kernel = built("a split sum and its second kernel")
    _, given, out = on_gpu(cupy, kernel)
    others, wrong = [cupy.asarray(one) for one in whole_numbers(kernel, seed=1)], []
    want = CASES["a split sum and its second kernel"]().evaluate(*whole_numbers(kernel, seed=1))

    def work():
        for _ in range(3):
            if not np.array_equal(kernel(*others).get(), want):
                wrong.append(1)

    kernel(*given, out=out)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    kernel(*given, out=out)
    assert not wrong and not np.array_equal(out.get(), want)


def test_the_first_call_allocates_temporaries_and_copies_nothing(cupy):  # noqa: F811
    kernel = built("a split sum and its second kernel")
    _, given, out = on_gpu(cupy, kernel)
    cupy.LOG.clear()
    kernel(*given, out=out)
    made = ["compile", "load", *["empty"] * len(kernel.program.temporaries)]
    assert kinds(cupy) == made + ["launch"] * len(kernel.launches)


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_captured_and_replayed_on_other_contents(cupy, case):  # noqa: F811
    kernel = built(case)
    stream, given, out = on_gpu(cupy, kernel)
    kernel(*given, out=out, stream=stream)
    cupy.LOG.clear()
    stream.begin_capture()
    assert kernel(*given, out=out, stream=stream) is out  # which was made on the default stream: not waited for
    graph = stream.end_capture()
    assert kinds(cupy) == ["captured"] * len(kernel.launches)
    contents = whole_numbers(kernel, seed=1)
    for array, new in zip(given, contents, strict=True):
        array.set(new)
    out.fill(0)
    assert not out.get().any()
    graph.launch()
    assert np.array_equal(out.get(), CASES[case]().evaluate(*contents))


def test_shared_memory_is_opted_into_while_captured(cupy):  # noqa: F811
    kernel = built("one kernel")
    stream, given, out = on_gpu(cupy, kernel)
    source = kernel.candidates[0].source
    large = replace(source, launches=(replace(source.launches[0], dynamic_bytes=OVER_48_KIB),))
    calls = GpuCalls(kernel.device, kernel.program, kernel.signature, large)
    calls.call(given, {}, out, stream, 0)
    stream.begin_capture()
    calls.call(given, {}, out, stream, 0)
    stream.end_capture()
    assert cupy.LOG[-1][0] == "captured" and cupy.LOG[-1][-1] == OVER_48_KIB


def test_a_capture_of_the_first_call_is_refused(cupy):  # noqa: F811
    kernel = built("one kernel")
    stream, given, out = on_gpu(cupy, kernel)
    stream.begin_capture()
    with pytest.raises(ArgumentError, match=r"into a CUDA graph, and the kernel has not run yet; call it .* before"):
        kernel(*given, out=out, stream=stream)
    assert not stream.end_capture()._captured
    kernel(*given, out=out)
    stream.begin_capture()
    kernel(*given, out=out, stream=stream)  # where there are no temporaries, a call of any stream will do
    assert len(stream.end_capture()._captured) == 1


def test_a_capture_without_temporaries_of_its_stream_is_refused(cupy):  # noqa: F811
    kernel = built("a split sum and its second kernel")
    stream, given, out = on_gpu(cupy, kernel)
    kernel(*given, out=out)
    stream.begin_capture()
    with pytest.raises(ArgumentError, match=r"the kernel has no temporaries there; call it .* on this stream"):
        kernel(*given, out=out, stream=stream)
    assert not stream.end_capture()._captured


def test_calls_after_a_capture_leave_its_temporaries_alone(cupy):  # noqa: F811
    kernel = built("a split sum and its second kernel")
    stream, given, out = on_gpu(cupy, kernel)
    kernel(*given, out=out, stream=stream)
    stream.begin_capture()
    kernel(*given, out=out, stream=stream)
    graph = stream.end_capture()
    cupy.LOG.clear()
    for _ in range(2):
        kernel(*given, out=out, stream=stream)
    allocated = ["empty"] * len(kernel.program.temporaries)
    assert [what for what in kinds(cupy) if what == "empty"] == allocated  # once, and kept
    out.fill(0)
    graph.launch()
    assert np.array_equal(out.get(), CASES["a split sum and its second kernel"]().evaluate(*whole_numbers(kernel)))


def packing_calls(kernel):
    """The kernel's calls, its first launch one that packs constants: what it leaves depends on these alone."""
    first, *others = kernel.candidates[0].source.launches
    source = replace(kernel.candidates[0].source, launches=(replace(first, once=True), *others))
    return GpuCalls(kernel.device, kernel.program, kernel.signature, source)


def test_what_was_packed_for_a_graph_stays_what_it_replays(cupy):  # noqa: F811
    expression = rg.ops.matmul(T("A", (8, 2048), constant=True), T("B", (2048, 8), constant=True))
    kernel = rg.build(expression, "cuda", profile=False, cache=False)
    calls, (stream, given, out) = packing_calls(kernel), on_gpu(cupy, kernel)
    others = [cupy.asarray(one) for one in whole_numbers(kernel, seed=1)]
    call = lambda arrays: calls.call(arrays, {}, out, stream, 0)
    call(given)
    stream.begin_capture()
    with pytest.raises(ArgumentError, match="has not packed these constants;"):
        call(others)
    call(given)
    graph = stream.end_capture()
    assert len(graph._captured) == len(kernel.launches) - 1
    call(others)
    assert np.array_equal(out.get(), expression.evaluate(*whole_numbers(kernel, seed=1)))
    graph.launch()
    assert np.array_equal(out.get(), expression.evaluate(*whole_numbers(kernel)))
    call(others)
    assert np.array_equal(out.get(), expression.evaluate(*whole_numbers(kernel, seed=1)))


def test_a_gpu_array_with_other_memory_is_packed_anew_and_so_is_any_after_repack(cupy):  # noqa: F811
    expression = rg.ops.matmul(T("A", (8, 2048), constant=True), T("B", (2048, 8), constant=True))
    kernel = rg.build(expression, "cuda", profile=False, cache=False)
    calls, (stream, given, out) = packing_calls(kernel), on_gpu(cupy, kernel)
    product = lambda repacks: calls.call(given, {}, out, stream, repacks).get()
    assert np.array_equal(product(0), expression.evaluate(*whole_numbers(kernel)))
    for one, other in zip(given, whole_numbers(kernel, seed=1), strict=True):
        one.__init__(cupy.asarray(other)._memory)
    assert np.array_equal(product(0), expression.evaluate(*whole_numbers(kernel, seed=1)))
    for one, other in zip(given, whole_numbers(kernel, seed=2), strict=True):
        one.set(other)
    assert np.array_equal(product(1), expression.evaluate(*whole_numbers(kernel, seed=2)))


def test_within_a_capture_producers_are_waited_for(cupy):  # noqa: F811
    kernel = built("one kernel")
    stream, given, out = on_gpu(cupy, kernel)
    producer = cupy.cuda.Stream()
    kernel(*given, out=out, stream=stream)
    producer.begin_capture()
    with producer:
        kernel(*given, out=out, stream=stream)  # the arrays are the captured stream's: the other one joins its capture
    assert ("wait", stream.ptr) in cupy.LOG
    graph = producer.end_capture()
    assert len(graph._captured) == 1 and not stream.is_capturing()


def test_the_stand_in_refuses_what_cuda_does_while_capturing(cupy):  # noqa: F811
    array, stream, other = cupy.empty((4,), np.float32), cupy.cuda.Stream(), cupy.cuda.Stream()
    before = cupy.cuda.Event()
    before.record(other)
    stream.begin_capture()
    for refused in (
        lambda: cupy.empty((4,), np.float32), array.get, lambda: array.set(np.zeros(4, "f4")), other.synchronize,
        lambda: stream.wait_event(before), lambda: before.record(cupy.cuda.ExternalStream(1)),
    ):  # fmt: skip
        with pytest.raises(cupy.CUDARuntimeError, match="cudaErrorStreamCapture"):
            refused()
    stream.end_capture()
    assert np.array_equal(array.get().shape, (4,))
