"""A stored program under the tensor names of another expression with the same canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollergen.program.rprogram import RProgram
from rollergen.program.serial import from_json, to_json


def rename(program: RProgram, names: Mapping[str, str]) -> RProgram:
    """`program` with its buffers renamed as `names` says, wherever they occur.

    Buffers that construction named after them (``W_packed``) and stages (``copy_W_packed``) follow; a name
    that is taken then gets underscores.
    """
    if all(old == new for old, new in names.items()):
        return program
    taken = set(names.values())
    mapping = dict(names)
    for buffer in program.temporaries:
        if buffer.name not in mapping:
            mapping[buffer.name] = _free(_follow(buffer.name, names), taken)
            taken.add(mapping[buffer.name])
    data = to_json(program)
    return from_json({**data, "nodes": [_renamed(row, mapping) for row in data["nodes"]]})


def _renamed(row: list[Any], mapping: Mapping[str, str]) -> list[Any]:
    if row[0] == "Buffer":
        return [row[0], mapping[row[1]], *row[2:]]
    if row[0] == "Stage":
        return [row[0], _stage_name(row[1], mapping), *row[2:]]
    return row


def _stage_name(name: str, mapping: Mapping[str, str]) -> str:
    prefix, _, rest = name.partition("_")
    return f"{prefix}_{mapping[rest]}" if rest in mapping else name


def _follow(name: str, names: Mapping[str, str]) -> str:
    """The name with the tensor's name it begins with, the longest, replaced."""
    stems = [old for old in names if name.startswith(f"{old}_")]
    stem = max(stems, key=len, default=None)
    return name if stem is None else names[stem] + name[len(stem) :]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
