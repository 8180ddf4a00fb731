"""Which extents of a model are dims: what its source says of them, and the ranges that the caller gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rollergen.errors import ArgumentError, RollergenError, shown
from rollergen.expr.dims import Dim, dim
from rollergen.importers.graph import identifier


class Named(NamedTuple):
    """An extent with a name: ``place`` says where it stands, ``low`` and ``high`` (None: nobody knows) its bounds."""

    place: str
    low: int
    high: int | None


def dims_of(known: Mapping[str, Named], given: Any, title: str) -> dict[str, Dim | int]:
    """For each of the ``known`` extents its dim, or the number that the caller wants in its place.

    ``given``: ranges by these names, (low, high), an `rg.dim`, or a number; within what the source allows.  Raises
    ArgumentError for other names, for ranges that are none, and for an extent without one.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(f'dims is {shown(given)}; expected a dictionary such as {{"N": (1, 64)}}')
    for name in given:
        if name not in known:
            have = f"expected {', '.join(known)}" if known else "all its extents are numbers"
            raise ArgumentError(f"dims names {shown(name)}, which is no extent of an input of {title}; {have}")
    found = {name: _dim(name, one, given.get(name), title) for name, one in known.items()}
    names = [one.name for one in found.values() if isinstance(one, Dim)]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(f"dims gives two extents of {title} the name {name}; expected one dim for each")
    return found


def _dim(name: str, known: Named, given: Any, title: str) -> Dim | int:
    if given is None:
        if known.high is None:
            raise ArgumentError(
                f"{known.place} of {title} is {name}, which has no upper bound; expected a range such as "
                f"dims={{{name!r}: ({known.low}, 64)}}, or a number"
            )
        given = known.low, known.high
    if isinstance(given, int) and not isinstance(given, bool):
        low, high = given, given
    elif isinstance(given, Dim):
        low, high = given.low, given.high
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        low, high = given
    else:
        raise ArgumentError(f"dims[{name!r}] is {shown(given)}; expected (low, high), rg.dim(...) or a number")
    try:
        made = given if isinstance(given, Dim) else dim(identifier(name), low, high)
    except RollergenError as error:
        raise ArgumentError(f"dims[{name!r}]: {error}") from None
    if low < known.low or high > (known.high or high):
        most = "" if known.high is None else f" to {known.high}"
        raise ArgumentError(f"dims[{name!r}] is from {low} to {high}; {title} takes it from {known.low}{most}")
    return given if isinstance(given, int) else made


def numbers(dims: Mapping[str, Dim | int], sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of `dims_of` for these sizes."""
    return {name: sizes[one.name] if isinstance(one, Dim) else one for name, one in dims.items()}
