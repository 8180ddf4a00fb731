"""Value nodes: what one element of a tensor is, as frozen data.

Values are never simplified algebraically (``v * 0`` keeps its NaN, sums keep their order).
Indices inside `Load` are `Index` records.  Each node knows its dtype; the rules that give a
dtype to an operation live in `dtypes.py`, the public spelling in `language.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from operator import is_not
from typing import Annotated, Any, TypeVar

from rollergen.expr.dtypes import bounds
from rollergen.expr.index import Bounds, Index, linear
from rollergen.expr.limits import Among, Count, DtypeName
from rollergen.expr.primitives import BINARY, UNARY
from rollergen.hal.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Within:
    """The predicate ``low <= index < high``: one bound of a guard."""

    index: Index
    low: int
    high: int

    def substitute(self, mapping: Mapping[str, Index]) -> Within:
        return Within(self.index.substitute(mapping), self.low, self.high)

    def always(self, ranges: Mapping[str, Bounds]) -> bool:
        """Whether the bound holds for every value of the axes within `ranges`."""
        low, high = self.index.bounds(ranges)
        return low >= self.low and high < self.high

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        at = self.index.evaluate(values)
        return (at >= self.low) & (at < self.high)

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


BufferKind = Annotated[str, Among(("input", "output", "temporary"))]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory: row-major, dense.  ``kind`` is input, output or temporary.

    ``packs``: what its bytes hold, two to a byte, such as "int4[4, 8]" (`expr.nibbles`); "" of all others.
    """

    name: str
    shape: tuple[Count, ...]
    dtype: DtypeName = "float32"
    kind: BufferKind = "input"
    constant: bool = False
    packs: str = ""

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count


TAKE_MODES = ("raise", "clip", "wrap")
"""What becomes of a position outside its dimension, as in `numpy.take`: an error, the nearest one, the remainder."""


class Value:
    """Base of all value nodes; every one has a ``dtype``."""

    __slots__ = ()
    dtype: str

    def children(self) -> tuple[Value, ...]:
        return ()

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Const(Value):
    """A literal.  0.0 and -0.0 are two, and a NaN equals itself."""

    value: float | int | bool
    dtype: DtypeName

    def __eq__(self, other: object) -> bool:
        if type(other) is not Const:
            return NotImplemented
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, float | int | bool | str]:
        value = self.value
        special = isinstance(value, float) and (value == 0 or value != value)
        return (self.dtype, repr(value) if special else value)


class _Hashed:
    """A hash, axes, an offset and positions that are found once: readers know values by their identity."""

    __slots__ = ("_axes", "_hash", "_offset", "_positions")
    _axes: frozenset[str]
    _hash: int
    _offset: Index
    _positions: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Load(Value, _Hashed):
    """``buffer[indices]`` where every bound of ``guard`` holds, else ``fill`` (nothing is read).

    ``source`` is the computed tensor behind the buffer, if any, until stages are cut.
    """

    buffer: Buffer
    indices: tuple[Index, ...]
    guard: tuple[Within, ...] = ()
    fill: float | int = 0
    source: Any = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.buffer, self.indices, self.guard, self.fill)))
            return self._hash

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype

    def offset(self) -> Index:
        """Row-major number of the element in its buffer."""
        try:
            return self._offset
        except AttributeError:
            object.__setattr__(self, "_offset", linear(self.indices, self.buffer.shape))
            return self._offset

    def axes(self) -> frozenset[str]:
        """Axes that decide which element is read or whether it is."""
        try:
            return self._axes
        except AttributeError:
            indices = (*self.indices, *(bound.index for bound in self.guard))
            object.__setattr__(self, "_axes", frozenset().union(*[index.names() for index in indices]))
            return self._axes


@dataclass(frozen=True, slots=True)
class Take(Value, _Hashed):
    """The element ``sum(position * stride)`` elements behind that of ``row``, where these dimensions' indices are 0.

    Positions are the ``ids`` within ``0 .. extent - 1`` (`takes.positions`).  ``row`` is no child: it is not read.
    """

    row: Load
    ids: tuple[Value, ...]
    extents: tuple[Count, ...]
    strides: tuple[Count, ...]
    mode: Annotated[str, Among(TAKE_MODES)] = "raise"

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.row.dtype

    def children(self) -> tuple[Value, ...]:
        return self.ids

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return replace(self, ids=children)


@dataclass(frozen=True, slots=True)
class IndexValue(Value):
    """An index used as a number."""

    index: Index
    dtype: DtypeName = "int32"


def index_number(index: Index, extents: Mapping[str, int]) -> IndexValue:
    """``index`` as an int32 number, or an int64 one where it may be too large; an axis without an extent is 0."""
    low, high = index.bounds({name: (0, extents.get(name, 1) - 1) for name in index.names()})
    return IndexValue(index) if low >= -(2**31) and high < 2**31 else IndexValue(index, "int64")


