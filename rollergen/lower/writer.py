"""Writing statements in the order in which they are read: nested blocks as nested ``with``.

    with out.loop("k", 8):
        with out.when(inside):
            out.assign(target, value)

A memory address inside a loop is split: what is known outside goes into a named pointer just
before the innermost serial loop (or the outermost unrolled one, where none is serial), so that
inner addresses are short and constant once unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rollergen.expr.index import Atom as IndexAtom
from rollergen.expr.index import Bounds, Index
from rollergen.hal.dataclass import dataclass
from rollergen.lower.box_ir import BoxStatement
from rollergen.lower.expressions import STORAGE_BYTES, Atom, Element, Expr, Name, Pointer, Position, Read
from rollergen.lower.features import PLAIN, Features
from rollergen.lower.ir import (
    PRIVATE,
    Allocate,
    Assign,
    Barrier,
    EndGroup,
    For,
    Function,
    If,
    Let,
    Names,
    Point,
    PrefetchLine,
    Statement,
    Write,
)
from rollergen.lower.matrix_ir import Collective

Terms = tuple[tuple[IndexAtom, int], ...]


class _Block:
    """Statements of a block under construction, and the pointers, integers and places it has named (few have any)."""

    __slots__ = ("integers", "places", "pointers", "statements")

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.integers: list[str] | None = None
        self.pointers: dict[tuple[str, str, Terms], Pointer] | None = None
        self.places: dict[tuple[Index, int], Pointer] | None = None


@dataclass(slots=True)
class _PointerBlock:
    """Where pointers for a loop are named: the block before it, with the variables known there."""

    block: _Block
    scope: int
    known: frozenset[str]


class Writer:
    """Builds the body of one kernel.  ``ranges`` collects the bounds of all integer variables.

    ``unrolled``: variables that are numbers to the compiler.  ``native``, ``masked_stores``, ``masked_loads``,
    ``float64``, ``lanes_apart`` and ``scaled_lanes``: of the language, see `Features`.
    """

    def __init__(self, names: Names, features: Features = PLAIN) -> None:
        self.names = names
        self._scopes = names.scopes
        self.native = features.functions
        self.masked_stores, self.masked_loads = features.masked_stores, features.masked_loads
        self.float64, self.lanes_apart = features.float64, features.lanes_apart
        self.scaled_lanes = features.scaled_lanes
        self.ranges: dict[str, Bounds] = {}
        self.unrolled: frozenset[str] = frozenset()
        self.functions: dict[str, Function] = {}
        self._known: set[str] = set()
        self._blocks = [_Block()]
        self._add: Callable[[Statement], None] = self._blocks[0].statements.append
        self._pointer_blocks: list[_PointerBlock] = []
        self._arrays: list[Allocate] = []
        self._inner_arrays: list[Allocate] = []

    def body(self) -> tuple[Statement, ...]:
        """The statements written, once every ``with`` is closed; arrays of the kernel come first."""
        return (*self._arrays, *self._blocks[0].statements)

    def arrays(self) -> tuple[Allocate, ...]:
        """Every allocation with extents in the body, in its order: what is written is only ever added to."""
        return (*self._arrays, *self._inner_arrays)

    # Plain statements

    def let(self, wish: str, value: Expr) -> Name:
        """A fresh constant that holds `value`."""
        name = self.names.fresh(wish)
        self._add(Let(name, value))
        return Name(name, value.dtype, value.lanes)

    def atom(self, wish: str, value: Expr) -> Expr:
        """`value` itself where repeating it costs nothing, else a constant that holds it."""
        return value if isinstance(value, Atom) else self.let(wish, value)

    def integer(self, wish: str, value: Expr, bounds: Bounds) -> Index:
        """A fresh integer constant, for use in indices."""
        name = self.let(wish, value).name
        self.know(name, bounds)
        return Index.axis(name)

    def define(self, variable: str, value: Expr, bounds: Bounds) -> None:
        """An integer constant of this very name."""
        self._add(Let(variable, value))
        self.know(variable, bounds)

    def know(self, variable: str, bounds: Bounds) -> None:
        """`variable` is bound from here to the end of the block (ids: of the kernel).

        A name is given again once its block is closed; its range then covers all its uses."""
        self.ranges[variable] = _union(self.ranges.get(variable, bounds), bounds)
        block = self._blocks[-1]
        if block.integers is None:
            block.integers = []
        block.integers.append(variable)
        self._known.add(variable)

    def register(self, wish: str, dtype: str, shape: tuple[int, ...] = (), lanes: int = 1) -> str:
        """Fresh registers; the array's name."""
        name = self.names.fresh(wish)
        statement = Allocate(name, "register", dtype, shape, lanes)
        self._add(statement)
        if shape:
            self._inner_arrays.append(statement)
        return name

    def array(
        self, wish: str, scope: str, dtype: str, elements: int, alignment: int, whole_kernel: bool = False
    ) -> Pointer:
        """A fresh flat array in local or private memory, of this block or of the whole kernel."""
        name = self.names.fresh(wish, 0 if whole_kernel else -1)
        statement = Allocate(name, scope, dtype, (elements,), 1, alignment)
        if whole_kernel:
            self._arrays.append(statement)
        else:
            self._add(statement)
            self._inner_arrays.append(statement)
        return Pointer(name, dtype, scope, writable=True)

    def assign(self, target: Name | Element, value: Expr) -> None:
        self._add(Assign(target, value))

    def add(self, statements: Iterable[Statement]) -> None:
        """Adds a statement that makes no name and whose loops, if any, are over registers alone."""
        self._blocks[-1].statements.extend(statements)

    def write(self, statement: Write) -> None:
        self._add(statement)

    def collective(self, statement: Collective) -> None:
        self._add(statement)

    def boxes(self, statement: BoxStatement) -> None:
        self._add(statement)

    def prefetch_line(self, pointer: Pointer, offset: Index, writing: bool = False, near: bool = False) -> None:
        self._add(PrefetchLine(*self.place(pointer, offset), writing, near))

    def barrier(self, pending: int | None = None, products: bool = False) -> None:
        self._add(Barrier(pending, products))

    def end_group(self) -> None:
        self._add(EndGroup())

    def each_lane(self, index: Index, lane: str, width: int) -> Callable[[], Index]:
        """What gives the index within a loop over the variable ``lane``, 0 to ``width``, that is opened next.

        Quotients and remainders that differ from lane to lane, but not from one iteration of the innermost serial loop
        to the next, are computed before that loop, into an array of an integer for each lane."""
        here = self._pointer_blocks[-1] if self._pointer_blocks else None
        outer, inner = _parted(index, here.known | {lane}) if here else ((), ())
        part = Index(outer)
        low, high = part.bounds(self.ranges) if outer else (0, 0)
        divides = any(not isinstance(atom, str) and lane in atom.index.names() for atom, _ in outer)
        if not divides or not inner or not -(2**31) <= low <= high < 2**31:
            return lambda: index
        place = Read(self.lane_places(part, lane, width), Index.axis(lane), "int32")
        return lambda: self.integer("place", place, (low, high)) + Index(inner, index.const)

    def lane_places(self, index: Index, lane: str, width: int) -> Pointer:
        """An array of the index, which 32 bits hold, for each lane: before the innermost serial loop where it is the
        same in all iterations, else here."""
        before = self._pointer_blocks[-1] if self._pointer_blocks else None
        if before is None or not (before.known | {lane}).issuperset(index.names()):
            before = _PointerBlock(self._blocks[-1], -1, frozenset())
        known = before.block.places = before.block.places or {}
        array = known.get((index, width))
        if array is None:
            name = self.names.fresh("places", before.scope)
            array = known[index, width] = Pointer(name, "int32", PRIVATE, writable=True)
            made = Allocate(name, PRIVATE, "int32", (width,), 1, STORAGE_BYTES["int32"] * width)
            self._inner_arrays.append(made)
            filled = Write(array, Index.axis(lane), Position(index))
            before.block.statements += [made, For(lane, 0, width, (filled,), True)]
        return array

    # Blocks

    def _open(self) -> None:
        block = _Block()
        self._blocks.append(block)
        self._add = block.statements.append
        self._scopes.append([])

    def _close(self) -> list[Statement]:
        """What was written in the block that is closed."""
        closed = self._scopes.pop()
        if closed:
            self.names.release(closed)
        block = self._blocks.pop()
        self._add = self._blocks[-1].statements.append
        if block.integers:
            self._known.difference_update(block.integers)
        return block.statements

    def loop(
        self, variable: str, stop: int | Expr, bounds: Bounds, unroll: bool = False, start: int | Expr = 0
    ) -> _Loop:
        """A loop; entering it gives its variable.  ``bounds``: of the variable, inclusive."""
        known = self.ranges.setdefault(variable, bounds)
        if known != bounds:
            self.ranges[variable] = _union(known, bounds)
        return _Loop(self, variable, stop, unroll, start)

    def when(self, condition: Expr) -> _Branch:
        """A block that runs only where `condition` holds."""
        return _Branch(self, condition, None)

    def otherwise(self) -> _Branch:
        """The other branch of the `when` just closed."""
        taken = self._blocks[-1].statements.pop()
        assert isinstance(taken, If)
        return _Branch(self, taken.condition, taken.body)

    # Addresses

    def is_fixed(self, index: Index) -> bool:
        """Whether `index` is the same in every iteration of all open loops."""
        return index.axes() <= (self._pointer_blocks[0].known if self._pointer_blocks else self._known)

    def place(self, pointer: Pointer, offset: Index) -> tuple[Pointer, Index]:
        """The address ``pointer + offset`` as (named pointer, short offset); see the module's docstring."""
        if not self._pointer_blocks:
            return pointer, offset
        here = self._pointer_blocks[-1]
        outer, inner = _parted(offset, here.known)
        if not outer:
            return pointer, offset
        key = (pointer.name, pointer.dtype, outer)
        pointers = here.block.pointers
        if pointers is None:
            pointers = here.block.pointers = {}
        named = pointers.get(key)
        if named is None:
            name = self.names.fresh(f"{pointer.name}_at", here.scope)
            named = pointers[key] = Pointer(name, pointer.dtype, pointer.scope, pointer.writable)
            here.block.statements.append(Point(named, pointer, Index(outer)))
        return named, Index(inner, offset.const)


