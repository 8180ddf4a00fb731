"""Kernel IR: how a kernel is written, with nothing left to decide: its statements (their values are
`lower.expressions`), and what surrounds them.  Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Union

from rollergen.expr.index import Bounds, Index
from rollergen.lower.expressions import Element, Expr, Name, Pointer

GLOBAL, LOCAL, PRIVATE = "global", "local", "private"


@dataclass(frozen=True, slots=True)
class Comment:
    """One line (no line break, nothing that ends a comment)."""

    text: str


@dataclass(frozen=True, slots=True)
class Allocate:
    """Registers or memory: ``shape`` elements of ``lanes`` values.  No shape: one register.

    ``register`` arrays are multi-dimensional and only used by `Element`, with indices that are
    constant once unrolled; ``private`` and ``local`` ones are flat and used by `Read`, `Write`.
    """

    name: str
    scope: str
    dtype: str
    shape: tuple[int, ...] = ()
    lanes: int = 1
    alignment: int = 0


@dataclass(frozen=True, slots=True)
class Let:
    """A constant of the enclosing block."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Point:
    """``pointer`` names the place ``base + offset``."""

    pointer: Pointer
    base: Pointer
    offset: Index


@dataclass(frozen=True, slots=True)
class Assign:
    """A register gets a new value."""

    target: Name | Element
    value: Expr


@dataclass(frozen=True, slots=True)
class Write:
    """The value's lanes to ``pointer[offset]`` on.

    ``streaming``: past the caches; then the address is a multiple of the access' size.
    ``asynchronous``: the value is a `Read` from global memory, or a select of one and zeros, that arrives any time
    before a `Barrier` that waits for its group; until then the place holds nothing.
    ``mask``: which lanes are written (a vector of -1 and 0 as wide as they are); the others' places are not touched.
    ``adds``: the value, a scalar, is added to what is there, as one access that no other comes between.
    """

    pointer: Pointer
    offset: Index
    value: Expr
    streaming: bool = False
    aligned: bool = False
    asynchronous: bool = False
    mask: Expr | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """``variable`` from ``start`` up to, without, ``stop``."""

    variable: str
    start: int | Expr
    stop: int | Expr
    body: tuple[Statement, ...]
    unroll: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """Either body, by a scalar condition."""

    condition: Expr
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block wait for each other; local memory is then consistent.

    ``pending``: each thread first waits for its own asynchronous writes, but for the latest so many groups; None: for
    none of them.
    """

    pending: int | None = None


@dataclass(frozen=True, slots=True)
class EndGroup:
    """The asynchronous writes of this thread since the last one are a group (perhaps of none)."""


@dataclass(frozen=True, slots=True)
class FetchAhead:
    """The line of ``pointer[offset]`` is asked for.  Nothing waits for it, and the place need not exist.

    ``writing``: it will be written, so that no other core is to keep it."""

    pointer: Pointer
    offset: Index
    writing: bool = False


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """What one matrix instruction multiplies: m x k by k x n elements of ``dtype``; ``layout``: see `Instruction`."""

    m: int
    n: int
    k: int
    dtype: str
    accumulator_dtype: str
    layout: str


@dataclass(frozen=True, slots=True)
class LoadMatrix:
    """The threads of an execution width fill a fragment of operand "a" or "b" together.

    ``fragment``: an array of 32-bit registers (the element names what comes before its last dimensions), or of
    several neighbouring fragments, ``count`` of them.  ``offset``: of the first element (layout "opaque"), else of
    the row that this thread names.  ``pitch``: elements from row to row; ``along_k``: rows run along k.
    """

    shape: MatrixShape
    operand: str
    fragment: Element
    pointer: Pointer
    offset: Index
    pitch: int
    along_k: bool
    count: int = 1


@dataclass(frozen=True, slots=True)
class MultiplyMatrix:
    """``accumulator += a * b`` by the threads of an execution width, each with its registers of the fragments.

    ``a_along_k``, ``b_along_k``: as they were loaded.
    """

    shape: MatrixShape
    accumulator: Element
    a: Element
    b: Element
    a_along_k: bool
    b_along_k: bool


@dataclass(frozen=True, slots=True)
class StoreMatrix:
    """The threads of an execution width write an opaque accumulator fragment to ``pointer[offset]`` on, together."""

    shape: MatrixShape
    accumulator: Element
    pointer: Pointer
    offset: Index
    pitch: int


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """The threads of an execution width wait for each other; what they wrote to local memory is then seen by all."""


Statement = Union[
    Comment, Allocate, Let, Point, Assign, Write, For, If, Barrier, EndGroup, FetchAhead,
    LoadMatrix, MultiplyMatrix, StoreMatrix, WarpBarrier,
]  # fmt: skip


# Kernels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A pure function of scalars or vectors, always inlined."""

    name: str
    parameters: tuple[Name, ...]
    body: tuple[Statement, ...]
    result: Expr


@dataclass(frozen=True)
class Kernel:
    """One launch: ``blocks`` blocks of ``threads`` threads.

    ``arguments`` are the buffers' own names, in the order of ``parameters``.  ``block_id`` and
    ``thread_id`` are the variables that hold the linear numbers.  ``ranges``: inclusive bounds of every
    integer variable in the body.  ``layout``: comment lines that draw the kernel.  ``resident_blocks``: blocks that
    are meant to share a unit (0: not known), for compilers that spend registers accordingly.  ``allocated``: `arrays`,
    where whoever wrote the body knows them.
    """

    name: str
    parameters: tuple[Pointer, ...]
    arguments: tuple[str, ...]
    body: tuple[Statement, ...]
    blocks: int
    threads: int
    block_id: str
    thread_id: str
    ranges: Mapping[str, Bounds]
    functions: tuple[Function, ...] = ()
    layout: tuple[str, ...] = ()
    once: bool = False
    resident_blocks: int = 0
    allocated: tuple[Allocate, ...] | None = None

    @cached_property
    def arrays(self) -> tuple[Allocate, ...]:
        """Every allocation with extents in the body, outer before inner."""
        if self.allocated is not None:
            return self.allocated
        found: list[Allocate] = []
        _find_arrays(self.body, found)
        return tuple(found)


_ARRAYS_IN = frozenset({Allocate, For, If})
"""Statements that are an array, or have others within."""


def _find_arrays(body: tuple[Statement, ...], found: list[Allocate]) -> None:
    for statement in body:
        kind = type(statement)
        if kind not in _ARRAYS_IN:
            continue
        if kind is Allocate:
            if statement.shape:  # type: ignore[union-attr]
                found.append(statement)  # type: ignore[arg-type]
        elif kind is For:
            _find_arrays(statement.body, found)  # type: ignore[union-attr]
        elif kind is If:
            _find_arrays(statement.body, found)  # type: ignore[union-attr]
            _find_arrays(statement.otherwise, found)  # type: ignore[union-attr]


def walk(statements: tuple[Statement, ...]) -> list[Statement]:
    """Every statement of a body, outer before inner."""
    found: list[Statement] = []
    left = list(reversed(statements))
    while left:
        statement = left.pop()
        found.append(statement)
        if isinstance(statement, For):
            left.extend(reversed(statement.body))
        elif isinstance(statement, If):
            left.extend(reversed(statement.otherwise))
            left.extend(reversed(statement.body))
    return found
