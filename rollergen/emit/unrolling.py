"""Which unrolled loops need not be unrolled whole.

A loop that indexes registers must be, or its array goes to local memory.  Others, such as copies to shared memory in
many steps, only gain from it up to a point: a compiler that sees 64 loads in a row starts them all, and spills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from rollergen.expr.index import Index
from rollergen.lower.expressions import Element, Pointer
from rollergen.lower.ir import PRIVATE, For, Write, walk

MOST_WHOLE = 18
"""Steps of a loop that is unrolled whole in any case: two windows of 3 x 3."""

AT_ONCE = 8
"""Steps at a time of a longer one that may be unrolled in part; a few more where these come out even."""

COPIES_WHOLE, COPIES_AT_ONCE = 64, 32
"""The same of asynchronous copies alone, which hold no registers where their addresses lie constants apart: all written
out, a copy of 4 bytes takes 4 instructions, not 9 (products of 1025 in float32 for sm_90)."""


def steps_at_once(loop: For, most_whole: int = MOST_WHOLE, at_once: int = AT_ONCE) -> int | None:
    """How many steps of an unrolled loop to write out at a time; None: all of them.

    ``most_whole``, ``at_once``: for compilers that are to see fewer at a time.
    """
    if _only_starts_copies(loop):
        most_whole, at_once = max(most_whole, COPIES_WHOLE), max(at_once, COPIES_AT_ONCE)
    if not isinstance(loop.start, int) or not isinstance(loop.stop, int) or loop.stop - loop.start <= most_whole:
        return None
    inner = {one.variable for one in walk(loop.body) if isinstance(one, For) and one.unroll}
    for node in _nodes(loop.body):
        if isinstance(node, Pointer) and node.scope == PRIVATE:
            return None
        if isinstance(node, Element) and not set().union(*(index.axes() for index in node.indices)) <= inner:
            return None
    count = loop.stop - loop.start
    return next((steps for steps in range(at_once, most_whole + 1) if count % steps == 0), at_once)


def _only_starts_copies(loop: For) -> bool:
    """Whether its addresses lie constants apart, too.  Quotients of its variable beside others do not: a compiler keeps
    each for the next time that the loop is run (twice 48 steps over rows of 12 pieces, of heads of 96: 255 registers
    and 948 bytes spilled for sm_89, with 8 steps at a time 214 and none)."""
    writes = [node for node in walk(loop.body) if isinstance(node, Write)]
    if not writes or not all(node.asynchronous for node in writes):
        return False
    return not any(_divides(node, loop.variable) for node in _nodes(loop.body) if isinstance(node, Index))


def _divides(index: Index, variable: str) -> bool:
    """Whether a quotient or a remainder in it depends on the variable and on others."""
    inside = [atom.index.names() for atom, _ in index.terms if not isinstance(atom, str)]
    return any(variable in names and len(names) > 1 for names in inside)


def _nodes(value: Any) -> Iterator[Any]:
    """Every statement, expression and index within."""
    if isinstance(value, tuple):
        for one in value:
            yield from _nodes(one)
        return
    names = _parts(type(value))  # type: ignore[arg-type]
    if names or isinstance(value, Index):
        yield value
        for name in names:
            yield from _nodes(getattr(value, name))


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """Fields of a node's class; none for what is no node, or has none within."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) and kind is not Index else ()