@dataclass(frozen=True, slots=True)
class Unary(Value):
    """One of `primitives.UNARY` applied to ``x``."""

    op: Annotated[str, Among(UNARY)]
    x: Value
    dtype: DtypeName

    def children(self) -> tuple[Value, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return Unary(self.op, children[0], self.dtype)


@dataclass(frozen=True, slots=True)
class Binary(Value):
    """One of `primitives.BINARY`; comparisons and logic have dtype bool.  ``max``/``min`` propagate NaN."""

    op: Annotated[str, Among(BINARY)]
    a: Value
    b: Value
    dtype: DtypeName

    def children(self) -> tuple[Value, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return Binary(self.op, children[0], children[1], self.dtype)


@dataclass(frozen=True, slots=True)
class Select(Value):
    """``a`` where ``cond`` (dtype bool), else ``b``; only the chosen side is read."""

    cond: Value
    a: Value
    b: Value
    dtype: DtypeName

    def children(self) -> tuple[Value, ...]:
        return (self.cond, self.a, self.b)

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return Select(children[0], children[1], children[2], self.dtype)


@dataclass(frozen=True, slots=True)
class Cast(Value):
    """``x`` converted to ``dtype``."""

    x: Value
    dtype: DtypeName

    def children(self) -> tuple[Value, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Value, ...]) -> Value:
        return Cast(children[0], self.dtype)


@dataclass(frozen=True, slots=True)
class Var(Value):
    """A named value: a combiner's operand (``lhs0``, ``rhs0``, ...) or the value of a kept row."""

    name: str
    dtype: DtypeName


@dataclass(frozen=True, slots=True)
class Partial(Value):
    """Component ``component`` of the finished reduction ``name`` of the same stage."""

    name: str
    dtype: DtypeName
    component: Count = 0


@dataclass(frozen=True, slots=True)
class Combiner:
    """An associative operation on tuples of values.

    ``combine[c]`` is a value over ``Var("lhs0") ... Var("rhs0") ...``: what component c of two
    combined tuples is.  ``identity[c]`` leaves the other operand unchanged.  ``name`` is sum,
    max, min, prod or the user's own.
    """

    name: str
    identity: tuple[Const, ...]
    combine: tuple[Value, ...]


def transform(value: Value, change: Callable[[Value], Value | None]) -> Value:
    """`value` rebuilt bottom-up; ``change`` returns a replacement for a node, or None to keep it."""
    children = value.children()
    if children:
        new = tuple([transform(child, change) for child in children])
        if any(map(is_not, new, children)):
            value = value.with_children(new)
    other = change(value)
    return value if other is None else other


def walk(value: Value) -> Iterator[Value]:
    """Every node below and including `value`, children first."""
    found: list[Value] = []
    _gather(value, found)
    return iter(found)


def _gather(value: Value, found: list[Value]) -> None:
    for child in value.children():
        _gather(child, found)
    found.append(value)


def multiplied(value: Value) -> Iterator[Value]:
    """The factors of a product, however it is nested; the value itself where it is none."""
    if isinstance(value, Binary) and value.op == "mul":
        yield from multiplied(value.a)
        yield from multiplied(value.b)
    else:
        yield value


def axes_of(value: Value) -> frozenset[str]:
    """Axes on which a value depends through its loads and indices; a reduction's result depends on none."""
    names: frozenset[str] = frozenset()
    for node in walk(value):
        if isinstance(node, (Load, Take)):
            names |= read_of(node).axes()
        elif isinstance(node, IndexValue):
            names |= node.index.axes()
    return names


def loads(*values: Value) -> tuple[Load, ...]:
    """The distinct loads in `values`, in order of first appearance."""
    return _distinct(Load, values)


def takes(*values: Value) -> tuple[Take, ...]:
    """The distinct takes in `values`, in order of first appearance."""
    return _distinct(Take, values)


def _distinct(kind: type[T], values: Sequence[Value]) -> tuple[T, ...]:
    seen: dict[T, None] = {}
    for value in values:
        for node in walk(value):
            if isinstance(node, kind):
                seen.setdefault(node)
    return tuple(seen)


def read_of(node: Load | Take) -> Load:
    """A load itself, or the row that a take begins at."""
    return node if isinstance(node, Load) else node.row


def with_read(node: Load | Take, read: Load) -> Load | Take:
    """The node reading something else."""
    return read if isinstance(node, Load) else replace(node, row=read)


def substitute_axes(value: Value, mapping: Mapping[str, Index]) -> Value:
    """`value` with every named axis replaced, in loads, guards and index values."""

    def change(node: Value) -> Value | None:
        if isinstance(node, (Load, Take)):
            read = read_of(node)
            indices = tuple([index.substitute(mapping) for index in read.indices])
            guard = tuple([bound.substitute(mapping) for bound in read.guard])
            return with_read(node, replace(read, indices=indices, guard=guard))
        if isinstance(node, IndexValue):
            return replace(node, index=node.index.substitute(mapping))
        return None

    return transform(value, change)


_OPERATION = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def named_combiner(name: str, dtype: str, components: int = 1) -> Combiner:
    """Combiner ``sum``, ``prod``, ``max`` or ``min`` on so many values of `dtype`, each by itself.

    The identity of max and min is the infinity of a floating dtype, the limit of an integer one.
    """
    low, high = bounds(dtype)
    identity = {"sum": 0, "prod": 1, "max": low, "min": high}[name]
    both = [Binary(_OPERATION[name], Var(f"lhs{c}", dtype), Var(f"rhs{c}", dtype), dtype) for c in range(components)]
    return Combiner(name, (Const(identity, dtype),) * components, tuple(both))


def is_named(combiner: Combiner) -> bool:
    """Whether the combiner is one of `named_combiner`: either order of two operands gives the same bits."""
    name, dtype, components = combiner.name, combiner.identity[0].dtype, len(combiner.identity)
    return name in _OPERATION and combiner == named_combiner(name, dtype, components)
