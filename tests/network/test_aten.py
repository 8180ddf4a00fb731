"""Operators of torch that models use: each is a kernel, and its result torch's."""

import numpy as np
import pytest

import rollergen as rg

torch = pytest.importorskip("torch")
F = torch.nn.functional
IMAGE, WHOLE = (2, 4, 6, 6), torch.arange(-6, 6).reshape(3, 4)

FAMILIES = {
    "functions": [
        torch.sin, torch.cos, torch.ceil, torch.trunc, torch.sign, torch.erfc, torch.expm1, torch.isnan,
        lambda x: torch.log1p(x.abs()), lambda x: torch.atan2(x, x + 1), F.mish, F.celu, F.softshrink, F.logsigmoid,
    ],
    "pooling": [
        lambda x: F.adaptive_avg_pool2d(x, 4), lambda x: F.adaptive_max_pool2d(x, (5, 1)), lambda x: F.avg_pool3d(x, 2),
        lambda x: F.adaptive_avg_pool1d(x[0], 4), lambda x: F.max_pool3d(x, 2), lambda x: F.avg_pool1d(x[0], 3),
    ],
    "norms and losses": [
        F.instance_norm, lambda x: F.local_response_norm(x, 3), lambda x: F.instance_norm(x, weight=x[0, :, 0, 0]),
        lambda x: F.cross_entropy(x, torch.ones(2, 6, 6, dtype=torch.long)),
        lambda x: F.cross_entropy(x, torch.zeros(2, 6, 6, dtype=torch.long), reduction="sum", label_smoothing=0.1),
    ],
    "whole tensors and their norms": [
        torch.max, torch.min, lambda x: torch.full_like(x, 3.0) + x, lambda x: x.norm(dim=-1), torch.linalg.vector_norm,
        lambda x: torch.linalg.vector_norm(x, 1, (1, 2)), lambda x: torch.linalg.vector_norm(x, 3.0, -1, keepdim=True),
        lambda x: torch.linalg.vector_norm(x, float("inf"), 0), lambda x: torch.linalg.vector_norm(x, 0),
        lambda x: torch.linalg.vector_norm(x, -float("inf"), 1), lambda x: F.normalize(x, dim=1),
        lambda x: (x > 1).any(-1), lambda x: (x > -3).all(1, keepdim=True), torch.any, lambda x: x.all(),
    ],
    "attention": [
        lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], is_causal=True, enable_gqa=True),
        lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, 1:2], enable_gqa=True, scale=0.3),
        lambda x: F.scaled_dot_product_attention(x, x, x, x[0, 0] > 0.8),  # some rows see nothing
        lambda x: F.scaled_dot_product_attention(x, x, x, x[:, :1]),
        lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:1], x[0, 0] > 0),
    ],
    "sizes": [
        lambda x: F.interpolate(x, (9, 5)), lambda x: F.interpolate(x, scale_factor=1.7),
        lambda x: F.interpolate(x, (9, 5), mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=(1.5, 0.7), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, (4, 8), mode="bicubic"), lambda x: F.interpolate(x[0], 7, mode="linear"),
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True),
    ],
    "rearrangements": [
        lambda x: x.repeat(2, 1, 1, 2), lambda x: F.pixel_shuffle(x, 2), torch.tril, lambda x: x.unfold(2, 3, 2),
        lambda x: F.unfold(x, (3, 2), padding=1), lambda x: F.conv_transpose1d(x[0], x[0, 0, :, :3, None].mT),
        lambda x: F.conv_transpose3d(x[None], x[:, None, :2, :2, :2], stride=2),
        lambda x: x.index_copy(2, torch.tensor([4, 0]), x[:, :, 1:3] * 2),
        lambda x: torch.ops.aten.index_put(x, [None, torch.tensor([-1, 2])], x[:, :2, :, :1] + 1),
        lambda x: torch.ops.aten.index_put(x.reshape(-1), [torch.arange(287, 0, -7)], x[0].reshape(-1)[:41]),
        lambda x: torch.slice_scatter(x, x[:, :, :2] * 2, 2, 1, 5, 2), lambda x: x.select_scatter(x[:, 0] + 1, 1, -1),
    ],
}  # fmt: skip
INTEGERS = [
    lambda x: x // 4, lambda x: torch.div(x, 4, rounding_mode="trunc"), lambda x: x % 4, lambda x: torch.fmod(x, 4),
    lambda x: x & 3, lambda x: 4 | x, lambda x: x ^ 5, lambda x: ~x, lambda x: x << 2, lambda x: x >> 1,
    lambda x: x**2, torch.bitwise_not, lambda x: torch.bitwise_and(x, x + 1),
]  # fmt: skip


class All(torch.nn.Module):
    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, x):
        return tuple(one(x) for one in self.functions)


