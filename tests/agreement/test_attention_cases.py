"""Attention as one kernel, or two for few queries: random shapes, masks, heads, dtypes, scores and tiles on every kind of
device, beside float64.  `benches/check_attention.py` runs 200 of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attention_cases import (
    DEVICES,
    MASKS,
    SCORES,
    arrays_of,
    assert_right,
    drawn,
    expression_of,
    program_of,
    wanted,
)
from tests.cuda.host import compiler


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("number", range(1, 41))
@pytest.mark.every(19)
def test_attention_is_right_in_every_reader(number):
    assert_right(drawn(number))


def test_the_draws_cover_what_they_are_about():
    every = [drawn(number) for number in range(200)]
    assert {one.device for one in every} == {*DEVICES}
    assert {(one.device, one.mask) for one in every} == {(name, mask) for name in DEVICES for mask in MASKS}
    assert {one.scores for one in every} == {*SCORES} and {one.dtype for one in every} == {
        "float16", "bfloat16", "float32"
    }  # fmt: skip
    assert any(one.rows == 1 for one in every) and any(one.depth == 256 for one in every)
    assert len({one.shared for one in every}) == 3


@pytest.mark.parametrize("mask", MASKS)
def test_the_oracle_is_the_definition(mask):
    """Of scores that are no numbers, and of rows without keys, too."""
    for number in range(4 * MASKS.index(mask), 4 * MASKS.index(mask) + 4):
        case = drawn(number)
        assert case.mask == mask
        made = program_of(case)
        arrays = arrays_of(case, made)
        found = expression_of(case).evaluate(*[arrays[b.name] for b in made.inputs]).astype(np.float64)
        np.testing.assert_allclose(found, wanted(case, arrays), rtol=0, atol=2.0**-5)
