"""NaN in a maximum (or minimum) over several chains: tested two chains at once, beside them instead of within.

held[...] = the element of each chain; largest[...] = the larger of the two, whatever it makes of NaN
met |= held[0] != held[0] | held[1] != held[1]; ...           (one comparison: x86's and LLVM's "unordered")
result: NaN where one was met, else the largest of the chains
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rollergen.expr.index import Index
from rollergen.expr.rows import losing_nan
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import Combiner, loads
from rollergen.hal.dataclass import dataclass
from rollergen.lower.expressions import BITS, Expr, Number, Operation
from rollergen.lower.masks import compare, select
from rollergen.lower.nest import Nest
from rollergen.lower.place import Place, Registers
from rollergen.lower.writer import Writer


@dataclass(frozen=True, slots=True)
class NanTests:
    """``combiner``: of the chains, which may lose a NaN; ``held``: registers of their elements; ``met``: masks of the
    lanes in which there was a NaN, one for each output; ``separate``: the chains' loops."""

    combiner: Combiner
    held: Registers
    met: Registers
    separate: tuple[int, ...]


def make_tests(
    out: Writer, nest: Nest, reduction: Reduction, positions: Sequence[int], separate: tuple[int, ...],
    element: Registers,
) -> NanTests | None:  # fmt: skip
    """For vectors of several chains whose loops are the innermost ones; ``element``: the accumulators.  None where the
    combiner keeps no NaN, and for elements of float16: LLVM compares them before it widens them, one by one where the
    processor compares no vectors of halves (11 times as long)."""
    combiner = losing_nan(reduction)
    inner = [p for p in range(min(separate, default=len(nest.loops)), len(nest.loops)) if p != nest.lane_position]
    if combiner is None or element.lanes == 1 or not separate or tuple(inner) != separate:
        return None
    if any(load.dtype == "float16" for load in loads(*reduction.bodies)):
        return None
    spatial = tuple(p for p in positions if p not in separate)
    over = lambda name, dtype, loops: Registers(
        out.register(name, dtype, tuple(nest.loops[p].extent for p in loops), element.lanes),
        tuple(((p, 1),) for p in loops), dtype, element.lanes,
    )  # fmt: skip
    held, met = over("held", element.dtype, separate), over("met_nan", f"mask{BITS[element.dtype]}", spatial)
    return NanTests(combiner, held, met, separate)


def look_for_nan(out: Writer, place: Place, tests: NanTests) -> None:
    """What was held of all chains of an output, in pairs."""
    elements = [at.element(tests.held) for at in chains(place, tests.separate)]
    met = place.element(tests.met)
    for n in range(0, len(elements), 2):
        unordered = [compare("ne", one, one) for one in elements[n : n + 2]]
        found: Expr = unordered[0] if len(unordered) == 1 else _or(*unordered)
        out.assign(met, _or(met, found))


def told(place: Place, tests: NanTests, value: Expr) -> Expr:
    """The largest of the chains, NaN where one was met."""
    return select(place.element(tests.met), Number(float("nan"), value.dtype, value.lanes), value)


def chains(place: Place, separate: tuple[int, ...]) -> list[Place]:
    """The place of each chain."""
    extents = (range(place.nest.loops[p].extent) for p in separate)
    return [place.bind({p: Index.of(d) for p, d in zip(separate, digits, strict=True)}) for digits in product(*extents)]


def _or(a: Expr, b: Expr) -> Operation:
    return Operation("or", (a, b), a.dtype, a.lanes)
