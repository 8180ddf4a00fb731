"""Tiles that copies fill: their shapes, their bytes, and what each thread moves of them."""

from __future__ import annotations

from math import prod

from rollergen.program.model.block_windows import fill_steps
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number, ceil_div
from rollergen.program.rprogram import Copy
from rollergen.program.windows import of_block, window_shape


def block_copy(nest: Nest, load: int) -> Copy | None:
    """The copy of a load into the layer that a block shares, if it is staged."""
    for copy in nest.stage.copies:
        if copy.load == load and copy.to_layer != "registers":
            return copy
    return None


def register_copy(nest: Nest, load: int) -> Copy | None:
    for copy in reversed(nest.stage.copies):
        if copy.load == load and copy.to_layer == "registers":
            return copy
    return None


def fill_groups(nest: Nest, copy: Copy) -> Number:
    """Groups of `vector` elements in the tile that a block fills together."""
    shape = tile_shape(nest, copy, block=True)
    along = copy.order.index(copy.along)
    groups = ceil_div(shape[along], copy.vector)
    for d, extent in enumerate(shape):
        if d != along:
            groups = groups * extent
    return groups


def groups_of_a_thread(nest: Nest, copy: Copy) -> Number:
    """Groups that the busiest thread moves: whole runs of them."""
    if of_block(copy):
        return fill_steps(nest, copy)
    run = prod(copy.runs) // copy.vector if copy.runs else 1
    return ceil_div(fill_groups(nest, copy), nest.threads * run) * run


def tile_shape(nest: Nest, copy: Copy, *, block: bool) -> tuple[Number, ...]:
    """`Stage.buffer_shape` for a batch as well; of a window, its own shape."""
    if copy.window:
        return window_shape(nest.stage, copy)
    return copy.elements(tuple([nest.extent(nest.inside(axis, copy.at_loop, block=block)) for axis in copy.order]))


def tile_bytes(nest: Nest, copy: Copy) -> Number:
    """Bytes of a staged tile with its padding and all its buffers."""
    shape = tile_shape(nest, copy, block=True)
    elements = shape[-1] + copy.padding
    for extent in shape[:-1]:
        elements = elements * extent
    return elements * nest.facts.loads[copy.load].itemsize * copy.depth
