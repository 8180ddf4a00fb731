"""Figures of a text that are read from result files: ``[0.83](benches/results/FILE.json#a/b)`` is b of a of FILE.

Pages under docs/ write ``../benches/results/``.  A place names keys, or positions in a list, one after the other,
encoded as in an address (``%20`` for a space).  As many decimals are shown as stand there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rollergen.bench.results import newest
from rollergen.errors import ArgumentError
from rollergen.hal.dataclass import dataclass

RESULTS = "benches/results/"
_LINK = re.compile(rf"\[([0-9.][^\]]*)\]\(((?:\.\./)?)({RESULTS}[^)#]+)(?:#([^)]*))?\)")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_DAY = re.compile(r"_\d{4}-\d{2}-\d{2}\.json$")


@dataclass(frozen=True, slots=True)
class Linked:
    """``shown`` in the text, said to stand at ``place`` of ``file``."""

    shown: str
    file: str
    place: str


def linked(text: str) -> Iterator[Linked]:
    """The figures of the text, in its order."""
    for shown, _, file, place in _LINK.findall(text):
        yield Linked(shown, file, place)


def rendered(text: str, root: Path) -> str:
    """The text with each figure as its result file has it, the newest of those that differ in their day.

    Raises ArgumentError for a link that names no file, no place in it, or a place that holds no number.
    """

    def new(found: re.Match[str]) -> str:
        shown, up, file, place = found.groups()
        path = _newest(root / file)
        return f"[{_figure(Linked(shown, file, place or ''), path)}]({up}{RESULTS}{path.name}#{place})"

    return _LINK.sub(new, text)


def _newest(path: Path) -> Path:
    """The last of the results of the same bench and machine; the path itself where it names no day."""
    same = _DAY.sub("_????-??-??.json", path.name)
    return newest(path.parent, same) or path


def _figure(one: Linked, path: Path) -> str:
    if not path.exists():
        raise ArgumentError(f"{one.shown}: there is no {one.file}; the bench that makes it leaves it there")
    if not _NUMBER.fullmatch(one.shown):
        raise ArgumentError(f"{one.shown!r}, linked to {one.file}: expected a number alone")
    value: Any = json.loads(path.read_text(encoding="utf-8"))
    for key in map(unquote, one.place.split("/")):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise ArgumentError(f"{one.shown}: {path.name} has no {key!r} of #{one.place}")
    if isinstance(value, str) and _NUMBER.fullmatch(value):  # a headline's figure
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentError(f"{one.shown}: {path.name} has {type(value).__name__} at #{one.place}; expected a number")
    return f"{value:.{len(one.shown.partition('.')[2])}f}"
