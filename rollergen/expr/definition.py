"""Canonical definition: what one stage computes, before anybody decides how.

Each element of ``output`` is stored at ``target`` (indices over the spatial and row axes, where
``where`` holds) and equals ``result``, a value over loads, earlier `Partial` results and, for
row axes, the row index itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollergen.expr.index import Bounds, Index, Within
from rollergen.expr.values import Buffer, Combiner, Load, Value, loads


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop dimension of a definition.

    ``role``: ``spatial`` indexes the output only; ``reduce`` is summed away; ``row`` is both
    (softmax: reduced over by every `Reduction`, then walked again to store the result).
    """

    name: str
    extent: int
    role: str = "spatial"


@dataclass(frozen=True, slots=True)
class Reduction:
    """``Partial(name, component=c)`` = combiner over ``axes`` of ``bodies[c]``.

    ``bodies`` have the accumulator dtype (a `Cast` inside where the operands are narrower).
    """

    name: str
    combiner: Combiner
    axes: tuple[str, ...]
    bodies: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """One stage's computation; see the module's docstring.

    ``reductions`` run in order; a later one may use earlier `Partial` values.  All reductions of
    a definition with a row axis are over exactly the row axes; without one all are over exactly the
    reduce axes.
    """

    output: Buffer
    axes: tuple[Axis, ...]
    target: tuple[Index, ...]
    result: Value
    reductions: tuple[Reduction, ...] = ()
    where: tuple[Within, ...] = ()

    def axis(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    def ranges(self) -> Mapping[str, Bounds]:
        """Inclusive bounds of every axis."""
        return {axis.name: (0, axis.extent - 1) for axis in self.axes}

    def of_role(self, *roles: str) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.role in roles)

    def body_loads(self) -> tuple[Load, ...]:
        """Distinct loads inside reductions, in order of first appearance."""
        return loads(*(body for reduction in self.reductions for body in reduction.bodies))

    def result_loads(self) -> tuple[Load, ...]:
        """Distinct loads of ``result`` that no reduction reads."""
        body = set(self.body_loads())
        return tuple(load for load in loads(self.result) if load not in body)

    def loads(self) -> tuple[Load, ...]:
        """`body_loads` then `result_loads`: position in this tuple is a load's identity."""
        return self.body_loads() + self.result_loads()
