"""Figures of the lanes of one execution width, for a program or a batch: found once for each row of numbers that tells
programs apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import filterfalse

import numpy as np

from rollergen.program.model.numeric import Number, ceil_div, least, per_distinct_rows
from rollergen.program.model.wavefronts import digits_of_rows

Row = tuple[int, ...]
OfRows = Callable[[list[Row]], Sequence[float]]


def per_decided(
    kind: Hashable, decided: Callable[..., OfRows], choices: tuple[Number, ...], columns: list[Number]
) -> Number:
    """What ``decided(*choices)`` says of each program's row of `columns`, where the programs of a batch may differ in
    what was chosen as well.

    ``kind``: all that it depends on beside choices and columns.  Tiles of the operators of a model are much alike:
    what was found is kept from batch to batch."""
    count, known = len(choices), known_of(kind)

    def of_rows(rows: list[Row]) -> list[float]:
        lacking: dict[Row, list[Row]] = {}
        for row in filterfalse(known.__contains__, rows):
            lacking.setdefault(row[:count], []).append(row)
        for chosen, own in lacking.items():
            known.update(zip(own, decided(*chosen)([row[count:] for row in own]), strict=True))
        return list(map(known.__getitem__, rows))

    return per_distinct_rows(of_rows, [*choices, *columns])


@lru_cache(maxsize=256)
def known_of(kind: Hashable) -> dict[Row, float]:
    """What was found for rows of one kind."""
    return {}


def by_lanes(
    service: Callable[[list[np.ndarray], list[np.ndarray]], Sequence[float]], count: int, lockstep: int,
    threads: int | None = None,
) -> OfRows:  # fmt: skip
    """What `service` says of rows that begin with the extents of ``count`` loops: it is given the digits of each lane
    in these (arrays [rows, lanes]) and the columns of the rows (arrays [rows, 1]), of as many lanes at a time.

    ``threads``: the column that says how many threads there are, where it is not all that the loops have."""

    def of_rows(rows: list[Row]) -> Sequence[float]:
        table = np.array(rows, dtype=np.int64).reshape(len(rows), -1)
        lanes = np.minimum(np.multiply.reduce(table[:, :count], axis=1), lockstep)
        if threads is not None:
            lanes = np.minimum(lanes, table[:, threads])
        several = set(lanes.tolist())
        if len(several) == 1:
            return served(table, several.pop())
        found = np.zeros(len(rows))
        for each in several:
            own = np.flatnonzero(lanes == each)
            found[own] = served(table[own], each)
        return found.tolist()  # type: ignore[no-any-return]

    def served(table: np.ndarray, lanes: int) -> Sequence[float]:
        columns = [table[:, c : c + 1] for c in range(table.shape[1])]
        return service(digits_of_rows(columns[:count], lanes), columns)

    return of_rows


def reached(extents: Sequence[Number], lanes: int) -> list[Number]:
    """Of loops of these extents, what so many neighbours come to (the last loop is the fastest)."""
    found: list[Number] = []
    left: Number = lanes
    for extent in reversed(extents):
        found.append(least(extent, left))
        left = ceil_div(left, found[-1])
    return found[::-1]
