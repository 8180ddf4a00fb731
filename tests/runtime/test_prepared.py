"""Calls after the first are prepared: quick with any arrays that fit, and left to the general path with others."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DtypeError, ShapeError
from rollergen.hal.runtime import runtime_for
from rollergen.runtime.packed import NEVER
from rollergen.targets import resolve
from tests.interop.exporter import Exporter
from tests.threads import in_threads

M, N = 5, 48


@pytest.fixture(scope="module", params=["machine code", "Python"])
def kernel(request):
    """Arrays of its calls are looked at by machine code, as far as that is here, and by Python."""
    pool = runtime_for(resolve("cpu")).pool
    calls = pool._calls if pool else None
    if request.param == "machine code" and calls is None:
        pytest.skip("no machine code looks at arrays on this machine")
    if request.param == "Python" and pool:
        pool._calls = None
    a, b = rg.tensor("A", (M, N)), rg.tensor("B", (M, N))
    yield rg.build(rg.ops.add(a, b, name="C"), "cpu", top_k=1, profile=False, cache=False)
    if pool:
        pool._calls = calls


def test_machine_code_looks_at_arrays_where_it_is(kernel, called, request):
    made = kernel._local.mine.call.__globals__.get("made")
    assert (made is not None) == (request.node.callspec.params["kernel"] == "machine code")


@pytest.fixture
def called(kernel, monkeypatch):
    """Arrays with which the kernel was called, and what the general path is given from then on."""
    rng = np.random.default_rng(0)
    a, b, out = (rng.random((M, N), dtype=np.float32) for _ in range(3))
    kernel(a, b, out=out)
    checked = []
    arrange = type(kernel.signature).arrange
    monkeypatch.setattr(
        type(kernel.signature), "arrange", lambda self, *given: checked.append(given) or arrange(self, *given)
    )
    return a, b, out, checked


def test_the_second_call_with_the_same_arrays_is_prepared(kernel, called):
    a, b, out, checked = called
    a += 1
    assert kernel(a, b, out=out) is out
    assert np.array_equal(out, a + b) and not checked


@pytest.mark.parametrize("which", [0, 1, 2])
def test_another_array_is_used_and_not_the_one_before(kernel, called, which):
    a, b, out, checked = called
    given = [a, b, out]
    given[which] = given[which] + 1
    kernel(given[0], given[1], out=given[2])
    assert np.array_equal(given[2], given[0] + given[1]) and not checked


def test_calls_that_alternate_between_arrays_are_right(kernel, called):
    a, b, out, _ = called
    other = out.copy()
    for _ in range(4):
        kernel(a, b, out=out)
        kernel(b, b, out=other)
        assert np.array_equal(out, a + b) and np.array_equal(other, b + b)


def test_without_out_a_new_array_is_returned(kernel, called):
    a, b, out, checked = called
    out[...] = 0
    assert np.array_equal(kernel(a, b), a + b) and not out.any() and not checked


def test_an_equal_dtype_that_is_another_object_is_prepared(kernel, called):
    a, b, _, checked = called
    other = a.view(np.dtype("float32").newbyteorder("="))
    assert other.dtype is not a.dtype
    assert np.array_equal(kernel(other, b), a + b) and not checked


@pytest.mark.parametrize(
    "change", [lambda a: a.T.copy().T, lambda a: np.zeros(a.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(a.shape)]
)
def test_arrays_of_another_order_or_misaligned_are_not_read_as_they_lie(kernel, called, change):
    a, b, out, checked = called
    given = change(a)
    given[...] = a
    assert np.array_equal(kernel(given, b, out=out), a + b) and len(checked) == 1
    with pytest.raises(ArgumentError, match="strided or misaligned"):
        kernel(a, b, out=given)


def test_an_array_given_another_shape_in_place_is_refused(kernel, called):
    a, b, out, _ = called
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        a.shape = (M * N,)
    with pytest.raises(ShapeError):
        kernel(a, b, out=out)


def test_an_array_given_another_dtype_in_place_is_refused(kernel, called):
    a, b, out, _ = called
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        a.dtype = np.int32
    with pytest.raises(DtypeError):
        kernel(a, b, out=out)


def test_an_array_whose_memory_moved_is_read_where_it_lies(kernel, called):
    a, b, out, checked = called
    state = (b + 3).__reduce__()[2]
    a.__setstate__(np.ones(M * N * 4096, np.float32).__reduce__()[2])  # unpickling replaces an object's contents
    blockers = [np.empty((M, N), np.float32) for _ in range(64)]  # take the memory that it had
    a.__setstate__(state)
    kernel(a, b, out=out)
    assert np.array_equal(out, b + 3 + b) and len(blockers) == 64 and not checked


@pytest.mark.parametrize("kind", ["strided", "read-only", "of another library"])
def test_what_cannot_be_used_as_it_is_goes_the_general_way_and_is_right(kernel, called, kind):
    a, b, _, checked = called
    if kind == "strided":
        given = np.repeat(a, 2, axis=1)[:, ::2]
    elif kind == "read-only":
        given = a.copy()
        given.flags.writeable = False
    else:
        given = Exporter(a)
    assert np.array_equal(np.asarray(kernel(given, b)), a + b) and len(checked) == 1


def test_an_output_that_shares_a_byte_with_an_input_is_refused(kernel, called):
    memory = np.zeros(2 * M * N, np.float32)
    a, out = memory[: M * N].reshape(M, N), memory[M * N - 1 : -1].reshape(M, N)
    with pytest.raises(ArgumentError, match="overlaps"):
        kernel(a, called[1], out=out)
    touching = memory[M * N :].reshape(M, N)
    assert kernel(a, called[1], out=touching) is touching


def test_an_output_made_read_only_is_refused(kernel, called):
    a, b, out, _ = called
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(a, b, out=out)


def test_a_wrong_call_is_told_as_ever(kernel, called):
    a, b, out, _ = called
    with pytest.raises(ArgumentError, match="1 arrays given"):
        kernel(a, out=out)
    with pytest.raises(ArgumentError, match="overlaps"):
        kernel(a, b, out=a)


def test_prepared_calls_keep_no_array_alive(kernel):
    a, b, out = (np.ones((M, N), np.float32) for _ in range(3))
    for _ in range(4):
        kernel(a, b, out=out)
    watched = [weakref.ref(a), weakref.ref(b), weakref.ref(out)]
    del a, b, out
    gc.collect()
    assert [ref() for ref in watched] == [None, None, None]


def test_nothing_is_run_in_the_place_of_arrays_that_are_gone(kernel):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        a, b, out = (rng.random((M, N), dtype=np.float32) for _ in range(3))
        for _ in range(4):
            kernel(a, b, out=out)
            assert np.array_equal(out, a + b)
        del a, b, out


def test_every_thread_prepares_its_own_calls(kernel):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        a, b, out = (rng.random((M, N), dtype=np.float32) for _ in range(3))
        for _ in range(50):
            a += 1
            kernel(a, b, out=out)
            if not np.array_equal(out, a + b):
                wrong.append(seed)

    in_threads(work)
    assert not wrong


class TestSeveralOutputs:
    """A tuple of results, the caller's or new."""

    @pytest.fixture
    def twice(self):
        x = rg.tensor("X", (M, N))
        return rg.build([rg.ops.relu(x, name="P"), rg.ops.neg(x, name="Q")], "cpu", top_k=1, profile=False, cache=False)

    def test_new_results_and_the_callers_are_both_prepared(self, twice, monkeypatch):
        x = np.random.default_rng(1).standard_normal((M, N), dtype=np.float32)
        twice(x)
        monkeypatch.setattr(type(twice.signature), "arrange", None)
        p, q = twice(x)
        assert np.array_equal(p, np.maximum(x, 0)) and np.array_equal(q, -x)
        out = np.empty_like(x), np.empty_like(x)
        assert all(one is own for one, own in zip(twice(x, out=out), out, strict=True))
        assert np.array_equal(out[0], p) and np.array_equal(out[1], q)

    def test_outputs_that_overlap_each_other_or_lack_one_are_refused(self, twice):
        x, out = np.ones((M, N), np.float32), np.ones((M, N), np.float32)
        twice(x)
        with pytest.raises(ArgumentError, match="out=Q overlaps"):
            twice(x, out=(out, out))
        with pytest.raises(ArgumentError, match="out has 1 arrays; expected 2"):
            twice(x, out=(out,))
        with pytest.raises(ArgumentError, match="out has 1 arrays; expected 2"):
            twice(x, out=out)


