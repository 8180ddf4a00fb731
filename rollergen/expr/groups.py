"""Axes of a result that its reductions know by groups alone: a group of channels, which is a row then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollergen.expr.index import Atom, FloorDiv, Index
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import IndexValue, Load, Value, walk


def divisions(body: Value, extents: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """(axis, elements of a group) of the axes `extents` that a reduction in `body` divides into equal groups."""
    found = dict.fromkeys(
        (atom.index.names()[0], atom.divisor)
        for node in walk(body)
        if isinstance(node, Reduce)
        for part in node.bodies
        for index in _indices(part)
        for atom in _atoms(index)
        if isinstance(atom, FloorDiv) and str(atom.index) in extents
    )
    return (one for one in found if extents[one[0]] % one[1] == 0)


def _indices(value: Value) -> Iterator[Index]:
    for node in walk(value):
        if isinstance(node, Load):
            yield from node.indices
        elif isinstance(node, IndexValue):
            yield node.index


def _atoms(index: Index) -> Iterator[Atom]:
    for atom, _ in index.terms:
        yield atom
        if not isinstance(atom, str):
            yield from _atoms(atom.index)
