"""What machines of tiles add to a program: how a stage's supersteps run, and which tiles own the parts of tensors."""

from __future__ import annotations

from typing import Annotated

from rollergen.expr.limits import Among, Count
from rollergen.hal.dataclass import dataclass

PLANNED, FINISHED = "planned", "finished"


@dataclass(frozen=True, slots=True)
class Superstep:
    """How a bulk-synchronous machine runs the stage: block b on tile b; every tile gathers what it lacks over the
    exchange, then all compute.  (Read without it, the stage is an ordinary one that finds its operands in memory.)

    ``copied``: loads that a tile gathers into contiguous copies of its own before it computes; the others are read
    where they live, which must be the tile itself.  A copy holds, along each dimension of the tensor, the
    interval that the block's indices span (every g-th element, where all their coefficients are multiples of g),
    zeros where that overhangs the tensor.

    ``weights``: the load that a matrix instruction takes as its weights, -1 where the instruction is none.  ``outputs``
    and ``inputs`` are then the axes along which its blocks of n outputs and k inputs lie: copies and partial results
    are padded with zeros to whole blocks.

    ``steps``: positions of the serial loops whose iterations are supersteps of their own, each with its part of the
    copies; partial results stay.

    ``shares``: a temporary whose parts (its first dimension) this stage combines: the tiles that hold the parts of
    one block finish equal shares of it, dealt as in `TileMapping`.  "": each tile finishes its own block.
    """

    copied: tuple[Count, ...] = ()
    weights: int = -1
    outputs: str = ""
    inputs: str = ""
    steps: tuple[Count, ...] = ()
    shares: str = ""


@dataclass(frozen=True, slots=True)
class TileMapping:
    """Which tiles own the elements of a tensor, on a machine that has no memory but theirs.

    ``finished``: each element stays at the tile that stores it in ``stage``.  ``planned``: it lies at tiles that
    want it for load ``load`` of ``stage``: what r tiles want in one superstep is dealt to exactly these, by number,
    in granules of 8 bytes of the copies' order, as evenly as granules allow, the longer shares first.
    """

    buffer: str
    rule: Annotated[str, Among((PLANNED, FINISHED))]
    stage: str
    load: int = -1
