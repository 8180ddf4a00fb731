"""Constant tensors (weights) are packed anew whenever a call can tell that they changed, and on demand."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.runtime.device_arrays import DeviceView
from rollergen.runtime.packed import Packed
from tests.interop.exporter import Exporter

SIDE = 128


@pytest.fixture(scope="module")
def linear():
    weights = rg.tensor("W", (SIDE, SIDE), constant=True)
    kernel = rg.build(rg.ops.matmul(rg.tensor("X", (SIDE, SIDE)), weights), "cpu", profile=False)
    assert any(launch.once for launch in kernel.launches)
    return kernel


@pytest.fixture
def seen(linear):
    """What the kernel takes the weights to be: their product with the identity."""
    identity = np.eye(SIDE, dtype=np.float32)
    return lambda weights: np.asarray(linear(identity, weights))


def full(value):
    return np.full((SIDE, SIDE), value, np.float32)


CHANGES = {
    "data": lambda torch, w: setattr(w, "data", torch.full_like(w, 7)),
    "data twice": lambda torch, w: [setattr(w, "data", torch.full_like(w, value)) for value in range(1, 8)],
    "set_": lambda torch, w: w.set_(torch.full_like(w, 7)),
    "fill_": lambda torch, w: w.fill_(7),
    "copy_": lambda torch, w: w.copy_(torch.full_like(w, 7)),
    "assignment": lambda torch, w: w.__setitem__(slice(None), 7),
    "a view": lambda torch, w: w.view(-1).add_(6),
    "detach": lambda torch, w: w.detach().mul_(7),
    "no_grad": lambda torch, w: torch.no_grad()(w.mul_)(7),
    "an optimizer's": lambda torch, w: torch._foreach_add_([w], 6.0),
}


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", reason="PyTorch is not installed")

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_changed_tensor_is_packed_anew(self, torch, seen, change):
        weights = torch.ones(SIDE, SIDE)
        assert (seen(weights) == 1).all()
        CHANGES[change](torch, weights)
        assert (weights == 7).all() and (seen(weights) == 7).all()

    def test_a_view_of_a_changed_tensor_is_packed_anew(self, torch, seen):
        whole = torch.ones(2, SIDE, SIDE)
        half = whole[1]
        assert (seen(half) == 1).all()
        whole += 6
        assert (seen(half) == 7).all()

    def test_a_tensor_transposed_in_place_is_packed_anew(self, torch, seen):
        weights = torch.arange(SIDE * SIDE, dtype=torch.float32).reshape(SIDE, SIDE)
        before = seen(weights)
        weights.t_()
        assert np.array_equal(seen(weights), before.T)

    def test_other_memory_at_the_same_address_is_noticed(self, torch):
        memory, weights = np.ones(4, np.float32), torch.ones(4)
        weights.data = torch.from_numpy(memory)
        packed = Packed.of(0, [weights], [weights.numpy()])
        assert packed.holds(0, [weights], [weights.numpy()])
        weights.data = torch.from_numpy(memory)
        assert not packed.holds(0, [weights], [weights.numpy()])

    def test_what_torch_does_not_count_needs_repack(self, torch, linear, seen):
        with torch.inference_mode():
            uncounted = torch.ones(SIDE, SIDE)
        for weights in (torch.ones(SIDE, SIDE), uncounted):
            assert (seen(weights) == 1).all()
            weights.numpy()[...] = 7
            assert (seen(weights) == 1).all()
            linear.repack()
            assert (seen(weights) == 7).all()

    def test_an_unchanged_tensor_is_not_packed_again(self, torch, linear, seen, monkeypatch):
        weights = torch.ones(SIDE, SIDE)
        seen(weights)
        monkeypatch.setattr(linear._session(), "once", lambda: pytest.fail("packed again"))
        seen(weights)


def test_an_exporter_that_swaps_its_array_is_packed_anew(seen):
    weights = Exporter(full(1))
    assert (seen(weights) == 1).all()
    weights.array = full(7)
    assert (seen(weights) == 7).all()


@pytest.mark.filterwarnings("ignore:Setting the strides")
def test_an_array_that_is_walked_otherwise_is_packed_anew(seen):
    weights = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    before = seen(weights)
    weights.strides = weights.strides[::-1]
    assert np.array_equal(seen(weights), before.T)


def test_memory_of_a_gpu_is_known_by_its_address():
    view = lambda address: DeviceView(address, (4,), np.dtype("float32"), None)
    thing = Exporter(np.ones(4, np.float32))
    packed = Packed.of(0, [thing], [view(64)])
    assert packed.holds(0, [thing], [view(64)])
    assert not packed.holds(0, [thing], [view(128)])
    assert not packed.holds(1, [thing], [view(64)])


@pytest.mark.parametrize("where", [rg.tensor, rg.Kernel], ids=["rg.tensor", "rg.Kernel"])
def test_repack_is_named_where_constants_are_explained(where):
    assert "repack" in where.__doc__