def test_a_kernel_without_inputs_is_prepared():
    kernel = rg.build(rg.compute((N,), lambda i: rg.cast(i, "float32")), "cpu", top_k=1, profile=False, cache=False)
    for _ in range(2):
        assert np.array_equal(kernel(), np.arange(N))


def test_constants_that_nothing_packs_are_not_compared_with_earlier_ones():
    image, weight = rg.tensor("X", (1, 16, 7, 7)), rg.tensor("W", (16, 1, 3, 3), constant=True)
    kernel = rg.build(rg.ops.conv2d(image, weight, padding=1, groups=16), "cpu", top_k=1, profile=False, cache=False)
    assert not any(launch.once for launch in kernel.launches)
    x, w = np.ones((1, 16, 7, 7), np.float32), np.ones((16, 1, 3, 3), np.float32)
    once = kernel(x, w)
    twice = kernel._local.mine.call((x, 2 * w), None, NEVER, 0)
    assert np.array_equal(twice, 2 * once)


class TestConstants:
    """A constant tensor's array is packed once, and anew where the caller says so."""

    @pytest.fixture
    def linear(self):
        weights = rg.tensor("W", (64, 96), constant=True)
        x = rg.tensor("X", (32, 64))
        return rg.build(rg.ops.matmul(x, weights, name="Y"), "cpu", top_k=1, profile=False, cache=False)

    def arrays(self):
        rng = np.random.default_rng(3)
        return (
            rng.integers(-3, 4, (32, 64)).astype(np.float32),
            rng.integers(-3, 4, (64, 96)).astype(np.float32),
            np.empty((32, 96), np.float32),
        )

    def test_constants_are_packed_once_for_prepared_calls(self, linear, monkeypatch):
        x, w, out = self.arrays()
        linear(x, w, out=out)
        session = type(linear._local.mine.session)
        packed = []
        monkeypatch.setattr(session, "once", lambda self: packed.append(1))
        other = x + 1
        linear(other, w, out=out)
        assert np.array_equal(out, other @ w) and not packed

    def test_a_weight_array_that_moved_is_packed_anew(self, linear):
        x, w, out = self.arrays()
        linear(x, w, out=out)
        w.__setstate__((w + 1).__reduce__()[2])
        linear(x, w, out=out)
        assert np.array_equal(out, x @ w)

    def test_weights_given_other_strides_in_place_are_packed_anew(self, linear):
        x, _, out = self.arrays()
        w = np.random.default_rng(5).integers(-3, 4, (96, 64)).astype(np.float32).T
        linear(x, w, out=out)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            w.strides = (96 * 4, 4)
        linear(x, w, out=out)
        assert np.array_equal(out, x @ w)

    def test_other_weights_at_the_place_of_old_ones_are_packed_anew(self, linear):
        x, w, out = self.arrays()
        memory = np.empty((64, 96), np.float32)
        for add in range(3):
            memory[...] = w + add
            weights = memory[:]
            linear(x, weights, out=out)
            assert np.array_equal(out, x @ memory)
            del weights

    def test_repack_is_heard_between_prepared_calls(self, linear):
        x, w, out = self.arrays()
        for _ in range(3):
            linear(x, w, out=out)
        w += 1
        linear.repack()
        linear(x, w, out=out)
        assert np.array_equal(out, x @ w)

    def test_a_call_with_other_weights_between_does_not_leave_them_packed(self, linear):
        x, w, out = self.arrays()
        other = w + 1
        for _ in range(3):
            linear(x, w, out=out)
        linear(x, other, out=np.empty_like(out))
        linear(x, w, out=out)
        assert np.array_equal(out, x @ w)


