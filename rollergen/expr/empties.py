"""Tensors without elements: what is left of an expression once nothing is read from them or reduced over them.

A tensor with an extent of 0 has no elements.  Nothing is ever read of one, and a reduction over an axis of extent 0 is
its combiner's identity; expressions say so here, before they are cut into stages or evaluated, and no stage has an axis
of extent 0.  An output without elements is computed by no stage at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rollergen.expr.reads import computed_tensors
from rollergen.expr.reductions import Reduce
from rollergen.expr.values import Buffer, Const, Load, Take, Value, read_of, transform, with_read

if TYPE_CHECKING:
    from rollergen.expr.language import Tensor


def is_empty(tensor: Tensor | Buffer) -> bool:
    """Whether the tensor has no elements."""
    return 0 in tensor.shape


def without_empties(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`tensors`, those with elements by what has elements alone; where nothing is empty, they are the same objects.

    >>> import rollergen as rg
    >>> A, B, k = rg.tensor("A", (2, 0)), rg.tensor("B", (2,)), rg.reduce_axis("k", 0)
    >>> C = rg.compute((2,), lambda i: rg.sum(A[i, k], axis=k) + B[i])
    >>> without_empties([C])[0].evaluate(B=[1, 2])
    array([1., 2.])
    """
    made: dict[int, Tensor] = {}

    def change(node: Value) -> Value | None:
        if isinstance(node, Reduce) and any(extent == 0 for _, extent in node.axes):
            return node.combiner.identity[node.component]
        if not isinstance(node, (Load, Take)):
            return None
        read = read_of(node)
        if is_empty(read.buffer):
            return Const(False if read.dtype == "bool" else 0, read.dtype)  # never chosen: the language has checked it
        source = made.get(id(read.source), read.source)
        return None if source is read.source else with_read(node, replace(read, source=source))

    for tensor in computed_tensors(tensors):
        producer = tensor.producer
        assert producer is not None  # of computed ones
        body = producer.body if is_empty(tensor) else transform(producer.body, change)
        if body is not producer.body:
            made[id(tensor)] = replace(tensor, producer=replace(producer, body=body))
    return tuple(made.get(id(tensor), tensor) for tensor in tensors)
