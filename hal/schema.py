"""The schema of device specs, which follows from the declarations of their fields.

``python -m rollergen.hal.schema`` prints it as published in hal/schema.json, for editors; a test holds the file
against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rollergen.hal.costs import COSTS
from rollergen.hal.declared import Reason, Schema, declarations, is_required, one_of
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.spec import Device

FORMAT = "rollergen.device.v1"
_MOST = 1 << 53
"""Above it floats are no longer exact."""
_MEMBERS = [row.name for row in DTYPES.values() if row.kind != "bool" and not row.packed]
_FIGURES: Mapping[str, Schema] = {
    "count": {"type": "integer", "minimum": 1, "maximum": _MOST, "title": "an integer of at least 1"},
    "whole": {"type": "integer", "minimum": 0, "maximum": _MOST, "title": "an integer of at least 0"},
    "positive": {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST, "title": "a number above 0"},
    "amount": {"type": "number", "minimum": 0, "maximum": _MOST, "title": "a number of at least 0"},
}
_TEXTS: Mapping[str, Schema] = {
    "name": {
        "type": "string",
        "pattern": r"^[a-z][a-z0-9_-]{0,63}(?!\s)$",
        "title": "a name: a small letter, then small letters, digits, _ or - (64 at most)",
    },
    "line": {"type": "string", "minLength": 1, "maxLength": 2000, "title": "a text that is not empty"},
    "word": {"type": "string", "maxLength": 2000, "title": "a text"},
    "paragraph": {"type": "string", "maxLength": 20000, "title": "a text"},
    "texts": {
        "type": "object",
        "title": "an object of texts",
        "maxProperties": 64,
        "additionalProperties": {"$ref": "#/$defs/word"},
    },
    "kind": {"enum": ["datasheet", "paper", "measured", "derived", "fitted", "assumed"]},
    "dtype": one_of(*[name for name in _MEMBERS if not DTYPES[name].matrix_only]),
    "factor": one_of(*_MEMBERS),
}
VALUES = (*_FIGURES, *_TEXTS)
"""What a declared field may accept, by name."""
_BESIDE: Mapping[str, Schema] = {
    "format": {"const": FORMAT},
    "extends": {
        "$ref": "#/$defs/line",
        "description": "a built-in device, or a .json file relative to this one, from which this file takes all "
        "that it does not state (but name, title, notes): the whole must meet this schema",
    },
    "notes": {"$ref": "#/$defs/paragraph", "description": "what a reader of the file should know"},
    "sources": {
        "type": "object",
        "title": "an object of texts",
        "description": "the sources that figures name: key -> where it was published, or who measured it and how",
        "maxProperties": 256,
        "additionalProperties": {"$ref": "#/$defs/line"},
    },
    "provenance": {
        "type": "object",
        "title": "an object of kind and source",
        "description": "kind and source of what is no single figure: JSON path -> kind, source",
        "maxProperties": 1024,
        "additionalProperties": {"$ref": "#/$defs/origin"},
    },
}
"""Keys of a file that are no fields of the device."""
_ABOUT = (
    "A device spec. Every figure is a bare number, or an object of value, source, kind and perhaps note; units stand "
    "in the keys. kind: datasheet (the vendor's), paper (published by others), measured (somebody ran it), derived "
    "(arithmetic on other figures), fitted (chosen so that predictions meet measurements), assumed (a placeholder to "
    "be measured). source: a key of sources where the file has them."
)


@lru_cache(maxsize=1)
def schema() -> Mapping[str, Any]:
    """The format of a device spec as published, with its references: of a file as it is written, which may extend
    another one and then need not be complete."""
    properties = {**_BESIDE, **_properties(Device)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://rollergen.invalid/schemas/device.v1.json",
        "description": _ABOUT,
        "title": "an object: a device spec",
        **_object(properties, ("name", "title")),
        "if": {"required": ["extends"]},
        "else": {"$ref": "#/$defs/complete"},
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Schema]:
    origin = {"kind": {"$ref": "#/$defs/kind"}, "source": {"$ref": "#/$defs/line"}}
    found: dict[str, Schema] = {f"{name}_value": value for name, value in _FIGURES.items()}
    found |= {**{name: _figure(name) for name in _FIGURES}, **_TEXTS}
    found["complete"] = _complete()
    found["origin"] = {**_object(origin, tuple(origin)), "title": "an object of kind and source"}
    for _, said in declarations(Device).values():
        if said.part is not None:
            found[_name(said.part)] = _part(said.part, said.extended)
    costs = {name: _entry({"$ref": "#/$defs/amount"}, one.meaning, one.informational) for name, one in COSTS.items()}
    about = "constants of the performance model; one that is not named is 0: the mechanism does not exist there"
    found["costs"] = {**_object(costs, ()), "title": "an object of costs", "description": about}
    return found


def _figure(name: str) -> Schema:
    """A bare number, or one with its provenance."""
    line = {"$ref": "#/$defs/line"}
    value = {"$ref": f"#/$defs/{name}_value"}
    stated = {"value": value, "source": line, "kind": {"$ref": "#/$defs/kind"}, "note": line}
    title = "a figure: value, source, kind, perhaps note"
    then = {**_object(stated, ("value", "source", "kind")), "title": title}
    return {"if": {"type": "object"}, "then": then, "else": value}


def _complete() -> Schema:
    """What is asked of the whole beyond what each file must state."""
    further: dict[str, Any] = {}
    for key, (_, said) in declarations(Device).items():
        if said.part is not None and said.extended:
            lacking = {"required": _required(said.part)}
            further[key] = {"minItems": said.bounds["minItems"], "items": lacking} if said.bounds else lacking
    return {
        "description": "what a spec must state unless it extends another one; with its parents, every spec",
        "required": ["format", *_required(Device)],
        "properties": further,
    }


def _required(kind: type) -> list[str]:
    return [key for key, (one, _) in declarations(kind).items() if is_required(one)]


def _part(kind: Any, extended: bool) -> Schema:
    required = [key for key in _required(kind) if not extended or key == "name"]
    found = {**_object(_properties(kind), required), "title": kind.TITLE}
    if reasons := getattr(kind, "INFORMATIONAL", ()):
        found["informational"] = [reason.schema() for reason in reasons]
    return found


def _object(properties: Mapping[str, Schema], required: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _properties(kind: type) -> dict[str, Schema]:
    found = {}
    for key, (one, said) in declarations(kind).items():
        reference = {"$ref": f"#/$defs/{_name(said.part)}"} if said.part else {}
        if said.part is None:
            accepts = said.accepted(str(one.type))
            entry = {"$ref": f"#/$defs/{accepts}"} if isinstance(accepts, str) else accepts
        elif said.bounds:
            bounds = {name: value for name, value in said.bounds.items() if name != "minItems" or not said.extended}
            entry = {**bounds, "items": reference}
        else:
            entry = reference
        found[key] = _entry(entry, said.meaning, said.informational)
    return found


def _entry(entry: Schema, meaning: str, informational: tuple[Reason, ...]) -> Schema:
    reasons = {"informational": [reason.schema() for reason in informational]} if informational else {}
    return {**entry, **({"description": meaning} if meaning else {}), **reasons}


def _name(kind: type) -> str:
    """``memory_layer`` of MemoryLayer."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("_")


def written(node: Any, indent: int = 0, before: int = 0) -> str:
    """JSON, in one line each what has room there."""
    line = json.dumps(node, ensure_ascii=False)
    if indent + before + len(line) < 120 or not isinstance(node, (dict, list)):
        return line
    pad = "\n" + " " * (indent + 1)
    if isinstance(node, dict):
        items = [f"{json.dumps(key)}: {written(item, indent + 1, len(key) + 4)}" for key, item in node.items()]
        return "{" + pad + ("," + pad).join(items) + "\n" + " " * indent + "}"
    return "[" + pad + ("," + pad).join(written(item, indent + 1) for item in node) + "\n" + " " * indent + "]"


if __name__ == "__main__":
    print(written(schema()))
