"""Reads TOML that nobody vouched for: bounded in size, and in the depth of brackets and of dotted names."""

from __future__ import annotations

import re
from typing import Any

MOST_BYTES = 1_000_000
DEEPEST = 8
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""' r"|'''.*?'''" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'" r"|#[^\n]*|[\[{]|[\]}]|[.,=\n]",
    re.DOTALL,
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
    for match in _TOKEN.finditer(text):
        token = match.group()
        brackets += (token in "[{") - (token in "]}")
        dots = dots + 1 if token == "." else dots * (token[0] in "\"'")
        if max(brackets, dots) > DEEPEST:
            line = text.count("\n", 0, match.start()) + 1
            raise TomlError(f"line {line} nests deeper than {DEEPEST} levels")
