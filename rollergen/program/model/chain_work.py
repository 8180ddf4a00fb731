"""What a block of a chain of two contractions does on average: blocks of keys that its scores rule out are not run."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from rollergen.program.chains import tile_of_chain
from rollergen.program.rprogram import Stage
from rollergen.tile.chain_tiles import chain_tiles


class ChainWork(NamedTuple):
    """``keys`` that the mean block runs, in ``steps`` blocks; ``inner`` terms of a score; ``columns``."""

    keys: float
    steps: float
    inner: int
    columns: int


@lru_cache(maxsize=256)
def chain_work(stage: Stage) -> ChainWork:
    roles, tile = tile_of_chain(stage)
    extents = stage.op.extents()
    found = [axes[roles.key] for axes in chain_tiles(stage, None)]
    keys = sum(one.extent - int(one.bases[0]) for one in found) / len(found)
    return ChainWork(keys, keys / tile.keys, prod(extents[axis] for axis in roles.inner), extents[roles.column])


def chain_flops(stage: Stage) -> int:
    """Arithmetic operations of both contractions, for the keys that are run."""
    work, (roles, _) = chain_work(stage), tile_of_chain(stage)
    extents = stage.op.extents()
    rows = extents[roles.rows] * prod(extents[axis] for axis in roles.batch)
    return round(2 * rows * work.keys * (work.inner + work.columns))
