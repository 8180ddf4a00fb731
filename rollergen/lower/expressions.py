"""Kernel IR: the expressions of a kernel.  Plain frozen data.

Integers (loop variables, ids, offsets) are `Index` records over named variables whose inclusive
ranges the kernel carries, so that a printer may choose ``/``, ``int`` or ``long``.  Every other
expression has a ``dtype`` and a number of ``lanes`` (1: a scalar).  Comparisons of scalars have
dtype ``bool``, of vectors ``mask8`` ... ``mask64`` (all bits of a lane set or clear).

float16 and bfloat16 exist in memory only: reading one gives float32, writing one rounds to
nearest even; ``uint16`` reads the bits of either.

`shared` finds the parts that occur several times in a value, by structure, so that they are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import Union

from rollergen.expr.index import Bounds, Index
from rollergen.expr.values import Binary, Cast, Const, Select, Take, Unary, Value
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES

BITS = {row.name: DTYPES[row.register].bits for row in DTYPES.values()}
"""Width of a value in a register: float16 and bfloat16 are computed with as float32."""
STORAGE_BYTES = {row.name: row.itemsize for row in DTYPES.values()}


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: float | int | bool
    dtype: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a `Let` or of an `Allocate` without extents."""

    name: str
    dtype: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a register array (`Allocate`); no indices: the register itself."""

    name: str
    indices: tuple[Index, ...]
    dtype: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Pointer:
    """A parameter, an array in memory, or a named place inside one (`Point`)."""

    name: str
    dtype: str
    scope: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """``lanes`` adjacent elements from ``pointer[offset]`` on.

    ``aligned``: the address is a multiple of the access' size.
    ``mask``: which lanes are read (a vector of -1 and 0 as wide as they are); the others hold ``fill``, and their
    places need not exist.
    """

    pointer: Pointer
    offset: Index
    dtype: str
    lanes: int = 1
    aligned: bool = False
    mask: Expr | None = None
    fill: float | int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """An index as a number."""

    index: Index
    dtype: str = "int32"
    lanes: int = 1


def position(index: Index, ranges: Mapping[str, Bounds]) -> Position:
    """An index as a number, of 64 bits where it may be too large for 32."""
    low, high = index.bounds(ranges)
    return Position(index, "int32" if low >= -(2**31) and high < 2**31 else "int64")


@dataclass(frozen=True, slots=True)
class Inside:
    """``low <= index < high``; a bound that is None needs no test.  A scalar bool."""

    index: Index
    low: int | None
    high: int | None
    dtype: str = "bool"
    lanes: int = 1

    def holds(self, at: int) -> bool:
        return (self.low is None or self.low <= at) and (self.high is None or at < self.high)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Whether ``pointer + offset`` is a multiple of ``bytes``.  A scalar bool."""

    pointer: Pointer
    offset: Index
    bytes: int
    dtype: str = "bool"
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator on operands of equal lanes: neg not add sub mul div mod shl shr xor bitand bitor
    lt le gt ge eq ne and or select (condition first) dot (of unsigned bytes, of signed ones, and what it is added to,
    if anything).

    A select with a scalar condition evaluates only the chosen side, also where the sides are
    vectors; ``and``/``or`` of scalars stop early.
    """

    op: str
    operands: tuple[Expr, ...]
    dtype: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the language (sqrt, floor, ...) or a `Function` of the kernel."""

    name: str
    operands: tuple[Expr, ...]
    dtype: str
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A scalar in every lane."""

    operand: Expr
    lanes: int

    @property
    def dtype(self) -> str:
        return self.operand.dtype


@dataclass(frozen=True, slots=True)
class Misalignment:
    """The number of elements by which the pointer's address lies behind the last multiple of ``bytes``."""

    pointer: Pointer
    bytes: int
    dtype: str = "int32"
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Build:
    """A vector from scalars."""

    operands: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.operands[0].dtype

    @property
    def lanes(self) -> int:
        return len(self.operands)


@dataclass(frozen=True, slots=True)
class Pick:
    """Lane ``which`` of a vector, or its lower (``lo``) or upper (``hi``) half."""

    operand: Expr
    which: int | str

    @property
    def dtype(self) -> str:
        return self.operand.dtype

    @property
    def lanes(self) -> int:
        return 1 if isinstance(self.which, int) else self.operand.lanes // 2


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Lanes of two vectors: lane l of the result is lane ``order[l]`` of both, one after the other."""

    first: Expr
    second: Expr
    order: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.first.dtype

    @property
    def lanes(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The operand's value (a scalar) in another thread of the same execution width.

    ``how``: ``xor`` (its number there differs by the bits of ``by``), ``down``, ``up`` (``by`` higher, lower; beyond
    the width: anything) or ``from`` (number ``by``).  The ``present`` first threads of the width come here together.
    """

    operand: Expr
    how: str
    by: Index
    present: int
    lanes: int = 1

    @property
    def dtype(self) -> str:
        return self.operand.dtype


@dataclass(frozen=True, slots=True)
class Convert:
    """The operand's value in another dtype, or (``bits``) its bit pattern read as one."""

    operand: Expr
    dtype: str
    bits: bool = False

    @property
    def lanes(self) -> int:
        return self.operand.lanes


Expr = Union[
    Number, Name, Element, Read, Position, Inside, Aligned, Misalignment,
    Operation, Call, Broadcast, Build, Pick, Shuffle, Exchange, Convert,
]  # fmt: skip
Atom = (Number, Name, Element, Position, Broadcast)


def register_dtype(dtype: str) -> str:
    """The dtype that an element of memory dtype `dtype` has once read."""
    return DTYPES[dtype].register if dtype in DTYPES else dtype


def moved_dtype(dtype: str) -> str:
    """The dtype in which an element of memory dtype `dtype` is moved unread: that of its bits, of narrow floats."""
    return DTYPES[dtype].word if is_narrow(dtype) else dtype


def is_narrow(dtype: str) -> bool:
    """Whether `dtype` is a float that exists in memory only."""
    return dtype in DTYPES and DTYPES[dtype].narrow


@dataclass(slots=True)
class Shared:
    """Nodes that occur several times.

    ``numbers``: by identity of a node, the number that equal nodes have in common. ``made``: their values computed so
    far, by number.
    """

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
        found += isinstance(value, (Unary, Binary, Select, Cast, Take))
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
    return isinstance(value, (Unary, Binary, Select, Cast, Take)) and value.dtype != "bool"
