"""Which axes of an expression its stages keep: those merge that every access allows."""

import pytest

import rollergen as rg
from rollergen.expr.show import show
from rollergen.expr.stages import cut
from tests.expr.graphs import tensors
from tests.expr.test_canonical import agree, axes, small_integers


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: rg.ops.relu(*tensors(x=(4, 5, 6))), [120]),
        (lambda: rg.ops.relu(*tensors(x=(1, 1))), [1]),
        (lambda: rg.compute((), lambda: tensors(x=(3,))[0][2]), [1]),
        (lambda: rg.ops.matmul(*tensors(a=(1, 1), b=(1, 1))), [1]),
        (lambda: rg.ops.add(*tensors(a=(4, 5, 6), b=(5, 6))), [4, 30]),
        (lambda: rg.ops.add(*tensors(a=(4, 5, 6), b=(5, 1))), [4, 5, 6]),
        (lambda: rg.ops.permute(*tensors(x=(4, 5, 6)), (2, 0, 1)), [6, 20]),
        (lambda: rg.ops.sum(*tensors(x=(4, 5, 6)), axis=(1, 2)), [4, 30]),
        (lambda: rg.ops.sum(*tensors(x=(4, 5, 6)), axis=(0, 1)), [6, 20]),
        (lambda: rg.ops.sum(*tensors(x=(4, 5, 6)), axis=1), [4, 6, 5]),
        (lambda: rg.ops.sum(*tensors(x=(4, 5, 6))), [120]),
        (lambda: rg.ops.batch_matmul(*tensors(a=(2, 3, 4, 5), b=(2, 3, 5, 6))), [6, 4, 6, 5]),
        (lambda: rg.ops.matmul(*tensors(a=(1, 5), b=(5, 6))), [6, 5]),
        (lambda: rg.ops.conv2d(*tensors(x=(1, 3, 8, 8), w=(4, 3, 1, 1))), [4, 64, 3]),
        (lambda: rg.ops.conv2d(*tensors(x=(2, 3, 8, 8), w=(4, 3, 1, 1))), [2, 4, 64, 3]),
        (lambda: rg.ops.conv2d(*tensors(x=(1, 3, 8, 8), w=(4, 3, 3, 3))), [4, 6, 6, 3, 3, 3]),
        (lambda: rg.ops.conv2d(*tensors(x=(1, 6, 8, 8), w=(4, 3, 3, 3)), groups=2), [2, 2, 6, 6, 3, 3, 3]),
    ],
)
def test_axes_merge_exactly_where_every_access_allows(make, expected):
    graph = agree(make(), *(small_integers(b.shape, n) for n, b in enumerate(cut(make()).inputs)))
    assert [extent for _, extent, _ in axes(graph)] == expected


def test_a_reshape_reads_one_flat_axis():
    (x,) = tensors(x=(6, 8))
    view = rg.compute((4, 12), lambda i, j: x[(i * 12 + j) // 8, (i * 12 + j) % 8])
    graph = agree(view, small_integers((6, 8)))
    assert axes(graph) == [("i", 48, "spatial")] and show(graph.tensor_ops[0].result) == "x[i]"


def test_an_axis_is_not_split_by_what_does_not_divide_it():
    x, k = *tensors(x=(3, 7)), rg.reduce_axis("k", 7)
    graph = agree(rg.compute((5,), lambda i: rg.sum(x[i // 2, k], axis=k)), small_integers((3, 7)))
    assert axes(graph) == [("i", 5, "spatial"), ("k", 7, "reduce")]


def test_windows_that_overlap_are_no_digits_of_a_number():
    x, w = tensors(x=(1, 4, 8, 8), w=(4, 2, 3, 3))
    agree(rg.ops.conv2d(x, w, stride=2, padding="same", groups=2), small_integers(x.shape), small_integers(w.shape))