class _Loop:
    """An open loop.  (Plain context managers: a generator for each costs twice as much as what it writes.)"""

    __slots__ = ("_has_pointers", "_out", "_start", "_stop", "_unroll", "_variable")

    def __init__(self, out: Writer, variable: str, stop: int | Expr, unroll: bool, start: int | Expr) -> None:
        self._out, self._variable, self._start, self._stop, self._unroll = out, variable, start, stop, unroll

    def __enter__(self) -> Index:
        out, variable = self._out, self._variable
        self._has_pointers = not self._unroll or not out._pointer_blocks
        if self._has_pointers:
            out._pointer_blocks.append(_PointerBlock(out._blocks[-1], len(out._scopes) - 1, frozenset(out._known)))
        out._known.add(variable)
        out._open()
        return Index.axis(variable)

    def __exit__(self, *error: object) -> None:
        out, variable = self._out, self._variable
        written = tuple(out._close())
        out._known.discard(variable)
        if self._has_pointers:
            out._pointer_blocks.pop()
        out._add(For(variable, self._start, self._stop, written, self._unroll))


class _Branch:
    """An open branch: the first of a condition, or with the body of that one the second."""

    __slots__ = ("_condition", "_out", "_taken")

    def __init__(self, out: Writer, condition: Expr, taken: tuple[Statement, ...] | None) -> None:
        self._out, self._condition, self._taken = out, condition, taken

    def __enter__(self) -> None:
        self._out._open()

    def __exit__(self, *error: object) -> None:
        written = tuple(self._out._close())
        taken = self._taken
        self._out._add(If(self._condition, written) if taken is None else If(self._condition, taken, written))


class Nested:
    """Blocks inside each other, opened one by one and closed together."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[_Loop | _Branch] = []

    def __enter__(self) -> Nested:
        return self

    def loop(self, loop: _Loop) -> Index:
        """The loop opened inside what is open; its variable."""
        self._open.append(loop)
        return loop.__enter__()

    def branch(self, branch: _Branch) -> None:
        self._open.append(branch)
        branch.__enter__()

    def __exit__(self, *error: object) -> None:
        for block in reversed(self._open):
            block.__exit__(*error)


def _parted(offset: Index, known: frozenset[str]) -> tuple[Terms, Terms]:
    """The terms of known variables only, and the others."""
    outer: list[tuple[IndexAtom, int]] = []
    inner: list[tuple[IndexAtom, int]] = []
    for term in offset.terms:
        atom = term[0]
        if atom in known if type(atom) is str else known.issuperset(atom.index.names()):  # type: ignore[union-attr]
            outer.append(term)
        else:
            inner.append(term)
    return tuple(outer), tuple(inner)


def _union(a: Bounds, b: Bounds) -> Bounds:
    return b if a == b else (min(a[0], b[0]), max(a[1], b[1]))
