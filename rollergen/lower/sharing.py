"""Parts that occur several times in a value, found by structure, so that they are computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from rollergen.expr.values import Binary, Cast, Const, Select, Unary, Value
from rollergen.lower.expressions import Expr


@dataclass(slots=True)
class Shared:
    """``numbers``: by identity of a node, a number that equal nodes have in common, where equal ones occur
    more than once; ``made``: what has been computed so far, by number."""

    numbers: dict[int, int]
    made: dict[int, Expr] = field(default_factory=dict)


def shared(*values: Value) -> Shared:
    """The arithmetic that occurs at several places of `values` (loads and conditions are others' concern).

    Structure is compared by numbering nodes from the leaves up: linear in the size of the values.
    """
    if not _several(values):
        return Shared({})
    numbering = _Numbering()
    for value in values:
        numbering.uses[numbering.number(value)] += 1
    return Shared({node: n for node, n in numbering.numbers.items() if numbering.uses[n] > 1})


@dataclass(slots=True)
class _Numbering:
    """``numbers``: by identity of a node, equal nodes alike; ``uses``: by number, at how many places it stands."""

    numbers: dict[int, int] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)
    _known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, value: Value) -> int:
        found = self.numbers.get(id(value))
        if found is not None:
            return found
        children = tuple(self.number(child) for child in value.children())
        key = (_head(value), children)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.uses)
            self.uses.append(0)
            for child in children:
                self.uses[child] += 1
        self.numbers[id(value)] = found
        return found


def _several(values: tuple[Value, ...]) -> bool:
    """Whether there is more than one operation in all."""
    found, left = 0, list(values)
    while left and found < 2:
        value = left.pop()
        found += isinstance(value, (Unary, Binary, Select, Cast))
        left.extend(value.children())
    return found > 1


def _head(value: Value) -> Hashable:
    match value:
        case Unary() | Binary():
            return type(value), value.op, value.dtype
        case Select() | Cast():
            return type(value), value.dtype
        case Const():
            return repr(value.value), value.dtype  # 0 is not -0
    return value


def worth_keeping(value: Value) -> bool:
    """Whether a repeated `value` is arithmetic on numbers, and not a leaf."""
    return isinstance(value, (Unary, Binary, Select, Cast)) and value.dtype != "bool"
