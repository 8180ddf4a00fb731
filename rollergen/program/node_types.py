"""The types a program is made of, field by field, and how each field stands in JSON.

The types are listed by hand: only what stands here is ever made from a text.  Their fields follow from the annotations
of the dataclasses, with the limits of `expr.limits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import isfinite
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from rollergen.errors import ProgramError
from rollergen.expr.index import FloorDiv, Index, Mod
from rollergen.expr.limits import AtLeast
from rollergen.expr.places import Put, Updated
from rollergen.expr.takes import Bounded
from rollergen.expr.tensor_op import Axis, Reduction, Running, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Combiner,
    Const,
    IndexValue,
    Load,
    Partial,
    Select,
    Take,
    Unary,
    Var,
    Within,
)
from rollergen.hal.dataclass import dataclass
from rollergen.program.rprogram import (
    Accumulator,
    BlockOrder,
    Compute,
    Copy,
    InnerNest,
    KeptRow,
    Loop,
    RProgram,
    Stage,
    StageLaunch,
    Store,
)
from rollergen.program.supersteps import Superstep, TileMapping

_LONGEST_TEXT = 1000
_BITS = 63
_NOT_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def shown(value: Any) -> str:
    """A value as an error shows it: short, however long it is."""
    if isinstance(value, (dict, list, tuple)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Field:
    """How one field's value stands in JSON."""

    def encode(self, value: Any, known: dict[int, int]) -> Any:
        """``known``: number of the row of each node that the value holds, by identity."""
        return value

    def decode(self, data: Any, made: Sequence[Any]) -> Any:
        """``made``: the nodes of the rows before.  Raises ProgramError that says what `data` is not."""
        raise NotImplementedError

    def nodes(self, value: Any) -> Iterator[Any]:
        """The nodes directly in the value."""
        return iter(())

    def rows(self, data: Any) -> Iterator[int]:
        """The rows that decoded data refer to."""
        return iter(())


class Text(Field):
    def decode(self, data: Any, made: Sequence[Any]) -> str:
        if not isinstance(data, str) or len(data) > _LONGEST_TEXT:
            raise ProgramError(f"is {shown(data)}; expected a text of at most {_LONGEST_TEXT} characters")
        return data


class Flag(Field):
    def decode(self, data: Any, made: Sequence[Any]) -> bool:
        if not isinstance(data, bool):
            raise ProgramError(f"is {shown(data)}; expected true or false")
        return data


@dataclass(frozen=True, slots=True)
class Whole(Field):
    """An integer of 64 bits, at least ``least``."""

    least: int = -(1 << _BITS)

    def encode(self, value: Any, known: dict[int, int]) -> int:
        if type(value) is not int:
            raise ProgramError(f"the program holds {shown(value)}, a {type(value).__name__}; expected an int")
        return value

    def decode(self, data: Any, made: Sequence[Any]) -> int:
        if type(data) is not int or not self.least <= data < 1 << _BITS:
            low = f"at least {self.least}" if self.least > -(1 << _BITS) else "64 bits"
            raise ProgramError(f"is {shown(data)}; expected an integer of {low}")
        return data


class Number(Field):
    """A literal: bool, integer or float, each as itself; what is not finite as a text."""

    def encode(self, value: Any, known: dict[int, int]) -> Any:
        if type(value) not in (bool, int, float):
            raise ProgramError(f"the program holds the number {shown(value)}, a {type(value).__name__}")
        return value if not isinstance(value, float) or isfinite(value) else repr(value)

    def decode(self, data: Any, made: Sequence[Any]) -> Any:
        if isinstance(data, str) and data in _NOT_FINITE:
            return _NOT_FINITE[data]
        if type(data) not in (bool, int, float) or not isfinite(data):
            raise ProgramError(f'is {shown(data)}; expected a number, "inf", "-inf" or "nan"')
        return data


@dataclass(frozen=True, slots=True)
class OneOf(Field):
    """One of a few words."""

    words: tuple[str, ...]

    def decode(self, data: Any, made: Sequence[Any]) -> str:
        if not isinstance(data, str) or data not in self.words:
            raise ProgramError(f"is {shown(data)}; expected one of {', '.join(self.words)}")
        return data


@dataclass(frozen=True, slots=True)
class Node(Field):
    """A node of one of ``types``, or of a type below them: the number of its row."""

    types: tuple[type, ...]

    def encode(self, value: Any, known: dict[int, int]) -> int:
        return known[id(value)]

    def decode(self, data: Any, made: Sequence[Any]) -> Any:
        expected = " or ".join(one.__name__ for one in self.types)
        if type(data) is not int or not 0 <= data < len(made):
            raise ProgramError(f"is {shown(data)}; expected the number of an earlier row, a {expected}")
        if not isinstance(made[data], self.types):
            raise ProgramError(f"is row {data}, a {type(made[data]).__name__}; expected a {expected}")
        return made[data]

    def nodes(self, value: Any) -> Iterator[Any]:
        yield value

    def rows(self, data: Any) -> Iterator[int]:
        yield data


