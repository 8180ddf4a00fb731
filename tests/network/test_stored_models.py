"""A model that was compiled before is one look-up: nothing is cut, constructed or emitted, and it is the same model."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import rollergen as rg
from rollergen.construct.options import BuildOptions
from rollergen.errors import CacheWarning
from rollergen.hal.load import load_device
from rollergen.importers.graph import Network
from rollergen.store import admin
from rollergen.store.cache import forget_failures
from rollergen.store.eviction import keep_below, size_bytes
from rollergen.store.location import store_path
from rollergen.store.models import ModelCache

torch = pytest.importorskip("torch")
from rollergen.importers.torch_models import exported, imported  # noqa: E402


class Small(torch.nn.Module):
    """A convolution, what torch alone has, and two products alike."""

    def __init__(self, slope: float = 0.1, width: int = 8) -> None:
        super().__init__()
        self.first, self.slope = torch.nn.Conv2d(3, width, 3, 1, 1), slope
        self.left, self.right = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, image):
        y = torch.nn.functional.leaky_relu(self.first(image), self.slope)
        y = torch.nan_to_num(torch.linalg.matrix_exp(y))
        return self.right(torch.relu(self.left(y)))


def network(seed: int = 0, **given) -> Network:
    torch.manual_seed(seed)
    return imported(exported(Small(**given).eval(), (torch.randn(2, 3, 6, 6),)), "Small")


def compiled(known: Network, device: str = "v100", **given) -> rg.Model:
    return rg.compile(known, None, device, **{"profile": False, **given})


@pytest.fixture
def found_alone(monkeypatch):
    """Called, it lets nothing be built or cut from then on."""

    def refused(*_args, **_named):
        raise AssertionError("the model was to be found")

    def refuse():
        monkeypatch.setattr("rollergen.network.building.build", refused)
        monkeypatch.setattr("rollergen.network.building.steps_of", refused)

    return refuse


def told(model: rg.Model):
    kernels = [(one.source, one.program, one.candidates, one.place, one.cuts) for one in model.kernels]
    return model.explain(), kernels, [(one.inputs, one.outputs, one.source) for one in model.steps]


def test_a_model_is_found_again_whole(found_alone):
    made = compiled(network())
    found_alone()
    found = compiled(network())
    assert told(found) == told(made) and found.predicted_time == made.predicted_time
    assert [one.reason for one in found.layers] == [one.reason for one in made.layers]
    assert sum(one.kernel is None for one in found.layers) == 1
    assert [kernel.explain() for kernel in found.kernels] == [kernel.explain() for kernel in made.kernels]


def test_a_model_that_was_found_computes_checks_and_saves_itself(found_alone, tmp_path):
    x = torch.randn(2, 3, 6, 6)
    made = rg.compile(torch.nn.Conv2d(3, 8, 3).eval(), (x,), "cpu")
    found_alone()
    torch.manual_seed(1)
    module = torch.nn.Conv2d(3, 8, 3).eval()
    found = rg.compile(module, (x,), "cpu")
    assert told(found) == told(made)
    with torch.no_grad():
        np.testing.assert_allclose(found(x), module(x), rtol=1e-4, atol=1e-5)  # of its own weights
    assert sum(one.compared for one in found.check(x)) > 10
    found.save(tmp_path / "saved")
    np.testing.assert_array_equal(rg.load(tmp_path / "saved")(x), found(x))


@pytest.mark.parametrize("moved", [0.5, 2.0])
def test_images_that_lie_channels_last_are_found_as_they_lie(monkeypatch, found_alone, moved):
    from rollergen.network.layouts import laid_out

    faster = lambda step: moved if step.outputs[0].shape[-1] == 8 else 1.0
    steps = lambda known, target, kernel_of: laid_out(known, True, faster)
    monkeypatch.setattr("rollergen.network.compiling.steps_for", steps)
    module, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)).eval(), torch.randn(1, 3, 9, 9)
    made = rg.compile(module, (x,), "cpu", profile=False)
    found_alone()
    found = rg.compile(module, (x,), "cpu", profile=False)
    assert (found.steps[0].outputs[0].shape[-1] == 8) == (moved < 1) and told(found) == told(made)
    assert sum(one.compared for one in found.check(x)) > 10


def test_weights_are_no_part_of_what_is_looked_for_and_all_else_is(monkeypatch):
    asked: list[str] = []
    original = ModelCache.find
    monkeypatch.setattr(ModelCache, "find", lambda cache: asked.append(cache._key.hash) or original(cache))
    first = network()
    for known, given in (
        (first, {}), (network(seed=1), {}), (replace(first, title="another"), {}),
        (network(slope=0.2), {}), (network(width=4), {}), (first, {"top_k": 3}), (first, {"device": "a100"}),
        (first, {"options": BuildOptions(winograd=0)}),
    ):  # fmt: skip
        monkeypatch.setattr("rollergen.network.compiling.steps_for", lambda *_: ((), {}))
        compiled(known, **given)
    assert len(set(asked[:3])) == 1 and len(set(asked)) == 6


def test_numbers_among_an_onnx_models_weights_split():
    onnx = pytest.importorskip("onnx")
    from rollergen.importers.onnx_models import imported as of_onnx

    def text(shape):
        info = lambda name, dims: onnx.helper.make_tensor_value_info(name, 1, dims)
        node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])
        numbers = onnx.numpy_helper.from_array(np.array(shape, np.int64), "shape")
        graph = onnx.helper.make_graph([node], "g", [info("x", [6, 4])], [info("y", [None] * 2)], [numbers])
        return of_onnx(onnx.helper.make_model(graph), None, "g").text()

    assert text([4, 6]) == text([4, 6]) != text([3, 8])


@pytest.mark.parametrize("column", ["steps", "candidates", "parts"])
def test_a_damaged_row_is_compiled_and_stored_anew(column, found_alone):
    made = told(compiled(network()))
    with closing(sqlite3.connect(store_path(), isolation_level=None)) as connection:
        connection.execute(f"UPDATE models SET {column} = replace({column}, '0', '1')")
    assert any("models" in one for one in admin.verify(store_path()).problems)
    with pytest.warns(CacheWarning, match="is not what was written; this model is stored anew"):
        assert told(compiled(network())) == made
    assert admin.verify(store_path(), deep=True).problems == ()
    forget_failures()
    found_alone()
    assert told(compiled(network())) == made


def test_models_are_verified_evicted_and_cleared_with_the_kernels():
    compiled(network())
    verdict = admin.verify(store_path(), deep=True)
    assert verdict.checked["models"] == 1 and verdict.problems == ()
    keep_below(store_path(), 1)
    assert admin.verify(store_path()).checked["models"] == 0 and size_bytes(store_path()) < 200_000
    compiled(network(seed=3))
    admin.clear(store_path())
    assert admin.verify(store_path()).checked == dict.fromkeys(admin.verify(store_path()).checked, 0) | {
        "devices": 1, "expressions": admin.verify(store_path()).checked["expressions"],
    }  # fmt: skip


def test_a_model_timed_on_a_busy_machine_is_not_kept(monkeypatch):
    cache = ModelCache("text", load_device("v100"), BuildOptions(), 2, None)
    from rollergen.store.models import Made, Whole

    kernel = rg.build(rg.ops.relu(rg.tensor("x", (8,))), "v100", profile=False, cache=False)
    quiet = Made(kernel.candidates, 0, ())
    noisy = replace(quiet, candidates=(replace(kernel.candidates[0], noisy="scatter"), *kernel.candidates[1:]))
    cache.keep(Whole([], (noisy,)))
    assert cache.find() is None
    cache.keep(Whole([], (quiet,)))
    assert cache.find() == Whole([], (quiet,))


def test_without_the_cache_nothing_is_read_or_written():
    compiled(network(), cache=False)
    assert not store_path().exists()
