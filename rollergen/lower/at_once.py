"""Accumulators of threads that share sums, put together at once (see `Accumulator.combine`).

    every thread writes all of its own, barrier, the first of each sum's threads reads them and adds them up by halves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from rollergen.expr.index import Index, weighted_sum
from rollergen.expr.values import Combiner
from rollergen.lower.arithmetic import combine
from rollergen.lower.expressions import Expr, Inside, Read
from rollergen.lower.ir import LOCAL, Write
from rollergen.lower.place import Registers, Scope, when_all
from rollergen.lower.writer import Writer

_ALIGNMENT = 16


def put_together(
    out: Writer, scope: Scope, combiner: Combiner, totals: Sequence[Registers], spatial: Sequence[int],
    own: Callable[[], Sequence[Expr]], thread: tuple[Index, Index, int], over: Callable[..., object],
) -> None:  # fmt: skip
    """Fills ``totals``, arrays over the loops at ``spatial``, of the first thread of each sum.

    ``own``: what this thread has at a point of these loops, inside ``over(out, place, spatial)``; ``thread``: its rank
    among those of a sum, the sum's number, and how many threads a sum has.
    """
    nest, (rank, segment, count) = scope.place.nest, thread
    extents = [nest.loops[p].extent for p in spatial]
    elements, sums = prod(extents), nest.threads // count
    number = weighted_sum([(Index.axis(nest.variables[p]), prod(extents[at + 1 :])) for at, p in enumerate(spatial)])
    arrays = [
        out.array("parts", LOCAL, one.dtype, nest.threads * elements, _ALIGNMENT, whole_kernel=True) for one in totals
    ]
    # Threads side by side have sums side by side, and meet all banks.
    cell = lambda of: (((of * elements) + number) * sums + segment).simplify(out.ranges)
    with over(out, scope.place, spatial):  # type: ignore[attr-defined]
        for array, value in zip(arrays, own(), strict=True):
            out.write(Write(array, cell(rank), value))
    out.barrier()
    with when_all(out, [Inside(rank, None, 1)]), over(out, scope.place, spatial):  # type: ignore[attr-defined]
        read = lambda of: tuple(out.let("part", Read(array, cell(Index.of(of)), array.dtype)) for array in arrays)
        parts: list[tuple[Expr, ...]] = [read(of) for of in range(count)]
        while len(parts) > 1:
            half = -(-len(parts) // 2)
            joined = [combine(out, scope, combiner, *pair) for pair in zip(parts, parts[half:], strict=False)]
            parts = [tuple(out.let("sum", value) for value in one) for one in joined] + parts[len(joined) : half]
        for registers, value in zip(totals, parts[0], strict=True):
            out.assign(scope.place.element(registers), value)
