"""Linear layers and attention equal PyTorch's (matmul and convolution: test_oracle.py)."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.gate.differences import allowed_error
from rollergen.gate.tolerance import accuracies
from tests.expr.operators.oracle import F, agree, given, torch

ops = rg.ops


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_equals_pytorchs(shape, biased):
    tensors, arrays, others = given(*(shape, (9, 7), (9,))[: 2 + biased])
    agree(ops.linear(*tensors), arrays, F.linear(*others))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("settings", [{}, {"scale": 0.3}, {"is_causal": True}])
def test_attention_equals_pytorchs(lead, settings):
    tensors, arrays, others = given((*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 6))
    agree(ops.attention(*tensors, **settings), arrays, F.scaled_dot_product_attention(*others, **settings))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_of_narrow_floats_errs_no_more_than_pytorchs(dtype):
    """The weights are rounded as PyTorch's are: twice its error at most, over several draws, as a result that lies
    between two numbers may be rounded to either, and within what the gate allows."""
    shapes, draws = {"q": (2, 9, 16), "k": (2, 70, 16), "v": (2, 70, 5)}, np.random.default_rng(0)
    expression = rg.ops.attention(*(rg.tensor(name, shape, dtype) for name, shape in shapes.items()))
    graph = canonicalize(expression)
    made = accuracies(graph.tensor_ops, graph.inputs)[graph.outputs[0].name]
    kernel, ours, pytorchs = rg.build(expression, "a100", profile=False, cache=False), [], []
    for _ in range(8):
        arrays = [draws.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in shapes.values()]
        found = kernel.interpret(*arrays).astype(np.float64)
        wanted = expression.evaluate(*(array.astype(np.float64) for array in arrays))
        others = (torch.tensor(array.astype(np.float32)).to(getattr(torch, dtype)) for array in arrays)
        assert (np.abs(found - wanted) <= allowed_error(wanted, made.variance, dtype)).all()
        ours.append(found - wanted)
        pytorchs.append(F.scaled_dot_product_attention(*others).double().numpy() - wanted)
    assert 0 < np.linalg.norm(ours) <= 2 * np.linalg.norm(pytorchs)
