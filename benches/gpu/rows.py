"""Rows of results that are kept as they come, so that a run may be stopped, or run out of time, and go on later."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benches.results import RESULTS, code, keep_at

__all__ = ["COMPLETE", "RESULTS", "UNFINISHED", "Budget", "Row", "Rows", "of_other_code"]

Row = dict[str, Any]
COMPLETE, UNFINISHED = 0, 3
"""Exit codes of a script that did all, and of one that ran out of time."""


class Budget:
    """Seconds of the wall, from now on."""

    def __init__(self, seconds: float) -> None:
        self._end, self._longest = time.perf_counter() + seconds, 0.0

    def left(self) -> float:
        return self._end - time.perf_counter()

    def admits_another(self) -> bool:
        """Whether the longest piece so far would still end in time."""
        return self.left() > self._longest

    def took(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)


class Rows:
    """The rows of one file, by their keys, each with a hash of the code that made it (``code``): those of other code
    are made anew.  ``facts`` and ``summary(rows)`` are kept with them."""

    def __init__(self, path: Path, key: Callable[[Row], Any], facts: Row, summary: Callable[[list[Row]], Any]) -> None:
        self.path, self._key, self._facts, self._summary = path, key, facts, summary
        found = json.loads(path.read_text())["rows"] if path.exists() else []
        self._rows: dict[Any, Row] = {key(row): row for row in found if not of_other_code(row)}
        if len(self._rows) < len(found):
            others = len(found) - len(self._rows)
            print(f"{path.name}: {others} of {len(found)} rows are of other code and are made anew", file=sys.stderr)

    def all(self) -> list[Row]:
        return list(self._rows.values())

    def fill(self, keys: Iterable[Any], make: Callable[[Any], Row], budget: Budget, again: bool = False) -> int:
        """Makes the rows that are not there (``again``: all), while time is left; `COMPLETE` or `UNFINISHED`.
        Rows whose state begins with "wrong" or "failed" are made anew."""
        wanted = list(keys)
        missing = [key for key in wanted if again or not _done(self._rows.get(key))]
        for number, key in enumerate(missing):
            if not budget.admits_another():
                print(f"{self.path.name}: {len(missing) - number} of {len(wanted)} rows are left", flush=True)
                return UNFINISHED
            started = time.perf_counter()
            row = {**make(key), "code": code()["product"]}
            budget.took(time.perf_counter() - started)
            self._rows[self._key(row)] = row
            keep_at(self.path, {**self._facts, "summary": self._summary(self.all()), "rows": self.all()})
            print(key, row.get("state", ""), file=sys.stderr, flush=True)
        return COMPLETE


def of_other_code(row: Row) -> bool:
    """Whether the product was another when the row was made, or cannot be told from it."""
    return row.get("code") != code()["product"]


def _done(row: Row | None) -> bool:
    return row is not None and not str(row.get("state", "")).startswith(("wrong", "failed"))
