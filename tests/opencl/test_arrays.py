"""pyopencl's arrays, in place, in the caller's queue and context."""

import gc
import mmap
import threading
import weakref

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DeviceError, DtypeError, ShapeError
from rollergen.hal.runtimes.opencl_platforms import POCL, in_calling_thread
from rollergen.runtime.opencl_calls import MOST_LANES
from tests.opencl.devices import facts, on_pocl
from tests.threads import in_threads

cl = pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
array = pytest.importorskip("pyopencl.array")
tools = pytest.importorskip("pyopencl.tools")


@pytest.fixture(scope="module")
def queue():
    from rollergen.hal.runtimes.opencl_platforms import present_devices

    return cl.CommandQueue(cl.Context([dict(present_devices())[facts()]]))


@pytest.fixture(scope="module")
def kernel():
    product = rg.ops.matmul(rg.tensor("A", (37, 21)), rg.tensor("B", (21, 45)), name="C")
    return rg.build(product, on_pocl(), profile=False, cache=False)


def values():
    random = np.random.default_rng(0)
    return random.integers(-3, 4, (37, 21)).astype("f4"), random.integers(-3, 4, (21, 45)).astype("f4")


def there(queue, *host):
    return [array.to_device(queue, one) for one in host]


def test_arrays_of_the_device_go_in_and_come_out_in_their_queue(kernel, queue):
    a, b = values()
    got = kernel(*there(queue, a, b))
    assert type(got) is array.Array and got.queue is queue and np.array_equal(got.get(), a @ b)
    by_name = kernel(B=array.to_device(queue, b), A=array.to_device(queue, a))
    assert np.array_equal(by_name.get(), a @ b)


def test_out_is_written_in_place_and_a_stream_is_a_queue_of_the_caller(kernel, queue):
    a, b = values()
    other = cl.CommandQueue(queue.context)
    out = array.zeros(queue, (37, 45), "f4")
    assert kernel(*there(queue, a, b), out=out, stream=other) is out and np.array_equal(out.get(), a @ b)
    free = [one.with_queue(None) for one in there(queue, a, b)]
    assert kernel(*free, stream=other).queue is other


def test_part_of_a_buffer_is_used_where_it_lies(kernel, queue):
    a, b = values()
    whole = array.zeros(queue, 1024 + a.size, "f4")
    part = whole[1024:].reshape(a.shape)
    part.set(a)
    assert part.offset and np.array_equal(kernel(part, array.to_device(queue, b)).get(), a @ b)


def shared(queue, host):
    found = cl.csvm_empty(queue.context, host.shape, host.dtype)
    found[...] = host
    return found


def test_pocls_device_without_threads_is_the_same_cpu(kernel):
    every = [device for platform in cl.get_platforms() if platform.name == POCL for device in platform.get_devices()]
    alone = next(filter(in_calling_thread, every), None)
    if alone is None:
        pytest.skip("PoCL was asked for its driver with threads alone")
    a, b = values()
    assert np.array_equal(kernel(*there(cl.CommandQueue(cl.Context([alone])), a, b)).get(), a @ b)


def test_shared_virtual_memory_is_used_where_it_lies(kernel, queue):
    a, b = values()
    x, y, z = (shared(queue, one) for one in (a, b, np.zeros((37, 45), "f4")))
    out = cl.SVM(z)
    assert kernel(cl.SVM(x), cl.SVM(y), out=out, stream=queue) is out
    queue.finish()
    assert np.array_equal(z, a @ b)
    x *= 2  # seen without being passed anew
    assert np.array_equal(kernel(A=cl.SVM(x), B=array.to_device(queue, b)).get(), 2 * (a @ b))


def test_arrays_in_shared_virtual_memory_are_used_from_any_place_that_vectors_can_begin_at(kernel, queue):
    from pyopencl.tools import SVMAllocator

    a, b = values()
    allocator = SVMAllocator(queue.context)  # given a queue, it is freed there, which destroys the heap (PoCL 3.0)
    host = np.resize(a, 4096)
    whole = array.to_device(queue, host, allocator=allocator)
    for offset in (0, 4):
        part = whole[offset : offset + a.size].reshape(a.shape)
        expected = host[offset : offset + a.size].reshape(a.shape) @ b
        assert np.array_equal(kernel(part, array.to_device(queue, b, allocator=allocator)).get(), expected)
    with pytest.raises(ArgumentError, match=r"A begins at address \d+, at no multiple of 16; expected memory of its own, such as an array of pyopencl.csvm_empty"):
        kernel(whole[1 : 1 + a.size].reshape(a.shape), array.to_device(queue, b))
    with pytest.raises(ArgumentError, match="out=C overlaps another array"):
        kernel(whole[: a.size].reshape(a.shape), array.to_device(queue, b), out=whole[4 : 4 + 37 * 45].reshape((37, 45)))


