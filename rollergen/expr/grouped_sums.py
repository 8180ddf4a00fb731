"""A vector times weights of four bits: words unpacked in registers, each group's sum scaled once.

Before: ``sum(x[k] * (q[j, k] - z) * s)``, every weight unpacked from its byte, converted and scaled.  After: ``sum over
groups of s * sum(x[k] * float(w))``, w the weight less its zero point, of eight in a word: four bits that are shifted
to the lowest, of which a vector's table gives the float.  Differences stay exact: sums of x * q less z times that of x
would be what is left of larger ones.

A group's products are added up in `_CHAINS` sums, so that none waits for one sum's every addition.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from rollergen.expr.canonical import canonical_op, drop_trivial, fuse, simplify
from rollergen.expr.index import Index
from rollergen.expr.narrow_weights import Product, product_of
from rollergen.expr.stages import Graph
from rollergen.expr.tensor_op import Axis, TensorOp
from rollergen.expr.values import Binary, Cast, Const, Value, axes_of, substitute_axes
from rollergen.expr.weight_panels import Panels

_F32, _I32 = "float32", "int32"
_CHAINS = 4
_MOST = 32
"""Products of a group that are written out."""


def with_grouped_sums(graph: Graph, lanes: int) -> Graph | None:
    """The stages with all products of one row with weights of four bits so; None where there is none.

    ``lanes``: of the vectors of outputs; weights are laid out in panels as wide.
    """
    ops: list[TensorOp] = []
    temporaries = list(graph.temporaries)
    for op in graph.tensor_ops:
        product = product_of(op, _MOST)
        if product is None or not _is_of_one_row(product):
            ops.append(canonical_op(op))
            continue
        once, main = _grouped(product, Panels(product, lanes, graph))
        ops += [*once, main]
        temporaries += [one.output for one in once]
    if len(temporaries) == len(graph.temporaries):
        return None
    return replace(graph, temporaries=tuple(temporaries), tensor_ops=tuple(ops))


def _is_of_one_row(product: Product) -> bool:
    """Whether weights are used once, and four bits wide."""
    own = axes_of(product.number)
    return product.whole.nibble and all(axis.extent == 1 or axis.name in own for axis in product.op.of_role("spatial"))


def _grouped(product: Product, panels: Panels) -> tuple[list[TensorOp], TensorOp]:
    """What is made once, and the product."""
    shift = product.whole.shift
    zero = panels.zero(shift)
    part = lambda value: Binary("add", value, Const(shift, _I32), _I32) if shift else value
    words = panels.words(part, range(0, 32, 4))
    sums: list[Value] = []
    for at in range(product.group):
        place = {product.along.name: Index.axis(panels.g) * product.group + at}
        weight = _weight(words[at // 8], 4 * (at % 8), zero)
        term = Binary("mul", substitute_axes(product.activation, place), weight, _F32)
        if at < _CHAINS:
            sums.append(term)
        else:
            sums[at % _CHAINS] = _added(sums[at % _CHAINS], term)
    total, scale = reduce(_added, sums), panels.scale()
    body = total if scale is None else Binary("mul", total, scale, _F32)
    (reduction,) = product.op.reductions
    axes = (*product.op.of_role("spatial"), Axis(panels.g, panels.groups, "reduce"))
    main = replace(product.op, axes=axes, reductions=(replace(reduction, axes=(panels.g,), bodies=(body,)),))
    return panels.once, fuse(drop_trivial(simplify(main)))


def _weight(word: Value, bits: int, zero: Value) -> Value:
    """Four bits of a word, from `bits` on, less the zero point, as a float."""
    number = Binary("bitand", Binary("shr", word, Const(bits, _I32), _I32) if bits else word, Const(15, _I32), _I32)
    if isinstance(zero, Const):
        return Cast(Binary("sub", number, zero, _I32), _F32)
    return Binary("sub", Cast(number, _F32), Cast(zero, _F32), _F32)


def _added(a: Value, b: Value) -> Value:
    return Binary("add", a, b, _F32)
