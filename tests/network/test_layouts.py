"""Images between steps with their channels last: chosen by the sum of prices, right, and only between kernels."""

from __future__ import annotations

import numpy as np
import pytest

import rollergen as rg
from rollergen.network.building import halos_of
from rollergen.network.images import BARE, spread
from rollergen.network.layouts import laid_out
from rollergen.network.partition import JOIN, kind_of, steps_of
from rollergen.targets import resolve

torch = pytest.importorskip("torch")
from rollergen.importers.torch_models import exported, imported  # noqa: E402


class Chain(torch.nn.Module):
    """Two convolutions with a sum beside them, and one whose channels are its result's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.Conv2d(8, 8, 3, 1, 1)
        self.last = torch.nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(y) + y))


def network():
    torch.manual_seed(0)
    module, x = Chain().eval(), torch.randn(2, 3, 13, 11)
    return imported(exported(module, (x,)), "Chain"), module, x


def outputs(steps):
    return [step.outputs[0].shape for step in steps]


def test_steps_in_the_models_own_layout_are_compared_apart():
    asked, compared = [], []
    took = lambda known, seconds: lambda step: known.append(step.outputs[0].shape) or seconds
    assert laid_out(network()[0], True, took(asked, 1.0), compared=took(compared, 9.0))[1]
    assert (2, 7, 6, 8) in asked and set(compared) == {(2, 8, 7, 6)}


def test_the_cheaper_sum_decides():
    made, _, _ = network()
    last = lambda step: step.outputs[0].shape[-1] == 8
    assert outputs(laid_out(made, True, lambda step: 1.0 if last(step) else 2.0)[0]) == [
        (2, 7, 6, 8), (2, 7, 6, 8), (2, 4, 7, 6),
    ]  # fmt: skip
    assert outputs(laid_out(made, True, lambda step: 2.0 if last(step) else 1.0)[0]) == [
        (2, 8, 7, 6), (2, 8, 7, 6), (2, 4, 7, 6),
    ]  # fmt: skip


def test_values_of_the_models_own_library_stay_as_they_are():
    made, _, _ = network()
    steps, _ = laid_out(made, True, lambda step: 1.0)
    assert all(one.name not in {name for step in steps for name in step.inputs} for one in steps[-1].outputs)
    assert steps[0].given[0].shape == (2, 3, 13, 11)


def test_either_layout_computes_the_model(monkeypatch, tmp_path):
    made, module, x = network()
    with torch.no_grad():
        want = module(x).numpy()
    for factor in (0.5, 2.0):  # of what steps take that touch a moved image
        steps = lambda network, target, kernel_of, factor=factor: laid_out(
            network, True, lambda step: factor if step.outputs[0].shape[-1] == 8 else 1.0
        )
        monkeypatch.setattr("rollergen.network.compiling.steps_for", steps)
        model = rg.compile(made, None, "cpu", profile=False, top_k=1, cache=False)
        assert (model.steps[0].outputs[0].shape[-1] == 8) == (factor < 1)
        np.testing.assert_allclose(np.asarray(model(x)), want, rtol=1e-5, atol=1e-5)
        assert sum(one.compared for one in model.check(x)) > 100
        model.save(tmp_path / str(factor))
        np.testing.assert_array_equal(np.asarray(rg.load(tmp_path / str(factor))(x.numpy())), np.asarray(model(x)))


def test_what_decides_nothing_any_more_is_not_priced():
    made, _, _ = network()
    priced = []

    def seconds(step):
        priced.append(step.outputs[0].shape)
        return {(2, 7, 6, 8): 1.0, (2, 4, 7, 6): 1.0, (2, 8, 7, 6): 4.0}[step.outputs[0].shape]

    steps, last = laid_out(made, True, seconds)
    assert last and outputs(steps)[0] == (2, 7, 6, 8)
    assert priced.count((2, 8, 7, 6)) == 1  # 4 seconds of one are more than 3 of all others
    assert laid_out(made, True, lambda step: 1.0)[1] == {}  # as long: images stay as the model has them


def test_bounds_decide_what_prices_of_all_steps_would():
    made, _, _ = network()
    took = {(2, 7, 6, 8): 1.0, (2, 4, 7, 6): 1.0, (2, 8, 7, 6): 1.1}
    priced = []

    def seconds(step):
        priced.append(step.outputs[0].shape)
        return took[step.outputs[0].shape]

    for share, looked_at in ((0.0, 3), (0.9, 2), (0.99, 1)):
        priced.clear()
        steps, last = laid_out(made, True, seconds, (), lambda step, share=share: share * took[step.outputs[0].shape])
        assert last and outputs(steps)[0] == (2, 7, 6, 8)
        assert len(priced) == 3 + looked_at
    took[2, 8, 7, 6] = 0.99
    assert laid_out(made, True, seconds, (), lambda step: 0.9 * took[step.outputs[0].shape])[1] == {}


def in_halo(step, behind=0):
    """What the second convolution's kernel would copy: relu, into a line of zeros on each side."""
    return {"relu": ((1, 1, 1, 1, behind), 0.1)} if step.outputs[0].name == "relu_1" else {}


