"""Rows of results that are kept as they come, so that a run may be stopped, or run out of time, and go on later."""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benches.gpu.cases import Key
from benches.results import RESULTS, code, keep_at

__all__ = [
    "COMPLETE", "LOST", "RESULTS", "STOPPED", "UNFINISHED", "Budget", "Row", "Rows", "key_of", "rows_of", "stamp_of",
]  # fmt: skip

Row = dict[str, Any]
COMPLETE, STOPPED, UNFINISHED, LOST = 0, 2, 3, 4
"""Exit codes of a script that did all, of one that cannot go on, of one that ran out of time, and of one whose GPU
answers no more: in another process it may."""
BEGUN, MOST_ATTEMPTS = "begun", 2
"""The state of a row while it is made; one that ended its process so often is not tried again."""


def key_of(row: Row) -> Key:
    return row["suite"], row["id"]


def stamp_of(parts: object) -> str:
    """Of what decides a row: one with another stamp is made anew."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def of_this_code(key: Key) -> str:
    """The stamp of what any change of the product may change."""
    return code()["product"]


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
    """The rows of one file, by suite and identifier, each with the day and a ``stamp`` of what decides it: those whose
    stamp is another one now are made anew.  ``facts`` and ``summary(rows)`` are kept with them."""

    def __init__(
        self, path: Path, facts: Row, summary: Callable[[list[Row]], Any], stamp: Callable[[Key], str] = of_this_code
    ) -> None:
        self.path, self._facts, self._summary, self._stamp = path, facts, summary, stamp
        found = rows_of(path)
        self._rows = {key_of(row): row for row in found if row.get("stamp") == stamp(key_of(row))}
        if len(self._rows) < len(found):
            others = len(found) - len(self._rows)
            print(f"{path.name}: {others} of {len(found)} rows are of other code and are made anew", file=sys.stderr)

    def all(self) -> list[Row]:
        return list(self._rows.values())

    def fill(
        self, keys: Iterable[Key], make: Callable[[Key], Row], budget: Budget, *, again: bool = False,
        retry: bool = False, alive: Callable[[], bool] = lambda: True,
    ) -> int:  # fmt: skip
        """Makes the rows that are not there (``again``: all; ``retry``: also the wrong and the failed ones), while time
        is left: `COMPLETE`, `UNFINISHED`, or `LOST` where a row failed and ``alive()`` is false.

        What ``make`` raises is the row's failure.  A row that was begun when its process ended is tried once more,
        after all others.
        """
        wanted = list(keys)
        missing = sorted((key for key in wanted if again or not self._done(key, retry)), key=self._attempts)
        for number, key in enumerate(missing):
            if not budget.admits_another():
                print(f"{self.path.name}: {len(missing) - number} of {len(wanted)} rows are left", flush=True)
                return UNFINISHED
            started = time.perf_counter()
            self._keep(key, {"state": BEGUN, "attempts": self._attempts(key) + 1})
            row = _made(make, key)
            self._keep(key, row)
            budget.took(time.perf_counter() - started)
            print(key, row.get("state", ""), file=sys.stderr, flush=True)
            if row["state"].startswith("failed") and not alive():
                print(f"{self.path.name}: the GPU answers no more after {':'.join(key)}", flush=True)
                return LOST
        return COMPLETE

    def _attempts(self, key: Key) -> int:
        row = self._rows.get(key, {})
        return int(row.get("attempts", 0)) if row.get("state") == BEGUN else 0

    def _done(self, key: Key, retry: bool) -> bool:
        if key not in self._rows or 0 < self._attempts(key) < MOST_ATTEMPTS:
            return False
        return not (retry and self._rows[key]["state"].startswith(("wrong", "failed", BEGUN)))

    def _keep(self, key: Key, row: Row) -> None:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        suite, id_ = key
        self._rows[key] = {"suite": suite, "id": id_, **row, "date": today, "stamp": self._stamp(key)}
        keep_at(self.path, {**self._facts, "summary": self._summary(self.all()), "rows": self.all()})


def _made(make: Callable[[Key], Row], key: Key) -> Row:
    try:
        return make(key)
    except Exception as error:  # of a driver, a library, a compiler: this operator's, and the rest goes on
        lines = str(error).splitlines() or [""]
        return {"state": f"failed: {type(error).__name__}: {lines[0][:500]}"}


def rows_of(path: Path) -> list[Row]:
    """What a file holds; nothing where there is none."""
    found: Sequence[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return list(found)
