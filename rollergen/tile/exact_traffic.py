"""Transactions of every load and store of a stage, exact for affine guarded accesses.

A tile is one filling of a load's copy from memory, or one block where nothing is copied; it costs the
distinct transactions of the elements that it touches.  Tiles that differ by a shift of whole
transactions cost the same, so only classes of tiles are looked at: per axis, what the end of the axis (or a
guard) leaves of the tile, and the start address modulo the transaction.

Affine indices of separate axes go through closed forms (`affine_traffic`).  What has ``//`` or ``%``, shares an axis
between dimensions, or is guarded by something else than an index, is listed class by class (`gather_traffic`); tiles
too large for that are cut where the outermost division steps, which counts a transaction twice where two
pieces share it (an upper bound).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from rollergen.hal.dataclass import dataclass
from rollergen.tile.affine_traffic import count_affine, has_separate_dimensions
from rollergen.tile.axis_tiles import AxisTiles, StageLike, axis_tiles, block_digits
from rollergen.tile.chain_tiles import chain_tiles
from rollergen.tile.gather_traffic import count_enumerated
from rollergen.tile.guarded_access import Access


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one access of a stage moves: ``tiles`` fillings (or blocks), ``transactions`` in all.

    ``role``: load | store; ``load``: position in the tensor op's loads, -1 for the store.
    """

    stage: str
    tensor: str
    role: str
    load: int
    tiles: int
    transactions: int


def traffic(stage: StageLike, transaction_bytes: int, blocks: Sequence[int] | None = None) -> tuple[Traffic, ...]:
    """Transactions of each load (in order) and of the store, over all blocks or the given linear block numbers.

    Exact where all indices and guards are affine; for indices with ``//`` or ``%`` exact or an upper bound.
    """
    op = stage.op
    accesses = [
        (load.buffer, "load", number, _copy_depth(stage, number), load.indices, load.guard)
        for number, load in enumerate(op.loads())
    ]
    accesses.append((op.output, "store", -1, 0, op.target, op.where))
    found = []
    for buffer, role, number, depth, indices, guard in accesses:
        access = Access.of(indices, buffer.shape, guard, buffer.dtype, transaction_bytes).by_axis(op.ranges())
        tiles = transactions = 0
        sharing = _sharing(stage, number) if role == "load" else 1
        for digits in _chosen(stage, None if blocks is None else [b for b in blocks if b % sharing == 0]):
            storing = role == "store"
            alike = chain_tiles(stage, digits, storing) if stage.inner else [axis_tiles(stage, depth, digits)]
            for axes in alike:
                tiles += prod(len(own.bases) for own in axes.values())
                transactions += _transactions(access, axes)
        once = sharing if blocks is None else 1
        found.append(Traffic(stage.name, buffer.name, role, number, tiles // once, transactions // once))
    return tuple(found)


def _sharing(stage: StageLike, load: int) -> int:
    """Blocks with neighbouring numbers that bring the tiles of the load, which they read alike, together."""
    rows = [loop.axis for loop in stage.loops if loop.kind == "grid"][-2:-1]
    boxes = any(copy.load == load and copy.boxes for copy in stage.copies)
    alike = boxes and rows and rows[0] not in stage.op.loads()[load].axes()
    return max(1, stage.block_order.cluster) if alike else 1


def _chosen(stage: StageLike, blocks: Sequence[int] | None) -> Iterator[dict[int, int] | None]:
    if blocks is None:
        yield None
    else:
        for block in blocks:
            yield block_digits(stage, block)


def _copy_depth(stage: StageLike, load: int) -> int:
    """Depth of the load's copy from memory: the first of its chain; 0 (a whole block) without one."""
    own = [copy for copy in stage.copies if copy.load == load]
    filled = {copy.to_layer for copy in own}
    first = [copy for copy in own if copy.from_layer not in filled]
    return first[0].at_loop if first else 0


def _transactions(access: Access, axes: dict[str, AxisTiles]) -> int:
    used = frozenset().union(*(i.axes() for i in access.indices), *(w.index.axes() for w in access.guard))
    repeats = prod(own.nonempty for name, own in axes.items() if name not in used)
    if repeats == 0:
        return 0
    own = {name: axes[name] for name in axes if name in used}
    plain = has_separate_dimensions(access)
    return repeats * (count_affine(access, own) if plain else count_enumerated(access, own))


__all__ = ["Traffic", "traffic"]
