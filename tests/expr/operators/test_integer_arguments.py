"""Integers of NumPy's are integers to every operator; what is none is named, and so are operators on whole tensors."""

import math
import operator

import numpy as np
import pytest

import rollergen as rg
from rollergen.errors import ExpressionError, RollergenError, ShapeError

ops = rg.ops
M = rg.tensor("m", (4, 8))
X = rg.tensor("x", (1, 4, 8, 8))
W = rg.tensor("w", (4, 1, 3, 3))
TAKING = {
    "axis": lambda i: ops.sum(M, i(1)),
    "axes": lambda i: ops.amax(M, (i(0), i(-1))),
    "one axis": lambda i: ops.log_softmax(M, i(0)),
    "concat": lambda i: ops.concat([M, M], i(1)),
    "settings": lambda i: ops.conv2d(X, W, None, i(2), (i(1), i(0)), i(1), i(4)),
    "transposed": lambda i: ops.conv_transpose2d(X, W, None, i(2), groups=i(4)),
    "window": lambda i: ops.avg_pool2d(X, i(2), divisor_override=i(3)),
    "pad": lambda i: ops.pad(M, (i(1), 0)),
    "pad each": lambda i: ops.pad(M, (0, 2, i(1), i(0)), "replicate"),
    "pad both": lambda i: ops.pad(M, (i(1), i(2))),
    "reshape": lambda i: ops.reshape(M, (i(2), i(-1))),
    "flat": lambda i: ops.reshape(M, i(32)),
    "transpose": lambda i: ops.permute(M, (i(-1), i(0))),
    "slice": lambda i: ops.getitem(M, (slice(i(0), i(3), i(2)), i(-1))),
    "expand": lambda i: ops.expand(M, (i(3), i(4), i(8))),
    "upsample": lambda i: ops.upsample_nearest(X, scale_factor=i(2)),
    "normalized shape": lambda i: ops.layer_norm(M, i(8)),
    "correction": lambda i: ops.var(M, i(1), correction=i(0)),
    "zero point": lambda i: ops.quantize(M, 0.25, i(3)),
}
REFUSED = {
    "axis": (lambda: ops.sum(M, 1.5), "sum: axis is 1.5; m has axes -2 to 1"),
    "axis of compute": (lambda: ops.mean(M, rg.reduce_axis("k", 4)), "mean: axis is "),
    "truth": (lambda: ops.softmax(M, True), "softmax: axis is True; expected one of -2 to 1"),
    "tensor": (lambda: ops.softmax(M, M), "softmax: axis is m; expected one of -2 to 1"),
    "transpose": (lambda: ops.permute(M, 1), "permute: dims is 1; expected a permutation of 0 to 1"),
    "words": (lambda: ops.permute(M, ("a", 0)), "permute: dims is ('a', 0); expected a permutation of 0 to 1"),
    "fractions": (lambda: ops.permute(M, (1.0, 0.0)), "permute: dims is (1.0, 0.0); expected a permutation"),
    "reshape": (lambda: ops.reshape(M, None), "reshape: shape is None; expected extents of at least 0"),
    "text": (lambda: ops.reshape(M, "32"), "reshape: shape is '32'; expected extents of at least 0"),
    "expand": (lambda: ops.expand(M, 3), "expand: m (4, 8) does not broadcast to (3,)"),
    "expand by text": (lambda: ops.expand(M, "48"), "expand: size is '48'; expected integers"),
    "concat": (lambda: ops.concat(5), "concat: tensors is 5; expected a list of at least one tensor"),
    "mode": (lambda: ops.pad(M, (1, 1), ["edge"]), "pad: mode is ['edge']; expected"),
    "widths": (lambda: ops.pad(M, "11"), "pad: pad is '11'; expected (before, after) of the last axis"),
    "no widths": (lambda: ops.pad(M, None), "pad: pad is None; expected (before, after) of the last axis"),
    "negative widths": (lambda: ops.pad(M, (-5, -4)), "pad: pad is (-5, -4); it leaves (4, -1) of m (4, 8)"),
}


@pytest.mark.parametrize("case", TAKING)
@pytest.mark.parametrize("kind", [np.int64, np.int8, np.intp])
def test_integers_of_numpy_are_integers(case, kind):
    ours, theirs = TAKING[case](int), TAKING[case](kind)
    assert theirs.shape == ours.shape
    arrays = [np.linspace(-2, 2, math.prod(s.shape)).reshape(s.shape) for s in _given(case)]
    assert np.array_equal(theirs.evaluate(*arrays), ours.evaluate(*arrays))


def _given(case: str):
    return [X, W] if case in ("settings", "transposed") else [X] if case in ("window", "upsample") else [M]


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_integer_is_named(case):
    attempt, says = REFUSED[case]
    with pytest.raises(RollergenError) as error:
        attempt()
    assert isinstance(error.value, (ShapeError, ExpressionError))
    assert says in str(error.value)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "matmul", "lt", "ge"])
def test_an_array_beside_a_whole_tensor_is_refused_with_advice(name):
    for operands in ((M, np.ones((4, 8))), (np.ones((4, 8)), M)):
        with pytest.raises(ExpressionError, match=r'rg\.tensor\("x", \(4, 8\), "float64"\) stands for it'):
            getattr(operator, name)(*operands)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_operators_of_integers_refuse_floats(name):
    with pytest.raises(RollergenError, match=r"m.* float32; expected"):
        getattr(operator, name)(M, 2)


def test_functions_of_math_are_refused_with_advice():
    with pytest.raises(ExpressionError, match=r"m\[i, j\] is no number while .* expected rg\.exp"):
        rg.compute((4, 8), lambda i, j: math.exp(M[i, j]))
