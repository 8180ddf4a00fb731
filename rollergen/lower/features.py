"""Features of languages beyond what every kernel is written in: printers declare them, the lowering uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rollergen.hal.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """``exchanges``: the threads of one execution width may exchange registers (`expressions.Exchange`).

    ``functions``: the language's own float32 functions, by the names of ours: ``exp`` (within 2 units in the last
    place, any argument), ``exp2_approx`` (of any argument; within 2 units but for results below the normal numbers,
    which are 0), ``max`` and ``min`` (NaN if either operand is), ``max_number`` (the other operand if one is NaN),
    ``abs``.
    ``scaled_lanes``: lanes of the float32 vectors whose power of two one instruction scales by, and whose fraction one
    finds (the functions ``lanes_fraction`` and ``lanes_scaled``); 0: none.
    ``masked_stores``, ``masked_loads``: vectors (dtype, lanes) of which chosen lanes may be written, or read, at once
    (the ``mask`` of `ir.Write` and `expressions.Read`).
    ``float64``: the device computes in it; functions of float32 are else written without.
    ``lanes_apart``: a lane of a float32 vector's ``sin``, ``cos`` and ``tan`` is right whatever the other lanes hold.
    """

    exchanges: bool = False
    functions: Mapping[str, str] = field(default_factory=dict)
    masked_stores: frozenset[tuple[str, int]] = frozenset()
    masked_loads: frozenset[tuple[str, int]] = frozenset()
    scaled_lanes: int = 0
    float64: bool = True
    lanes_apart: bool = True


PLAIN = Features()
