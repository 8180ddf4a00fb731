"""A program's data movements in the order of time: what PaCM's attention sees (Pruner, ASPLOS 2025, section 4.2).

Nine blocks: the accumulator is set; each operand is read from the backing store and written to the staging layer,
then read from there; the products are added; the result is stored.  A block that a program does not have (an operand
that is read where it lies) is zero and masked.  The columns are put together from those of `features`: operations,
location and access (one-hot), the buffer's fifteen features, and the bytes that the block holds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.features import names
from rollergen.features.access import BUFFER

BLOCKS = (
    # location (0 backing store, 1 staging layer, 2 registers), access (0 read, 1 write, 2 both), operand, holds, staged
    (2, 1, "out", "register bytes", False),
    (0, 0, "in0", "block bytes", True),
    (1, 1, "in0", "block bytes", True),
    (0, 0, "in1", "block bytes", True),
    (1, 1, "in1", "block bytes", True),
    (1, 0, "in0", "register bytes", False),
    (1, 0, "in1", "register bytes", False),
    (2, 2, "out", "register bytes", False),
    (0, 1, "out", "register bytes", False),
)
COMPUTE = 7
COLUMNS = 1 + 3 + 3 + len(BUFFER) + 1


@lru_cache(maxsize=1)
def _places() -> tuple[np.ndarray, ...]:
    """Of each block: columns of its buffer, of what it holds, and of whether its operand is staged."""
    at = {name: n for n, name in enumerate(names())}
    buffers = np.array([[at[f"E.{operand} {name}"] for name in BUFFER] for _, _, operand, _, _ in BLOCKS])
    holds = np.array([at[f"E.{what}"] for _, _, _, what, _ in BLOCKS])
    staged = np.array([at.get(f"G.{operand} copied to block", 0) for _, _, operand, _, _ in BLOCKS])
    return buffers, holds, staged, np.array(at["A.flops"])


def sequences(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, mask) of rows of features: float64 (n, 9, `COLUMNS`) and bool (n, 9), False where there is no block."""
    buffers, holds, staged, flops = _places()
    found = np.zeros((len(x), len(BLOCKS), COLUMNS))
    mask = np.ones((len(x), len(BLOCKS)), dtype=bool)
    for number, (location, access, _, _, if_staged) in enumerate(BLOCKS):
        block = found[:, number]
        block[:, 0] = x[:, flops] if number == COMPUTE else 0.0
        block[:, 4 + access] = 1.0
        block[:, 7:-1] = x[:, buffers[number]]
        block[:, -1] = x[:, holds[number]]
        is_staged = x[:, staged[number]] > 0
        read_direct = (location == 1) & ~is_staged & (not if_staged)
        block[np.arange(len(x)), 1 + np.where(read_direct, 0, location)] = 1.0
        mask[:, number] = (is_staged | (not if_staged)) & x[:, buffers[number]].any(axis=1)
    mask[:, COMPUTE] = True
    found[~mask] = 0.0
    return found, mask
