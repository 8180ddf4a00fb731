"""A square of registers transposed."""

from __future__ import annotations

from rollergen.lower.expressions import Element, Shuffle
from rollergen.lower.writer import Writer


def turn(out: Writer, rows: str, dtype: str, width: int) -> None:
    """A square of registers transposed: in step d, blocks of d lanes change places between rows d apart.

    Rows a and b of a pair become (a's even blocks, b's even blocks) and (a's odd, b's odd), alternating.
    """
    step = 1
    while step < width:
        even = tuple(lane if not lane & step else width + lane - step for lane in range(width))
        odd = tuple(lane + step if not lane & step else width + lane for lane in range(width))
        with out.loop(out.names.fresh("pair"), width // 2, (0, width // 2 - 1), unroll=True) as pair:
            low = (pair // step) * (2 * step) + pair % step if step > 1 else pair * 2
            a = out.let("a", Element(rows, (low,), dtype, width))
            b = out.let("b", Element(rows, (low + step,), dtype, width))
            out.assign(Element(rows, (low,), dtype, width), Shuffle(a, b, even))
            out.assign(Element(rows, (low + step,), dtype, width), Shuffle(a, b, odd))
        step *= 2
