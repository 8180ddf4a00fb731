"""What running an entry gives, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

Row = dict[str, Any]

MEASURED, MODEL, IMPOSSIBLE = "measured here", "model only", "not possible"
STATES = (MEASURED, MODEL, IMPOSSIBLE)


@dataclass(frozen=True, slots=True)
class Finding:
    """``state``: one of `STATES`; ``ours``: the figure in a few words, with its unit; ``rows``: what it is made of.

    ``why`` tells why a figure is the model's, or why there is none.
    """

    state: str
    ours: str
    rows: tuple[Row, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state is {self.state!r}; expected one of {', '.join(STATES)}")
        if self.state != MEASURED and not self.why:
            raise ValueError(f"a finding that is {self.state!r} says why")


def mean_of(rows: Iterable[Row], key: str) -> float:
    """Geometric mean of a column; rows without it are left out."""
    return geometric_mean(row[key] for row in rows if row.get(key))
