"""The reference of all fields of a spec, generated from their declarations.

``python -m rollergen.hal.field_reference`` prints the Markdown that stands in devices/FIELDS.md; a test holds the file
against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollergen.hal.informational import KEYWORD
from rollergen.hal.spec_schema import complete_schema

HEAD = """# Fields of a device spec

Generated from the declarations in `hal/spec.py`, `hal/spec_parts.py` and `hal/costs.py` by
 `python -m rollergen.hal.field_reference > devices/FIELDS.md`.

Every figure is a bare number, or `{"value": ..., "source": ..., "kind": ...}`, perhaps with a `note`. What is called
informational moves no prediction, and says why; every other field does (`rollergen devices sensitivity`).
"""
_PARTS = {
    "memory_layers": "Memory layers",
    "instructions": "Instructions",
    "limits": "Limits",
    "targets": "Targets",
    "verified": "Verifications",
    "tlbs": "Translation buffers",
    "costs": "Costs",
}


def field_reference() -> str:
    """The whole text."""
    whole = complete_schema()
    parts = [HEAD, _section("The spec", whole)]
    entries = {name: whole["properties"][name] for name in _PARTS}
    parts += [_section(title, entries[name].get("items", entries[name])) for name, title in _PARTS.items()]
    return "\n".join(parts)


def _section(title: str, part: Mapping[str, Any]) -> str:
    required = set(part.get("required", ()))
    lines = [f"## {title}", ""]
    for reason in _reasons(part, "all of them are informational where"):
        lines += [reason, ""]
    lines += ["| field | value | meaning |", "|---|---|---|"]
    for name, entry in part["properties"].items():
        star = " (required)" if name in required else ""
        lines.append(f"| `{name}`{star} | {_cell(_kind(entry))} | {_cell(' '.join(_meaning(entry)))} |")
    return "\n".join([*lines, ""])


def _kind(entry: Mapping[str, Any]) -> str:
    """What is accepted, in the words of the errors."""
    named = entry.get("else", entry)
    if "title" in entry or "title" in named:
        return str(entry.get("title", named.get("title")))
    options = named.get("enum") or ([named["const"]] if "const" in named else [])
    return ", ".join(f"`{option}`" for option in options) or str(named.get("type", "a value"))


def _meaning(entry: Mapping[str, Any]) -> Iterator[str]:
    if "description" in entry:
        text = str(entry["description"])
        yield text if text.endswith("...") else text.rstrip(".")
    yield from _reasons(entry, "informational where")


def _reasons(entry: Mapping[str, Any], where: str) -> Iterator[str]:
    for declared in entry.get(KEYWORD, ()):
        conditional = "where" in declared or "device" in declared
        yield f"({where if conditional else 'informational'}: {declared['because']})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(field_reference(), end="")