@dataclass(frozen=True, slots=True)
class Many(Field):
    """A tuple of any length."""

    item: Field

    def encode(self, value: Any, known: dict[int, int]) -> list[Any]:
        return [self.item.encode(one, known) for one in value]

    def decode(self, data: Any, made: Sequence[Any]) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise ProgramError(f"is {shown(data)}; expected a list")
        return tuple(self.item.decode(one, made) for one in data)

    def nodes(self, value: Any) -> Iterator[Any]:
        for one in value:
            yield from self.item.nodes(one)

    def rows(self, data: Any) -> Iterator[int]:
        for one in data:
            yield from self.item.rows(one)


@dataclass(frozen=True, slots=True)
class Perhaps(Field):
    """One item, or None."""

    item: Field

    def encode(self, value: Any, known: dict[int, int]) -> Any:
        return None if value is None else self.item.encode(value, known)

    def decode(self, data: Any, made: Sequence[Any]) -> Any:
        return None if data is None else self.item.decode(data, made)

    def nodes(self, value: Any) -> Iterator[Any]:
        if value is not None:
            yield from self.item.nodes(value)

    def rows(self, data: Any) -> Iterator[int]:
        if data is not None:
            yield from self.item.rows(data)


@dataclass(frozen=True, slots=True)
class Pair(Field):
    first: Field
    second: Field

    def encode(self, value: Any, known: dict[int, int]) -> list[Any]:
        return [self.first.encode(value[0], known), self.second.encode(value[1], known)]

    def decode(self, data: Any, made: Sequence[Any]) -> tuple[Any, Any]:
        if not isinstance(data, list) or len(data) != 2:
            raise ProgramError(f"has {shown(data)}; expected a pair")
        return self.first.decode(data[0], made), self.second.decode(data[1], made)

    def nodes(self, value: Any) -> Iterator[Any]:
        yield from self.first.nodes(value[0])
        yield from self.second.nodes(value[1])

    def rows(self, data: Any) -> Iterator[int]:
        yield from self.first.rows(data[0])
        yield from self.second.rows(data[1])


@dataclass(frozen=True, slots=True)
class AtomField(Field):
    """An atom of an index: an axis by its name, a division or remainder by the number of its row."""

    node: Node

    def encode(self, value: Any, known: dict[int, int]) -> Any:
        return value if isinstance(value, str) else self.node.encode(value, known)

    def decode(self, data: Any, made: Sequence[Any]) -> Any:
        return TEXT.decode(data, made) if isinstance(data, str) else self.node.decode(data, made)

    def nodes(self, value: Any) -> Iterator[Any]:
        if not isinstance(value, str):
            yield value

    def rows(self, data: Any) -> Iterator[int]:
        if not isinstance(data, str):
            yield data


TEXT = Text()
Fields = tuple[tuple[str, Field], ...]
_PLAIN: dict[Any, Field] = {str: TEXT, bool: Flag(), int: Whole(), float | int: Number(), float | int | bool: Number()}

_EXPRESSIONS = (
    FloorDiv, Mod, Index, Within, Buffer, Const, Load, Take, IndexValue, Unary, Binary, Select, Cast, Var, Partial,
    Combiner, Axis, Reduction, Running, TensorOp, Bounded,
    Updated, Put,
)  # fmt: skip
_DECISIONS = (
    Loop, Copy, Compute, Accumulator, KeptRow, Store, BlockOrder, InnerNest, Stage, Superstep, TileMapping, StageLaunch,
    RProgram,
)  # fmt: skip


def _field(hint: Any) -> Field:
    """How values of a field that is annotated so stand in JSON."""
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return Whole(parts[1].least) if isinstance(parts[1], AtLeast) else OneOf(parts[1].words)
    if get_origin(hint) is tuple:
        return Many(_field(parts[0])) if parts[1] is Ellipsis else Pair(_field(parts[0]), _field(parts[1]))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if parts and str in parts:
        return AtomField(Node(tuple(one for one in parts if one is not str)))
    if parts and type(None) in parts:
        return Perhaps(_field(parts[0]))
    return Node((hint,))


def _fields(kind: type) -> Fields:
    """What makes two records of the type unequal, in the order of declaration."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, _field(hints[one.name])) for one in fields(kind) if one.compare)


NODES: dict[type, Fields] = {kind: _fields(kind) for kind in (*_EXPRESSIONS, *_DECISIONS)}
"""Every type that a program may hold, with its fields in the order of a row."""

_ROW_NAMES: dict[type, str] = {TensorOp: "Definition", KeptRow: "Resident", TileMapping: "Home"}
"""Rows keep the name that a type had when files were first written, so that old files are read and keys hold."""

ROW_NAME: dict[type, str] = {kind: _ROW_NAMES.get(kind, kind.__name__) for kind in NODES}
"""The name that a type's rows begin with."""

SIGNATURES: dict[str, type] = {name: kind for kind, name in ROW_NAME.items()}
"""The types by the names that rows begin with."""
