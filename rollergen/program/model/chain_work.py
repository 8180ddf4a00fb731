"""What a block of a chain of two contractions does on average: blocks of keys that its scores rule out are not run."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from rollergen.program.chains import read_columns
from rollergen.program.matrix_chains import block_of_chain
from rollergen.program.rprogram import Stage
from rollergen.tile.chain_tiles import chain_tiles


class ChainWork(NamedTuple):
    """``keys`` that the mean block runs, in ``steps`` blocks; ``inner`` terms of a score; ``columns`` that are
    weighed."""

    keys: float
    steps: float
    inner: int
    columns: int


@lru_cache(maxsize=256)
def chain_work(stage: Stage) -> ChainWork:
    block = block_of_chain(stage)
    inner = stage.op.of_role("inner")
    found = [axes[block.key] for axes in chain_tiles(stage, None)]
    keys = sum(one.extent - int(one.bases[0]) for one in found) / len(found)
    columns = read_columns(stage.op, block.column)
    return ChainWork(keys, keys / block.key_count, prod(axis.extent for axis in inner), columns)


def chain_flops(stage: Stage) -> int:
    """Arithmetic operations of both contractions, for the keys that are run."""
    work, column = chain_work(stage), block_of_chain(stage).column
    rows = prod(axis.extent for axis in stage.op.of_role("spatial") if axis.name != column)
    return round(2 * rows * work.keys * (work.inner + work.columns))
