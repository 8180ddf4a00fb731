"""Plans: the rTiles of every layer and the few decisions beside them, before they become loops.

A plan's sizes may be ints (one program) or equally long NumPy arrays (a batch with one structure).
"""

from __future__ import annotations

from typing import Any

from rollergen.hal.dataclass import dataclass

Size = Any
"""An int, or an int array of a batch."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What each axis of a contraction does.

    ``n`` is contiguous in the output (lanes, neighbouring threads); ``m`` is the other tiled axis
    (None: there is none); ``batch`` axes get a block for each element; ``k`` is the reduce axis cut into
    steps; ``taps`` are the other reduce axes, looped over inside.
    """

    n: str | None
    m: str | None
    batch: tuple[str, ...]
    k: str
    taps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContractionPlan:
    """Tiles of a contraction along (m, n): register tile, threads, panels (register tiles that a
    thread does in turn), and the reduction step.

    ``rm`` rows x ``rn`` vectors of ``lanes``; vectors of ``vm``, ``vn`` adjacent elements are fetched
    at once and ``tm``, ``tn`` threads interleave by these.  ``gm`` x ``gn`` groups split the threads into
    execution widths of their own shape (1: plain).  ``order`` of the panels: ``ji`` (n outside),
    ``ij``, or ``jbi``: all that shares a panel of n, other lines of an image, too, is computed in the block, inside it.
    ``staged``: loads that go through the block's layer.  ``unroll`` steps of k are unrolled.
    ``depth`` buffers of each, filled ``asynchronous`` where they can be.  ``vk``: staged operands that are contiguous
    along k keep that order, and their fragments are of so many steps (1: the tiled axis lies inside instead).
    """

    rm: Size = 1
    rn: Size = 1
    lanes: int = 1
    tm: Size = 1
    tn: Size = 1
    gm: Size = 1
    gn: Size = 1
    pm: Size = 1
    pn: Size = 1
    kc: Size = 1
    vm: int = 1
    vn: int = 1
    unroll: int = 1
    order: str = "ji"
    staged: tuple[int, ...] = ()
    depth: int = 1
    group_rows: int = 0
    asynchronous: bool = False
    vk: int = 1


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Tiles of a reduction over sliding windows, as (axis, extent) pairs (absent: 1): ``tiles`` that one thread
    computes, ``threads`` of a block side by side."""

    tiles: tuple[tuple[str, Size], ...]
    threads: tuple[tuple[str, Size], ...]

    def tile(self, axis: str) -> Size:
        return dict(self.tiles).get(axis, 1)

    def threads_along(self, axis: str) -> Size:
        return dict(self.threads).get(axis, 1)


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Tiles of a reduction without reuse, or of a row stage: ``rows`` rows a block in turn,
    ``row_threads`` of them side by side, each read by ``threads`` threads x ``vector`` adjacent
    elements (x lanes), ``chains`` steps unrolled with accumulators of their own.  ``kept_in``: layer of
    a row stage's kept rows ("" = recompute).  ``gathered``: the unrolled elements go into one pair together (see
    `Accumulator`), instead of accumulators of their own."""

    rows: int = 1
    row_threads: int = 1
    threads: int = 1
    vector: int = 1
    lanes: int = 1
    chains: int = 1
    kept_in: str = ""
    gathered: bool = False


@dataclass(frozen=True, slots=True)
class InnerProductPlan:
    """Tiles of products whose operands are both contiguous along k: ``row_tile`` x ``column_tile`` outputs at once,
    each a sum of ``chains`` vectors of ``lanes``, ``rows`` tiles of rows in a block, each with all columns in turn."""

    rows: int = 1
    row_tile: int = 1
    column_tile: int = 1
    lanes: int = 1
    chains: int = 1


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Tiles of a scan: ``threads`` of a row x ``vector`` elements of each in one step along it; ``row_threads`` rows
    side by side in a block, ``rows`` of them (x ``lanes``) of one thread at once, ``across`` times in each step."""

    row_threads: int = 1
    threads: int = 1
    rows: int = 1
    vector: int = 1
    lanes: int = 1
    across: int = 1


@dataclass(frozen=True, slots=True)
class ElementwisePlan:
    """An elementwise stage along (m, n): threads, vectors, serial steps, and ``um``, ``un`` unrolled ones.

    ``staged``: the load that is transposed through a tile in ``layer``; ``square``: through square tiles of that many
    elements each way, which stay in registers.  ``across``: the serial steps along n lie inside those along m (and
    blocks along n outside those along m), so that rows of the output are written on.  ``strides``: blocks along n of a
    grid-stride loop (0: a block for each tile).  ``on_lines``, ``prefetch_distance``: see `Store`.  ``ahead``: what the
    next row takes is prefetched where a block has several (`Stage.prefetch`).
    """

    tm: Size = 1
    tn: Size = 1
    pm: int = 1
    pn: int = 1
    um: int = 1
    un: Size = 1
    vector: int = 1
    lanes: int = 1
    staged: int = -1
    layer: str = ""
    square: int = 0
    streaming: bool = False
    on_lines: bool = False
    strides: int = 0
    as_read: bool = False
    across: bool = False
    prefetch_distance: int = 0
    ahead: bool = False
