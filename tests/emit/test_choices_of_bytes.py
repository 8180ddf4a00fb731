"""Scalar bytes in OpenCL C: chosen by the language's function, unless one of them is to be read."""

import re

import pytest

import rollergen as rg


@pytest.mark.parametrize(("dtype", "scalar"), [("int8", "char"), ("uint8", "uchar"), ("bool", "char")])
def test_bytes_are_chosen_by_select_and_read_only_where_they_are(dtype, scalar):
    x, y = rg.tensor("x", (1001,), dtype), rg.tensor("y", (1001,), "float32")
    chosen = rg.ops.where(y > 3, rg.ops.logical_not(x) if dtype == "bool" else rg.ops.add(x, 1), x)
    source = rg.build(chosen, "mi50", profile=False, cache=False).source
    assert f"select(({scalar})" in source
    for call in re.findall(r"select\(.*", source):
        assert "[" not in call
    assert re.search(r"< 1001 \? x\[", source)
