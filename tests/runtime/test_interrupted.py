"""Calls that are interrupted by calls of the same kernel in their thread."""

import sys

import numpy as np

import rollergen as rg


def test_a_call_within_another_leaves_that_ones_integer_alone():
    """As signal handlers do: at any function that a call enters."""
    table, row = rg.tensor("t", (16, 64)), rg.scalar("s", "int32", 0, 15)
    kernel = rg.build(rg.compute((64,), lambda j: table[row, j]), "cpu", profile=False, cache=False)
    rows = np.repeat(np.arange(16, dtype="float32")[:, None], 64, 1)
    kernel(rows, 1), kernel(rows, 2)
    for number in range(12):
        entered = iter(range(100))

        def at_the_nth(frame, event, what, entered=entered, number=number):
            if event == "call" and next(entered) == number:
                sys.setprofile(None)
                kernel(rows, 5)

        sys.setprofile(at_the_nth)
        try:
            found = kernel(rows, 9)
        finally:
            sys.setprofile(None)
        assert (found == 9).all()