def prefers(within, behind=0):
    """Prices: so many seconds where an image within zeros is read or made, 2 where one with its channels last is."""

    def seconds(step):
        shapes = [step.outputs[0].shape, *(tensor.shape for tensor in step.given)]
        return within if (2, 9, 8, 8 + behind) in shapes else 2.0 if (2, 7, 6, 8) in shapes else 9.0

    return seconds


@pytest.mark.parametrize("faster", [True, False])
def test_an_image_that_is_copied_into_zeros_is_stored_there_where_that_is_faster(faster):
    steps, last = laid_out(network()[0], True, prefers(1.0 if faster else 3.0), copied=in_halo)
    assert last["relu"] == ((1, 1, 1, 1, 0) if faster else BARE) and last["relu_1"] == BARE
    assert outputs(steps)[0] == ((2, 9, 8, 8) if faster else (2, 7, 6, 8))


@pytest.mark.parametrize("behind", [0, 16], ids=["lines", "lines and channels"])
def test_images_within_zeros_compute_the_model(monkeypatch, tmp_path, behind):
    made, module, x = network()
    with torch.no_grad():
        want = module(x).numpy()
    laid = []
    copied = lambda step: in_halo(step, behind)
    steps = lambda network, *_: laid.append(network) or laid_out(network, True, prefers(1.0, behind), copied=copied)
    monkeypatch.setattr("rollergen.network.compiling.steps_for", steps)
    for _ in range(2):  # compiled, then found
        model = rg.compile(made, None, "cpu", profile=False, top_k=1)
        assert model.steps[0].outputs[0].shape == (2, 9, 8, 8 + behind)
        np.testing.assert_allclose(np.asarray(model(x)), want, rtol=1e-5, atol=1e-5)
        assert sum(one.compared for one in model.check(x)) > 100
    assert len(laid) == 1
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(np.asarray(rg.load(tmp_path / "saved")(x.numpy())), np.asarray(model(x)))


def test_what_a_kernel_copies_into_zeros_is_known_by_its_program():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.Conv2d(32, 32, 3, 1, (1, 2), (1, 2)))
    x = torch.randn(1, 3, 22, 24)
    made = imported(exported(module.eval(), (x,)), "two")
    (name,) = {one.name for one in made.nodes[0].outputs}
    step = steps_of(made, True, {name: BARE})[1]
    expression, given = step.defined()
    options = rg.BuildOptions(winograd=0)
    kernels = [rg.build(expression, "cpu", inputs=given, profile=False, options=options, top_k=8)]
    programs = [one.program for one in kernels[0].candidates]
    found = [known for one in programs for known in halos_of(step, one, kernels[0].device).values()]
    assert {(1, 1, 2, 2, 0)} == {halo for halo, _ in found} and all(seconds > 0 for _, seconds in found)


@pytest.mark.parametrize("channels, behind", [(512, 16), (1024, 16), (256, 0), (384, 0), (500, 0)])
def test_a_line_parts_pixels_that_begin_in_few_sets_of_the_first_cache(channels, behind):
    device = resolve("cortex-a53")
    assert device.layers[1].sets == 128 and device.layers[1].transaction_bytes == 64
    image = rg.tensor("x", (1, 14, 14, channels))
    assert spread((1, 1, 1, 1, 0), image, device) == (1, 1, 1, 1, behind)
    assert spread(BARE, image, resolve("v100")) == BARE


def test_copies_that_take_little_of_the_models_time_are_left():
    short = lambda step: {name: (halo, 0.01) for name, (halo, _) in in_halo(step).items()}
    assert laid_out(network()[0], True, prefers(1.0), copied=short)[1]["relu"] == BARE


class Joined(torch.nn.Module):
    """Two images joined, which two padded convolutions read, and their sum, which another one does."""

    def __init__(self) -> None:
        super().__init__()
        made = lambda channels: torch.nn.Conv2d(channels, 8, 3, 1, 1)
        self.one, self.other, self.left, self.right, self.last = made(3), made(3), made(16), made(16), made(8)

    def forward(self, x):
        joined = torch.cat([torch.relu(self.one(x)), torch.relu(self.other(x))], 1)
        return self.last(torch.relu(self.left(joined) + self.right(joined)))


def test_joins_and_their_parts_lie_within_no_zeros():
    made = imported(exported(Joined().eval(), (torch.randn(2, 3, 13, 11),)), "Joined")
    images = lambda step: [one for one in (step.outputs[0].shape, *(x.shape for x in step.given)) if len(one) == 4]
    taking = lambda shape: 1 / shape[1] if shape[-1] in (8, 16) else 1.0  # least within zeros
    seconds = lambda step: sum(map(taking, images(step)))
    steps, last = laid_out(made, True, seconds, copied=lambda step: dict.fromkeys(step.inputs, ((1, 1, 1, 1, 0), 9.0)))
    (join,) = [step for step in steps if kind_of(step.expression) == JOIN]
    assert {last[name] for name in (*join.inputs, join.outputs[0].name)} == {BARE}
    assert (1, 1, 1, 1, 0) in last.values()
