"""Kernels called without PoCL's queue: the same code and results, and the queue wherever that cannot be."""

import gc
import multiprocessing
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import rollergen as rg
from rollergen.hal.runtimes import opencl_runtime, pocl_work_groups
from rollergen.hal.runtimes.opencl_runtime import POCL, OpenCLRuntime
from rollergen.hal.runtimes.pocl_work_groups import callable_alone, object_of, own_names
from tests.threads import in_threads

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def pocl():
    if OpenCLRuntime().device.platform.name != POCL:
        pytest.skip("the OpenCL of this machine is not PoCL")


def tensor(name, *shape):
    return rg.tensor(name, shape)


EXPRESSIONS = {
    "abs": rg.ops.abs(tensor("X", 16)),
    "product": rg.ops.matmul(tensor("A", 16, 16), tensor("B", 16, 16)),
    "rows": rg.ops.softmax(tensor("X", 4, 33)),
    "two launches": rg.ops.matmul(rg.ops.softmax(tensor("X", 8, 8)), tensor("B", 8, 8)),
}


def built(expression):
    return rg.build(expression, "cpu", top_k=1, profile=False, cache=False)


def inputs(kernel):
    return [RNG.random(one.shape, dtype=np.float32) for one in kernel.signature.inputs]


def is_called(kernel):
    return kernel._local.mine.launches.by_address


def test_an_object_that_another_process_replaced_is_found():
    """Two that begin with an empty cache compile the same kernels at the same time."""
    kernel = built(rg.ops.neg(tensor("X", 16)))
    kernel(*inputs(kernel))
    (name,) = own_names(kernel.source).values()
    path = object_of(name)
    os.replace(shutil.copy(path, f"{path}.other"), path)
    assert object_of(name) == path
    again = built(rg.ops.neg(tensor("X", 16)))
    again(*inputs(again))
    assert is_called(again)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_called_and_queued_kernels_give_the_same_bits(expression, monkeypatch):
    kernel = built(expression)
    arrays = inputs(kernel)
    first = kernel(*arrays)  # through the queue: the object is made by it
    assert is_called(kernel)
    assert np.array_equal(kernel(*arrays).view(np.int32), first.view(np.int32))
    others = [2 * array for array in arrays]
    again = kernel(*others)
    monkeypatch.setattr(opencl_runtime, "object_of", lambda name: None)
    queued = built(expression)
    queued(*others)
    assert not is_called(queued)
    assert np.array_equal(queued(*others).view(np.int32), again.view(np.int32))


def test_several_threads_call_one_kernel():
    kernel = built(EXPRESSIONS["product"])

    def work(number):
        a, b = (np.full((16, 16), number + i, np.float32) for i in range(2))
        return all(np.array_equal(kernel(a, b), a @ b) for _ in range(200)) and is_called(kernel)

    assert all(in_threads(work))


def test_an_object_is_looked_for_once_however_many_call_its_kernel(monkeypatch):
    asked = []
    monkeypatch.setattr(opencl_runtime, "object_of", lambda name: asked.append(name) or object_of(name))
    kernel = built(rg.ops.neg(tensor("X", 19)))
    arrays = inputs(kernel)
    kernel(*arrays)
    before = len(asked)
    assert before and all(in_threads(lambda _: kernel(*arrays) is not None and is_called(kernel)))
    assert len(asked) == before


def _in_a_child(kernel, arrays, wanted, answers):
    answers.put(np.array_equal(kernel(*arrays), wanted))


def test_a_forked_process_goes_on_calling():
    kernel = built(EXPRESSIONS["abs"])
    arrays = inputs(kernel)
    wanted = [kernel(*arrays) for _ in range(2)][-1]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(kernel, arrays, wanted, answers))
    child.start()
    assert answers.get(timeout=60)
    child.join()


def test_objects_are_closed_with_their_kernels(monkeypatch):
    closed = []
    monkeypatch.setattr(pocl_work_groups, "dlclose", lambda handle: closed.append(handle))
    kernel = built(rg.ops.neg(tensor("X", 23)))
    kernel(*inputs(kernel))
    assert is_called(kernel) and not closed
    del kernel
    gc.collect()
    assert len(closed) == 1


def test_every_page_of_an_object_is_in_memory_before_a_mask_leaves_its_constants_out():
    kernel = built(rg.ops.amax(tensor("X", 64, 32), 1))
    kernel(*inputs(kernel))
    if not is_called(kernel):
        pytest.skip("launches go through the queue here")
    path = re.escape(object_of(next(iter(own_names(kernel.source).values()))))
    of_object = rf"^\S+ r\S*p .*{path}\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB"
    sizes = re.findall(of_object, Path("/proc/self/smaps").read_text(), re.MULTILINE)
    assert sizes and all(size == resident for size, resident in sizes)


def test_sources_that_need_more_than_arguments_are_queued():
    plain = "kernel void f(global float *x) { x[get_group_id(0)] = 1; } // get_local_id, local"
    assert callable_alone(plain)
    for more in ("get_local_id(0)", "get_num_groups(0)", "get_global_id(0)"):
        assert not callable_alone(plain.replace("get_group_id(0)", more))
    assert not callable_alone("kernel void f(global float *x) { local float y[4]; }")


def test_each_source_has_its_own_names():
    one = own_names("kernel __attribute__((x(1)))\nvoid f(global float *x) {}\n\nkernel\nvoid g(int y) {}")
    other = own_names("kernel void f(global float *x) { }")
    assert list(one) == ["f", "g"] and list(other) == ["f"] and one["f"] != other["f"]
    assert object_of(one["f"]) is None
