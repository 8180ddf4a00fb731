"""Reads JSON and TOML that nobody vouched for: bounded in size and depth; of JSON, finite numbers, no key twice."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from rollergen.hal.errors import SpecError

MOST_BYTES = 1_000_000
MOST_DIGITS = 400
"""Of an integer: reading one takes the square of its digits, and none of a spec has 20."""
DEEPEST = 8

_TEXT_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_OPENS, _CLOSES = frozenset("[{"), frozenset("]}")


def read_json(content: bytes, where: str, *, most_bytes: int = MOST_BYTES, deepest: int = DEEPEST) -> Any:
    """The value of a JSON document; SpecError, which starts with `where`, for one that is not fit to be looked at."""
    if len(content) > most_bytes:
        raise SpecError(f"{where}: the file has {len(content)} bytes; expected at most {most_bytes}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: byte {error.start} is no UTF-8; expected a JSON text in UTF-8") from None
    line = too_deep_at(text, deepest)
    if line is not None:
        raise SpecError(f"{where}: line {line} nests deeper than {deepest} levels")
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, where), parse_int=_integer)
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{where}: not JSON: {str(error)[:200]}") from None
    _refuse_non_finite(value, where, "")
    return value


class _Unread(float):
    """An integer of more digits than are read: infinite, and known by its text."""

    text: str

    def __str__(self) -> str:
        return f"{self.text[:20]}... ({len(self.text.lstrip('-'))} digits)"


def _integer(text: str) -> int | float:
    if len(text) <= MOST_DIGITS:
        return int(text)
    unread = _Unread("inf")
    unread.text = text
    return unread


def join(path: str, key: str | int) -> str:
    """A JSON path, one step longer: ``memory_layers[1].banks``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def shown(value: Any) -> str:
    """A JSON value as an error shows it: short, however long it is."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def too_deep_at(text: str, deepest: int) -> int | None:
    """The line where a JSON text nests deeper than so many levels; None if it never does.

    Asked before parsing, as parsers recurse."""
    depth = 0
    for match in _TEXT_OR_BRACKET.finditer(text):
        first = match.group()[0]
        if first in _OPENS:
            depth += 1
            if depth > deepest:
                return text.count("\n", 0, match.start()) + 1
        elif first in _CLOSES:
            depth -= 1
    return None


def _object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise SpecError(f"{where}: the key {shown(twice)} stands twice in one object")
    return found


def _refuse_non_finite(value: Any, where: str, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        figure = path.removesuffix(".value") or "the document"
        raise SpecError(f"{where}: {figure} is {value}; expected a finite number")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, where, join(path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_non_finite(item, where, join(path, number))


_TOKEN = (
    r'(?s)"""(?:[^\\]|\\.)*?"""' r"|'''.*?'''" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'" r"|#[^\n]*|[\[{]|[\]}]|[.,=\n]"
)


class TomlError(ValueError):
    """A text that is not fit to be looked at, or no TOML."""


def read_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML document.  Raises TomlError; ImportError before Python 3.11 where tomli is missing."""
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib  # type: ignore[import-not-found, no-redef]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TomlError(f"byte {error.start} is no UTF-8; expected a TOML text in UTF-8") from None
    _refuse_depth(text)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise TomlError(str(error)[:200]) from None


def _refuse_depth(text: str) -> None:
    """Before parsing: the parser recurses into brackets, and takes the square of the parts of a name."""
    brackets, dots = 0, 0
    for match in re.finditer(_TOKEN, text):
        token = match.group()
        brackets += (token in "[{") - (token in "]}")
        dots = dots + 1 if token == "." else dots * (token[0] in "\"'")
        if max(brackets, dots) > DEEPEST:
            line = text.count("\n", 0, match.start()) + 1
            raise TomlError(f"line {line} nests deeper than {DEEPEST} levels")
