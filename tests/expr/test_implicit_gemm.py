"""Which stages have an implicit GEMM, and what its axes are."""

import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.implicit_gemm import implicit_gemm
from tests.expr.graphs import tensors


def largest_products(x, w):
    c, k = rg.reduce_axis("c", 6), rg.reduce_axis("k", 2)
    return rg.compute((4, 8), lambda f, i: rg.max(x[c, i + k] * w[f, k], axis=(c, k)))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_has_an_implicit_gemm_variant(batch):
    x, w = tensors(x=(batch, 3, 8, 9), w=(4, 3, 3, 3))
    graph = canonicalize(rg.ops.conv2d(x, w, padding=1, stride=2))
    gemm = implicit_gemm(graph.tensor_ops[0])
    assert [(a.extent, a.role) for a in gemm.axes] == [(4, "spatial"), (batch * 4 * 5, "spatial"), (27, "reduce")]
    image, weight = gemm.body_loads()
    assert [str(index) for index in weight.indices] == [gemm.axes[0].name, gemm.axes[2].name]
    assert len(image.guard) == 2


def test_grouped_convolution_keeps_its_groups_apart_in_the_implicit_gemm():
    x, w = tensors(x=(2, 6, 8, 9), w=(4, 3, 3, 3))
    gemm = implicit_gemm(canonicalize(rg.ops.conv2d(x, w, groups=2)).tensor_ops[0])
    assert [a.extent for a in gemm.axes] == [2, 2, 2 * 6 * 7, 27]


@pytest.mark.parametrize(
    "make",
    [
        lambda: rg.ops.matmul(*tensors(a=(6, 4), b=(4, 5))),
        lambda: rg.ops.conv2d(*tensors(x=(1, 3, 8, 8), w=(4, 3, 1, 1))),
        lambda: rg.ops.conv2d(*tensors(x=(1, 6, 8, 8), w=(6, 1, 3, 3)), groups=6),
        lambda: rg.ops.sum(*tensors(x=(4, 5, 6)), axis=1),
        lambda: rg.ops.softmax(*tensors(x=(4, 5))),
        lambda: largest_products(*tensors(x=(6, 9), w=(4, 2))),
        lambda: rg.ops.relu(*tensors(x=(4, 5))),
    ],
)
def test_what_is_no_contraction_over_views_has_no_implicit_gemm(make):
    assert implicit_gemm(canonicalize(make()).tensor_ops[0]) is None
