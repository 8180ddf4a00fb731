"""Which figures the schema declares informational, and why: they tell a reader something, and move no prediction.

A declaration says it of a field (or of a whole part): the schema has it under the keyword ``informational``, a list of
entries, each with ``because`` (the reason) and perhaps ``where`` (a schema that the part must meet, at the top the
whole spec).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollergen.hal.changes import paths
from rollergen.hal.load import device_to_json, plain
from rollergen.hal.schema import schema
from rollergen.hal.spec import Device

KEYWORD = "informational"


def informational(device: Device) -> dict[str, str]:
    """Reasons by path (as `hal.changes.paths` writes them) of the device's informational figures."""
    document = plain(device_to_json(device))
    definitions = schema()["$defs"]
    parts = [("", schema(), document)]
    parts += [(f"{key}.", definitions[key], document.get(key, {})) for key in ("limits", "costs")]
    for key, named in (("memory_layers", "memory_layer"), ("instructions", "instruction")):
        parts += [(f"{part['name']}.", definitions[named], part) for part in document[key]]
    figures = set(paths(device))
    return {path: reason for part in parts for path, reason in _declared(*part, document) if path in figures}


def _declared(
    prefix: str, definition: Mapping[str, Any], part: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    whole = _reason(definition, part, document)
    for name, entry in definition["properties"].items():
        reason = whole or _reason(entry, part, document)
        if reason and name in part:
            yield prefix + name, reason


def _reason(entry: Mapping[str, Any], part: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    from jsonschema import Draft202012Validator

    for declared in entry.get(KEYWORD, ()):
        conditions = ((declared.get("where", {}), part), (declared.get("device", {}), document))
        if all(Draft202012Validator(condition).is_valid(held) for condition, held in conditions):
            return str(declared["because"])
    return ""