@pytest.fixture
def general(monkeypatch):
    """What the general path is given."""
    found = []
    called = rg.Kernel._called
    monkeypatch.setattr(rg.Kernel, "_called", lambda self, *given: found.append(given) or called(self, *given))
    return found


@pytest.fixture(scope="module")
def append():
    cache, block = rg.tensor("cache", (2, 7, 8)), rg.tensor("block", (2, 1, 8))
    return rg.build(rg.put(cache, block, rg.scalar("at", "int32", 0, 6), axis=1), "cpu", profile=False, cache=False)


@pytest.mark.parametrize("kind", [np.asarray, "torch"])
def test_updates_at_an_integer_of_the_call_are_prepared(append, general, kind):
    made = pytest.importorskip("torch").from_numpy if kind == "torch" else kind
    cache, block = made(np.zeros((2, 7, 8), np.float32)), made(np.ones((2, 1, 8), np.float32))
    append(cache, block, 0)
    general.clear()
    for at in (3, np.int64(4), np.array(5, np.int32)):
        assert append(cache, block, at) is cache
    assert not general
    assert np.asarray(cache).sum(axis=(0, 2)).tolist() == [16, 0, 0, 16, 16, 16, 0]
    for wrong in (7, -1, np.int16(9), np.array(7, np.int32)):
        with pytest.raises(ArgumentError, match="expected 0 to 6"):
            append(cache, block, wrong)
    with pytest.raises(ArgumentError, match="out is given"):
        append(cache, block, 3, out=cache)
    with pytest.raises((ArgumentError, DtypeError, ShapeError)):
        append(cache, block, 3.0)
    assert np.asarray(cache).sum() == 4 * 16


