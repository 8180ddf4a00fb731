"""Dot products as OpenCL C."""

import re

import pytest

from rollergen.hal.dot_products import opencl_function
from rollergen.hal.dtypes import DOTS


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("op", DOTS.values())
def test_no_function_names_a_vector_that_opencl_c_lacks(op, lanes):
    _, text = opencl_function(op, lanes, "")
    named = re.findall(r"\b(?:as_)?u?(?:short|int)(\d+)\b", text)
    assert {int(one) for one in named} <= {2, 3, 4, 8, 16}