def test_shared_virtual_memory_that_cannot_be_used_is_named(kernel, queue, monkeypatch):
    a, b = (shared(queue, one) for one in values())
    with pytest.raises(ArgumentError, match="have no queue; expected stream="):
        kernel(cl.SVM(a), cl.SVM(b))
    with pytest.raises(ArgumentError, match="SVM of strides"):
        kernel(cl.SVM(np.asfortranarray(a)), cl.SVM(b), stream=queue)
    with pytest.raises(ShapeError, match=r"A has shape \(21, 45\)"):
        kernel(cl.SVM(b), cl.SVM(a), stream=queue)
    monkeypatch.setattr("rollergen.runtime.opencl_arrays.POCL", "another")  # whose driver says what it has
    if not queue.device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM:
        with pytest.raises(DeviceError, match=r"does not share the host's memory .*expected an array of pyopencl\.csvm_empty"):
            kernel(cl.SVM(np.ones((37, 21), "f4")), cl.SVM(b), stream=queue)
    assert np.array_equal(kernel(cl.SVM(a[:37]), cl.SVM(b), stream=queue).get(), np.asarray(a) @ b)


def test_memory_whose_end_nobody_is_told_of_is_refused_before_anything_runs(queue):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (64,), "uint8"), 2), on_pocl(), profile=False, cache=False)
    out = np.zeros(64, "u1")
    for raw in (bytearray(range(64)), mmap.mmap(-1, 64)):
        with pytest.raises(ArgumentError, match=r"SVM of a \w+; expected one of a NumPy array, such as numpy\.frombuffer"):
            twice(cl.SVM(raw), out=cl.SVM(out), stream=queue)
    assert not out.any()


def test_several_threads_call_at_once(kernel, queue):
    a, b = values()
    given = there(queue, a, b)
    assert all(in_threads(lambda number: np.array_equal(kernel(*given).get(), a @ b), 4))


def test_constants_are_packed_once_and_again_when_told(queue):
    x, w = rg.tensor("x", (32, 48)), rg.tensor("w", (48, 16), constant=True)
    kernel = rg.build(rg.ops.matmul(x, w), on_pocl(), profile=False, cache=False)
    a, b = np.ones((32, 48), "f4"), np.ones((48, 16), "f4")
    given = there(queue, a, b)
    assert np.all(kernel(*given).get() == 48)
    given[1].fill(2)
    kernel.repack()
    assert np.all(kernel(*given).get() == 96)


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda a, b: (a, b.get()), ArgumentError, r"B is a numpy.ndarray.* pyopencl.array.to_device\(queue, B\)"),
        (lambda a, b: (a.astype("f8"), b), DtypeError, "A has dtype float64"),
        (lambda a, b: (a[:4], b), ShapeError, r"A has shape \(4, 21\)"),
        (lambda a, b: (array.zeros(a.queue, (21, 37), "f4").T, b), ArgumentError, r"A has strides .*ascontiguousarray"),
        (lambda a, b: (array.zeros(a.queue, (37, 42), "f4")[:, ::2], b), ArgumentError, r"A has strides .*ascontiguousarray"),
        (lambda a, b: (array.zeros(a.queue, a.size + 1, "f4")[1:].reshape(a.shape), b), ArgumentError, "begins 4 bytes into"),
        (lambda a, b: (a.with_queue(None), b.with_queue(None)), ArgumentError, "have no queue; expected stream="),
    ],
)
def test_what_does_not_fit_is_named(kernel, queue, spoil, error, message):
    with pytest.raises(error, match=message):
        kernel(*spoil(*there(queue, *values())))