def held(functions, x):
    made = rg.compile(All(functions).eval(), (x,), "cpu", profile=False)
    assert [one.reason for one in made.layers if one.kernel is None] == []
    for number, (found, wanted) in enumerate(zip(made(x), All(functions)(x), strict=True)):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, number
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5, err_msg=str(number))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.every(3)
def test_a_family_is_torchs(family):
    torch.manual_seed(0)
    held(FAMILIES[family], torch.randn(IMAGE))


def test_operators_of_integers_are_torchs():
    held(INTEGERS, WHOLE)


SMALL_AND_LARGE = torch.tensor([-1e30, -90.0, -30.0, -20.0, -1e-3, -1e-8, -1e-30, 0.0, 1e-8, 5.0, 30.0, 1e30])


def test_activations_keep_what_is_small():
    """exp(x) - 1 and log(1 + x) were 0 there."""
    functions = [F.elu, F.selu, lambda x: F.celu(x, 0.5), F.softplus, lambda x: F.softplus(x, 2, 5), F.mish]
    made = rg.compile(All(functions).eval(), (SMALL_AND_LARGE,), "cpu", profile=False)
    for found, wanted in zip(made(SMALL_AND_LARGE), All(functions)(SMALL_AND_LARGE), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6, atol=1e-38)


def test_axes_without_elements_roll():
    held([lambda x: x.roll((1, -1), (1, 2))], torch.zeros(2, 0, 3))


def test_a_margin_loss_of_several_labels_takes_no_padding_for_a_label():
    """torch's own decomposition of it does."""
    x, labels = torch.tensor([[1.0, 2, 3, 0], [1, -1, 2, 1]]), torch.tensor([[0, 2, -1, 1], [3, -1, 0, 0]])
    model = All([lambda x: F.multilabel_margin_loss(x, labels, reduction="none")]).eval()
    torch.testing.assert_close(rg.compile(model, (x,), "cpu", profile=False)(x), model(x))


def test_rms_norm_has_the_eps_of_its_dtype():
    x = torch.tensor([[3e-4, -1e-4, 2e-4, 1e-4]], dtype=torch.float64)
    model = torch.nn.RMSNorm(4, dtype=torch.float64).eval()
    np.testing.assert_allclose(rg.compile(model, (x,), "cpu", profile=False)(x), model(x).detach(), rtol=1e-12)


SCALES = {"numbers": ((), ()), "rows and columns": ((32, 1), (1, 48))}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, None])
@pytest.mark.every(3)
def test_a_scaled_product_of_float8_is_torchs(scales, out_dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(shape).to(torch.float8_e4m3fn) for shape in ((32, 64), (48, 64)))
    one, other = (torch.rand(shape) for shape in scales)
    model = All([lambda x: torch._scaled_mm(x, b.t(), one, other, out_dtype=out_dtype)]).eval()
    made = rg.compile(model, (a,), "cpu", profile=False)
    assert [layer.reason for layer in made.layers if layer.kernel is None] == []
    (found,), (wanted,) = made(a), model(a)
    assert found.dtype == wanted.dtype
    steps = {torch.float32: 2.0**-20, torch.bfloat16: 2.0**-7, torch.float8_e4m3fn: 2.0**-3}[found.dtype]
    np.testing.assert_allclose(found.float().numpy(), wanted.float().numpy(), rtol=steps, atol=steps)


def test_products_of_and_with_int8_are_torchs():
    torch.manual_seed(0)
    weights, scales = torch.randint(-128, 128, (48, 64), dtype=torch.int8), torch.rand(48)
    models = {
        lambda x: torch._int_mm(x, weights.t()): torch.randint(-128, 128, (32, 64), dtype=torch.int8),
        lambda x: torch._weight_int8pack_mm(x, weights, scales): torch.randn(5, 64),
    }
    for function, x in models.items():
        made = rg.compile(All([function]).eval(), (x,), "cpu", profile=False)
        assert [layer.reason for layer in made.layers if layer.kernel is None] == []
        (found,), wanted = made(x), function(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=2e-3)


def test_a_cast_to_float8_has_torch_s_largest_number():
    x = torch.tensor([465.0, -1e9, 1.0, float("nan")])
    model = All([lambda v: v.to(torch.float8_e4m3fn).to(torch.float32)])
    (found,), (wanted,) = rg.compile(model.eval(), (x,), "cpu", profile=False)(x), model(x)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


class Squared(torch.nn.Module):
    """|z|^2 of complex numbers, which torch computes with a lazy conjugate."""

    def forward(self, re, im):
        z = torch.complex(re, im)
        return (z * z.conj()).real


def test_a_lazy_result_of_a_step_of_torchs_is_made_whole():
    re, im = torch.randn(2, 3), torch.randn(2, 3)
    made = rg.compile(Squared().eval(), (re, im), "cpu", profile=False, cache=False)
    assert torch.allclose(made(re, im), re**2 + im**2, rtol=1e-6)


class Chosen(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def test_control_flow_of_torchs_own_is_refused_by_name():
    with pytest.raises(rg.errors.ArgumentError, match="cond is torch's cond, which runs true_graph_0, a graph of its own"):
        rg.compile(Chosen().eval(), (torch.ones(3),), "v100")
