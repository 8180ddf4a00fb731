"""Two results of one bench beside each other: what changed beyond chance.

A row's figure is its ``ratio`` where it has one (a peer timed in turns in one process: what slows the machine slows
both), else its seconds.  All rows together: the geometric mean of the changes, with a bootstrap interval over rows and
Wilcoxon's signed-rank test.  A single row is judged only where both files keep its samples: the ratio of their medians
with a bootstrap interval, and the Mann-Whitney test, Holm's correction over all rows.

Samples that follow each other are alike, and a test that takes them for independent ones finds a difference in a
quarter of the pairs that have none (autocorrelation 0.5).  So it sees medians of blocks, as many as the samples are
worth independent ones, and at most `MOST_BLOCKS`; with less than `LEAST_BLOCKS` a row is not judged.  What differs
from one run to the next as a whole (where arrays lie in memory, the hour) no sample of a run tells: a row's p is of
these two runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError
from rollergen.hal.dataclass import dataclass
from rollergen.optional import optional

LABELS = ("case", "operator", "id", "what", "claim")
FIGURES = ("ratio", "ours_seconds", "seconds", "measured us", "ms", "ms_mean")
RESAMPLES = 4000
LEAST_ROWS = 6
"""With fewer, no signed-rank test can show anything at the usual level (2^-5 > 0.025)."""
LEAST_BLOCKS, MOST_BLOCKS = 6, 8
"""With fewer, the Mann-Whitney test shows nothing among many rows; with more, blocks are too short to be apart."""
ALPHA = 0.05
LEAST_CHANGE = 0.02
"""Smaller changes are not told, however sure they are."""


@dataclass(frozen=True, slots=True)
class Change:
    """``change``: the second figure over the first, better above 1.  ``low``, ``high``: its 95 % interval, None without
    samples.  ``p``: how likely chance alone makes such a change, corrected for the number of rows."""

    label: str
    change: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def verdict(self) -> str:
        if self.p is None or self.low is None or self.high is None:
            return "not judged"
        if self.p >= ALPHA or abs(math.log(self.change)) < math.log(1 + LEAST_CHANGE):
            return "no difference shown"
        return "better" if self.change > 1 else "worse"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table of both files: its rows, all of them together, and the labels that only one file has."""

    table: str
    figure: str
    rows: tuple[Change, ...]
    overall: Change
    unmatched: tuple[str, ...]


def compare(first: Path, second: Path) -> tuple[Comparison, ...]:
    """Each table that both files have.  Raises ArgumentError for files without a common table, DeviceError where
    SciPy is missing."""
    stats = _stats()
    tables = [dict(_tables(_read(path))) for path in (first, second)]
    found = []
    for name in tables[0].keys() & tables[1].keys():
        rows = [{_label(row): row for row in table[name]} for table in tables]
        figure = next((f for f in FIGURES if all(_is_figure(row.get(f)) for r in rows for row in r.values())), None)
        if figure is not None:
            found.append(_compared(name, figure, rows[0], rows[1], stats))
    if not found:
        raise ArgumentError(f"{first} and {second} have no table in common whose rows have one of {', '.join(FIGURES)}")
    return tuple(sorted(found, key=lambda one: one.table))


def _compared(name: str, figure: str, old: Mapping[str, Any], new: Mapping[str, Any], stats: Any) -> Comparison:
    common = [label for label in old if label in new]
    rows = _holm([_row(label, figure, old[label], new[label], stats) for label in common])
    unmatched = tuple(sorted(old.keys() ^ new.keys()))
    return Comparison(name, figure, tuple(rows), _overall([row.change for row in rows], stats), unmatched)


def _row(label: str, figure: str, old: Mapping[str, Any], new: Mapping[str, Any], stats: Any) -> Change:
    change = _better(figure, old[figure], new[figure])
    if not (old.get("samples") and new.get("samples")):
        return Change(label, change)
    a, b = (np.asarray(row["samples"], float) for row in (old, new))
    change = float(_better(figure, np.median(a), np.median(b)))
    count = min(_independent(a, stats), _independent(b, stats))
    if count < LEAST_BLOCKS:
        return Change(label, change)
    a, b = (_medians(x, count) for x in (a, b))
    rng = np.random.default_rng(0)
    drawn = [np.median(rng.choice(x, (RESAMPLES, len(x))), axis=1) for x in (a, b)]
    low, high = np.quantile(_better(figure, *drawn), (0.025, 0.975))
    return Change(label, change, float(low), float(high), float(stats.mannwhitneyu(a, b).pvalue))


def _independent(samples: Any, stats: Any) -> int:
    """How many independent samples these are worth, as blocks of at least two: n (1 - r) / (1 + r), r being the
    autocorrelation of neighbours' ranks, corrected for its bias in short series (Kendall 1954)."""
    ranks = stats.rankdata(samples)
    ranks = ranks - ranks.mean()
    size, squares = len(ranks), float((ranks * ranks).sum())
    alike = float((ranks[1:] * ranks[:-1]).sum()) / squares if squares else 0.0
    alike = min(max(alike + (1 + 3 * max(alike, 0.0)) / size, 0.0), 0.99)
    return min(int(size * (1 - alike) / (1 + alike)), size // 2, MOST_BLOCKS)


def _medians(samples: Any, count: int) -> Any:
    """Of so many blocks of neighbours."""
    return np.array([np.median(block) for block in np.array_split(samples, count)])


def _better(figure: str, old: Any, new: Any) -> Any:
    """Above 1 where ``new`` is better: ratios grow, times shrink."""
    return new / old if figure == "ratio" else old / new


def _holm(rows: Sequence[Change]) -> list[Change]:
    """P-values times the number of those that are not smaller, never falling (Holm 1979)."""
    judged = sorted((row for row in rows if row.p is not None), key=lambda row: row.p or 0.0)
    corrected: dict[str, float] = {}
    least = 0.0
    for n, row in enumerate(judged):
        least = max(least, min(1.0, (row.p or 0.0) * (len(judged) - n)))
        corrected[row.label] = least
    return [Change(row.label, row.change, row.low, row.high, corrected.get(row.label)) for row in rows]


def _overall(changes: Sequence[float], stats: Any) -> Change:
    if not changes:
        return Change("all rows", 1.0)
    logs = np.log(changes)
    mean = float(np.exp(logs.mean()))
    if len(logs) < LEAST_ROWS:
        return Change("all rows", mean)
    rng = np.random.default_rng(0)
    means = np.exp(rng.choice(logs, (RESAMPLES, len(logs))).mean(axis=1))
    low, high = np.quantile(means, (0.025, 0.975))
    p = float(stats.wilcoxon(logs).pvalue) if np.any(logs) else 1.0
    return Change("all rows", mean, float(low), float(high), p)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be read as a result: {error}") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"{path} holds a {type(content).__name__}; expected an object")
    return content


def _tables(content: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, value in content.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) and _label(row) for row in value):
            yield key, value


def _label(row: Mapping[str, Any]) -> str:
    """What a row is of: its label, and its suite and device where it names them."""
    return ", ".join(str(row[name]) for name in (*LABELS, "suite", "device") if name in row)


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _stats() -> Any:
    return optional("scipy.stats", "bench")
