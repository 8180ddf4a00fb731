"""Torch tensors of the host: in and out without copies."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def double():
    x = rg.tensor("X", (20, 30))
    return rg.build(rg.compute((20, 30), lambda i, j: x[i, j] * 2.0), "cpu", profile=False)


def test_tensors_in_give_a_tensor_back(double):
    x = torch.rand(20, 30)
    y = double(x)
    assert isinstance(y, torch.Tensor) and torch.equal(y, x * 2)


def test_a_tensor_as_out_is_written_in_place_and_returned(double):
    x, out = torch.rand(20, 30), torch.empty(20, 30)
    assert double(x, out=out) is out and torch.equal(out, x * 2)


def test_a_strided_tensor_is_copied(double):
    x = torch.rand(30, 20).t()
    assert torch.equal(double(x), x * 2)


def test_tensors_mixed_with_arrays_give_an_array(double):
    a, b = rg.tensor("A", (5,)), rg.tensor("B", (5,))
    kernel = rg.build(rg.compute((5,), lambda i: a[i] + b[i]), "cpu", profile=False)
    found = kernel(torch.ones(5), torch.ones(5).numpy())
    assert not isinstance(found, torch.Tensor) and (found == 2).all()


def test_bfloat16_tensors_go_in_and_out():
    x = rg.tensor("X", (64,), "bfloat16")
    kernel = rg.build(rg.compute((64,), lambda i: x[i] * 2.0), "cpu", profile=False)
    values = torch.arange(64).to(torch.bfloat16)
    y = kernel(values)
    assert y.dtype is torch.bfloat16 and torch.equal(y, values * 2)


def test_gradients_are_refused_with_advice(double):
    with pytest.raises(ArgumentError, match=r"requires gradients.*X\.detach\(\)"):
        double(torch.rand(20, 30, requires_grad=True))


def test_tensors_without_data_are_refused(double):
    with pytest.raises(ArgumentError, match="X is on device meta"):
        double(torch.empty(20, 30, device="meta"))


def test_sparse_tensors_are_refused(double):
    with pytest.raises(ArgumentError, match="sparse"):
        double(torch.eye(20, 30).to_sparse())
