"""Calls with torch's tensors: their checks and addresses.  Tensors of the CPU stand in for those of a GPU, of which torch
says that they are on GPU -1."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import rollergen as rg
from rollergen import kernel as kernel_module
from rollergen.errors import ArgumentError
from rollergen.runtime import device_arrays
from rollergen.runtime.gpu_calls import arrays_like
from rollergen.runtime.interop import is_torch
from rollergen.runtime.packed import NEVER, Packed
from rollergen.runtime.prepared import prepared_call
from rollergen.runtime.session import PreparedLaunches
from tests.cuda.host import compiler
from tests.cuda.test_cupy import cupy  # noqa: F401 (a fixture)

torch = pytest.importorskip("torch")
CUPY = SimpleNamespace(ndarray=list)


@pytest.fixture
def called(monkeypatch):
    """(call, addresses set, kind) of a product whose second operand is constant."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    weights = rg.tensor("B", (4, 16), constant=True)
    kernel = rg.build(rg.ops.matmul(rg.tensor("A", (8, 4)), weights, name="C"), "v100", profile=False, cache=False)
    kind, stream = arrays_like((torch.empty(8, 4), torch.empty(4, 16)), -1, CUPY)
    assert stream() == 77
    addresses, runs = [0, 0, 0], []
    setters = {name: [(addresses.__setitem__, position)] for position, name in enumerate("ABC")}
    launches = PreparedLaunches(lambda: runs.append(1), setters, packed={"B"})
    return prepared_call(launches, kernel.signature, kind), addresses, runs


@pytest.fixture
def tensors():
    return torch.ones(8, 4), torch.ones(4, 16)


def packed_of(b):
    return Packed.of(0, [b], [SimpleNamespace(__array_interface__={"data": (b.data_ptr(),)}, strides=(4, 16))])


def test_tensors_are_passed_by_their_addresses(called, tensors):
    call, addresses, runs = called
    (a, b), out = tensors, torch.empty(8, 16)
    assert call((a, b), out, packed_of(b), 0) is out and runs == [1]
    assert addresses == [one.data_ptr() for one in (a, b, out)]
    new = call((a, b), None, packed_of(b), 0)
    assert type(new) is torch.Tensor and new.shape == (8, 16) and new.dtype == torch.float32
    assert addresses[2] == new.data_ptr() != out.data_ptr()


def test_constants_that_torch_counts_as_changed_are_packed_anew(called, tensors):
    call, _, runs = called
    a, b = tensors
    packed = packed_of(b)
    assert call((a, b), None, packed, 0) is not None
    b.add_(1)
    assert call((a, b), None, packed, 0) is None and call((a, b.clone()), None, packed, 0) is None
    assert call((a, b), None, packed_of(b), 1) is None and call((a, b), None, NEVER, 0) is None and runs == [1]


@pytest.mark.parametrize(
    "unfit",
    [
        lambda a: a.double(), lambda a: a.t().contiguous(), lambda a: torch.ones(4, 8).t(), lambda a: a.requires_grad_(),
        lambda a: torch.ones(33)[1:].view(8, 4), lambda a: torch.nn.Parameter(a), lambda a: a.numpy(),
        lambda a: torch.zeros(8, 4, dtype=torch.complex64).conj().imag,
    ],
)  # fmt: skip
def test_other_tensors_take_the_general_path(called, tensors, unfit):
    call, _, runs = called
    a, b = tensors
    assert call((unfit(a), b), None, packed_of(b), 0) is None and not runs


def test_an_output_over_an_input_takes_the_general_path(called):
    call, _, _ = called
    whole = torch.ones(8 * 16 + 8 * 4)
    a, out = whole[-32:].view(8, 4), whole[: 8 * 16].view(8, 16)
    b = torch.ones(4, 16)
    assert call((a, b), out, packed_of(b), 0) is out
    assert call((whole[:32].view(8, 4), b), out, packed_of(b), 0) is None


def test_mixed_arrays_and_those_of_other_libraries_are_not_prepared():
    assert arrays_like((), 0, CUPY) is None
    assert arrays_like((torch.empty(1), [1]), 0, CUPY) is None and arrays_like((object(),), 0, CUPY) is None
    assert arrays_like(([1],), 0, SimpleNamespace(ndarray=list, cuda=SimpleNamespace(get_current_stream=None)))[0].array is list


@pytest.fixture
def on_stand_in(monkeypatch, cupy):  # noqa: F811
    """A sum whose tensors of the CPU count as the GPU's, in whose stand-in all memory is the host's."""
    for module in (device_arrays, kernel_module):
        monkeypatch.setattr(module, "on_device", is_torch)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    x, y = (rg.tensor(name, (8, 16)) for name in "XY")
    return rg.build(rg.ops.add(x, y), "v100", profile=False, cache=False)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_first_calls_read_and_write_tensors_where_they_lie(on_stand_in):
    x, y, out = torch.rand(8, 16), torch.rand(8, 16), torch.zeros(8, 16)
    assert on_stand_in(x, y, out=out) is out and torch.equal(out, x + y)
    new = on_stand_in(x, y)
    assert type(new) is torch.Tensor and torch.equal(new, x + y)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "unfit, message",
    [
        (lambda: torch.rand(16, 8).t(), r"X is strided or a lazy view; pass X\.contiguous\(\)"),
        (lambda: torch.rand(8, 16).requires_grad_(), r"X requires gradients, .* pass X\.detach\(\)"),
        (lambda: torch.rand(129)[1:].view(8, 16), r"no multiple of \d+ bytes, .* pass X\.clone\(\)"),
    ],
)
def test_first_calls_refuse_tensors_that_a_kernel_cannot_read(on_stand_in, unfit, message):
    with pytest.raises(ArgumentError, match=message):
        on_stand_in(unfit(), torch.rand(8, 16))
