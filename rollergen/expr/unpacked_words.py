"""Products with constant weights of four bits: words of eight weights, which vectors unpack in registers.

Before: ``sum(x[i, k] * (q[j, k] - z) * s)``, every weight unpacked from its byte, converted and scaled.  After: w, the
weight less its zero point, is in a word: four bits that are shifted to the lowest, of which a vector's table gives the
float.  Several rows share what is unpacked and scaled: ``sum(x[i, k] * (float(w) * s))``.  One row has each group's sum
scaled once: ``sum over groups of s * sum(x[k] * float(w))``.  Differences stay exact: sums of x * q less z times that
of x would be what is left of larger ones.

One row's products of a group are added up in `_CHAINS` sums, so that none waits for one sum's every addition.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from rollergen.expr.canonical import canonical_op, drop_trivial, fuse, simplify
from rollergen.expr.index import Index
from rollergen.expr.narrow_weights import product_of
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Cast, Const, IndexValue, Value, substitute_axes
from rollergen.expr.weight_panels import Panels

_F32, _I32 = "float32", "int32"
_BITS = range(0, 32, 4)
"""Where a word's weights begin."""
_CHAINS = 4
_MOST = 32
"""Products of a group that are written out."""


def with_unpacked_words(graph: Graph, lanes: int) -> Graph | None:
    """The stages with all products with weights of four bits so; None where there is none.

    ``lanes``: of the vectors of outputs; weights are laid out in panels as wide.
    """
    ops: list[TensorOp] = []
    temporaries = list(graph.temporaries)
    for op in graph.tensor_ops:
        product = product_of(op, _MOST)
        if product is None or not product.whole.nibble:
            ops.append(canonical_op(op))
            continue
        words = _Words(product, lanes, graph)
        main = words.of_several_rows() if product.shared else words.of_one_row()
        ops += [*words.once, main]
        temporaries += [one.output for one in words.once]
    if len(temporaries) == len(graph.temporaries):
        return None
    return replace(graph, temporaries=tuple(temporaries), tensor_ops=tuple(ops))


class _Words(Panels):
    """The weights of one product in words, and the product."""

    def of_several_rows(self) -> TensorOp:
        place, scale = Index.axis(self.e), self.scale()
        bits = IndexValue(place % len(_BITS) * 4)
        weight = self._weight(Binary("shr", self._word(place // len(_BITS)), bits, _I32))
        if scale is not None:
            weight = Binary("mul", weight, scale, _F32)
        axes = (Axis(self.g, self.groups, "reduce"), Axis(self.e, self.product.group, "reduce"))
        return fuse(drop_trivial(simplify(self._summed(axes, self._term(place, weight)))))

    def of_one_row(self) -> TensorOp:
        sums: list[Value] = []
        for at in range(self.product.group):
            word, bits = self._word(Index((), at // len(_BITS))), _BITS[at % len(_BITS)]
            weight = self._weight(Binary("shr", word, Const(bits, _I32), _I32) if bits else word)
            term = self._term(Index((), at), weight)
            if at < _CHAINS:
                sums.append(term)
            else:
                sums[at % _CHAINS] = _added(sums[at % _CHAINS], term)
        total, scale = reduce(_added, sums), self.scale()
        body = total if scale is None else Binary("mul", total, scale, _F32)
        return fuse(drop_trivial(simplify(self._summed((Axis(self.g, self.groups, "reduce"),), body))))

    def _word(self, place: Index) -> Value:
        shift = self.product.whole.shift
        part = lambda value: Binary("add", value, Const(shift, _I32), _I32) if shift else value
        return self.word(part, _BITS, place)

    def _weight(self, word: Value) -> Value:
        """The lowest four bits of a word, less the zero point, as a float."""
        number, zero = Binary("bitand", word, Const(15, _I32), _I32), self.zero(self.product.whole.shift)
        if isinstance(zero, Const):
            return Cast(Binary("sub", number, zero, _I32), _F32)
        return Binary("sub", Cast(number, _F32), Cast(zero, _F32), _F32)

    def _term(self, place: Index, weight: Value) -> Value:
        """The product of a group's weight and the activation at that place of the group."""
        along = Index.axis(self.g) * self.product.group + place
        return Binary("mul", substitute_axes(self.product.activation, {self.product.along.name: along}), weight, _F32)

    def _summed(self, axes: tuple[Axis, ...], body: Value) -> TensorOp:
        """The product's tensor op, with that sum over those axes."""
        op = self.product.op
        (reduction,) = op.reductions
        reduction = replace(reduction, axes=tuple(axis.name for axis in axes), bodies=(body,))
        return replace(op, axes=(*op.of_role("spatial"), *axes), reductions=(reduction,))


def _added(a: Value, b: Value) -> Value:
    return Binary("add", a, b, _F32)