def test_updates_by_name_are_prepared(append, general):
    cache, block = np.zeros((2, 7, 8), np.float32), np.ones((2, 1, 8), np.float32)
    append(cache, block, 0)
    general.clear()
    assert append(at=2, block=block, cache=cache) is cache and append(cache, at=4, block=block) is cache
    assert not general
    assert cache.sum(axis=(0, 2)).tolist() == [16, 0, 16, 0, 16, 0, 0]


def test_an_update_never_shares_memory_with_what_it_reads(append, general):
    memory = np.zeros(2 * 7 * 8, np.float32)
    cache = memory.reshape(2, 7, 8)
    append(cache, np.ones((2, 1, 8), np.float32), 0)
    with pytest.raises(ArgumentError, match="overlap"):
        append(cache, memory[8:24].reshape(2, 1, 8), 0)


@pytest.mark.parametrize("count", [3, 40])
def test_ids_are_looked_at_by_prepared_calls(general, count):
    table = np.arange(50, dtype=np.float32).reshape(10, 5)
    ids = np.arange(count) % 10
    x, i = rg.tensor("table", table.shape), rg.tensor("ids", ids.shape, "int64")
    kernel = rg.build(rg.take(x, i, 0), "cpu", profile=False, cache=False, inputs=[x, i])
    kernel(table, ids)
    general.clear()
    for some in (ids, -1 - ids):
        np.testing.assert_array_equal(kernel(table, some), table[some])
    assert not general
    for wrong in (10, -11, 2**40):
        with pytest.raises(ArgumentError, match=f"ids holds {wrong} at"):
            kernel(table, np.where(ids == 2, wrong, ids))
    assert not general
