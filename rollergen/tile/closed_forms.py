"""Closed forms of a tensor op: footprint, traffic and steps of its tiles, as formulas with their numbers put in.

They count elements of whole tiles, as `explain` prints them; `exact_traffic` counts transactions, edge tiles included.

>>> from rollergen.expr import index, tensor_op, values
>>> i, k = index.Index.axis("i"), index.Index.axis("k")
>>> x = values.Load(values.Buffer("X", (8, 6)), (i, k))
>>> d = tensor_op.TensorOp(values.Buffer("Y", (8, 6)), (tensor_op.Axis("i", 8), tensor_op.Axis("k", 6)), (i, k), x)
>>> closed_forms(d, {"i": 4, "k": 3})[0].traffic
Form(text='tile_i*tile_k*steps', value=48)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.index import Atom, FloorDiv, Index
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Binary, Unary, walk

Tile = Mapping[str, int]
"""Elements along each axis; an axis that is not named has one."""


class Form(NamedTuple):
    """A formula in ``tile_AXIS`` and the axes' own names, and what it comes to."""

    text: str
    value: int


class AccessForms(NamedTuple):
    """Of a load, or of the store: elements that a layer holds of a tile, those of the tensor that a tile touches, and
    those that all tiles move, each fetching its own."""

    tensor: str
    itemsize: int
    footprint: Form
    distinct: Form
    traffic: Form


def closed_forms(op: TensorOp, tile: Tile) -> tuple[AccessForms, ...]:
    """Forms of the loads, in the tensor op's order, and of the store."""
    whole = Form("steps", steps_of(op, tile).value)
    stored = frozenset().union(*(index.axes() for index in op.target))
    stores = _steps(op, tile, stored)
    return (
        *(_forms(load.buffer.name, load.dtype, load.indices, load.axes(), whole, tile) for load in op.loads()),
        _forms(op.output.name, op.output.dtype, op.target, stored, stores, tile),
    )


def steps_of(op: TensorOp, tile: Tile) -> Form:
    """Tiles of the whole computation."""
    return _steps(op, tile, frozenset(axis.name for axis in op.axes))


def explain_forms(op: TensorOp, tile: Tile) -> tuple[str, ...]:
    """One line for each operand and one for the arithmetic."""
    lines = [
        f"{one.tensor}: footprint {one.footprint.text} = {one.footprint.value} elements; "
        f"traffic {one.traffic.text} = {one.traffic.value * one.itemsize} bytes"
        for one in closed_forms(op, tile)
    ]
    steps = steps_of(op, tile)
    return (*lines, f"steps {steps.text} = {steps.value}; {operations(op)} operations")


def operations(op: TensorOp) -> int:
    """Arithmetic operations, each operation of a combiner or a value counted once."""
    every = prod(axis.extent for axis in op.axes)
    spatial = prod(axis.extent for axis in op.axes if axis.role != "reduce")
    nodes = lambda *values: {node for value in values for node in walk(value)}
    count = lambda *values: sum(isinstance(node, (Unary, Binary)) for node in nodes(*values))
    reduced = sum(count(*one.bodies, *one.combiner.combine) for one in op.reductions)
    return every * reduced + spatial * count(op.result)


def _forms(
    tensor: str, dtype: str, indices: tuple[Index, ...], axes: frozenset[str], times: Form, tile: Tile
) -> AccessForms:
    held = _product(_span(axis, tile) for axis in sorted(axes))
    touched = _product(_count(index, tile) for index in indices)
    return AccessForms(tensor, ITEMSIZE[dtype], held, touched, _product((touched, times)))


def _steps(op: TensorOp, tile: Tile, axes: frozenset[str]) -> Form:
    cut = [(axis.name, axis.extent, tile.get(axis.name, 1)) for axis in op.axes if axis.name in axes]
    return _product(Form(f"ceil({name}/tile_{name})", -(-extent // size)) for name, extent, size in cut)


def _product(factors: Iterable[Form]) -> Form:
    kept = [one for one in factors if one.text != "1"]
    return Form("*".join(one.text for one in kept) or "1", prod(one.value for one in kept))


def _count(index: Index, tile: Tile) -> Form:
    """Distinct values: at most the range, at most the product over the terms."""
    spans = [_span(atom, tile) for atom, _ in index.terms]
    if len(spans) < 2:
        return _product(spans)
    range_, product = _range(index, tile), _product(spans)
    return Form(f"min({range_.text}, {product.text})", min(range_.value, product.value))


def _range(index: Index, tile: Tile) -> Form:
    """Largest minus smallest value, plus 1."""
    spans = [(abs(factor), _span(atom, tile)) for atom, factor in index.terms]
    if [factor for factor, _ in spans] == [1]:
        return spans[0][1]
    text = "".join(f" + {factor}*({one.text} - 1)" for factor, one in spans).replace(" 1*", " ")
    return Form(f"1{text}", 1 + sum(factor * (one.value - 1) for factor, one in spans))


def _span(atom: Atom, tile: Tile) -> Form:
    if isinstance(atom, str):
        return Form(f"tile_{atom}", tile.get(atom, 1))
    inner = _range(atom.index, tile)
    if isinstance(atom, FloorDiv):
        above = f"({inner.text})" if " + " in inner.text else inner.text
        return Form(f"ceil({above}/{atom.divisor})", -(-inner.value // atom.divisor))
    return Form(f"min({inner.text}, {atom.divisor})", min(inner.value, atom.divisor))