def test_outputs_lie_apart_in_one_context(kernel, queue):
    a, b = there(queue, *values())
    whole = array.zeros(queue, 4096, "f4")
    inside, out = whole[: a.size].reshape(a.shape), whole[: 37 * 45].reshape((37, 45))
    with pytest.raises(ArgumentError, match="out=C overlaps another array"):
        kernel(inside, b, out=out)
    foreign = cl.CommandQueue(cl.Context([queue.device]))
    with pytest.raises(ArgumentError, match="is of another context than the queue"):
        kernel(a, b, stream=foreign)
    for stream in (7, "queue"):
        with pytest.raises(ArgumentError, match=r"stream is .*expected a pyopencl.CommandQueue"):
            kernel(a, b, stream=stream)
    mixed = cl.CommandQueue(queue.context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    if mixed.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        with pytest.raises(ArgumentError, match="runs out of order"):
            kernel(a, b, stream=mixed)


def test_a_queue_of_a_device_that_the_kernel_is_not_for_is_refused(queue):
    kernel = rg.build(rg.ops.relu(rg.tensor("x", (8,))), "mi210", profile=False, cache=False)
    with pytest.raises(DeviceError, match=r"on which kernels for mi210 do not run; .*device='opencl:\d:0'"):
        kernel(array.zeros(queue, 8, "f4"))


def test_kernels_of_the_hosts_cpu_take_no_device_arrays(queue):
    kernel = rg.build(rg.ops.relu(rg.tensor("x", (8,))), "cpu", profile=False, cache=False)
    with pytest.raises(ArgumentError, match=r"such as x.get\(\)"):
        kernel(array.zeros(queue, 8, "f4"))


def test_an_explanation_says_that_it_runs_elsewhere_than_its_spec_means(kernel):
    assert "made for mi50 with that spec's limits" in kernel.explain(as_dict=True)["presence"]


def test_tensors_without_elements_are_arguments_like_others(queue):
    none, some = rg.tensor("E", (0, 3)), rg.tensor("G", (2, 3))
    for outputs in ([rg.ops.relu(none), rg.ops.concat([none, some])], [rg.ops.relu(none), rg.ops.add(none, rg.ops.sum(some, 0))]):
        kernel = rg.build(outputs, on_pocl(), profile=False, cache=False)
        given = [np.ones(b.shape, "f4") for b in kernel.program.inputs]
        for ours, theirs in zip(kernel(*given), kernel(*there(queue, *given)), strict=True):
            np.testing.assert_array_equal(ours, theirs.get() if theirs.size else np.zeros(theirs.shape))


def test_parts_of_one_buffer_are_seen_to_overlap(queue):
    x = rg.tensor("x", (4096,))
    twice = rg.build(rg.ops.mul(x, 2.0), on_pocl(), profile=False, cache=False)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1 << 16)
    of = lambda start: array.Array(queue, (4096,), "f4", data=whole.get_sub_region(start, 1 << 14))
    with pytest.raises(ArgumentError, match="overlaps another array"):
        twice(of(0), out=of(0))
    with pytest.raises(ArgumentError, match="overlaps another array"):
        twice(of(8192), out=array.Array(queue, (4096,), "f4", data=whole))
    begin, end = of(0), of(1 << 15)
    begin.fill(3)
    assert np.array_equal(twice(begin, out=end).get(), np.full(4096, 6, "f4"))


def test_a_part_of_a_part_or_of_a_pool_is_used_where_it_lies(queue):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (512,)), 2.0), on_pocl(), profile=False, cache=False)
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 1 << 16)
    host = np.arange(4096, dtype="f4")
    part = array.Array(queue, (4096,), "f4", data=whole.get_sub_region(1 << 14, 1 << 14))
    pooled = array.zeros(queue, (4096,), "f4", allocator=tools.MemoryPool(tools.ImmediateAllocator(queue)))
    for one in (part, pooled):
        one.set(host)
        assert np.array_equal(twice(one[1024:1536]).get(), 2 * host[1024:1536])


def test_an_array_that_ends_behind_its_buffer_is_refused(queue):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (4096,)), 2.0), on_pocl(), profile=False, cache=False)
    short = array.Array(queue, (4096,), "f4", data=cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 256))
    with pytest.raises(ArgumentError, match="x takes bytes 0 to 16384 of a buffer of 256"):
        twice(short)
    with pytest.raises(ArgumentError, match="out=out takes bytes 0 to 16384 of a buffer of 256"):
        twice(array.zeros(queue, (4096,), "f4"), out=short)


@pytest.fixture
def gate(queue):
    """What the queue waits for until it is set.  PoCL's driver without threads of its own (3.0) waits for ever then."""
    if in_calling_thread(queue.device):
        pytest.skip("the driver has no threads of its own")
    found = cl.UserEvent(queue.context)
    cl.enqueue_barrier(queue, wait_for=[found])
    return found


def shared_values(queue, value):
    """A new array in shared virtual memory."""
    found = cl.csvm_empty(queue.context, (1 << 20,), "f4")
    found[...] = value
    return found


