"""Functions of arrays in machine code: they run a job with arrays that fit, and with no others."""

import ctypes
import gc
import random
import sys
import weakref

import numpy as np
import pytest

from rollergen.hal.runtimes import pocl_calls
from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime
from rollergen.hal.runtimes.pocl_calls import Wanted, layout_known
from tests.threads import in_threads

pytest.importorskip("pyopencl", reason="the extra [cpu] is not installed")
TEXT = """
kernel void where(global int *a, global int *b, global long *places)
{
    places[get_group_id(0)] = (long)a + 3*(long)b;
}
"""
GROUPS = 4


@pytest.fixture(scope="module")
def runtime():
    runtime = OpenCLRuntime()
    if runtime.pool is None or runtime.pool._calls is None:
        pytest.skip("no functions of arrays on this machine")
    return runtime


@pytest.fixture(scope="module")
def module(runtime):
    module = runtime.compile(TEXT, alone=(True,))
    kernel = module.kernel("where")
    runtime.set_arguments(kernel, [runtime.wrap(np.zeros(GROUPS, np.int64)) for _ in range(3)])
    runtime.launch(kernel, 1, 1, alone=True)
    runtime.finish()
    return module


def function(runtime, module, shape=(3, 5), dtype="int32", other=("float16", (2,))):
    """A function of (a, b, places), and what tells whether it has run with these."""
    launch = module.work_groups("where", GROUPS, 3, True)
    wanted = [
        Wanted(shape, np.dtype(dtype), False, [(launch.addresses, 0)]),
        Wanted(other[1], np.dtype(other[0]), False, [(launch.addresses, 1)]),
        Wanted((GROUPS,), np.dtype("int64"), True, [(launch.addresses, 2)]),
    ]
    return runtime.pool.call_with([launch], wanted)


def ran(made, a, b):
    places = np.zeros(GROUPS, np.int64)
    answer = made(a, b, places)
    assert (places == (a.ctypes.data + 3 * b.ctypes.data if answer else 0)).all()
    return answer


def arrays():
    return np.zeros((3, 5), np.int32), np.zeros(2, np.float16)


def test_a_job_runs_with_arrays_that_fit(runtime, module):
    made = function(runtime, module)
    for _ in range(20):
        assert ran(made, *arrays()) is True


UNFIT = {
    "another dtype of the same size": lambda a: a.view(np.float32),
    "unsigned": lambda a: a.view(np.uint32),
    "another byte order": lambda a: a.view(a.dtype.newbyteorder()),
    "another shape": lambda a: a.reshape(5, 3),
    "fewer axes": lambda a: a.reshape(15),
    "more axes": lambda a: a[None],
    "an extent less": lambda a: a[:2],
    "columns first": np.asfortranarray,
    "strided": lambda a: np.zeros((3, 10), np.int32)[:, ::2],
    "misaligned": lambda a: np.zeros(61, np.uint8)[1:].view(np.int32).reshape(3, 5),
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "a subclass": lambda a: a.view(np.recarray),
    "masked": np.ma.masked_array,
    "a number": lambda a: 3,
    "nothing": lambda a: None,
    "a list": lambda a: a.tolist(),
    "its type": type,
    "records": lambda a: np.zeros((3, 5), [("x", "i4")]),
    "objects": lambda a: np.zeros((3, 5), object),
}


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT.keys())
def test_an_array_that_does_not_fit_is_told_and_nothing_runs(runtime, module, change):
    made = function(runtime, module)
    a, b = arrays()
    places = np.zeros(GROUPS, np.int64)
    assert made(change(a), b, places) is False and not places.any()
    assert made(a, b, places) is True and places.all()


def test_another_number_of_arrays_is_told(runtime, module):
    made, (a, b), places = function(runtime, module), arrays(), np.zeros(GROUPS, np.int64)
    for given in ((), (a,), (a, b), (a, b, places, a)):
        assert made(*given) is False
    with pytest.raises(TypeError):
        made(a, b, places=places)
    assert not places.any()


@pytest.mark.parametrize("offset", [-GROUPS, -GROUPS + 1, -1, 0, 1, 7, 8])
def test_what_is_written_shares_no_byte_with_another_array(runtime, module, offset):
    memory = np.zeros(8 + 2 * GROUPS, np.int64)
    made = function(runtime, module, (8,), "int64")
    a, b = memory[GROUPS : GROUPS + 8], arrays()[1]
    places = memory[GROUPS + offset :][:GROUPS]
    assert made(a, b, places) is (offset in (-GROUPS, 8))


def test_inputs_may_share_memory(runtime, module):
    made = function(runtime, module, (4,), "float16", ("float16", (2,)))
    a = np.zeros(4, np.float16)
    assert ran(made, a, a[1:3]) is True


def test_random_shapes_and_dtypes_fit_themselves_alone(runtime, module):
    chance = random.Random(7)
    dtypes = ["float32", "float64", "float16", "int8", "uint8", "int16", "int64", "bool"]
    kinds = [(chance.choice(dtypes), tuple(chance.choices(range(4), k=chance.randrange(5)))) for _ in range(30)]
    for dtype, shape in kinds:
        made = function(runtime, module, shape, dtype)
        for other in kinds:
            assert ran(made, np.zeros(other[1], other[0]), arrays()[1]) is (other == (dtype, shape))


def test_a_function_keeps_no_array_and_leaves_nothing_behind(runtime, module):
    made, (a, b), places = function(runtime, module), arrays(), np.zeros(GROUPS, np.int64)
    counts = [sys.getrefcount(one) for one in (a, b, places)]
    for _ in range(100):
        made(a, b, places)
        made(b, a, places)
    assert counts == [sys.getrefcount(one) for one in (a, b, places)]
    watched = [weakref.ref(one) for one in (a, places)]
    call = weakref.ref(made.__self__)
    del a, b, places, made
    gc.collect()
    assert [one() for one in watched] == [None, None] and call() is None


def test_each_thread_may_have_a_function(runtime, module):
    def work(number):
        made = function(runtime, module)
        return all(ran(made, *arrays()) for _ in range(200))

    assert all(in_threads(work))


def test_there_is_none_where_objects_are_laid_out_otherwise(monkeypatch):
    assert layout_known()
    with monkeypatch.context() as patch:
        patch.setattr(sys.implementation, "name", "another")
        assert not layout_known()
    fields = [(name, kind) for name, kind in pocl_calls._Array._fields_ if name != "base"]
    monkeypatch.setattr(pocl_calls, "_Array", type("_Array", (ctypes.Structure,), {"_fields_": fields}))
    assert not layout_known()
