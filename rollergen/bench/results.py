"""Result files as plain tables: whatever a bench keeps, as facts and rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollergen.errors import ArgumentError

_POINTS = "milliseconds"
"""Key of [predicted, measured] times, by the name of a space."""
_ORIGIN = ("date", "machine", "versions", "commit", "uncommitted_changes")


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
class Result:
    """One file: what it is of, where it was measured, single facts, tables, spaces to plot."""

    name: str
    origin: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    scatters: tuple[Scatter, ...] = ()


def results(folder: Path) -> tuple[Result, ...]:
    """Every file of results, by name.  Raises ArgumentError for one that is no JSON object."""
    return tuple(read(path) for path in sorted(folder.glob("*.json")))


def read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArgumentError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ArgumentError(f"{path} holds a {type(content).__name__}; expected an object")
    facts, tables = [], []
    scatters = tuple(_scatters(content.get(_POINTS)))
    for key, value in content.items():
        if key in _ORIGIN or (key == _POINTS and scatters):
            continue
        made = _table(key, value)
        if made is not None:
            tables.append(made)
        else:
            facts.append((key, text(value)))
    return Result(path.stem, tuple(_origin(content)), tuple(facts), tuple(tables), scatters)


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
            yield label, float(row["ratio"])


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
