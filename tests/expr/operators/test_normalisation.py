"""Normalisation equals PyTorch's."""

import numpy as np
import pytest

import rollergen as rg
from tests.expr.operators.oracle import F, agree, given, torch

ops = rg.ops


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_its_logarithm_equal_pytorchs(axis):
    (x,), (a,), (t,) = given((3, 5, 7))
    agree(ops.softmax(x, axis), [a * 50], F.softmax(t * 50, axis))
    agree(ops.log_softmax(x, axis), [a * 50], F.log_softmax(t * 50, axis))


@pytest.mark.parametrize("shape", [7, (7,), (5, 7), (3, 5, 7)])
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_layer_norm_equals_pytorchs(shape, affine):
    full = (shape,) if isinstance(shape, int) else shape
    (x, *rest), arrays, (t, *others) = given((3, 5, 7), *(full,) * affine)
    agree(ops.layer_norm(x, shape, *rest, eps=1e-3), arrays, F.layer_norm(t, full, *others, eps=1e-3))


@pytest.mark.parametrize("shape", [7, (5, 7)])
@pytest.mark.parametrize("affine", [0, 1])
def test_rms_norm_equals_its_formula(shape, affine):
    full = (shape,) if isinstance(shape, int) else shape
    (x, *rest), arrays, (t, *others) = given((3, 5, 7), *(full,) * affine)
    wanted = t * torch.rsqrt((t**2).mean(tuple(range(-len(full), 0)), keepdim=True) + 1e-3)
    agree(ops.rms_norm(x, shape, *rest, eps=1e-3), arrays, wanted * others[0] if affine else wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rms_norm_of_small_numbers_is_torchs_unless_told_eps(dtype):
    """Not the spacing of the narrow dtype, which is as large as the mean of such squares."""
    t = torch.tensor([[0.03125, -0.0625, 0.015625, 0.03125]], dtype=getattr(torch, dtype))
    wanted = F.rms_norm(t, (4,)).double()
    found = ops.rms_norm(rg.tensor("x", (1, 4), dtype), 4).evaluate(t.double().numpy())
    np.testing.assert_allclose(found, wanted, rtol={"float16": 2**-11, "bfloat16": 2**-8}.get(dtype, 1e-6))


@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 5), (2, 6, 3, 5)])
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_batch_norm_equals_pytorchs(shape, affine):
    (x, *rest), arrays, (t, *others) = given(shape, *((6,),) * (2 + affine), positive=True)
    agree(ops.batch_norm(x, *rest, eps=1e-3), arrays, F.batch_norm(t, *others, eps=1e-3))


def test_a_bias_without_a_weight_is_fine():
    (x, m, v, b), arrays, (t, tm, tv, tb) = given((2, 3, 5), (3,), (3,), (3,), positive=True)
    agree(ops.batch_norm(x, m, v, bias=b), arrays, F.batch_norm(t, tm, tv, bias=tb))
