"""Narrow constant weights in words, in panels of as many columns as vectors have lanes; each made once, of constants.

Word w of a group holds the weights 8 w to 8 w + 7 (of bytes 4 w to 4 w + 3) of a column; the next lane's column lies
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rollergen.expr.index import Index
from rollergen.expr.narrow_weights import Product, axes_at, times
from rollergen.expr.packing import fresh_axis
from rollergen.expr.stages import Graph, is_made_once
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Const,
    Load,
    Value,
    Within,
    axes_of,
    loads,
    substitute_axes,
    transform,
)

_F32, _I32 = "float32", "int32"
_FIRST = Index()


class Panels:
    """The weights of one product, their scales and zero points; ``once``: what makes them."""

    def __init__(self, product: Product, lanes: int, graph: Graph) -> None:
        self.product, self.lanes, op = product, lanes, product.op
        self.groups = product.along.extent // product.group
        self.g, self.e, self.w = (fresh_axis(op, name) for name in ("group", "element", "word"))
        self.p, self.c = fresh_axis(op, "panel"), fresh_axis(op, "column")
        of_x, of_w = axes_of(product.activation), axes_of(product.number)
        of_w |= frozenset().union(*map(axes_of, product.scales), axes_of(product.zero) if product.zero else ())
        self.rows = tuple(axis for axis in op.of_role("spatial") if axis.name in of_x)
        self.others = tuple(axis for axis in op.of_role("spatial") if axis.name in of_w and axis != product.n)
        self.once: list[TensorOp] = []
        self._taken = {one.name for one in (*graph.inputs, *graph.outputs, *graph.temporaries)}
        self._names: dict[str, str] = {}

    def buffer(self, what: str, axes: Sequence[Axis], dtype: str) -> Buffer:
        """The temporary of that kind, with a name that no other buffer of the graph has."""
        name = self._names.get(what, f"{self.product.op.output.name}_{what}")
        while name in self._taken:
            name += "_"
        self._names[what] = name
        return Buffer(name, tuple(axis.extent for axis in axes), dtype, "temporary")

    def word(self, part: Callable[[Value], Value], bits: Sequence[int], place: Index) -> Value:
        """The word at that place of its group: ``part`` of each of the weights, shifted by so many bits."""
        product, word = self.product, None
        for number, by in enumerate(bits):
            at = {product.along.name: Index.axis(self.g) * product.group + Index.axis(self.w) * len(bits) + number}
            one = part(Cast(substitute_axes(product.number, at), _I32))
            one = Binary("shl", one, Const(by, _I32), _I32) if by else one
            word = one if word is None else Binary("bitor", word, one, _I32)
        assert word is not None
        return self.of("weights", word, _I32, place, product.group // len(bits))

    def scale(self) -> Value | None:
        """The product of the factors that a group's weights share; None where there are none."""
        scales = self.product.scales
        return self.of("weight_scales", times(scales), _F32) if scales else None

    def zero(self, shift: int) -> Value:
        """The zero point of the weights, ``shift`` more than it is."""
        zero, zeros = self.product.zero, self.product.zeros
        if zero is None or isinstance(zero, Const):
            return Const((0 if zero is None else int(zero.value)) + shift, _I32)
        value: Value = Cast(zero, _I32)
        value = Binary("add", value, Const(shift, _I32), _I32) if shift else value
        if zeros.low + shift < 0 or zeros.high + shift > 255:
            return self.of("zero_points", value, _I32)
        return Cast(self.of("zero_points", Cast(value, "uint8"), "uint8"), _I32)

    def of(self, what: str, value: Value, dtype: str, place: Index = _FIRST, words: int = 0) -> Value:
        """What is read of the value, of constants alone, in panels of as many columns as vectors have lanes; ``place``:
        of a word among the ``words`` of its group."""
        product, lanes, n = self.product, self.lanes, self.product.n
        ranges = {self.g: (0, self.groups - 1)}
        value = substitute_axes(value, {product.along.name: Index.axis(self.g) * product.group})
        grouped = words or self.g in axes_at(value, {}, ranges)
        varied = n.name in axes_of(value)
        value = value if grouped else substitute_axes(value, {self.g: Index()})
        position = Index.axis(self.p) * lanes + Index.axis(self.c)
        value = substitute_axes(value, {n.name: position})
        if varied and n.extent % lanes:
            value = transform(value, lambda node: self._guarded(node, position))
        here, once = Index.axis(n.name), bool(loads(value))
        axes = (
            *self.others,
            *((Axis(self.p, -(-n.extent // lanes)),) if varied else ()),
            *((Axis(self.g, self.groups),) if grouped else ()),
            *((Axis(self.w, words),) if words else ()),
            *((Axis(self.c, lanes),) if varied else ()),
        )
        if not axes or not once:  # a number, or what a tensor of one holds
            return value
        at = {self.p: here // lanes, self.c: here % lanes, self.w: place}
        own = tuple(Index.axis(axis.name) for axis in axes)
        buffer = replace(self.buffer(what, axes, dtype), constant=True)
        made = TensorOp(buffer, axes, own, value)
        assert is_made_once(made)
        if made not in self.once:
            self.once.append(made)
        return Load(buffer, tuple(at.get(axis.name, Index.axis(axis.name)) for axis in axes))

    def _guarded(self, node: Value, position: Index) -> Value | None:
        if not isinstance(node, Load) or not {self.p, self.c} & node.axes():
            return None
        return replace(node, guard=(Within(position, 0, self.product.n.extent),))
