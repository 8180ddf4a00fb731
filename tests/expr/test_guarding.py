"""A choice between a tensor's element and a constant is a guarded load with that fill, where its dtype has the fill."""

import numpy as np
import pytest

import rollergen as rg
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.values import Select, walk

CASES = [
    ("int32", 0.25, False), ("int8", 300.0, False), ("int8", 5.0, True), ("int32", -0.0, False), ("int32", 0.0, True),
    ("int32", float("inf"), False), ("float16", 0.1, False), ("float16", 1e6, False), ("float16", 0.5, True),
    ("float16", -0.0, True), ("float16", float("-inf"), True), ("bfloat16", 0.1, False), ("float64", 0.1, True),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "constant", "pushed"), CASES)
def test_a_fill_of_a_narrower_tensor_keeps_its_value(dtype, constant, pushed):
    x = rg.tensor("x", (10,), dtype)
    inside = lambda i: rg.select((i >= 2) & (i < 12), rg.cast(x[i - 2], "float32"), constant)
    padded = rg.compute((14,), inside, name="y")
    values = np.arange(1, 11).astype(numpy_dtype(dtype))
    got = rg.build(padded, "v100", profile=False).interpret(values)
    wanted = np.asarray(padded.evaluate(values)).astype(np.float32)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
    nodes = walk(canonicalize(padded).tensor_ops[0].result)
    assert pushed != any(isinstance(node, Select) for node in nodes)
