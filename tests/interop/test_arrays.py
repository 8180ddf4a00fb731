"""Host arrays of any library go in without a copy; results come back in kind."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DtypeError
from tests.interop.exporter import Exporter, Interface


@pytest.fixture(scope="module")
def double():
    """``kernel(X)`` for 20 x 30 float32."""
    x = rg.tensor("X", (20, 30))
    return rg.build(rg.compute((20, 30), lambda i, j: x[i, j] * 2.0), "cpu", profile=False)


@pytest.fixture
def x():
    return np.random.default_rng(0).random((20, 30), dtype="float32")


def test_memory_mapped_arrays_go_in_and_out(double, x, tmp_path):
    mapped = np.memmap(tmp_path / "x", "float32", "w+", shape=x.shape)
    mapped[...] = x
    out = np.memmap(tmp_path / "y", "float32", "w+", shape=x.shape)
    assert double(mapped, out=out) is out
    assert (np.asarray(out) == x * 2).all()


def test_masked_arrays_are_refused_for_their_mask(double, x):
    masked = np.ma.masked_less(x, 0.5)
    with pytest.raises(ArgumentError, match=r"X is a masked array.*filled"):
        double(masked)
    with pytest.raises(ArgumentError, match=r"out=.* is a masked array"):
        double(x, out=masked)


class _Broken(Exporter):
    def __dlpack__(self, **settings):
        raise KeyError("lost")


@pytest.mark.parametrize(
    ("exporter", "device", "reason"),
    [(Exporter, 5, "not iterable"), (Exporter, ("cpu", "0"), "invalid literal for int"), (_Broken, (1, 0), "lost")],
)
def test_whatever_an_exporter_raises_is_told_as_its_fault(double, x, exporter, device, reason):
    with pytest.raises(ArgumentError, match=f"X cannot be read through DLPack: .*{reason}"):
        double(exporter(x, device))


def test_arrays_of_an_unknown_library_go_in_without_a_copy(double, x):
    assert (double(Exporter(x)) == x * 2).all()
    assert (double(Interface(x)) == x * 2).all()


def test_an_out_of_an_unknown_library_is_written_in_place_and_returned(double, x):
    out = Interface(np.empty_like(x))
    assert double(x, out=out) is out
    assert (out.array == x * 2).all()


def test_memory_of_another_device_is_refused_by_name(double, x):
    with pytest.raises(ArgumentError, match="X is on device cuda:1"):
        double(Exporter(x, (2, 1)))


def test_a_strided_array_is_copied(double, x):
    wide = np.zeros((20, 60), "float32")
    wide[:, ::2] = x
    assert (double(wide[:, ::2]) == x * 2).all()


def test_an_output_between_the_elements_of_a_strided_input_overlaps_nothing(double, x):
    both = np.zeros((2, 20, 30), "float32")
    both[0] = x
    assert (double(both[0], out=both[1]) == x * 2).all()


def test_an_output_over_a_strided_input_is_refused(double, x):
    wide = np.zeros((40, 30), "float32")
    with pytest.raises(ArgumentError, match="overlaps"):
        double(wide[::2], out=wide[:20])


def test_foreign_byte_order_is_refused_with_advice(double, x):
    with pytest.raises(DtypeError, match=">f4"):
        double(x.astype(">f4"))
    with pytest.raises(DtypeError, match="byte order"):
        rg.tensor("X", (3,), ">f4")


def test_calls_without_torch_do_not_import_it():
    code = (
        "import sys, numpy as np, rollergen as rg; x = rg.tensor('X', (4,));"
        "k = rg.build(rg.compute((4,), lambda i: x[i] + 1.0), 'cpu', profile=False, cache=False);"
        "k(np.zeros(4, 'float32')); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_repacking_from_another_thread_loses_no_change():
    w = rg.tensor("W", (64, 64), constant=True)
    kernel = rg.build(rg.ops.matmul(rg.tensor("A", (64, 64)), w), "cpu", profile=False)
    a, weights = np.eye(64, dtype="float32"), np.zeros((64, 64), "float32")
    wrong = []

    def call():
        for _ in range(30):
            seen = kernel(a, weights)
            if not (seen == seen[0, 0]).all():
                wrong.append(seen)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        kernel.repack()
    for thread in threads:
        thread.join()
    weights[...] = 7
    kernel.repack()
    assert not wrong and (kernel(a, weights) == 7).all()


@pytest.mark.parametrize("rounds", ["3", 0, -1, True, 2.0])
def test_rounds_that_are_no_count_are_refused(double, x, rounds):
    with pytest.raises(ArgumentError, match="rounds is"):
        double.benchmark(x, rounds=rounds)


def test_an_array_that_is_written_is_not_to_be_converted():
    """Its conversion is a copy, which nobody would read."""
    kernel = rg.build(rg.ops.add(rg.tensor("x", (3,)), 1.0), "cpu", profile=False)
    with pytest.raises(DtypeError, match=r"out has dtype float64; expected float32: kernel\(x"):
        kernel(np.ones(3, np.float32), out=np.empty(3))
