"""Tensor ops: what one stage computes, before anybody decides how.

Each element of ``output`` is stored at ``target`` (indices over the spatial and row axes, where
``where`` holds) and equals ``result``, a value over loads, earlier `Partial` results and, for
row axes, the row index itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated

from rollergen.expr.index import Bounds, Index
from rollergen.expr.limits import Among, Count
from rollergen.expr.values import Binary, Buffer, Combiner, Load, Take, Value, Within, loads, takes
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DOTS

Role = Annotated[str, Among(("spatial", "reduce", "row", "inner"))]


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop dimension of a tensor op.

    ``role``: ``spatial`` indexes the output only; ``reduce`` is summed away; ``row`` is both
    (softmax: reduced over by every `Reduction`, then read again to store the result); ``inner`` is summed away by the
    first reduction of a chain (`chains`), which has a value for every point of the reduce axes.
    """

    name: str
    extent: Count
    role: Role = "spatial"


@dataclass(frozen=True, slots=True)
class Reduction:
    """``Partial(name, component=c)`` = combiner over ``axes`` of ``bodies[c]``.

    ``bodies`` have the accumulator dtype (a `Cast` inside where the operands are narrower).
    """

    name: str
    combiner: Combiner
    axes: tuple[str, ...]
    bodies: tuple[Value, ...]

    @property
    def running(self) -> bool:
        """Whether every point of the row has a value of its own."""
        return False


@dataclass(frozen=True, slots=True)
class Running(Reduction):
    """A scan, over one row axis: the value at a point is that of all points up to it in the order of the axis, itself
    left out if ``exclusive``."""

    exclusive: bool = False

    @property
    def running(self) -> bool:
        return True


class _Remembered:
    """What is found once for a tensor op: its hash, which caches ask for, its loads, its axes by their names."""

    __slots__ = ("_body_loads", "_by_name", "_extents", "_hash", "_loads", "_result_loads", "_stored", "_takes")
    _hash: int
    _by_name: dict[str, Axis]
    _extents: dict[str, int]
    _stored: Load
    _body_loads: tuple[Load, ...]
    _result_loads: tuple[Load, ...]
    _loads: tuple[Load, ...]
    _takes: tuple[Take, ...]


@dataclass(frozen=True, slots=True)
class TensorOp(_Remembered):
    """One stage's computation; see the module's docstring.

    ``reductions`` run in order; a later one may use earlier `Partial` values.  All reductions of
    a tensor op with a row axis are over exactly the row axes; without one all are over exactly the
    reduce axes, but for the first one of a tensor op with inner axes, which is over exactly these.  Either all are
    running or none is; running ones use no other `Partial`.
    """

    output: Buffer
    axes: tuple[Axis, ...]
    target: tuple[Index, ...]
    result: Value
    reductions: tuple[Reduction, ...] = ()
    where: tuple[Within, ...] = ()

    @property
    def has_dot_products(self) -> bool:
        """Whether its reductions add up dot products."""
        return self.multiplied is not None

    @property
    def multiplied(self) -> tuple[str, str] | None:
        """Dtypes of what words hold whose dot products its reductions add up; None where they add up something else."""
        bodies = [body for reduction in self.reductions for body in reduction.bodies]
        ops = [body.op for body in bodies if isinstance(body, Binary)]
        return next((dtypes for dtypes, op in DOTS.items() if op in ops), None)

    @property
    def scans(self) -> bool:
        """Whether it is a scan: all its reductions are running then."""
        return any(reduction.running for reduction in self.reductions)

    @property
    def inner(self) -> Reduction | None:
        """The reduction over the inner axes, if there are any."""
        first = self.reductions[0] if self.reductions else None
        return first if first and first.axes and self.axis(first.axes[0]).role == "inner" else None

    @property
    def components(self) -> int:
        """Accumulators of one point, over all reductions."""
        return sum(len(reduction.bodies) for reduction in self.reductions)

    def axis(self, name: str) -> Axis:
        try:
            return self._by_name[name]
        except AttributeError:
            object.__setattr__(self, "_by_name", {axis.name: axis for axis in self.axes})
            return self._by_name[name]

    def extents(self) -> Mapping[str, int]:
        """Of every axis, by its name."""
        try:
            return self._extents
        except AttributeError:
            object.__setattr__(self, "_extents", {axis.name: axis.extent for axis in self.axes})
            return self._extents

    def ranges(self) -> Mapping[str, Bounds]:
        """Inclusive bounds of every axis."""
        return {axis.name: (0, axis.extent - 1) for axis in self.axes}

    @property
    def points(self) -> int:
        """Of the whole iteration space: multiply-adds of a product, elements of a map."""
        return prod(axis.extent for axis in self.axes)

    def of_role(self, *roles: str) -> tuple[Axis, ...]:
        return tuple([axis for axis in self.axes if axis.role in roles])

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            everything = (self.output, self.axes, self.target, self.result, self.reductions, self.where)
            object.__setattr__(self, "_hash", hash(everything))
            return self._hash

    def body_loads(self) -> tuple[Load, ...]:
        """Distinct loads inside reductions, in order of first appearance."""
        try:
            return self._body_loads
        except AttributeError:
            found = loads(*(body for reduction in self.reductions for body in reduction.bodies))
            object.__setattr__(self, "_body_loads", found)
            return found

    def result_loads(self) -> tuple[Load, ...]:
        """Distinct loads of ``result`` that no reduction reads."""
        try:
            return self._result_loads
        except AttributeError:
            body = set(self.body_loads())
            found = tuple(load for load in loads(self.result) if load not in body)
            object.__setattr__(self, "_result_loads", found)
            return found

    def stored(self) -> Load:
        """The output's element at the target, as a load would read it."""
        try:
            return self._stored
        except AttributeError:
            object.__setattr__(self, "_stored", Load(self.output, self.target))
            return self._stored

    def loads(self) -> tuple[Load, ...]:
        """`body_loads` then `result_loads`: position in this tuple is a load's identity."""
        try:
            return self._loads
        except AttributeError:
            object.__setattr__(self, "_loads", self.body_loads() + self.result_loads())
            return self._loads

    def takes(self) -> tuple[Take, ...]:
        """Distinct takes, in order of first appearance."""
        try:
            return self._takes
        except AttributeError:
            bodies = (body for reduction in self.reductions for body in reduction.bodies)
            object.__setattr__(self, "_takes", takes(*bodies, self.result))
            return self._takes

    def reads(self) -> tuple[Load, ...]:
        """`loads`, then the rows of `takes`: position in this tuple is an access' identity."""
        return self.loads() + tuple(take.row for take in self.takes()) if self.takes() else self.loads()

    def buffers_read(self) -> dict[str, Buffer]:
        """The buffers that are read, by name, in order of first appearance."""
        return {read.buffer.name: read.buffer for read in self.reads()}


def summed_axes(op: TensorOp) -> tuple[Axis, ...]:
    """Spatial axes that are not in the target: points along them share a place of the output."""
    stored = {name for index in op.target for name in index.axes()}
    return tuple([a for a in op.of_role("spatial") if a.name not in stored and a.extent > 1])
