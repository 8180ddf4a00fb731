"""What operator a program is of, whatever was packed, padded, merged or split to compute it: its class and structure.

Both follow from the parts that the axes of one stage play: whether an axis is reduced, and which operands it indexes.
The stage is the largest of those that are no copies; its operands are followed through copies to what these read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from math import prod

from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, Value
from rollergen.hal.dataclass import dataclass

CLASSES = ("matmul", "convolution", "depthwise", "pooling", "reduction", "row", "elementwise")

_PERMUTED = 4
"""Operands of which every order is tried."""

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Operand:
    """``dims``: of each dimension of the tensor that is read in the end, the axes that decide where in it."""

    buffer: Buffer
    dims: tuple[Names, ...]

    @property
    def axes(self) -> Names:
        return _joined(self.dims)


@dataclass(frozen=True, slots=True)
class Operator:
    """``operands``: what a reduction reads, without one what the result does; ``reduced``, ``rows``: names of axes,
    the others are ``spatial``; ``last``: axes that decide the last index of the output."""

    operands: tuple[Operand, ...]
    spatial: Names
    reduced: Names
    rows: Names
    last: Names

    def is_windowed(self, operand: Operand) -> bool:
        """Whether a dimension is indexed by reduced and by other axes together."""
        return any(dim & self.reduced and dim & self.spatial for dim in operand.dims)

    @property
    def kind(self) -> str:
        """One of `CLASSES`.  Window: see `is_windowed`.  A convolution of one tap without a window is a product."""
        if self.rows:
            return "row"
        if not self.reduced:
            return "elementwise"
        windowed = [operand for operand in self.operands if self.is_windowed(operand)]
        shared = frozenset.intersection(*(operand.axes for operand in self.operands)) if self.operands else frozenset()
        if len(self.operands) < 2:
            return "pooling" if windowed else "reduction"
        if not windowed:
            return "reduction" if self.spatial <= shared else "matmul"
        seen = _joined(operand.axes for operand in windowed)
        return "convolution" if self.spatial - seen else "depthwise"

    @property
    def structure(self) -> str:
        """Equal for operators whose axes play the same parts: the class, which operands are read through windows, and
        which combinations of operands there are that some spatial, reduced or row axis indexes.  Of one operand without
        a window also whether neighbours in it are neighbours in the output, reduced, or neither.

        How many axes play a part, their names and extents, the order of dimensions otherwise, what is computed from
        the elements, and what a reduction's result is combined with do not enter.
        """
        orders = permutations(self.operands) if len(self.operands) <= _PERMUTED else [self.operands]
        parts = min(self._parts(order) for order in orders)
        near = "" if len(self.operands) != 1 or self.is_windowed(self.operands[0]) else f", {self._near()}"
        return f"{self.kind}: {parts}{near}"

    def _parts(self, operands: Sequence[Operand]) -> str:
        found = set()
        for role, names in (("spatial", self.spatial), ("reduced", self.reduced), ("row", self.rows)):
            for name in names:
                which = [chr(ord("a") + n) for n, operand in enumerate(operands) if name in operand.axes]
                found.add(f"{role} {''.join(which) or '-'}")
        windows = [chr(ord("a") + n) for n, operand in enumerate(operands) if self.is_windowed(operand)]
        return ", ".join([*sorted(found), *(f"window in {one}" for one in windows)])

    def _near(self) -> str:
        last = next((dim for dim in reversed(self.operands[0].dims) if dim), frozenset())
        if last & (self.reduced | self.rows):
            return "reduced along neighbours"
        return "neighbours stay" if last & self.last else "neighbours part"


def operator_of(tensor_ops: Sequence[TensorOp]) -> Operator:
    """Of a program's stages, or of an expression's."""
    return _operator(tuple(tensor_ops))


@lru_cache(maxsize=256)
def _operator(tensor_ops: tuple[TensorOp, ...]) -> Operator:
    made = {one.output.name: one for one in tensor_ops}
    read = {load.buffer.name for one in tensor_ops for load in one.loads()}
    own = [one for one in tensor_ops if not (_is_copy(one) and one.output.name in read)] or list(tensor_ops)
    main = max(own, key=lambda one: (one.points, len(one.reductions)))
    reduced = _names(main, "reduce") | _split(main, own)
    rows = _names(main, "row")
    loads = main.body_loads() or main.result_loads()
    operands = {Operand(*_followed(load, made)): None for load in loads}
    target = main.target[-1].axes() if main.target else frozenset()
    spatial = frozenset(axis.name for axis in main.axes) - reduced - rows
    return Operator(tuple(operands), spatial, reduced, rows, frozenset(target))


def _names(op: TensorOp, role: str) -> Names:
    return frozenset(axis.name for axis in op.of_role(role))


def _is_copy(op: TensorOp) -> bool:
    return not op.reductions and len(op.loads()) == 1


def _split(main: TensorOp, others: Sequence[TensorOp]) -> Names:
    """Axes of chunks of a reduction: the output lacks them, or a stage that only adds up reduces along them."""
    if not main.reductions:
        return frozenset()
    stored = _joined(frozenset(index.axes()) for index in main.target)
    found = frozenset(axis.name for axis in main.of_role("spatial")) - stored
    for other in others:
        for load in other.body_loads():
            if load.buffer.name == main.output.name and _only_adds_up(other):
                summed = _names(other, "reduce")
                dims = tuple(frozenset(index.axes()) for index in load.indices)
                for names, own in _matched(load.buffer.shape, dims, main.output.shape):
                    if names and names <= summed:
                        found |= _joined(frozenset(index.axes()) for index in main.target[own])
    return found


def _only_adds_up(op: TensorOp) -> bool:
    bodies: list[Value] = [body for reduction in op.reductions for body in reduction.bodies]
    return bool(bodies) and all(isinstance(body, Load) for body in bodies)


def _followed(load: Load, made: Mapping[str, TensorOp]) -> tuple[Buffer, tuple[Names, ...]]:
    """The tensor that is read in the end, and the axes that decide each of its dimensions."""
    buffer, dims = load.buffer, tuple(frozenset(index.axes()) for index in load.indices)
    seen: set[str] = set()
    while buffer.name in made and _is_copy(made[buffer.name]) and buffer.name not in seen:
        seen.add(buffer.name)
        copy = made[buffer.name]
        by_axis: dict[str, Names] = {}
        for names, own in _matched(buffer.shape, dims, copy.output.shape):
            for index in copy.target[own]:
                for axis in index.axes():
                    by_axis[axis] = by_axis.get(axis, frozenset()) | names
        source = copy.loads()[0]
        buffer = source.buffer
        dims = tuple(_joined(by_axis.get(axis, frozenset()) for axis in index.axes()) for index in source.indices)
    return buffer, dims


def _matched(
    shape: Sequence[int], dims: Sequence[Names], written: Sequence[int]
) -> Iterator[tuple[Names, slice]]:
    """Dimensions of a tensor as they are read, with those as which they were written: a copy's rows may be read as one
    dimension."""
    first, last = 0, 0
    for end in range(1, len(shape) + 1):
        elements, stop = prod(shape[first:end]), last
        while stop < len(written) and (prod(written[last:stop]) < elements or (last == stop and written[stop] == 1)):
            stop += 1
        if end == len(shape):
            yield _joined(dims[first:end]), slice(last, len(written))
        elif prod(written[last:stop]) == elements:
            yield _joined(dims[first:end]), slice(last, stop)
            first, last = end, stop


def _joined(names: Iterable[Names]) -> Names:
    return frozenset().union(*names)
