"""Tensors without elements: what expressions of them are, by NumPy's own answers."""

import numpy as np
import pytest

import rollergen as rg
from rollergen import ops
from rollergen.errors import ExpressionError, ShapeError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.empties import without_empties

E, F, G = rg.tensor("E", (0, 3)), rg.tensor("F", (2, 0)), rg.tensor("G", (2, 3))
DATA = {"E": np.zeros((0, 3)), "F": np.zeros((2, 0)), "G": np.arange(6.0).reshape(2, 3)}

CASES = {
    "sum of nothing": (lambda: ops.sum(E, 0), lambda d: np.zeros(3)),
    "product of nothing": (lambda: ops.prod(F, 1), lambda d: np.ones(2)),
    "any of nothing": (lambda: ops.any(F, 1), lambda d: np.zeros(2, bool)),
    "all of nothing": (lambda: ops.all(F, 1), lambda d: np.ones(2, bool)),
    "mean of nothing": (lambda: ops.mean(F, 1), lambda d: np.full(2, np.nan)),
    "variance of nothing": (lambda: ops.var(F, 1), lambda d: np.full(2, np.nan)),
    "variance of one": (lambda: ops.var(ops.getitem(G, np.s_[:, :1]), 1), lambda d: np.full(2, np.nan)),
    "logarithm of a sum of nothing": (lambda: ops.logsumexp(F, 1), lambda d: np.full(2, -np.inf)),
    "largest along another axis": (lambda: ops.amax(E, 1), lambda d: np.zeros(0)),
    "product over nothing": (lambda: ops.matmul(F, E), lambda d: np.zeros((2, 3))),
    "product with a term": (lambda: ops.add(ops.matmul(F, E), G), lambda d: d["G"]),
    "broadcast": (lambda: ops.add(E, ops.sum(G, 0)), lambda d: np.zeros((0, 3))),
    "first part of a concatenation": (lambda: ops.concat([E, G]), lambda d: d["G"]),
    "last part of a concatenation": (lambda: ops.concat([G, E]), lambda d: d["G"]),
    "a vector beside matrices": (lambda: ops.concat([rg.tensor("V", (0,)), G], 1), lambda d: d["G"]),
    "nothing else": (lambda: ops.concat([E, E]), lambda d: np.zeros((0, 3))),
    "reshaped": (lambda: ops.reshape(E, (4, 0, 2)), lambda d: np.zeros((4, 0, 2))),
    "permuted": (lambda: ops.permute(E, (1, 0)), lambda d: np.zeros((3, 0))),
    "sliced to nothing": (lambda: ops.getitem(G, np.s_[:, 2:2]), lambda d: np.zeros((2, 0))),
    "repeated no times": (lambda: ops.tile(G, (0, 2)), lambda d: np.zeros((0, 6))),
    "nothing repeated": (lambda: ops.repeat(E, (2, 3)), lambda d: np.zeros((0, 9))),
    "border around nothing": (lambda: ops.pad(F, (1, 2), value=5.0), lambda d: np.full((2, 3), 5.0)),
    "border cut away": (lambda: ops.pad(G, (-1, -2)), lambda d: np.zeros((2, 0))),
    "rolled": (lambda: ops.roll(E, 1, 0), lambda d: np.zeros((0, 3))),
    "softmax": (lambda: ops.softmax(F, 1), lambda d: np.zeros((2, 0))),
    "attention by nothing": (
        lambda: ops.scaled_dot_product_attention(F, F, G), lambda d: np.broadcast_to(d["G"].mean(0), (2, 3)),
    ),
    "no ids": (lambda: rg.take(G, ops.cast(rg.tensor("I", (0,)), "int32")), lambda d: np.zeros((0, 3))),
    "no ids of several axes": (
        lambda: ops.gather(G, 0, rg.tensor("J", (4, 0, 1), "int64")), lambda d: np.zeros((4, 0, 1)),
    ),
    "convolution of no pictures": (
        lambda: ops.conv2d(rg.tensor("P", (0, 2, 4, 4)), rg.tensor("W", (3, 2, 3, 3))), lambda d: np.zeros((0, 3, 2, 2)),
    ),
    "own reduction": (
        lambda: rg.compute((2,), lambda i: rg.reduce(lambda a, b: a + b * 1, 0.0, F[i, K0], axis=K0)), lambda d: np.zeros(2),
    ),
}  # fmt: skip
K0 = rg.reduce_axis("k", 0)


def arrays(tensor):
    shapes = {"V": (0,), "I": (0,), "J": (4, 0, 1), "P": (0, 2, 4, 4), "W": (3, 2, 3, 3)}
    known = DATA | {name: np.zeros(shape, int if name == "J" else float) for name, shape in shapes.items()}
    return {one.name: known[one.name] for one in canonicalize(tensor).inputs}


@pytest.mark.parametrize("case", CASES)
def test_values_are_numpys(case):
    make, wanted = CASES[case]
    tensor = make()
    np.testing.assert_array_equal(tensor.evaluate(**arrays(tensor)), wanted(DATA))


@pytest.mark.parametrize("case", CASES)
def test_no_stage_has_an_axis_without_elements(case):
    graph = canonicalize(CASES[case][0]())
    assert all(axis.extent > 0 for op in graph.tensor_ops for axis in op.axes)
    assert all(buffer.elements for op in graph.tensor_ops for buffer in op.buffers_read().values())
    assert bool(graph.tensor_ops) == bool(graph.outputs[0].elements)


def test_inputs_that_nothing_is_read_of_stay_arguments():
    assert [one.name for one in canonicalize(ops.add(ops.matmul(F, E), G)).inputs] == ["F", "E", "G"]


def test_an_expression_with_elements_alone_is_left_as_it_is():
    tensor = ops.softmax(G)
    assert without_empties([tensor])[0] is tensor


def test_the_largest_of_nothing_is_the_identity_in_the_language():
    tensor = rg.compute((2,), lambda i: rg.max(F[i, K0], axis=K0))
    assert tensor.evaluate(DATA["F"]).tolist() == [-np.inf] * 2


def test_reading_from_nothing_is_refused():
    with pytest.raises(ShapeError, match=r"E\[0, i\] reads index 0 \(0\) from 0 to 0; E has shape \(0, 3\)"):
        rg.compute((3,), lambda i: E[0, i])
    with pytest.raises(ShapeError, match="an extent is -1; expected an integer of at least 0"):
        rg.reduce_axis("k", -1)
    with pytest.raises(ExpressionError, match="division of the index i by 0"):
        rg.compute((3,), lambda i: G[0, i // 0])
