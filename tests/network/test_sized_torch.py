"""Exported programs with dynamic shapes: their symbolic sizes are dims of the model."""

import pytest

import rollergen as rg
from rollergen.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")

from tests.network.test_torch_models import Block  # noqa: E402

nn, Dim = torch.nn, torch.export.Dim

HIGH = 12
SIZES = (HIGH, 1, 7, 8, 11, 7)
"""The ends, primes, a tile's multiple, and one that was called before."""


def seeded(make):
    torch.manual_seed(0)
    return make().eval()


def perceptron():
    return nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 12), nn.Softmax(-1))


def layer():
    return nn.Linear(20, 12)


def images():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 9, 5),
    )  # fmt: skip


def encoder():
    return nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)


CASES = {perceptron: ((4, 20), 0), images: ((2, 3, 6, 6), 0), encoder: ((1, 5, 16), 1)}
"""The shape of an example, and which of its extents is a dim."""


@pytest.fixture(autouse=True)
def every_operator_is_traced():
    """Of an encoder layer torch otherwise makes one operator."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def exported(model, shape, axis, size=None):
    one = size or Dim("size", min=1, max=HIGH)
    return torch.export.export(model, (torch.zeros(shape),), dynamic_shapes=({axis: one},))


def compiled(program, device="cpu", **named):
    return rg.compile(program, None, device, profile=False, **named)


def agree(sized, model, *arguments):
    with torch.no_grad():
        wanted = model(*arguments)
    found = sized(*arguments)
    assert isinstance(found, torch.Tensor)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def random(shape, axis, size):
    return torch.randn([size if n == axis else extent for n, extent in enumerate(shape)])


@pytest.mark.parametrize("make", CASES)
def test_every_size_of_the_export_is_right_with_one_build_of_each_kernel(make, counts):
    model, (shape, axis) = seeded(make), CASES[make]
    sized = compiled(exported(model, shape, axis))
    for size in (HIGH, 1):  # sizes of which one axis is dropped have kernels of their own
        agree(sized, model, random(shape, axis, size))
    built = counts["constructed"]
    for size in SIZES:
        agree(sized, model, random(shape, axis, size))
    states = [one["state"] for one in sized.explain(as_dict=True)["steps"]]
    assert "built per size" not in states
    assert counts["constructed"] == built
    for size in (7, 8, 11):
        assert all(one.code for one in sized.at(**dict.fromkeys(sized.dims, size)).kernels)


def test_a_transformer_block_for_any_batch_has_no_kernel_that_is_built_per_size():
    """It leaves the batch outermost, where torch's own layer puts the sequence there."""
    model, shape = seeded(Block), (2, 5, 16)
    sized = compiled(exported(model, shape, 0))
    assert "built per size" not in sized.explain()
    for size in (HIGH, 7, 3):
        agree(sized, model, random(shape, 0, size))


def test_two_symbols_are_two_dims():
    model = seeded(layer)
    shapes = ({0: Dim("batch", min=1, max=3), 1: Dim("length", min=2, max=6)},)
    sized = compiled(torch.export.export(model, (torch.zeros(2, 5, 20),), dynamic_shapes=shapes))
    assert {name: (one.low, one.high) for name, one in sized.dims.items()} == {"input_0": (1, 3), "input_1": (2, 6)}
    for batch, length in ((3, 6), (1, 2), (2, 5), (3, 4)):
        agree(sized, model, torch.randn(batch, length, 20))


class Scaled(nn.Module):
    """Numbers of the size in arithmetic, in a shape and as a constant."""

    def forward(self, x):
        n = x.shape[0]
        return (x / n + torch.arange(n, dtype=x.dtype)[:, None]).reshape(n * 2, -1)


def test_numbers_that_follow_from_a_size_are_those_of_the_size():
    sized = compiled(exported(Scaled().eval(), (4, 6), 0))
    for size in (HIGH, 1, 5, 8):
        agree(sized, Scaled(), torch.randn(size, 6))


def test_an_extent_that_is_a_multiple_of_a_symbol_tells_its_size():
    model = seeded(layer)
    sized = compiled(exported(model, (4, 20), 0, 2 * Dim("half", min=2, max=6)))
    for size in (12, 4, 10):
        agree(sized, model, torch.randn(size, 20))
    with pytest.raises(ShapeError, match=r"input_0 is 3.5; expected an integer from 2 to 6"):
        sized(torch.randn(7, 20))


def test_sizes_out_of_the_range_of_the_export_are_named_and_dims_may_narrow_it():
    program = exported(seeded(perceptron), (4, 20), 0)
    with pytest.raises(ShapeError, match=f"dimension 0 of input, which is 13: input_0 is 13; .* from 1 to {HIGH}"):
        compiled(program, "v100")(torch.zeros(13, 20))
    narrow = compiled(program, "v100", dims={"input_0": rg.dim("N", 2, 5)})
    assert narrow.signature == "exported program(input: float32[N, 20])"
    with pytest.raises(ArgumentError, match=rf"dims\['input_0'\] is from 1 to 13; .* takes it from 1 to {HIGH}"):
        compiled(program, "v100", dims={"input_0": (1, 13)})


def test_sizes_without_a_bound_need_one():
    program = exported(seeded(layer), (4, 20), 0, Dim.DYNAMIC)
    with pytest.raises(ArgumentError, match="dimension 0 of input input of exported program is input_0, which has no"):
        compiled(program, "v100")
    model = seeded(layer)
    sized = compiled(exported(model, (4, 20), 0, Dim.DYNAMIC), dims={"input_0": (2, 9)})
    agree(sized, model, torch.randn(9, 20))


class Counted(nn.Module):
    def forward(self, x):
        return x * 2, x.shape[0]


def test_a_result_that_is_a_size_is_refused():
    with pytest.raises(ArgumentError, match="a number that follows from sizes; expected tensors"):
        compiled(exported(Counted().eval(), (4, 6), 0), "v100")
