"""The papers' evaluations in the report: for each figure and table, whether it was measured, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from rollergen.bench.results import Result
from rollergen.hal.dataclass import dataclass

STATES = {"measured here": "measured", "model only": "model", "not possible": "none"}
"""How sure a figure is, and the class of its cell."""
FIELDS = ("of", "what", "state", "ours", "paper", "note")


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One figure or table: where it is from, what it shows, its state, our figure, the paper's own, and why or how."""

    of: str
    what: str
    state: str
    ours: str
    paper: str
    note: str
    result: str

    @property
    def kind(self) -> str:
        return STATES.get(self.state, "none")


def claim_rows(found: Sequence[Result]) -> tuple[ClaimRow, ...]:
    """A row for each figure or table, of the newest result that has it; none where no result lists claims."""
    rows: dict[tuple[str, str], ClaimRow] = {}
    listing = [(one, table) for one in found for table in one.tables if table.title == "claims"]
    for result, table in sorted(listing, key=lambda pair: dict(pair[0].origin).get("date", "")):
        places = [table.columns.index(name) for name in FIELDS]
        for row in table.rows:
            of, what, state, ours, paper, note = (row[place] for place in places)
            one = ClaimRow(of, what, state, ours, paper, note, result.name)
            rows[one.of, one.what] = one
    return tuple(rows.values())


def summary(rows: Sequence[ClaimRow]) -> str:
    """How many figures are in each state."""
    counts = ((state, sum(row.state == state for row in rows)) for state in STATES)
    return ", ".join(f"{count} {state}" for state, count in counts if count)
