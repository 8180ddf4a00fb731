"""Counted traffic: how many distinct memory transactions each load and store of a stage makes.

A *tile* here is one filling of a copy from memory (all threads of a block together), or one whole block
for a load without such a copy and for the store.  Within a tile every transaction counts once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass

STORE = -1
"""Number of the store among a stage's accesses; loads and takes have their position in `TensorOp.reads`."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Transactions of one access of a stage between a tensor and the backing store.

    ``role`` is load or store; ``load`` the position in the tensor op's reads, -1 for the store;
    ``transactions`` is the sum over ``tiles`` of the distinct ones, of ``transaction_bytes`` each.
    """

    stage: str
    tensor: str
    role: str
    load: int
    tiles: int
    transactions: int
    transaction_bytes: int

    @property
    def bytes(self) -> int:
        return self.transactions * self.transaction_bytes


@dataclass(frozen=True)
class Filling:
    """Fillings of a copy that are done at once: ``executed`` of them.

    ``number`` (below ``numbers``) is the filling that each element belongs to, as far as fillings differ
    in what they read; each of these is ``repeated`` so often with points in range.
    """

    number: Any
    numbers: int
    executed: int
    repeated: int


class TrafficCounter:
    """Counts the accesses of one stage, from the element offsets that were really accessed."""

    def __init__(self, stage: str, op: TensorOp, transaction_bytes: int) -> None:
        self.stage = stage
        self.transaction_bytes = transaction_bytes
        self.buffers: dict[int, Buffer] = {n: load.buffer for n, load in enumerate(op.reads())}
        self.buffers[STORE] = op.output
        self.tiles = dict.fromkeys(self.buffers, 0)
        self.transactions = dict.fromkeys(self.buffers, 0)
        self.open: dict[int, list[Any]] = {}

    def touch(self, access: int, offsets: Any, chosen: Any) -> None:
        """Elements accessed within the current block; `chosen`: a mask, or True for all."""
        self.open.setdefault(access, []).append(self._distinct(access, picked(offsets, chosen)))

    def close_block(self, accesses: tuple[int, ...]) -> None:
        """Ends the block, which is one tile of each of `accesses`."""
        for access in accesses:
            parts = self.open.get(access, [])
            self.tiles[access] += 1
            if len(parts) == 1:
                self.transactions[access] += len(parts[0])
            elif parts:
                self.transactions[access] += len(distinct(np.concatenate(parts), self._limit(access)))
        self.open.clear()

    def fill(self, access: int, offsets: Any, chosen: Any, filling: Filling) -> None:
        """The elements that fillings of a copy accessed; `filling` tells which belongs to each."""
        limit = self._limit(access)
        numbers = offsets * ITEMSIZE[self.buffers[access].dtype] // self.transaction_bytes
        found = distinct(picked(filling.number * limit + numbers, chosen), limit * filling.numbers)
        self.tiles[access] += filling.executed
        self.transactions[access] += len(found) * filling.repeated

    def records(self) -> tuple[Traffic, ...]:
        """Loads by number, the store last."""
        return tuple(
            Traffic(
                self.stage,
                self.buffers[access].name,
                "store" if access == STORE else "load",
                access,
                self.tiles[access],
                self.transactions[access],
                self.transaction_bytes,
            )
            for access in self.buffers
        )

    def _distinct(self, access: int, offsets: Any) -> Any:
        itemsize = ITEMSIZE[self.buffers[access].dtype]
        return distinct(offsets * itemsize // self.transaction_bytes, self._limit(access))

    def _limit(self, access: int) -> int:
        """Transactions that the whole tensor takes."""
        buffer = self.buffers[access]
        return -(-buffer.elements * ITEMSIZE[buffer.dtype] // self.transaction_bytes)


def picked(offsets: Any, chosen: Any) -> Any:
    """The chosen elements of `offsets`, as a vector."""
    if chosen is True:
        return np.asarray(offsets).reshape(-1)
    offsets, chosen = np.broadcast_arrays(offsets, chosen)
    return offsets[chosen]


def distinct(numbers: Any, limit: int) -> Any:
    """The distinct ones of `numbers`, all from 0 to limit - 1."""
    if numbers.size * 8 < limit:
        return np.unique(numbers)
    marks = np.zeros(limit, dtype=bool)
    marks[numbers] = True
    return np.flatnonzero(marks)
