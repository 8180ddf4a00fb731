"""Buffers of a definition under other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rollergen.expr.definition import Definition
from rollergen.expr.values import Buffer, Load, Value, transform


def rename_buffers(definition: Definition, names: Mapping[str, str]) -> Definition:
    """`definition` with each buffer named in `names` renamed, wherever it is read or written."""

    def buffer(old: Buffer) -> Buffer:
        return replace(old, name=names.get(old.name, old.name))

    def change(value: Value) -> Value | None:
        return replace(value, buffer=buffer(value.buffer)) if isinstance(value, Load) else None

    reductions = tuple(
        replace(r, bodies=tuple(transform(body, change) for body in r.bodies)) for r in definition.reductions
    )
    return replace(
        definition,
        output=buffer(definition.output),
        reductions=reductions,
        result=transform(definition.result, change),
    )
