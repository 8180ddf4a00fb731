"""Holds a document against the schema of device specs, and retells each finding in one line: path, value, what was
expected (the schema's own ``title``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from rollergen.hal.errors import name_advice, refused
from rollergen.hal.files.bounded import join, shown
from rollergen.hal.schema import schema

_LOOKED_AT = 100
"""Findings sorted, the plainest first: a hostile file may have a hundred thousand."""
_MOST_UNKNOWN = 20
"""Unknown keys of one object that are told; an object with more is told alone, as is a list that is too long."""


@lru_cache(maxsize=1)
def complete_schema() -> Mapping[str, Any]:
    """The format of a whole spec, nothing left to a parent; without references."""
    published = dict(_inlined(schema(), schema()["$defs"]))
    published.pop("if")
    return _narrowed(published, published.pop("else"))


def _narrowed(one: Any, further: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with all that a further one asks of the same parts."""
    both = {key: _narrowed(one[key], item) if isinstance(one.get(key), dict) else item for key, item in further.items()}
    return {**one, **both}


def refuse_what_the_schema_refuses(document: Any, where: str) -> None:
    """SpecError with the JSON path of every finding; misspelt keys first, for they also look like missing ones."""
    if found := findings(_validator(), document):
        raise refused(where, found)


def findings(held_against: Any, document: Any) -> list[str]:
    """What a `validator` finds, a line each, the plainest first; empty where the document meets the schema."""
    found = list(islice(held_against.iter_errors(document), _LOOKED_AT))
    found.sort(key=lambda e: (e.validator != "additionalProperties", e.validator == "required", _place(e)))
    if flood := next((error for error in found if _is_flood(error)), None):
        return [next(_retold(flood))]
    return list(dict.fromkeys(line for error in found for line in _retold(error)))


def _is_flood(error: Any) -> bool:
    """Whether what is wrong is how much there is: what is wrong with each part of it is no news."""
    if error.validator == "additionalProperties":
        return len(error.instance) > len(error.schema["properties"]) + _MOST_UNKNOWN
    return error.validator in ("maxItems", "maxProperties")


def validator(text: str) -> Any:
    """A validator of the schema that is a JSON text."""
    whole = json.loads(text)
    return _meant(_inlined(whole, whole.get("$defs", {})))


def _meant(inlined: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(inlined)


@lru_cache(maxsize=1)
def _validator() -> Any:
    return _meant(complete_schema())


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with every reference replaced by what it names: following them takes most of a validation."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = _inlined(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
        return {**named, **{k: v for k, v in node.items() if k != "$ref"}}
    return {key: _inlined(item, definitions) for key, item in node.items() if key != "$defs"}


def _place(error: Any) -> tuple[tuple[int, str | int], ...]:
    return tuple((isinstance(step, str), step) for step in error.absolute_path)


def _path(steps: Iterable[str | int]) -> str:
    """A figure's path, whether the figure stands alone or with its provenance."""
    path = ""
    for step in steps:
        path = join(path, step)
    return path.removesuffix(".value")


def _retold(error: Any) -> Iterator[str]:
    path = _path(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema["properties"])
        for key in error.instance:
            if key not in known:
                yield f"{join(path, shown(key)[1:-1])} is no key of this format; {name_advice(key, known)}"
    elif error.validator == "required":
        for key in error.validator_value:
            if key not in error.instance:
                yield f"{join(path, key)} is missing; expected {_whole(error.schema['properties'].get(key, {}))}"
    else:
        yield f"{path or 'the document'} is {shown(error.instance)}; expected {_expected(error)}"


def _expected(error: Any) -> str:
    if error.validator == "enum":
        return "one of " + ", ".join(shown(value) for value in error.validator_value)
    if error.validator == "const":
        return shown(error.validator_value)
    bounds = {"maximum": "at most {}", "maxItems": "at most {} items", "maxLength": "at most {} characters"}
    if error.validator in bounds:
        return bounds[error.validator].format(error.validator_value)
    return _title(error.schema)


def _whole(node: Mapping[str, Any]) -> str:
    """What is expected where nothing stands: of an object or a list of them, with all that it must state."""
    part = node.get("items", node)
    return _title(node) + (f" with {', '.join(part['required'])}" if part.get("required") else "")


def _title(node: Mapping[str, Any]) -> str:
    if "title" in node:
        return str(node["title"])
    if "else" in node:
        return _title(node["else"])
    if "enum" in node:
        return "one of " + ", ".join(shown(value) for value in node["enum"])
    return shown(node["const"]) if "const" in node else str(node.get("type", "a value"))
