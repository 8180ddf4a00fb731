"""Statements by which threads multiply together: fragments in registers, or products that run beside the program."""

from __future__ import annotations

from typing import Union

from rollergen.expr.index import Index
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import Element, Expr, Pointer


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
    several neighbouring fragments, ``count`` of them; of layout "wavefront" one of 64 bits; of float64 in quads its
    numbers.  ``offset``: of the first element (layout "opaque", and float64 in quads the first of this thread), else of
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
class LoadNeighbours:
    """A thread's part of a fragment of 16-bit elements, of which it has four neighbours of a row along the sum, from
    ``pointer[offset]`` on; of operand "a" those of a second row, too, ``far`` elements away.  ``half``: of eight
    neighbours the pairs (2 half, 2 half + 4) and (2 half + 1, 2 half + 5)."""

    operand: str
    fragment: Element
    pointer: Pointer
    offset: Index
    far: int
    half: Expr | None = None


@dataclass(frozen=True, slots=True)
class LoadNarrow:
    """So many ``bytes`` from ``pointer[offset]`` on, at a multiple of them, in the low bits of a register."""

    word: Element
    pointer: Pointer
    offset: Index
    bytes: int


@dataclass(frozen=True, slots=True)
class WidenNarrow:
    """Four neighbours of ``kind`` (int8, uint8, int4, uint4, float8) in a register, the first lowest, as two ``pairs``
    of numbers of ``dtype``; ``half``: of eight of four bits those that `LoadNeighbours` has."""

    kind: str
    dtype: str
    pairs: Element
    word: Element
    half: Expr | None = None


@dataclass(frozen=True, slots=True)
class CombinePairs:
    """``pairs = pairs operation column`` for both pairs, ``column operation pairs`` if it stands ``first``: add, sub or
    mul of two numbers of ``dtype`` at once."""

    operation: str
    dtype: str
    pairs: Element
    column: Expr
    first: bool


@dataclass(frozen=True, slots=True)
class LoadPieces:
    """Of a row of 16-bit elements in a swizzled panel, which begins at ``pointer[offset]``, and of the row ``far``
    elements further on, two neighbouring pieces of 16 bytes, into ``pieces``: registers of 32 bits, [row][piece][word].
    ``first``: where in its row the first piece lies; the other one lies where the swizzle puts its neighbour."""

    pieces: Element
    pointer: Pointer
    offset: Index
    first: Expr
    far: int


@dataclass(frozen=True, slots=True)
class LoadAround:
    """The two pieces of 16 bytes in which eight 16-bit elements lie that begin ``behind`` others, from the aligned
    place ``pointer[offset]`` on, into ``words``, eight of 32 bits.  The second one is not read if none lies in it.

    ``wanted``: only the first so many are read (None: all).  ``inside``: elsewhere pieces may leave the array; then
    elements are read one by one."""

    words: Element
    behind: Expr
    pointer: Pointer
    offset: Index
    wanted: Expr | None = None
    inside: Expr | None = None


@dataclass(frozen=True, slots=True)
class StoreAround:
    """The eight elements for which `LoadAround` brought ``words``, to ``pointer[offset]`` on, an aligned place in local
    memory; zeros for those that were not ``wanted``."""

    words: Element
    behind: Expr
    pointer: Pointer
    offset: Index
    wanted: Expr | None = None


@dataclass(frozen=True, slots=True)
class OrderPieces:
    """The fragments of operand "a" for four steps, of 32-bit registers each, of what `LoadPieces` brought: step s
    multiplies elements 2 s of both pieces as its neighbours, and elements 2 s + 1 as those 8 further on."""

    fragments: Element
    pieces: Element


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
class Operand:
    """A factor of an asynchronous product, where it lies in local memory: from ``pointer[offset]`` on, in panels of
    128-byte rows whose pieces of 16 bytes are swizzled over 8 rows.  ``along_k``: rows run along k, and one panel holds
    them; else panels are ``panel_bytes`` apart."""

    pointer: Pointer
    offset: Index
    along_k: bool
    panel_bytes: int


@dataclass(frozen=True, slots=True)
class BeginProducts:
    """The registers of accumulators are those of the program up to here, and of asynchronous products from here on."""


@dataclass(frozen=True, slots=True)
class MultiplyLocal:
    """``accumulator += a * b`` by the threads of several execution widths, asynchronously (layout "warpgroup").

    ``accumulator``: the element names what comes before its last dimensions: tiles along n, rows, columns.  ``a`` may
    be a fragment in registers, of 32 bits each: an execution width's own rows as those of `MultiplyMatrix`.
    """

    shape: MatrixShape
    accumulator: Element
    a: Operand | Element
    b: Operand


@dataclass(frozen=True, slots=True)
class EndProducts:
    """The asynchronous products since the last one are a group; the thread waits for all but the latest ``pending``."""

    pending: int


@dataclass(frozen=True, slots=True)
class WaitFactors:
    """The thread waits for all groups of products: registers that they read as factors may change."""


@dataclass(frozen=True, slots=True)
class WaitProducts:
    """The thread waits for all asynchronous products; their sums are then in the registers of ``accumulators``, arrays
    of so many elements of ``dtype``."""

    accumulators: tuple[str, ...]
    dtype: str
    elements: int


@dataclass(frozen=True, slots=True)
class StoreMatrix:
    """The threads of an execution width write an opaque accumulator fragment to ``pointer[offset]`` on, together."""

    shape: MatrixShape
    accumulator: Element
    pointer: Pointer
    offset: Index
    pitch: int


@dataclass(frozen=True, slots=True)
class ExchangeResults:
    """The threads of each row exchange results of ``tiles``, as many as they are: thread q of a row then has in tile j
    what thread j had in tile q, so that all it has are neighbours of one tile.  So do those of each column where rows
    are exchanged ``across`` (see `tiles_across_rows`).  The elements name what comes before a tile's own dimensions,
    rows and columns of a thread."""

    tiles: tuple[Element, ...]
    across: bool = False


@dataclass(frozen=True, slots=True)
class ShareWeights:
    """The four threads of a row in quad pairs exchange the weights that they have as accumulators of 16 keys, two rows
    by four of them: each then has ``weights`` of one row, the eight keys of its own quad pair first.

    ``own``: four registers, of either row by rising keys; ``weights``: two times four."""

    own: Element
    weights: Element


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """The threads of an execution width wait for each other; what they wrote to local memory is then seen by all."""


Collective = Union[
    LoadMatrix, MultiplyMatrix, StoreMatrix, ExchangeResults, ShareWeights, WarpBarrier, BeginProducts, MultiplyLocal,
    EndProducts, WaitProducts, LoadNeighbours, LoadNarrow, WidenNarrow, CombinePairs, LoadPieces, OrderPieces,
    WaitFactors, LoadAround, StoreAround,
]
