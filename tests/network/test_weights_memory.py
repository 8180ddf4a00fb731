"""Weights lie side by side in blocks that the system can back by large pages, and never on one another."""

import random
import re
import weakref
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest

from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.arrays import ALIGNMENT_BYTES
from rollergen.network import weights_memory
from rollergen.network.weights_memory import WeightsMemory

DTYPES = ("float32", "uint8", "float64", "bfloat16", "bool")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(weights_memory, "BLOCK_BYTES", 4096)


def test_arrays_are_aligned_and_keep_what_is_written_to_them():
    random.seed(0)
    memory, made = WeightsMemory(), []
    for number in range(200):
        shape = tuple(random.randrange(0, 20) for _ in range(random.randrange(3)))
        dtype = numpy_dtype(random.choice(DTYPES))
        made.append((memory.empty(shape, dtype), shape, dtype, number % 2))
        made[-1][0][...] = number % 2
    for array, shape, dtype, value in made:
        assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
        assert array.ctypes.data % ALIGNMENT_BYTES == 0 or not array.size
        assert (array == np.asarray(value, dtype)).all()


def test_neighbours_share_a_block_and_large_arrays_have_their_own():
    memory, byte = WeightsMemory(), np.dtype(np.uint8)
    one, large, other = (memory.empty((size,), byte) for size in (100, 5000, 100))
    assert other.ctypes.data - one.ctypes.data == 128
    assert _whole(large) is not _whole(one) is _whole(other)


def test_arrays_of_most_of_a_block_are_laid_in_blocks():
    memory, byte = WeightsMemory(), np.dtype(np.uint8)
    arrays = [memory.empty((size,), byte) for size in (2000, 2000, 4096)]
    assert _whole(arrays[0]) is _whole(arrays[1]) is not _whole(arrays[2])
    assert all(_whole(one).size >= weights_memory.BLOCK_BYTES for one in arrays)


def test_a_block_is_freed_with_the_last_of_its_arrays():
    memory, byte = WeightsMemory(), np.dtype(np.uint8)
    arrays = [memory.empty((1000,), byte) for _ in range(5)]  # of which four fill the first block
    alive = weakref.ref(_whole(arrays[0]))
    assert alive() is _whole(arrays[3]) is not _whole(arrays[4])
    del arrays[1:]
    assert alive() is not None
    arrays.clear()
    assert alive() is None


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="needs Linux's large pages")
@pytest.mark.parametrize("size", (100, 1 << 23))
def test_memory_is_the_models_alone_on_pages_that_may_be_large(size):
    """malloc would give what the process has freed, on small pages."""
    array = WeightsMemory().empty((size,), np.dtype(np.uint8))
    _whole(array)[...] = 1
    flags, private = _mapping(array.ctypes.data)
    held = _whole(array).base
    assert "hg" in flags and private and isinstance(getattr(held, "obj", held), mmap)  # NumPy may hold a memoryview


def test_a_process_without_memory_is_told_what_asked_for_it(monkeypatch):
    monkeypatch.setattr(weights_memory.mmap, "mmap", _refusing)
    with pytest.raises(MemoryError, match="9000 bytes of a model's weights or values: none left"):
        WeightsMemory().empty((9000,), np.dtype(np.uint8))


def _refusing(*_):
    raise OSError(12, "none left")


def _mapping(address):
    """(flags, whether no other process writes it) of the mapping that an address lies in."""
    private = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match("([0-9a-f]+)-([0-9a-f]+) ...(.)", line):
            begin, end = (int(bound, 16) for bound in bounds.groups()[:2])
            inside, private = begin <= address < end, bounds[3] == "p"
        elif line.startswith("VmFlags:") and inside:
            return line.split()[1:], private
    raise AssertionError(f"no mapping holds {address:#x}")


def _whole(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
