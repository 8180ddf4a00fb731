"""Joins: stages that store whole tensors one behind the other are told from all others, and where each tensor lies."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.joins import joined

ops = rg.ops


def join_of(expression):
    """Of its only stage."""
    (op,) = canonicalize(expression).tensor_ops
    return joined(op)


def parts(*shapes, dtype="float32"):
    return [rg.tensor(f"p{number}", shape, dtype) for number, shape in enumerate(shapes)]


ROWS = st.lists(st.integers(1, 5), min_size=2, max_size=7)


@given(ROWS, st.sampled_from([(), (3,), (2, 5), (1, 4)]), st.integers(0, 2), st.sampled_from(["float32", "int8"]))
@settings(max_examples=60, deadline=None)
def test_parts_of_a_join_along_its_first_axis_lie_where_numpy_puts_them(rows, rest, ones, dtype):
    shapes = [(1,) * ones + (count, *rest) for count in rows]
    found = join_of(ops.cat(parts(*shapes, dtype=dtype), ones))
    sizes = [int(np.prod(shape)) for shape in shapes]
    assert found == dict(zip((f"p{n}" for n in range(len(rows))), (0, *accumulate(sizes[:-1])), strict=True))


@given(ROWS, st.integers(2, 5), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_what_is_told_of_a_join_is_what_its_definition_gives(rows, width, seed):
    given_parts = parts(*((count, width) for count in rows))
    expression = ops.cat(given_parts, 0)
    random = np.random.default_rng(seed)
    arrays = {one.name: random.standard_normal(one.shape).astype("float32") for one in given_parts}
    whole = np.asarray(expression.evaluate(*arrays.values())).reshape(-1)
    for name, at in join_of(expression).items():
        np.testing.assert_array_equal(whole[at : at + arrays[name].size], arrays[name].reshape(-1))


A, B, C = parts((3, 4), (5, 4), (3, 4))
Q, R, D = rg.tensor("q", (4, 4)), rg.tensor("r", (4, 4)), rg.tensor("d", (8, 4))
OTHERS = {
    "rows side by side": lambda: ops.cat([A, C], 1),
    "a part of a part": lambda: ops.cat([A, ops.getitem(B, slice(1, 4))], 0),
    "a part twice": lambda: ops.cat([A, B, A], 0),
    "a part that is computed": lambda: ops.cat([A, ops.relu(B)], 0),
    "a part upside down": lambda: ops.cat([A, ops.flip(B, [0])], 0),
    "a part that is turned": lambda: ops.cat([A, ops.permute(rg.tensor("t", (4, 5)), (1, 0))], 0),
    "zeros behind": lambda: ops.pad(A, (0, 0, 0, 2)),
    "chosen by a value": lambda: ops.where(ops.gt(A, 0), A, C),
    "a sum": lambda: ops.sum(ops.cat([A, B], 0), 0),
    "one tensor": lambda: ops.mul(A, 2),
    "of two widths": lambda: ops.cat([A, rg.tensor("h", (5, 4), "float16")], 0),
    "by a diagonal": lambda: rg.compute((4, 4), lambda i, j: rg.select(i < j, Q[i, j], R[i, j])),
    "not from the first": lambda: rg.compute((8, 4), lambda i, j: rg.select(i < 3, A[i, j], D[i, j])),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_more_than_join_whole_tensors_is_no_join(name):
    assert all(joined(op) is None for op in canonicalize(OTHERS[name]()).tensor_ops)
