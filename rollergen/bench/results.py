"""Result files as plain tables: whatever a bench keeps, as facts and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollergen.errors import ArgumentError
from rollergen.hal.dataclass import dataclass

_POINTS = "milliseconds"
"""Key of [predicted, measured] times, by the name of a space."""
_HEADLINES = "headlines"
"""Key of what stands first on the page: a list of {"what", "figure", "aim", "met"}."""
_ORIGIN = ("date", "machine", "versions", "commit", "uncommitted_changes", "code")


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` and rows of texts; ``ratios``: (label, value) of each row where there is a column of ratios."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ratios: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Scatter:
    """Predicted and measured milliseconds of the programs of one space."""

    title: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader wants first of a result: the figure and, where there is one, what it should be, and whether it is
    (None: the file does not say)."""

    what: str
    figure: str
    aim: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One file: what it is of, where it was measured, single facts, tables, spaces to plot, what stands first."""

    name: str
    origin: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    scatters: tuple[Scatter, ...] = ()
    headlines: tuple[Headline, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot that a bench has drawn itself: its name, and the SVG."""

    name: str
    svg: str


REPORTS = ("verifier",)
"""Folders of results that hold a report of their own: several files, with plots."""


def results(folder: Path) -> tuple[Result, ...]:
    """Every file of results, by name, then those of `REPORTS`.  Raises ArgumentError for one that is no JSON object."""
    reports = (read(path, f"{name}_{path.stem}") for name in REPORTS for path in sorted(folder.glob(f"{name}/*.json")))
    return (*(read(path) for path in sorted(folder.glob("*.json"))), *reports)


def newest(folder: Path, pattern: str) -> Path | None:
    """The last of the files by the day that their names end in; None where there is none."""
    return max(folder.glob(pattern), key=lambda path: path.stem.rpartition("_")[2], default=None)


def figures(folder: Path) -> tuple[Figure, ...]:
    """The plots of `REPORTS`, by name."""
    return tuple(
        Figure(f"{name}: {path.stem.replace('_', ' ')}", path.read_text(encoding="utf-8"))
        for name in REPORTS
        for path in sorted(folder.glob(f"{name}/*.svg"))
    )


def read(path: Path, name: str = "") -> Result:
    """The file; ``name``: instead of the file's own.  Raises ArgumentError where it is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArgumentError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"{path} holds a {type(content).__name__}; expected an object")
    facts, tables = [], []
    scatters = tuple(_scatters(content.get(_POINTS)))
    headlines = tuple(_headlines(content.get(_HEADLINES)))
    for key, value in content.items():
        if key in _ORIGIN or (key == _POINTS and scatters) or (key == _HEADLINES and headlines):
            continue
        made = _table(key, value)
        if made is not None:
            tables.append(made)
        else:
            facts.append((key, text(value)))
    return Result(name or path.stem, tuple(_origin(content)), tuple(facts), tuple(tables), scatters, headlines)


def _headlines(value: Any) -> Iterator[Headline]:
    """Objects of ``what``, ``figure`` and ``aim``, texts each, and ``met``; of anything else nothing."""
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict) and {"what", "figure"} <= one.keys() <= {"what", "figure", "aim", "met"}:
            said = {key: text(words) for key, words in one.items() if key != "met"}
            yield Headline(**said, met=one["met"] if isinstance(one.get("met"), bool) else None)


def _scatters(value: Any) -> Iterator[Scatter]:
    """Lists of pairs of positive numbers by name; of anything else nothing."""
    for title, pairs in value.items() if isinstance(value, dict) else ():
        if isinstance(pairs, list) and pairs and all(_is_point(pair) for pair in pairs):
            yield Scatter(str(title), tuple((float(x), float(y)) for x, y in pairs))


def _is_point(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(x, (int, float)) and 0 < x < float("inf") for x in pair)
    )


def _origin(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine = content.get("machine", {})
    if isinstance(machine, dict) and "cpu" in machine:
        yield "machine", f"{machine['cpu']}, cores {machine.get('cores_used')} of {machine.get('cores')}"
    for key in ("date", "commit"):
        if content.get(key):
            yield key, str(content[key])[:25]
    if content.get("uncommitted_changes"):
        yield "state", "with uncommitted changes"
    if isinstance(content.get("versions"), dict):
        yield "versions", ", ".join(f"{name} {number}" for name, number in content["versions"].items())


def _table(title: str, value: Any) -> Table | None:
    if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
        value = [{title: key, **one} for key, one in value.items()]
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return None
    flat = [dict(_flat(row)) for row in value]
    columns = tuple(dict.fromkeys(name for row in flat for name in row))
    rows = tuple(tuple(text(row.get(name, "")) for name in columns) for row in flat)
    return Table(title, columns, rows, tuple(_ratios(flat)))


def _flat(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key == "samples":  # for tests, not for reading
            continue
        if isinstance(value, dict) and not prefix:
            yield from _flat(value, f"{key}: ")
        else:
            yield prefix + key, value


def _ratios(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    for row in rows:
        label = next((str(row[name]) for name in ("case", "operator", "id", "what") if name in row), None)
        if label is not None and isinstance(row.get("ratio"), (int, float)):
            yield f"{label}: {row['off']}" if "off" in row else label, float(row["ratio"])


def text(value: Any) -> str:
    """Short: floats with four digits, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(text, value[:12])) + (" ..." if len(value) > 12 else "")
    if isinstance(value, dict):
        return "; ".join(f"{key} {text(one)}" for key, one in list(value.items())[:12])
    return "" if value is None else str(value)
