"""Wavefronts: how often a banked memory must be read to serve one access of all lanes.

The rule was found on measured matmul programs of NVIDIA GPUs; shared memory and the L1 cache are
the same SRAM and obey the same rule, but for the merging of lane pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.hal.spec import MemoryLayer

WIDEST_ACCESS_BYTES = 16


def wavefronts(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> int:
    """Wavefronts of one access of ``width_bytes`` at each lane's byte address (int array [lanes]).

    The lanes are split into phases of one bank row each (32 banks of 4 bytes: 32 lanes of 32 bits, 16
    of 64, 8 of 128); a phase costs the largest number of distinct words in one bank; phases add up
    (a lane wider than a row of banks is a phase by itself).
    With ``merge_pairs`` (reads of shared memory) two neighbouring phases are served together where
    every lane i has the address of lane i^1, or every lane that of lane i^2.  Wider accesses are split.
    """
    return wavefronts_of_rows(addresses[None], width_bytes, layer, merge_pairs=merge_pairs)[0]


def wavefronts_of_rows(addresses: np.ndarray, width_bytes: int, layer: MemoryLayer, *, merge_pairs: bool) -> list[int]:
    """`wavefronts` of each row of addresses [accesses, lanes]."""
    if width_bytes > WIDEST_ACCESS_BYTES:
        starts = range(0, width_bytes, WIDEST_ACCESS_BYTES)
        widths = [min(WIDEST_ACCESS_BYTES, width_bytes - at) for at in starts]
        each = [
            wavefronts_of_rows(addresses + at, width, layer, merge_pairs=merge_pairs)
            for at, width in zip(starts, widths, strict=True)
        ]
        return [sum(parts) for parts in zip(*each, strict=True)]
    row_bytes = layer.banks * layer.bank_bytes
    start = np.minimum.reduce(addresses, axis=1, keepdims=True) // row_bytes * row_bytes
    relative = (addresses - start).tolist()
    return [_banked(tuple(one), width_bytes, layer.banks, layer.bank_bytes, merge_pairs) for one in relative]


@lru_cache(maxsize=256)
def _banked(lanes: tuple[int, ...], width_bytes: int, banks: int, bank_bytes: int, merge_pairs: bool) -> int:
    """Wavefronts for addresses relative to a row of banks: few patterns recur in many programs."""
    lanes_per_phase = max(1, min(banks * bank_bytes // width_bytes, banks))
    if merge_pairs and width_bytes > bank_bytes and _lane_pairs_share(lanes):
        lanes_per_phase *= 2
    words_per_lane = range(-(-width_bytes // bank_bytes))
    words = [[address // bank_bytes + word for word in words_per_lane] for address in lanes]
    return sum(
        _most_words_in_a_bank({w for own in words[start : start + lanes_per_phase] for w in own}, banks)
        for start in range(0, len(lanes), lanes_per_phase)
    )


def _lane_pairs_share(lanes: tuple[int, ...]) -> bool:
    last = len(lanes) - 1
    return any(
        all(address == lanes[min(lane ^ distance, last)] for lane, address in enumerate(lanes)) for distance in (1, 2)
    )


def _most_words_in_a_bank(words: set[int], banks: int) -> int:
    counts: dict[int, int] = {}
    for word in words:
        counts[word % banks] = counts.get(word % banks, 0) + 1
    return max(counts.values())


def transactions(addresses: np.ndarray, width_bytes: int, transaction_bytes: int) -> int:
    """Distinct transactions that the lanes touch together: coalescing without banks."""
    first, last = addresses // transaction_bytes, (addresses + width_bytes - 1) // transaction_bytes
    steps = np.arange(int((last - first).max()) + 1)
    touched = np.minimum(first[:, None] + steps, last[:, None])
    return len(np.unique(touched))


@lru_cache(maxsize=256)
def _numbers(lanes: int) -> np.ndarray:
    """0, 1, 2, ... as one row, read only."""
    numbers = np.arange(lanes)[None]
    numbers.flags.writeable = False
    return numbers


def digits_of_rows(extents: list[np.ndarray], lanes: int) -> list[np.ndarray]:
    """Digit of each loop for the first `lanes` linear thread numbers (the last loop is the fastest), of many nests.

    ``extents``: of each loop, an array [nests, 1]; the digits are arrays [nests, lanes]."""
    number = _numbers(lanes)
    found = []
    for extent in reversed(extents):
        found.append(number % extent)
        number = number // extent
    return found[::-1]
