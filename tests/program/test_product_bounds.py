"""What every program of a sum of products takes at least, known before any is constructed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.planning import row_limits
from rollergen.expr.canonical import canonicalize
from rollergen.hal.load import load_device
from rollergen.program.model.roofline import product_seconds
from tests.program.hand_devices import AVX512

T = rg.tensor
CPU, V100 = AVX512, load_device("v100")


def bound(expression, device):
    graph = canonicalize(expression, None, row_limits(device))
    return sum(product_seconds(op, device) for op in graph.tensor_ops), graph


@given(
    channels=st.integers(2, 40), filters=st.integers(1, 40), side=st.integers(3, 20), taps=st.integers(1, 3),
    stride=st.integers(1, 2), padding=st.integers(0, 1), constant=st.booleans(), last=st.booleans(),
)  # fmt: skip
@settings(max_examples=10, deadline=None)
def test_no_convolution_is_predicted_to_take_less(channels, filters, side, taps, stride, padding, constant, last):
    image = T("X", (1, side, side, channels) if last else (1, channels, side, side))
    weights = T("W", (filters, channels, taps, taps), constant=constant)
    read = rg.ops.permute(image, (0, 3, 1, 2)) if last else image
    made = rg.ops.conv2d(read, weights, stride=stride, padding=padding)
    least, graph = bound(made, CPU)
    assert 0 < least < construct(graph, CPU, top_k=1)[0].seconds


@given(m=st.integers(1, 200), n=st.integers(1, 200), k=st.integers(2, 200))
@settings(max_examples=10, deadline=None)
def test_no_product_is_predicted_to_take_less(m, n, k):
    for device in (CPU, V100):
        least, graph = bound(rg.ops.relu(rg.ops.matmul(T("A", (m, k)), T("B", (k, n)))), device)
        assert 0 < least < construct(graph, device, top_k=1)[0].seconds


def test_large_products_take_little_more():
    least, graph = bound(rg.ops.matmul(T("A", (512, 512)), T("B", (512, 512))), CPU)
    assert construct(graph, CPU, top_k=1)[0].seconds < 2 * least


@pytest.mark.parametrize("made", [
    rg.ops.matmul(T("A", (64, 64), "float16"), T("B", (64, 64), "float16")),
    rg.ops.matmul(T("A", (64, 64), "int8"), T("B", (64, 64), "int8")),
    rg.ops.max(T("A", (64, 64)), axis=1), rg.ops.relu(T("A", (64, 64))), rg.ops.softmax(T("A", (64, 64)), axis=-1),
])  # fmt: skip
def test_others_have_no_bound(made):
    assert bound(made, CPU)[0] == 0
