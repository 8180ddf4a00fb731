"""Linear layers and attention equal PyTorch's (matmul and convolution: test_oracle.py)."""

import pytest

import rollergen as rg
from tests.expr.operators.oracle import F, agree, given

ops = rg.ops


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_equals_pytorchs(shape, biased):
    tensors, arrays, others = given(*(shape, (9, 7), (9,))[: 2 + biased])
    agree(ops.linear(*tensors), arrays, F.linear(*others))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("settings", [{}, {"scale": 0.3}, {"causal": True}])
def test_attention_equals_pytorchs(lead, settings):
    tensors, arrays, others = given((*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 6))
    named = {{"causal": "is_causal"}.get(key, key): value for key, value in settings.items()}
    agree(ops.attention(*tensors, **settings), arrays, F.scaled_dot_product_attention(*others, **named))
