"""How many steps of a long loop are written out at a time."""

from __future__ import annotations

import pytest

from rollergen.emit.unrolling import steps_at_once
from rollergen.expr.index import Index
from rollergen.lower.expressions import Number, Pointer
from rollergen.lower.ir import For, Write

MEMORY = Pointer("x", "float32", "global", writable=True)


@pytest.mark.parametrize(("steps", "at_once"), [(16, None), (18, None), (20, 10), (32, 8), (36, 9), (25, 8)])
def test_long_loops_are_written_out_in_parts_that_come_out_even_where_some_do(steps, at_once):
    body = (Write(MEMORY, Index.axis("i"), Number(0, "float32")),)
    assert steps_at_once(For("i", 0, steps, body, True)) == at_once


@pytest.mark.parametrize(("steps", "at_once"), [(64, None), (96, 32), (80, 40)])
def test_loops_that_only_start_copies_hold_no_registers_and_are_written_out_further(steps, at_once):
    body = (Write(MEMORY, Index.axis("i"), Number(0, "float32"), asynchronous=True),)
    assert steps_at_once(For("i", 0, steps, body, True)) == at_once


@pytest.mark.parametrize(("divided", "at_once"), [("i", None), ("place", 8)])
def test_copies_whose_addresses_are_quotients_beside_the_thread_are_written_out_in_parts(divided, at_once):
    """Each would have registers of its own; quotients of the step alone are numbers."""
    step, thread = Index.axis("i"), Index.axis("thread")
    place = step * 32 + thread if divided == "place" else step
    body = (Write(MEMORY, place // 12 * 104 + place % 12 * 8 + thread, Number(0, "float32"), asynchronous=True),)
    assert steps_at_once(For("i", 0, 48, body, True)) == at_once
