"""Torch tensors of the host: in and out without copies."""

from __future__ import annotations

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, DtypeError, ShapeError

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


class TestPreparedCalls:
    """Calls after a thread's first are prepared for what the call before had: tensors, or NumPy's arrays."""

    @pytest.fixture(params=["float32", "bfloat16"])
    def prepared(self, request, monkeypatch):
        """(kernel, a tensor with which it was called, what the general path is given from then on)."""
        made = rg.build(rg.ops.neg(rg.tensor("X", (6, 64), request.param)), "cpu", top_k=1, profile=False, cache=False)
        x = torch.arange(384.0).reshape(6, 64).to(getattr(torch, request.param))
        made(x)
        general, arrange = [], type(made.signature).arrange
        monkeypatch.setattr(
            type(made.signature), "arrange", lambda self, *given: general.append(given) or arrange(self, *given)
        )
        return made, x, general

    @pytest.mark.in_place
    def test_tensors_are_read_and_written_where_they_lie(self, prepared):
        neg, x, general = prepared
        for other in (x, x + 1):
            out = torch.empty_like(x)
            assert neg(other, out=out) is out and torch.equal(out, -other)
            new = neg(other)
            assert type(new) is torch.Tensor and new.dtype == x.dtype and torch.equal(new, -other)
        assert not general

    @pytest.mark.in_place
    def test_tensors_changed_in_place_are_looked_at_anew(self, prepared):
        neg, x, general = prepared
        x.data = x + 1
        assert torch.equal(neg(x), -x) and not general
        x.t_()
        with pytest.raises(ShapeError):
            neg(x)

    @pytest.mark.parametrize(
        "other", [lambda x: x.t().contiguous().t(), lambda x: torch.nn.Parameter(x, requires_grad=False)]
    )
    def test_what_is_no_plain_tensor_goes_the_general_way_and_is_right(self, prepared, other):
        neg, x, general = prepared
        assert torch.equal(neg(other(x)), -x) and len(general) == 1

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_refusals_are_those_of_a_first_call(self, prepared):
        neg, x, _ = prepared
        with pytest.raises(ArgumentError, match="requires gradients"):
            neg(x.detach().clone().requires_grad_())
        with pytest.raises(ArgumentError, match="sparse, nested or a lazy view"):
            neg(x.to_sparse())
        with pytest.raises(ArgumentError, match=r"sparse, nested or a lazy view.*to_padded_tensor"):
            neg(torch.nested.nested_tensor(list(x)))
        with pytest.raises(ShapeError):
            neg(x[:3])
        with pytest.raises(ArgumentError, match="on device meta"):
            neg(x.to("meta"))
        with pytest.raises(ArgumentError, match="overlaps"):
            neg(x, out=x)
        with pytest.raises(DtypeError):
            neg(x.double())

    @pytest.mark.in_place
    def test_calls_with_numpys_arrays_between_are_right(self, prepared):
        neg, x, general = prepared
        array = x.numpy() if x.dtype == torch.float32 else None
        for _ in range(3):
            assert torch.equal(neg(x), -x)
            if array is not None:
                found = neg(array)
                assert type(found) is not torch.Tensor and (found == -array).all()
        assert len(general) == (0 if array is None else 5)
