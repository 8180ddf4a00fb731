"""Results that leave in boxes (`Store.boxes`) in the model: what threads write to the block's layer, what the copy
engine reads there, and the steps of a round."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.hal.spec import Device, MemoryLayer
from rollergen.program.matrix import COLUMNS, PANEL_BYTES, ROWS, SWIZZLE
from rollergen.program.model.access import Access
from rollergen.program.model.fragments import instruction_of, tiles
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, is_nothing, per_distinct
from rollergen.program.model.wavefronts import WIDEST_ACCESS_BYTES, wavefronts
from rollergen.program.rows_apart import rows_apart

_ROUND_SLOTS = 8
"""Instructions of a thread in one round: who stores is found twice, two waits, two barriers, a fence, a group's end."""


def stored_box_accesses(nest: Nest, device: Device, stored: Access) -> list[Access]:
    """Of results that threads would store by ``stored``: their writes to swizzled rows of the block's layer, and the
    engine's reads of boxes, each execution width's share of both."""
    one, layer = instruction_of(nest, device), device.layer(device.kind.block_layer or "")
    if one is None:
        return [stored]
    itemsize = ITEMSIZE[nest.facts.op.output.dtype]
    served = lambda width: _service(width, itemsize, layer)
    written = Access(
        -1, "write", layer.name, stored.count, stored.width_bytes, per_distinct(served, [stored.width_bytes]),
        reduces=False,
    )  # fmt: skip
    rows, columns = tiles(nest, device)
    boxes = rows * (columns * one.n * itemsize / PANEL_BYTES) * (nest.lockstep / one.lanes)
    wavefronts_of_box = one.m * PANEL_BYTES / (layer.banks * layer.bank_bytes)
    if apart := rows_apart(nest.stage, one):
        boxes, wavefronts_of_box = boxes * apart, wavefronts_of_box / apart
    return [written, Access(-1, "box", layer.name, boxes, WIDEST_ACCESS_BYTES, wavefronts_of_box, reduces=False)]


def stored_box_slots(nest: Nest, device: Device) -> Number:
    """Instructions of one thread in one block beside those of its writes."""
    one, boxes = instruction_of(nest, device), nest.stage.store.boxes
    if one is None or is_nothing(boxes):
        return 0
    rows, columns = tiles(nest, device)
    itemsize = ITEMSIZE[nest.facts.op.output.dtype]
    return _ROUND_SLOTS * rows * columns * one.n * itemsize / (boxes * PANEL_BYTES)


@lru_cache(maxsize=64)
def _service(width: int, itemsize: int, layer: MemoryLayer) -> int:
    """Wavefronts of a write of so many bytes by the threads of an execution width: each of 8 rows has pieces of 16
    bytes that change places by the row's number; its threads write one behind the other."""
    lane, piece = np.arange(ROWS * COLUMNS), PANEL_BYTES // SWIZZLE
    row, at = lane // COLUMNS, lane % COLUMNS * width
    return wavefronts(row * PANEL_BYTES + (at // piece ^ row) * piece + at % piece, width, layer, merge_pairs=False)
