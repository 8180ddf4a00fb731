"""The rProgram: every decision about a kernel, as one immutable value (ROLLER, section 3.3).

Three readers consume it and none decides anything: the model (`program/model/`), the interpreter
(`program/interpreter/`) and the lowering (`lower/`).  `program/check/` holds the invariants that each instance meets.

Axes and loops
    ``axis = sum(loop variable * loop stride)`` over the loops of that axis.  Sorted by falling stride, each loop's
    stride is the product of the extents after it: the loops are the digits of a mixed-radix number.  Their product may
    exceed the axis' extent (the tail, see `Stage.guards`).  An axis without loops has extent 1.

Nest
    ``loops`` run from outermost to innermost: first all ``grid`` loops, then ``group`` and ``thread`` loops, then
    ``serial``, ``unroll`` and ``lane`` loops in any order, a lane loop last.  Group loops are thread loops whose one
    iteration is a whole number of execution widths.  The linear work-group number runs over the grid loops, the linear
    local number over group and thread loops: in both the last loop is the fastest (but see `BlockOrder`).
    Depth d means: inside ``loops[:d]``, before ``loops[d]``.

Tails
    A serial loop stops where its axis ends, given the loops around it: trip count
    ``min(extent, ceil((axis extent - base) / stride))``.  What still overhangs is the guard's.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import attrgetter
from typing import Annotated, Any

from rollergen.expr.index import Index
from rollergen.expr.limits import Among, Count, DtypeName, Extent
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Value
from rollergen.hal.dataclass import dataclass
from rollergen.program.block_order import ROW_BY_ROW, BlockOrder, StageLaunch
from rollergen.program.stores import ONE_BY_ONE, Store
from rollergen.program.supersteps import Superstep, TileMapping

GRID, GROUP, THREAD, SERIAL, UNROLL, LANE = "grid", "group", "thread", "serial", "unroll", "lane"
PARALLEL = (GROUP, THREAD)
LoopKind = Annotated[str, Among((GRID, GROUP, THREAD, SERIAL, UNROLL, LANE))]
Combine = Annotated[str, Among(("none", "shuffle", "groups", "tree", "at_once"))]
Guard = Annotated[str, Among(("none", "mask", "peel", "overlap"))]

REALIGNED_BYTES = 16
"""Of vectors that are put together in registers (`Copy.realigned`): the widest accesses of a thread."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One digit of an axis: ``extent`` iterations, ``stride`` axis elements apart."""

    axis: str
    extent: Count
    stride: Extent
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Copy:
    """One load's tile brought into ``to_layer`` at each iteration of the loops outside depth ``at_loop``.

    The buffer is indexed by the axes in ``order`` (outer to inner; exactly the axes of the load that vary inside).
    Along each axis it holds one element for each combination of the *inner* loops of that axis: those at depth
    ``at_loop`` or deeper and, where ``to_layer`` is shared by a block, all its group and thread loops.  Position along
    the axis is the mixed-radix number of these loops' variables by falling stride (the plain local coordinate, if they
    are adjacent).

    Row-major, the last axis padded by ``padding`` elements; with ``swizzle`` s > 1 (a power of 2), column c of row r (r
    numbers the rows of the tile) lies at ``c ^ (r % s) * unit``, the `unit` being a vector.  With ``panel`` p > 0 it is
    cut into panels of p columns, one behind the other, swizzled each by itself (units: p / s); padding fills the last
    one.  With ``apart`` a > 0 the rows of each a * a change places: row i * a + j (i, j < a) is kept as row j * a + i.
    A masked-out or guarded element holds the load's fill.

    Into a block's layer, all threads fill together: groups of ``vector`` elements adjacent along ``along`` are numbered
    with ``along`` fastest and the other axes in ``order`` behind it (last fastest); thread t of T moves groups t,
    t + T, ...  If ``along`` is ``order[-1]`` the groups are stored as vectors, else element by element (by one thread
    alone in square blocks, see `turns`).  A barrier precedes (if the buffer was in use) and follows.  Into registers,
    each thread fills its own, a vector at a time.

    ``realigned``: vectors of `REALIGNED_BYTES` that begin anywhere in memory and may end with their axis.  A thread
    reads the two aligned pieces of that size in which one lies, and puts it together in registers when it stores it.

    ``runs``: of a tile that a block fills, elements along each axis of the order that one thread moves one after the
    other: the tile is cut into runs of that shape, which are numbered and dealt like groups, and within its run a
    thread moves the groups in the same order.  Empty: runs of one group.

    ``every``: along each axis of the order, how many neighbours read one and the same element (the load's indices have
    no more of the axis than its quotient by so many): the buffer holds it once, and positions along the axis count such
    elements.  Into a block's layer; empty: each its own.

    ``depth`` 1: copy, then compute.  2: the next tile is fetched into registers while this one is used, two buffers.
    3 and more: a ring of that many buffers, filled ``depth - 1`` iterations of the serial loop around the copy ahead.
    ``asynchronous``: such a ring (from 2 buffers on), filled past the registers by copies that run beside the program;
    elements that are out of range or guarded are zeros.  All asynchronous copies of one loop have one depth; filled
    ``depth - 2`` ahead where `matrix.trails`.  ``boxes``: all by the device's copy engine, not threads (see `boxes`).

    ``window``: not an element for each combination of loops but one for each element of the tensor: along each of its
    dimensions the interval that the indices span (see `windows`), filled element by element.  Indices are affine with
    positive coefficients, without gaps, and each bound of the guard is one of an index; reduce axes of the load are
    looped over inside, whole.  Elements that no point within its axes reads are not read, and hold the fill.  Into
    registers it is the window of a thread's points; into a block's layer that of all its threads (the halo once),
    row-major over the tensor's dimensions, the last padded by ``padding``.  Its threads then walk the dimensions side
    by side: each thread loop moves one dimension; of n threads along it the t-th stages positions t, t + n, ... (the
    last thread loop of a dimension is the fastest).
    """

    load: Count
    from_layer: str
    to_layer: str
    at_loop: Count
    order: tuple[str, ...]
    along: str
    vector: Extent = 1
    padding: Count = 0
    swizzle: Count = 0
    depth: Extent = 1
    asynchronous: bool = False
    window: bool = False
    runs: tuple[Extent, ...] = ()
    panel: Count = 0
    boxes: bool = False
    every: tuple[Extent, ...] = ()
    apart: Count = 0
    realigned: bool = False

    @property
    def unit(self) -> int:
        """Elements that stay side by side where the tile is swizzled."""
        return self.panel // self.swizzle if self.panel else self.vector

    def elements(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """How many elements the buffer holds along each axis of the order, of as many positions of the loops."""
        return tuple(extent // one for extent, one in zip(shape, self.every, strict=True)) if self.every else shape

    def turns(self, shape: tuple[Any, ...]) -> Any:
        """Whether one thread that fills a buffer of its own of this shape reads vectors along one axis and stores them
        along another, in square blocks that it turns in registers."""
        if self.along == self.order[-1]:
            return False
        whole = (self.vector > 1) & (self.vector & (self.vector - 1) == 0) & (shape[-1] % self.vector == 0)
        return whole & (self.swizzle <= 1)

    def every_of(self, axis: str) -> int:
        """How many neighbours along an axis of the order share an element."""
        return self.every[self.order.index(axis)] if self.every else 1


@dataclass(frozen=True, slots=True)
class Compute:
    """``instruction``: one of the device's, ``lanes`` wide along the lane loop; for dot products if bodies are these.

    A matrix instruction multiplies along the axes of its two thread loops, m and n, and the reduced one, k.  Its tile
    are the loops of these axes with strides below its shape, the threads of one execution width among them (see
    `matrix.fragment_loops`); the operands come from the block's layer.  Layout "warpgroup": see `matrix.trails`,
    `rows_apart`, which says in what order the rows of a sum are multiplied that are kept apart.

    ``factors``: "tf32" where the instruction looks at no more than the 11 leading bits of the factors' significands
    (the other 13 count as 0); "float8" where it keeps no more than 14 bits of the sums;
    "converted" where threads compute some of them from narrow elements (see `conversions`), "converted_8" where these
    are nibbles, of which they read those of two steps at once; empty: at all of them.
    ``producer``: an execution width beside those of the loops starts the copies of boxes; else a thread of theirs does.
    """

    instruction: str
    lanes: Extent = 1
    factors: Annotated[str, Among(("", "tf32", "float8", "converted", "converted_8"))] = ""
    producer: bool = False


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Registers of every reduction: one for each iteration of the spatial loops deeper than ``at_loop`` (thread loops:
    each thread has its own).

    They start at the identity at depth ``at_loop`` and are stored when its loops are through.  Where reduce loops run
    outside (`carry` true), the partial result waits in the output between passes: every pass starts from the identity,
    what it finds is combined with what waits, and the last one applies ``result``; then accumulator and output dtype
    must be equal.

    Lane, group and thread loops of reduce or row axes, and the unroll loops (positions) in ``separate``, have
    accumulators of their own, combined at the end: across lanes and ``separate`` in rising order, across threads as
    ``combine`` says:

    - ``none``: no threads share a reduction;
    - ``shuffle``: the threads of each reduction lie within one execution width (see `Device`) and exchange
      registers, upper halves to lower ones, the outermost thread loop first;
    - ``groups``: so within each execution width, for its one reduced thread loop; then the one reduced group
      loop's partial results go through the block's layer, and each execution width combines them so again;
    - ``tree``: upper halves to lower ones through the block's layer, for all thread and group loops together;
    - ``at_once``: so, too, of matrix instructions' results whose sums execution widths share: all of a thread's pass
      through the block's layer at once, and the first thread of each sum adds up those of all.

    A language without exchange of registers writes ``shuffle`` and ``groups`` as a ``tree``.

    ``gathered``: positions of unroll loops of row axes, with no other loop between or inside, whose points go into an
    online pair (see `rows.online_combiner`) together: the largest of them and of what the pair holds is found
    first, then what the pair's sum and each point add to it.

    ``flush``: rising depths inside ``at_loop``, at each of which reductions that add rounded values (`levels.adds`)
    have accumulators of their own: they start at the identity there, and when the loops of that depth are through they
    are combined into those of the depth before (of ``at_loop``, before the first).  Points go into the innermost ones,
    which alone have ``separate`` positions.  A sum of n terms thus errs as one of the longest chain, not as one of n.
    """

    at_loop: Count
    dtype: DtypeName
    carry: bool = False
    separate: tuple[Count, ...] = ()
    combine: Combine = "none"
    gathered: tuple[Count, ...] = ()
    flush: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A value that is computed once for every point of a row and read again in later phases.

    ``phase``: the reduction while which it is computed, or before which, if that reduction does not use it.
    ``layer``: where it is kept: registers (each thread its own points), the backing store (the output itself, at the
    point's place, until the result is written there) or a private array.  It is read as ``Var(name)`` wherever an equal
    value occurs in that phase, in later reductions or in the result.
    """

    name: str
    value: Value
    layer: str
    phase: Count


@dataclass(frozen=True, slots=True)
class InnerNest:
    """How the inner contraction of a chain runs (`TensorOp.inner`): at each iteration of the loops outside depth
    ``at_loop``, before what lies inside.

    It has a value for every point of the block that the stage's loops inside ``at_loop`` cover along its axes (rows, in
    lanes, and keys), in an array of the thread's own; ``loops`` run over that block and the inner axes: serial ones,
    then unrolled ones, a lane loop last.  The outer contraction, inside ``at_loop``, reads the values as they are.
    Where the chain has an online pair, its elements (scores) are found first, and the largest of each row; the pair's
    sum and those of the outer contraction, which were added up with the largest so far, shrink once for each block.

    Of a matrix instruction (then blocks are of many threads): values are the instruction's accumulators, rounded where
    the outer contraction multiplies them, whose factor they are as they lie in registers.  ``loops`` are unrolled ones
    and one thread loop along keys, which stands for the stage's last one.  Copies bring rows to the block once and keys
    block by block, asynchronously: with 2 buffers all of the next block while one is used; with 1 the next block's
    factors of the inner contraction while the outer one runs, and this block's of the outer one while the inner one
    does.  A last copy, into registers, says that the rows' factor stays there.  An asynchronous instruction reads all
    factors in panels of the block's layer but the values, which are its factor in registers; each of its products is
    waited for before the next (layout "warpgroup", see `matrix.trails`).

    ``first``, ``last``: keys of a row before one of ``first`` or after one of ``last`` weigh nothing.  Blocks of keys
    that end (the last one as if it were whole) before the smallest of a ``first`` among their rows, or begin after the
    largest of a ``last``, are not run.
    """

    at_loop: Count
    loops: tuple[Loop, ...]
    first: tuple[Index, ...] = ()
    last: tuple[Index, ...] = ()


class _Remembered:
    """A stage's hash, which caches ask for more than once."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Stage(_Remembered):
    """One launch: a tensor op, its loops, and where its tiles lie.

    ``guards``: (axis, way) of the axes whose tail overhangs after serial loops have stopped. "mask" tests each access.
    "peel" (spatial axes only) tests the whole register tile once at the accumulator's depth and holds the body twice,
    without tests and with. "overlap" (spatial axes of stages without reductions) lets the last tile of the unrolled and
    lane loops begin earlier, so that it ends with its axis: what it shares with the tile before is computed twice and
    counted once. Masked spatial points store nothing; masked reduce points contribute the combiner's identity.

    ``once``: the stage depends on constant tensors only and runs at build. ``superstep``: for bulk-synchronous
    machines, else None.

    ``prefetch``: the position of a loop whose next iteration's elements are prefetched; -1: none. In a stage of rows
    with several reductions it is a serial loop over rows: the last reduction prefetches the next row's elements while
    this one's are computed. Behind a block's last row these need not exist; values are the same. In a contraction it is
    the loop over panels around that over rows of register tiles: each of these prefetches, at each step of the
    reduction, one vector of the next panel (see `loops`), together all of it; behind the last panel of a block of the
    reduction the first one of the next block is next. Without reductions it is one over rows:
    what takes read in its next iteration is prefetched (`loops.asked_lanes`).  It may also be a serial loop of a
    reduction, the innermost but for taps of windows: each iteration asks for the lines that a later one reads
    (`loops.prefetched_lines`); or the one each iteration of which reads a few rows of a matrix: it asks for those of
    the next one (`loops.next_rows`).  In a chain it is the loop over blocks of rows: each block asks for what it and
    the next one need (`chain_lines`).

    ``inner``: of a chain, else None: ``loops`` are then those of its outer contraction.

    ``winograd``: of a stage that adds up the products of Winograd's filtering, how many outputs a side of its tiles has
    (`expr.winograd`), else 0: its results are less exact than its formula says of itself.
    """

    name: str
    op: TensorOp
    loops: tuple[Loop, ...]
    compute: Compute
    accumulator: Accumulator
    copies: tuple[Copy, ...] = ()
    kept_rows: tuple[KeptRow, ...] = ()
    store: Store = ONE_BY_ONE
    guards: tuple[tuple[str, Guard], ...] = ()
    block_order: BlockOrder = ROW_BY_ROW
    once: bool = False
    superstep: Superstep | None = None
    prefetch: int = -1
    inner: InnerNest | None = None
    winograd: Count = 0

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            sizes, moved = tuple(map(_SIZES, self.loops)), tuple(map(_MOVED, self.copies))
            object.__setattr__(self, "_hash", hash((self.name, sizes, moved, self.block_order.group_rows)))
            return self._hash

    def guard(self, axis: str) -> str:
        return dict(self.guards).get(axis, "none")

    def of_axis(self, axis: str) -> tuple[tuple[int, Loop], ...]:
        """The axis' loops as (position, loop), by falling stride."""
        own = [(p, loop) for p, loop in enumerate(self.loops) if loop.axis == axis]
        return tuple(sorted(own, key=lambda item: -item[1].stride))

    def of_kind(self, *kinds: str) -> tuple[tuple[int, Loop], ...]:
        return tuple([(p, loop) for p, loop in enumerate(self.loops) if loop.kind in kinds])

    @property
    def blocks(self) -> int:
        return prod(loop.extent for _, loop in self.of_kind(GRID))

    @property
    def launched_blocks(self) -> int:
        """Blocks that the launch has, each of which computes one of `blocks` or several."""
        return self.block_order.launched or self.blocks

    @property
    def threads(self) -> int:
        """Work-items of one work-group."""
        return prod(loop.extent for _, loop in self.of_kind(*PARALLEL))

    def load(self, copy: Copy) -> Load:
        return self.op.loads()[copy.load]

    def buffer_shape(self, copy: Copy, *, block: bool) -> tuple[int, ...]:
        """Elements along each axis of ``copy.order``, without padding."""
        spans = dict.fromkeys(copy.order, 1)
        own = {loop.axis for loop in self.loops}
        inner = [loop for loop in self.inner.loops if loop.axis not in own] if self.inner else []
        for p, loop in enumerate((*self.loops, *inner)):
            if loop.axis in spans and loop.kind != GRID and (block if loop.kind in PARALLEL else p >= copy.at_loop):
                spans[loop.axis] *= loop.extent
        return copy.elements(tuple([spans[axis] for axis in copy.order]))


_SIZES, _MOVED = attrgetter("extent", "stride"), attrgetter("load", "vector", "depth")
"""What tells most stages apart that are looked up side by side: a hash of all would cost more than what is kept."""


@dataclass(frozen=True, slots=True)
class RProgram:
    """Stages in launch order, with the buffers between them.  ``device`` is the spec's name.

    ``inputs`` are in the order of the call; ``outputs`` are what the call returns.  ``tile_mappings``: for a
    bulk-synchronous machine, which tiles own each buffer; then every stage has a `Superstep`.  ``launches``: one for
    each stage; empty: none asks for anything.
    """

    device: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    temporaries: tuple[Buffer, ...] = ()
    tile_mappings: tuple[TileMapping, ...] = ()
    launches: tuple[StageLaunch, ...] = ()

    def __repr__(self) -> str:
        stages = ", ".join(f"{one.name} ({one.blocks} blocks of {one.threads})" for one in self.stages)
        return f"<program for {self.device}: {stages}>"

    def launch(self, number: int) -> StageLaunch:
        """How the stage of that number is launched."""
        return self.launches[number] if self.launches else StageLaunch()

    def mapping(self, buffer: str) -> TileMapping:
        """The tile mapping of the buffer of that name."""
        return next(mapping for mapping in self.tile_mappings if mapping.buffer == buffer)

    def buffers(self) -> Iterator[Buffer]:
        return iter((*self.inputs, *self.temporaries, *self.outputs))
