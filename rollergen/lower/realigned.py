"""Vectors that begin anywhere in memory, put together in registers on their way to a block's layer (`Copy.realigned`).

    fetched   the two aligned pieces of 16 bytes in which a vector lies
    stored    the vector, from the word in which it begins to the one in which it ends

The pieces are kept as they came: what puts them together would wait for them.  Where in the first one a vector begins
follows from its place; where rows of a thread are multiples of 8 apart, that is the same for all of them and in all
tiles.  Tiles that lie wholly in the tensor are read and stored without tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rollergen.expr.index import Index
from rollergen.expr.values import Load
from rollergen.lower.copies import Staged, buffer_access, load_access
from rollergen.lower.elements import Access
from rollergen.lower.expressions import Element, Expr, Number, Operation, Position, moved_dtype, position
from rollergen.lower.fills import Groups, each_group, last_of_tile
from rollergen.lower.matrix_ir import LoadAround, StoreAround
from rollergen.lower.place import Place, conjunction
from rollergen.lower.vectors import needed, within
from rollergen.lower.writer import Writer
from rollergen.program.rprogram import REALIGNED_BYTES

WORDS = 2 * REALIGNED_BYTES // 4
"""Registers of 32 bits of a vector's two pieces."""


def fill_realigned(out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str) -> None:
    """All threads of the block fill the buffer (without barriers)."""

    def fill(whole: bool, groups: Groups, _: Index) -> None:
        words = Element(out.register("around", "uint32", (WORDS,)), (), "uint32")
        _load(out, groups, load, words, whole)
        _store(out, groups, load, words, whole)

    _each(out, place, staged, load, thread, step, fill)


def fetch_around(
    out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str, element: Callable[[Index], Element]
) -> None:
    """A thread's part of the tile at this point, as it lies in memory."""
    fetch = lambda whole, groups, at: _load(out, groups, load, element(at), whole)
    _each(out, place, staged, load, thread, step, fetch)


def store_around(
    out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str, element: Callable[[Index], Element]
) -> None:
    """What was fetched of the tile at this point into its buffer."""
    put = lambda whole, groups, at: _store(out, groups, load, element(at), whole)
    _each(out, place, staged, load, thread, step, put)


def _each(
    out: Writer, place: Place, staged: Staged, load: Load, thread: Index, step: str,
    inside: Callable[[bool, Groups, Index], None],
) -> None:  # fmt: skip
    """A loop over a thread's groups, and another one with tests where the tile does not lie wholly in the tensor."""
    last = load_access(out, last_of_tile(place, staged), load)
    pieces = within(last.offset, last.elements - staged.copy.vector, last.missing)
    condition = conjunction(needed((*last.tests, *pieces), out.ranges))
    if condition is None:
        return each_group(out, place, staged, step, thread, partial(inside, True))
    with out.when(condition):
        each_group(out, place, staged, step, thread, partial(inside, True))
    with out.otherwise():
        each_group(out, place, staged, step, thread, partial(inside, False))


def _load(out: Writer, groups: Groups, load: Load, words: Element, whole: bool) -> None:
    access, behind, wanted = _vector(out, groups, load, whole)
    width = groups.copy.vector
    pieces = needed(within(access.offset, access.elements - (2 * width - 1), access.missing), out.ranges)
    pointer, offset = out.place(access.pointer, access.offset - behind)
    inside = None if whole else conjunction(pieces) or Number(True, "bool")
    out.collective(LoadAround(words, position(behind, out.ranges), pointer, offset, wanted, inside))


def _store(out: Writer, groups: Groups, load: Load, words: Element, whole: bool) -> None:
    _, behind, wanted = _vector(out, groups, load, whole)
    lane = groups.lane.variable if groups.lane is not None else ""
    positions = tuple([one.without(lane) for one in groups.positions])
    access = buffer_access(out, groups.staged, positions)
    pointer = replace(access.pointer, dtype=moved_dtype(access.pointer.dtype))
    out.collective(StoreAround(words, position(behind, out.ranges), *out.place(pointer, access.offset), wanted))


def _vector(out: Writer, groups: Groups, load: Load, whole: bool) -> tuple[Access, Index, Expr | None]:
    """(access to a group's first element, how many elements behind a multiple of the vector's it lies, how many of the
    vector's lie in the tensor: None where all do, 0 or less where none does)."""
    access, lane = load_access(out, groups.place, load), groups.lane.variable if groups.lane is not None else ""
    pointer = replace(access.pointer, dtype=moved_dtype(access.pointer.dtype))
    offset = access.offset.without(lane)
    behind = (offset % groups.copy.vector).simplify(out.ranges)
    first = replace(access, pointer=pointer, offset=offset)
    if whole:
        return first, behind, None
    wanted: Expr = Number(groups.copy.vector, "int32")
    for test in (one for one in access.tests if lane in one.index.axes() and one.high is not None):
        left = Position((test.index.without(lane) - (test.high or 0)) * -1, "int32")
        wanted = Operation("select", (Operation("lt", (left, wanted), "bool"), left, wanted), "int32")
    common = conjunction(one for one in access.tests if lane not in one.index.axes())
    if common is not None:
        wanted = Operation("select", (common, wanted, Number(0, "int32")), "int32")
    return first, behind, wanted
