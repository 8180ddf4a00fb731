"""How a field of a device spec is declared: once, with what the schema, the loader and the reference page say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, NamedTuple

Schema = Mapping[str, Any]
"""A part of a JSON schema."""
_OF_TYPE: Mapping[str, str | Schema] = {
    "int": "count",
    "float": "amount",
    "bool": {"type": "boolean", "title": "true or false"},
}
"""What is accepted for a type where the declaration says nothing else: names are those of `spec_schema.VALUES`."""


class Reason(NamedTuple):
    """Why a figure is informational: it tells a reader something, and moves no prediction.

    ``where``: what the part must be for it (a schema); ``device``: what the whole spec must be."""

    because: str
    where: Schema | None = None
    device: Schema | None = None

    def schema(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value is not None}


class Declared(NamedTuple):
    """What a declaration says of a field beside its type and its default.

    ``accepts``: a name of `spec_schema.VALUES`, or a schema.  ``key``: in JSON, where the field has another name.
    ``part``: the class of the entry, or of each one of a list, whose fields are declared in turn.  ``extended``: a
    spec that extends another one may state some fields of the part alone (of a list's, with its name).
    """

    meaning: str
    informational: tuple[Reason, ...] = ()
    accepts: str | Schema = ""
    key: str = ""
    part: type | None = None
    extended: bool = False

    def accepted(self, type_name: str) -> str | Schema:
        return self.accepts or _OF_TYPE[type_name]

    @property
    def bounds(self) -> Schema:
        """What a list of parts must be; empty where the field is one part."""
        return {} if isinstance(self.accepts, str) else self.accepts


def declared(
    meaning: str, *informational: Reason, accepts: str | Schema = "", default: Any = MISSING, key: str = "",
    part: type | None = None, extended: bool = False,
) -> Any:  # fmt: skip
    """A field of a spec, one that must be stated unless it has a default."""
    said = Declared(meaning, informational, accepts, key, part, extended)
    return field(default=default, metadata={"declared": said})


def declarations(kind: type) -> dict[str, tuple[Field[Any], Declared]]:
    """The declared fields of a class by their keys in JSON."""
    every = [(one, one.metadata["declared"]) for one in fields(kind) if "declared" in one.metadata]
    return {said.key or one.name: (one, said) for one, said in every}


def is_required(one: Field[Any]) -> bool:
    return one.default is MISSING


def has(**values: Any) -> Schema:
    """The schema of an object with these values."""
    return {"properties": {name: {"const": value} for name, value in values.items()}}


def without(condition: Schema) -> Schema:
    return {"not": condition}


def among(key: str, condition: Schema) -> Schema:
    """The schema of an object whose list ``key`` has an entry that meets the condition."""
    return {"properties": {key: {"contains": condition}}}


VECTORS = among("instructions", {"properties": {"m": {"const": 1}, "k": {"const": 1}, "lanes": {"minimum": 2}}})
"""Devices with vector instructions."""
SUPERSTEPS = among("targets", has(language="bsp"))
CUDA = among("targets", has(language="cuda"))
VECTORS_ALONE: Schema = {"allOf": [VECTORS, without(SUPERSTEPS)]}
"""Devices whose blocks are one thread, with vector instructions."""


def one_of(*options: str) -> Schema:
    """What a field accepts that has one of some texts."""
    return {"enum": list(options), "title": "one of " + ", ".join(f'"{option}"' for option in options)}


def several(
    part: type, what: str, least: int, most: int, meaning: str = "", *, key: str = "", extended: bool = False
) -> Any:
    """A field that is a list of parts; one that may be empty need not be stated."""
    title = f"a list of {least} to {most} {what}" if least else f"a list of at most {most} {what}"
    accepts = {"type": "array", "title": title, "minItems": least, "maxItems": most}
    return declared(meaning, accepts=accepts, default=MISSING if least else (), key=key, part=part, extended=extended)
