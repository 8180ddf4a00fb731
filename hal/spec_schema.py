"""Holds a document against the schema of device specs, and retells the first finding in one line: path, value, what was
expected (the schema's own ``title``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from rollergen.hal.errors import SpecError, name_advice
from rollergen.hal.files.bounded import join, shown
from rollergen.hal.schema import schema

_LOOKED_AT = 100
"""Findings compared for the best one: a hostile file may have a hundred thousand."""


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
    """SpecError with the JSON path of the first finding; misspelt keys first, for they also look like missing ones."""
    finding = first_finding(_validator(), document)
    if finding:
        raise SpecError(f"{where}: {finding}")


def first_finding(held_against: Any, document: Any) -> str | None:
    """What a `validator` finds first, in one line; None where the document meets the schema."""
    found = list(islice(held_against.iter_errors(document), _LOOKED_AT))
    if not found:
        return None
    error = min(found, key=lambda e: (e.validator != "additionalProperties", e.validator == "required", _place(e)))
    return _retold(error)


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


def _retold(error: Any) -> str:
    path = _path(error.absolute_path)
    if error.validator == "additionalProperties":
        return _unknown_key(error, path)
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{join(path, missing)} is missing; expected {_title(error.schema['properties'].get(missing, {}))}"
    return f"{path or 'the document'} is {shown(error.instance)}; expected {_expected(error)}"


def _unknown_key(error: Any, path: str) -> str:
    known = sorted(error.schema["properties"])
    unknown = next(key for key in error.instance if key not in error.schema["properties"])
    return f"{join(path, shown(unknown)[1:-1])} is no key of this format; {name_advice(unknown, known)}"


def _expected(error: Any) -> str:
    if error.validator == "enum":
        return "one of " + ", ".join(shown(value) for value in error.validator_value)
    if error.validator == "const":
        return shown(error.validator_value)
    bounds = {"maximum": "at most {}", "maxItems": "at most {} items", "maxLength": "at most {} characters"}
    if error.validator in bounds:
        return bounds[error.validator].format(error.validator_value)
    return _title(error.schema)


def _title(node: Mapping[str, Any]) -> str:
    if "title" in node:
        return str(node["title"])
    if "else" in node:
        return _title(node["else"])
    if "enum" in node:
        return "one of " + ", ".join(shown(value) for value in node["enum"])
    return shown(node["const"]) if "const" in node else str(node.get("type", "a value"))
