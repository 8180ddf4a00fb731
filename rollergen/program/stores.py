"""How a stage writes its results, and reads what they are put together with."""

from __future__ import annotations

from rollergen.expr.limits import Count, Extent
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Load
from rollergen.hal.dataclass import dataclass
from rollergen.tile.rules import contiguous_axis


@dataclass(frozen=True, slots=True)
class Store:
    """How results are written: ``vector`` adjacent elements at once (a lane loop makes its own vectors); ``streaming``
    bypasses the caches (non-temporal).

    ``on_lines``: vectors of the lane loop begin on multiples of their size in memory, wherever the output begins: all
    loops of the lanes' axis start as many elements before 0 as the output's address lies behind such a multiple.  (In
    the interpreter, and wherever buffers begin on one, that is 0.)

    ``adds``: each result, the bare sum of the stage's reduction, is added atomically to what an earlier stage wrote at
    its place.  Points that differ only along spatial axes which are not in the target (`splitting.summed_axes`) share a
    place, and lie in different blocks, which add to it in any order: floating-point sums are not the same bits at
    every run.

    ``prefetch_distance``: before a tile of the unrolled and lane loops is computed, the lines are prefetched in which
    its vectors begin so many iterations of the innermost serial loop later: stores of a tile come at once, and would
    wait for their lines together.  In a stage with reductions it is 0 or 1.  Of rows with several reductions: the last
    one prefetches, at each point, where the row's result there will be written.  Of register tiles whose sums are
    added up in blocks: where a tile's results will be written is prefetched when its last block begins.  Nothing is
    read or written by that.

    ``across_rows``: of a matrix instruction, whose threads have results of 8 rows at once: those of a column exchange
    theirs first, so that all threads of an execution width store neighbours in one row (`matrix.ROWS`).

    ``vector_loads``: what the result reads beside the reductions along the output's contiguous axis (`read_beside`:
    residuals, biases) is read ``vector`` elements at once, too, where they are stored; else element by element.

    ``boxes``: of an asynchronous matrix instruction whose factors come in boxes: the copy engine stores the results,
    too.  The threads of each instruction write so many panels of its rows to a buffer of their own in the block's layer
    (swizzled, see `Copy`), ``vector`` neighbours at once, and one of them starts a box for each panel; all panels, one
    after the other.  The buffer is written again once the engine has read it.  What lies outside the output is not
    stored.  0: threads store their results themselves.
    """

    vector: Extent = 1
    streaming: bool = False
    on_lines: bool = False
    adds: bool = False
    prefetch_distance: Count = 0
    across_rows: bool = False
    vector_loads: bool = False
    boxes: Count = 0


ONE_BY_ONE = Store()


def read_beside(op: TensorOp) -> tuple[Load, ...]:
    """The loads of the result whose elements are neighbours where those of the output are."""
    along = contiguous_axis(op.stored())
    return tuple([load for load in op.result_loads() if along is not None and contiguous_axis(load) == along])
