"""Bounds that follow from those of a number's digits, beside all values."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from rollergen.expr.digits import follows
from rollergen.expr.index import Index
from rollergen.expr.values import Within

x, tap, inner = Index.axis("x"), Index.axis("tap"), Index.axis("inner")
RANGES = {"x": (0, 120), "tap": (0, 8), "inner": (0, 3)}
ROW, COLUMN = Within(x // 8 + tap // 3 - 1, 0, 8), Within(x % 8 + tap % 3 - 1, 0, 8)
PLACE = x + tap // 3 * 8 + tap % 3 - 9


@pytest.mark.parametrize("scale, index", [(1, PLACE), (4, PLACE * 4 + inner)])
@pytest.mark.parametrize("short", [0, 1, 5])
@pytest.mark.parametrize("others", [(ROW, COLUMN), (COLUMN, ROW), (ROW,), (COLUMN,), ()])
def test_a_bound_follows_where_no_value_breaks_it(scale, index, short, others):
    bound = Within(index, 0, 64 * scale - short)
    values = dict(zip(RANGES, np.ix_(*(np.arange(high + 1) for _, high in RANGES.values())), strict=True))
    hold = lambda one: (one.index.evaluate(values) >= one.low) & (one.index.evaluate(values) < one.high)
    broken = np.any(reduce(np.logical_and, map(hold, others)) & ~hold(bound)) if others else True
    assert follows(bound, others, RANGES) == (not broken)
