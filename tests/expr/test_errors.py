
"""What is refused, and what the refusal says: the thing, its value, what would be accepted."""

import re

import numpy as np
import pytest
import sympy

import rollergen as rg
from rollergen import errors
from rollergen.expr.canonical import canonicalize

A = rg.tensor("A", (4, 3))
B = rg.tensor("B", (3, 5))
H = rg.tensor("H", (4, 3), dtype="float16")
N = rg.tensor("N", (4,), dtype="int32")
k = rg.reduce_axis("k", 3)


def over(fn, shape=(4, 3)):
    return lambda: rg.compute(shape, fn, name="C")


CASES = {
    "swapped tensor arguments": (lambda: rg.tensor((4, 3), "A"), TypeError, "look swapped: rg.tensor('A', (4, 3))"),
    "swapped shape and dtype": (lambda: rg.tensor("A", "float32", (4,)), TypeError, "shape and dtype look swapped"),
    "swapped axis arguments": (lambda: rg.reduce_axis(3, "k"), TypeError, "look swapped: rg.reduce_axis('k', 3)"),
    "swapped compute arguments": (lambda: rg.compute(lambda i: A[i, 0], (4,)), TypeError, "swapped: rg.compute(shape, fn)"),
    "einsum string last": (lambda: rg.einsum(A, B, "mk,kn->mn"), TypeError, "the string goes first"),
    "swapped cast": (over(lambda i, j: rg.cast("float32", A[i, j])), TypeError, "look swapped: rg.cast(x, 'float32')"),
    "axis first": (over(lambda i, j: rg.sum(k, axis=A[i, k])), TypeError, "the axis k stands first"),
    "name": (lambda: rg.tensor("A b", (4,)), TypeError, "name is 'A b'; expected an identifier"),
    "extent": (lambda: rg.tensor("A", (4, -1)), ValueError, "an extent is -1; expected an integer of at least 0"),
    "an array for a shape": (
        lambda: rg.tensor("A", np.zeros((200, 200))),
        ValueError,
        "shape is a numpy.ndarray of shape (200, 200) and dtype float64; expected a tuple of integers, e.g. (64, 32)",
    ),
    "bare extent": (lambda: rg.tensor("A", 4), ValueError, "shape is 4; expected a tuple of integers, e.g. (4,)"),
    "dtype": (lambda: rg.tensor("A", (4,), dtype="float8"), errors.DtypeError, "A's dtype is 'float8'; expected one of float16"),
    "rank": (over(lambda i, j: A[i]), errors.ShapeError, "A has 2 dimensions (4, 3); got 1: "),
    "part": (over(lambda i, j: A[1:]), errors.ShapeError, "got 1: slice(1, None, None); rg.ops.getitem(x, index) is a part"),
    "function": (over(lambda i: A[i, 0]), errors.ShapeError, "fn takes (i), 1 for the 2 dimensions of shape"),
    "out of range": (over(lambda i, j: A[i, j + 1]), errors.ShapeError, "A[i, j + 1] reads index 1 (j + 1) from 1 to 3; A has shape (4, 3), so 0 to 2"),
    "guard too wide by one": (over(lambda i, j: rg.select((i + j >= 1) & (i + j < 6), A[i + j - 1, j], 0), (7, 3)), errors.ShapeError, "reads index 0 (i + j - 1) from 0 to 4; A has shape (4, 3), so 0 to 3"),
    "product of axes": (over(lambda i, j: A[i * j, 0]), errors.NonAffineIndexError, "index 0 of A is i*j, which is not quasi-affine: i*j is a product of axes"),
    "index beyond int64": (over(lambda i, j: A[i * 10**30, j]), errors.ExpressionError, f"C: the index {10**30}*i needs numbers up to {3 * 10**30}; expected indices below 2**63"),
    "index that passes int64 on its way": (over(lambda i, j: A[(i * (2**62 + 1) + j) % 2**62 % 4, j]), errors.ExpressionError, f"needs numbers up to {3 * (2**62 + 1) + 2}"),
    "guarded index beyond int64": (over(lambda i, j: rg.select(i * 2**62 < 4, A[i, j], 0)), errors.ExpressionError, f"needs numbers up to {3 * 2**62}"),
    "index as a number beyond int64": (over(lambda i, j: i * 10**30), errors.ExpressionError, f"needs numbers up to {3 * 10**30}"),
    "truth added to an axis": (over(lambda i, j: A[i + True, 0]), errors.ExpressionError, "an index combined with True (bool); expected axes and integer constants"),
    "set added to an axis": (over(lambda i, j: A[i + {1}, 0]), errors.ExpressionError, "an index combined with {1} (set); expected axes and integer constants"),
    "range added to an axis": (over(lambda i, j: A[i + range(3), 0]), errors.ExpressionError, "an index combined with range(0, 3) (range); expected axes and integer constants"),
    "axis divided by a truth": (over(lambda i, j: A[i // True, 0]), errors.ExpressionError, "an index combined with True (bool); expected axes and integer constants"),
    "half an axis": (over(lambda i, j: A[i / 2, 0]), errors.NonAffineIndexError, "index 0 of A is i/2, which is not quasi-affine: i/2 is not an integer for every value of its axes; use //"),
    "division by an axis": (over(lambda i, j: A[i // (j + 1), 0]), errors.NonAffineIndexError, "division by (j + 1), which is not a constant"),
    "power": (over(lambda i, j: A[i**2, 0]), errors.NonAffineIndexError, "i**2 is a power of an axis"),
    "choice of index": (over(lambda i, j: A[sympy.Max(i, 1), 0]), errors.NonAffineIndexError, "choose between values with rg.select"),
    "float as index": (over(lambda i, j: A[A[i, j], j]), errors.NonAffineIndexError, "index 0 of A is a value (<float32 expression A[i, j]>): expected axes combined by +, -, * // % with constants, or an integer value such as ids[i]"),
    "tensor as index": (over(lambda i, j: A[N, j]), errors.NonAffineIndexError, "index 0 of A is the tensor N: expected axes"),
    "slice": (over(lambda i, j: A[:, j]), TypeError, "index 0 of A is slice(None, None, None); expected one index"),
    "truth": (over(lambda i, j: A[i, j] if i < 2 else 0), TypeError, "the truth of (i < 2) is not known"),
    "truth of a SymPy relation": (over(lambda i, j: A[i, j] if sympy.floor(i / 2) > 0 else 0), TypeError, "rg.compute of C: cannot determine truth value"),
    "chained comparison": (over(lambda i, j: rg.select(1 <= i < 3, A[i, j], 0)), TypeError, "write (a <= i) & (i < b) instead of a <= i < b"),
    "python condition": (over(lambda i, j: rg.select(True, A[i, j], 0)), TypeError, "condition is the Python bool True: it was decided while"),
    "value as condition": (over(lambda i, j: rg.select(A[i, j], i >= 1, 0)), TypeError, "the condition is the float32 value (A[i, j])"),
    "whole tensor": (over(lambda i, j: rg.exp(A)), TypeError, "exp of the whole tensor A; index it inside rg.compute, e.g. A[i, j]"),
    "promotion": (over(lambda i, j: A[i, j] * H[i, j]), errors.DtypeError, "* of float32 and float16; dtypes are not promoted: cast one operand, e.g. rg.cast(x, 'float32')"),
    "index in arithmetic": (over(lambda i, j: A[i, j] + j), errors.DtypeError, "+ of float32 and int32"),
    "weak float and integer": (over(lambda i, j: N[i] + 0.5), errors.DtypeError, "+ of int32 values and 0.5; expected a Python integer"),
    "weak integer too large": (over(lambda i, j: N[i] + 2**31), errors.DtypeError, "2147483648 does not fit int32"),
    "integer division": (over(lambda i, j: N[i] / 2), errors.DtypeError, "/ of int32 values; expected a floating dtype"),
    "exp of integers": (over(lambda i, j: rg.exp(N[i])), errors.DtypeError, "exp of int32 values; expected a floating dtype"),
    "sum of conditions": (over(lambda i, j: rg.sum(i >= k, axis=k)), errors.DtypeError, "rg.sum of conditions"),
    "axis of the result": (over(lambda i, j: rg.sum(A[i, j], axis=j)), TypeError, "axis is j, an axis of the result"),
    "whole tensor without a name": (over(lambda i, j: rg.exp(A + A)), TypeError, "exp of the whole tensor without a name; index it inside rg.compute, e.g. t[i, j]"),
    "axis by position": (over(lambda i, j: rg.sum(A[i, k], axis=1)), TypeError, "axis is 1; expected an rg.reduce_axis (positions are for whole tensors: rg.ops.sum)"),
    "no axis": (over(lambda i, j: rg.max(A[i, j], 2.0)), TypeError, "axis is 2.0; expected an rg.reduce_axis"),
    "axis missing": (over(lambda i, j: rg.max(A[i, k])), TypeError, "axis is missing; expected axis=k with k = rg.reduce_axis"),
    "unreduced axis": (over(lambda i, j: A[i, k]), TypeError, "the axis 'k' is neither an axis of the result (i, j) nor reduced over"),
    "axis named twice": (over(lambda i, k: rg.sum(A[i, rg.reduce_axis("k", 3)], axis=rg.reduce_axis("k", 3))), TypeError, "'k' is an axis of the result and one of a reduction; rename one"),
    "extents of one name": (over(lambda i, j: rg.sum(A[i, k], axis=rg.reduce_axis("k", 2))), TypeError, "two axes are named 'k', with extents 3 and 2"),
    "nested axis": (over(lambda i, j: rg.sum(rg.sum(A[i, k], axis=k) * A[i, k], axis=k)), TypeError, "a reduction inside already runs over an axis 'k'"),
    "components": (over(lambda i, j: rg.reduce(lambda a, b: a, (0, 0), A[i, k], axis=k)), TypeError, "identity has 2 components, the reduced value 1"),
    "tuple result": (over(lambda i, j: (A[i, j], A[i, j])), TypeError, "fn returned 2 values; expected one"),
    "einsum sizes": (lambda: rg.einsum("mk,kn->mn", A, rg.tensor("D", (4, 5))), ValueError, "einsum 'mk,kn->mn': k is 3 in A (axis 1) but 4 in D (axis 0)"),
    "einsum rank": (lambda: rg.einsum("mkx,kn->mn", A, B), ValueError, "'mkx' names 3 axes; A has shape (4, 3)"),
    "einsum operands": (lambda: rg.einsum("mk,kn->mn", A), TypeError, "names 2 operands; got 1 tensors"),
    "einsum dots": (lambda: rg.einsum("m..k,kn->mn", A, B), TypeError, "'.' stands there; expected letters, '...', ',' and one '->'"),
    "einsum broadcast": (lambda: rg.einsum("...,...->...", A, B), ValueError, "axis -2 under '...' is 4 in A (axis 0) but 3 in B (axis 0)"),
    "float beyond its dtype": (lambda: over(lambda i, j: A[i, j] * 1e39)(), TypeError, "1e+39 does not fit float32; expected a number that it holds"),
    "dim twice": (lambda: rg.ops.sum(A, 0, dim=1), TypeError, "rg.ops.sum(A, 0, dim=1): multiple values for argument 'dim'; expected sum(input, dim=None, keepdim=False"),
    "einsum output": (lambda: rg.einsum("mk->mz", A), TypeError, "the output's 'z' occurs in no operand"),
    "matmul k": (lambda: rg.ops.matmul(A, A), ValueError, "A (4, 3) has k = 3, A (4, 3) has k = 4; expected equal k; transpose_b=True would match"),
    "matmul rank": (lambda: rg.ops.matmul(rg.tensor("D", ()), B), ValueError, "the first operand D has shape (); expected at least one axis"),
    "ops of an element": (over(lambda i, j: rg.ops.exp(A[i, j])), TypeError, "rg.ops.exp takes whole tensors; got one element"),
    "ops of an array": (lambda: rg.ops.relu(np.ones(3)), TypeError, "rg.ops.relu of a numpy.ndarray of shape (3,) and dtype float64; expected a rollergen tensor"),
    "conv channels": (lambda: rg.ops.conv2d(rg.tensor("x", (1, 4, 8, 8)), rg.tensor("w", (2, 3, 3, 3))), ValueError, "w (2, 3, 3, 3) has 3 channels; x (1, 4, 8, 8) has 4 in 1 groups, so 4 are expected"),
    "conv kernel": (lambda: rg.ops.conv2d(rg.tensor("x", (1, 1, 2, 8)), rg.tensor("w", (1, 1, 3, 3))), ValueError, "a kernel of 3 (dilation 1) reaches over 3; the padded image has 2"),
    "conv padding": (lambda: rg.ops.conv2d(rg.tensor("x", (1, 1, 8, 8)), rg.tensor("w", (1, 1, 3, 3)), padding="full"), ValueError, 'padding is \'full\'; expected an integer, two, "same", "same_lower" or "valid"'),
    "broadcast": (lambda: rg.ops.add(A, B), ValueError, "add: A (4, 3) and B (3, 5) do not broadcast"),
    "bias": (lambda: rg.ops.bias_add(A, rg.tensor("b", (4,))), ValueError, "b has shape (4,); expected (3,), the extent of axis 1 of A (4, 3)"),
    "axis position": (lambda: rg.ops.sum(A, axis=2), ValueError, "sum: axis is 2; A has axes -2 to 1"),
    "permutation": (lambda: rg.ops.permute(A, (0, 0)), ValueError, "dims is (0, 0); expected a permutation of 0 to 1"),
    "number of arrays": (lambda: rg.ops.relu(A).evaluate(), errors.ArgumentError, "got 0 arrays; expected 1: A (4, 3)"),
    "shape of an array": (lambda: rg.ops.relu(A).evaluate(np.ones((3, 4))), errors.ShapeError, "the array for A has shape (3, 4); expected (4, 3)"),
    "kind of an array": (lambda: rg.ops.relu(N).evaluate(np.ones(4)), errors.DtypeError, "the array for N has dtype float64; expected int32"),
    "equal names": (lambda: canonicalize(rg.ops.add(A, rg.tensor("A", (3,)))), TypeError, "two tensors are named 'A', of shapes (4, 3) and (3,); names must differ"),
    "output's name": (lambda: canonicalize(rg.ops.relu(A, name="A")), TypeError, "the output 'A' has the name of another tensor"),
    "nothing to compute": (lambda: canonicalize(A), TypeError, "output 0 is the given tensor A: there is nothing to compute"),
    "foreign input": (lambda: canonicalize(rg.ops.relu(A), inputs=[A, B]), TypeError, "inputs= names B, which the expression does not read; it reads A"),
    "missing input": (lambda: canonicalize(rg.ops.matmul(A, B), inputs=[B]), TypeError, "inputs= lacks A; expected each of A, B once"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_expressions_are_refused_with_name_value_and_what_is_accepted(case):
    make, kind, text = CASES[case]
    with pytest.raises(kind, match=re.escape(text)) as caught:
        make()
    assert isinstance(caught.value, errors.RollergenError)