def test_shared_memory_that_is_dropped_is_kept_until_what_reads_it_has_run(queue, gate):
    """OpenCL retains buffers of what is enqueued, and no shared memory."""
    twice = rg.build(rg.ops.mul(rg.tensor("x", (1 << 20,)), 2.0), on_pocl(), profile=False, cache=False)
    outs, kept = [shared_values(queue, 0) for _ in range(3)], []
    for number, out in enumerate(outs):
        memory = shared_values(queue, number + 1)
        kept.append(weakref.ref(memory.base))
        twice(cl.SVM(memory), out=cl.SVM(out), stream=queue)
        del memory
    assert all(one() is not None for one in kept)
    others = [shared_values(queue, 7) for _ in range(3)]
    gate.set_status(cl.command_execution_status.COMPLETE)
    queue.finish()
    assert [float(out[-1]) for out in outs] == [2.0, 4.0, 6.0]
    assert [float(one.max()) for one in others] == [7.0, 7.0, 7.0]
    twice(cl.SVM(outs[0]), out=cl.SVM(outs[1]), stream=queue)
    assert all(one() is None for one in kept)
    queue.finish()


def test_shared_memory_outlives_the_kernel_and_the_thread_whose_launches_read_it(queue, gate):
    out, kept = shared_values(queue, 0), []

    def call():
        twice = rg.build(rg.ops.mul(rg.tensor("x", (1 << 20,)), 2.0), on_pocl(), profile=False, cache=False)
        memory = shared_values(queue, 3)
        kept.append(weakref.ref(memory.base))
        twice(cl.SVM(memory), out=cl.SVM(out), stream=queue)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    gc.collect()
    assert kept[0]() is not None
    other = shared_values(queue, 7)
    gate.set_status(cl.command_execution_status.COMPLETE)
    queue.finish()
    assert float(out[-1]) == 6.0 and float(other.max()) == 7.0


def test_shared_memory_goes_with_the_last_who_has_it(queue):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (1 << 20,)), 2.0), on_pocl(), profile=False, cache=False)
    memory, out = shared_values(queue, 1), shared_values(queue, 0)
    for other in (queue, cl.CommandQueue(queue.context)):
        twice(cl.SVM(memory[:]), out=cl.SVM(out), stream=other)
        other.finish()
    kept = weakref.ref(memory.base)
    del memory
    gc.collect()
    assert kept() is None


def test_a_kernel_keeps_no_array_of_its_last_call(kernel, queue):
    weak = type("WeakBuffer", (cl.Buffer,), {})  # the class itself takes no weak references
    a, b = values()
    buffers = [weak(queue.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=one) for one in (a, b)]
    out = kernel(*(array.Array(queue, one.shape, "f4", data=data) for one, data in zip((a, b), buffers, strict=True)))
    seen = [weakref.ref(one) for one in buffers]
    del buffers
    gc.collect()
    assert np.array_equal(out.get(), a @ b) and [one() for one in seen] == [None, None]


def test_memory_of_the_hosts_behind_a_buffer_is_kept_until_what_reads_it_has_run(queue, gate):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (1 << 20,)), 2.0), on_pocl(), profile=False, cache=False)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
    host = np.full(1 << 20, 3, "f4")
    seen = weakref.ref(host)
    given = array.Array(queue, host.shape, "f4", data=cl.Buffer(queue.context, flags, hostbuf=host))
    out = twice(given, stream=queue)
    del host, given
    gc.collect()
    assert seen() is not None
    gate.set_status(cl.command_execution_status.COMPLETE)
    queue.finish()
    assert float(out.get().min()) == 6.0
    twice(array.Array(queue, (1 << 20,), "f4", data=cl.Buffer(queue.context, flags, hostbuf=np.zeros(1 << 20, "f4"))))
    gc.collect()
    assert seen() is None
    queue.finish()


def test_memory_of_the_hosts_that_is_dropped_is_waited_for(queue):
    if not queue.device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM and queue.device.platform.name != POCL:
        pytest.skip("the device does not share the host's memory")
    twice = rg.build(rg.ops.mul(rg.tensor("x", (1 << 20,)), 2.0), on_pocl(), profile=False, cache=False)
    out = shared_values(queue, 0)
    for number in range(20):
        twice(cl.SVM(np.full(1 << 20, number, "f4")), out=cl.SVM(out), stream=queue)
        other = np.full(1 << 20, -1, "f4")
        queue.finish()
        assert float(out.min()) == 2.0*number and float(other.max()) == -1.0


def test_queues_that_are_used_no_longer_are_let_go(queue):
    twice = rg.build(rg.ops.mul(rg.tensor("x", (64,)), 2.0), on_pocl(), profile=False, cache=False)
    weak = type("WeakQueue", (cl.CommandQueue,), {})  # the class itself takes no weak references
    host, seen = np.arange(64, dtype="f4"), []
    for _ in range(MOST_LANES + 4):
        context = cl.Context(queue.context.devices)
        other = weak(context)
        assert np.array_equal(twice(array.to_device(other, host)).get(), 2 * host)
        seen.append(weakref.ref(other))
    del other, context
    gc.collect()
    assert sum(one() is not None for one in seen) == MOST_LANES
