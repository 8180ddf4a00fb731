"""Products of activations with narrow constant weights by dot products of bytes: activations quantised at the call.

Of ``sum(x[i, k] * (q[j, k] - z) * s)``, where ``s`` and ``z`` are the same for C neighbours along k, each row's C
activations (a group) become signed bytes with a scale of their own:

    scale[i, g] = max(abs(x[i, k])) / 127 over the group,     a[i, k] = round(x[i, k] / scale[i, g])

rounded to even, all 0 where the scale is 0 or not finite.  With u = q + shift, a number without a sign:

    sum over groups of float32(sum of u * a  -  (z + shift) * sum of a) * (scale[i, g] * s[j, g])

Sums within a group are whole numbers of 32 bits: exact.  Each activation moves by at most half a scale, so that a
result moves by at most ``sum(abs(w[j, k]) * scale[i, g] / 2)``, beside roundings in float32.  A group with an infinity
or NaN makes its row's results NaN.

Nibbles stand so in words that a mask and a shift give four weights each to multiply with four neighbours: the lower
half of byte b of word w is weight 8 w + b, the upper half weight 8 w + 4 + b.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from rollergen.expr.canonical import canonical_op, drop_trivial, fuse, simplify
from rollergen.expr.index import Index
from rollergen.expr.narrow_weights import product_of, times
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import Axis, Reduction, TensorOp
from rollergen.expr.values import (
    Binary,
    Buffer,
    Cast,
    Const,
    Load,
    Partial,
    Select,
    Unary,
    Value,
    multiplied,
    named_combiner,
    substitute_axes,
)
from rollergen.expr.weight_panels import Panels
from rollergen.hal.dtypes import DOTS

PAIR = ("uint8", "int8")
"""Dtypes of the dot products: weights, activations."""
_F32, _I32, _I8 = "float32", "int32", "int8"
_LARGEST = 127.0
_MOST_SHARED = 32
"""Activations of one scale where rows share the weights: registers hold the weights' words of some rows' sums at once.
(4096 x 4096 weights of 4 bits in groups of 128 on one core of a Zen 4: 8 rows 915 us, 1170 with 64 activations of one
scale, 32 rows 3816, 4329; one row, which waits for its words, 147 with 64.)"""
_NIBBLES, _ONES = 0x0F0F0F0F, 0x01010101


def with_quantized_activations(graph: Graph, lanes: int) -> Graph | None:
    """The stages with all products quantised that can be; None where none can.

    ``lanes``: of the vectors of outputs; weights are laid out in panels as wide.
    """
    ops: list[TensorOp] = []
    defined: list[TensorOp] = []
    temporaries, said = list(graph.temporaries), list(graph.cuts)
    for op in graph.tensor_ops:
        product = product_of(op)
        if product is not None and product.shared:
            product = product_of(op, _MOST_SHARED)
        if product is None:
            ops.append(canonical_op(op))
            defined.append(op)
            continue
        writer = _Quantized(product, lanes, graph)
        before, main = writer.stages()
        ops += [*before, main]
        defined += writer.definition()
        temporaries += [one.output for one in before]
        said.append(
            f"activations of {op.output.name} are quantised to int8 in groups of {product.group}, each scaled by its "
            f"largest: an error of at most half a scale each (quantize_activations)"
        )
    if len(said) == len(graph.cuts):
        return None
    plain = tuple(drop_trivial(simplify(op)) for op in defined)
    return replace(graph, temporaries=tuple(temporaries), tensor_ops=tuple(ops), cuts=tuple(said), definition=plain)


class _Quantized(Panels):
    """One product that is being rewritten."""

    def stages(self) -> tuple[list[TensorOp], TensorOp]:
        """What comes before, and the product itself."""
        product, one = self.product, Index.axis
        rows, place = tuple(one(axis.name) for axis in self.rows), one(self.g)
        scales, quantized = self._scales, self._activations
        held = replace(quantized.output, shape=(*quantized.output.shape[:-1], product.along.extent // 4), dtype=_I32)
        activations = [
            Load(held, (*rows, place * (product.group // 4) + number)) for number in range(product.group // 4)
        ]
        before = [scales, quantized]
        total: Value = Const(0, _I32)
        zero = self.zero(product.whole.shift)
        if zero != Const(0, _I32):
            sums = self._sums(held)
            before.append(sums)
            total = Binary("sub", total, Binary("mul", zero, Load(sums.output, (*rows, place)), _I32), _I32)
        for weights, word in zip(self._weights(), activations, strict=True):
            total = Binary("add", total, Binary(DOTS[PAIR], weights, word, _I32), _I32)
        scale: Value = Load(scales.output, (*rows, place))
        scale = scale if (own := self.scale()) is None else Binary("mul", scale, own, _F32)
        (reduction,) = product.op.reductions
        body = Binary("mul", Cast(total, _F32), scale, _F32)
        axes = (*product.op.of_role("spatial"), Axis(self.g, self.groups, "reduce"))
        main = replace(product.op, axes=axes, reductions=(replace(reduction, axes=(self.g,), bodies=(body,)),))
        before = [*self.once, *(canonical_op(one) for one in before)]
        return before, fuse(drop_trivial(simplify(main)))

    def definition(self) -> list[TensorOp]:
        """The same as ordinary tensor ops: activations rounded, and as floats again, in the product as it was."""
        product = self.product
        quantized, (steps, scale) = self._activations, self._rounded
        output = replace(quantized.output, name=quantized.output.name + "_float", dtype=_F32)
        made = replace(quantized, output=output, result=Binary("mul", steps, scale, _F32))
        (reduction,) = product.op.reductions
        rest = [one for one in multiplied(reduction.bodies[0]) if not self._is_activation(one)]
        body = times((Load(output, made.target), *rest))
        return [self._scales, made, replace(product.op, reductions=(replace(reduction, bodies=(body,)),))]

    def _is_activation(self, factor: Value) -> bool:
        return factor in multiplied(self.product.activation)

    # Activations

    @cached_property
    def _scales(self) -> TensorOp:
        product = self.product
        place = {product.along.name: Index.axis(self.g) * product.group + Index.axis(self.e)}
        axes = (*self.rows, Axis(self.g, self.groups))
        size = Unary("abs", substitute_axes(product.activation, place), _F32)
        largest = Reduction("largest", named_combiner("max", _F32), (self.e,), (size,))
        target = tuple(Index.axis(axis.name) for axis in axes)
        result = Binary("div", Partial("largest", _F32), Const(_LARGEST, _F32), _F32)
        reduced = (*axes, Axis(self.e, product.group, "reduce"))
        return TensorOp(self.buffer("activation_scales", axes, _F32), reduced, target, result, (largest,))

    @cached_property
    def _rounded(self) -> tuple[Value, Value]:
        """(An activation in steps of its scale, a whole number as a float; the scale.)"""
        product = self.product
        rows = tuple(Index.axis(axis.name) for axis in self.rows)
        scale = Load(self._scales.output, (*rows, Index.axis(product.along.name) // product.group))
        steps = Unary("round", Binary("div", product.activation, scale, _F32), _F32)
        most = Binary("min", steps, Const(_LARGEST, _F32), _F32)
        within = Binary("max", most, Const(-_LARGEST, _F32), _F32)
        some = Binary("gt", scale, Const(0.0, _F32), "bool")
        finite = Binary("lt", scale, Const(float("inf"), _F32), "bool")
        return Select(Binary("and", some, finite, "bool"), within, Const(0.0, _F32), _F32), scale

    @cached_property
    def _activations(self) -> TensorOp:
        axes = (*self.rows, replace(self.product.along, role="spatial"))
        at = tuple(Index.axis(axis.name) for axis in axes)
        return TensorOp(self.buffer("activations", axes, _I8), axes, at, Cast(self._rounded[0], _I8))

    def _sums(self, words: Buffer) -> TensorOp:
        """The sums of the groups' activations."""
        axes, count = (*self.rows, Axis(self.g, self.groups)), self.product.group // 4
        rows = tuple(Index.axis(axis.name) for axis in self.rows)
        word = Load(words, (*rows, Index.axis(self.g) * count + Index.axis(self.w)))
        body = Binary(DOTS[PAIR], Const(_ONES, _I32), word, _I32)
        total = Reduction("total", named_combiner("sum", _I32), (self.w,), (body,))
        target = (*rows, Index.axis(self.g))
        reduced = (*axes, Axis(self.w, count, "reduce"))
        return TensorOp(self.buffer("activation_sums", axes, _I32), reduced, target, Partial("total", _I32), (total,))

    def _weights(self) -> Iterator[Value]:
        """Words of four weights each, in the order of the activations."""
        shift, nibbles = Const(self.product.whole.shift, _I32), self.product.whole.nibble
        part = lambda value: Binary("add", value, shift, _I32) if shift.value else value
        bits = [8 * (n % 4) + 4 * (n // 4) for n in range(8 if nibbles else 4)]
        for number in range(self.product.group // len(bits)):
            word = self.word(part, bits, Index((), number))
            if not nibbles:
                yield word
                continue
            mask = Const(_NIBBLES, _I32)
            yield Binary("bitand", word, mask, _I32)
            yield Binary("bitand", Binary("shr", word, Const(4, _I32), _I32), mask, _I32)
