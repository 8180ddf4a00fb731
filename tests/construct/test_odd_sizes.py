"""What one element more along each axis of a product costs, as predicted."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.expr.canonical import canonicalize
from tests.agreement.readers import device

T = rg.tensor
EXTENTS = st.integers(8, 64).map(lambda tiles: 64 * tiles)
LAUNCHES = 50
"""Launches that a product takes the time of, at least: a kernel for an edge or a copy takes one of its own."""


def seconds(m, n, k, on, dtype="float32"):
    product = rg.ops.matmul(T("A", (m, k), dtype), T("B", (k, n), dtype))
    return construct(canonicalize(product), device(on), top_k=1)[0].seconds


@pytest.mark.parametrize("on", ["v100", "a100", "h200", "mi50"])
@settings(max_examples=3, deadline=None)
@given(st.tuples(EXTENTS, EXTENTS, EXTENTS))
def test_one_element_more_costs_at_most_a_quarter(on, size):
    even = seconds(*size, on)
    assume(even > LAUNCHES * 1e-6 * device(on).launch_us)
    assert seconds(*(extent + 1 for extent in size), on) <= 1.25 * even
