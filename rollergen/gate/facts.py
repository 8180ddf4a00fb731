"""What of a program's tensor ops decides which inputs say something about it, and how its results are compared."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from functools import cached_property

import numpy as np

from rollergen.expr.dtypes import is_float
from rollergen.expr.index import Bounds, linear
from rollergen.expr.places import Put
from rollergen.expr.primitives import PRIMITIVES, Primitive
from rollergen.expr.takes import Bounded
from rollergen.expr.tensor_op import Reduction, TensorOp, summed_axes
from rollergen.expr.values import (
    Binary,
    Cast,
    Const,
    Load,
    Partial,
    Select,
    Take,
    Unary,
    Value,
    loads,
    multiplied,
    walk,
)
from rollergen.gate.narrowing import computed, is_narrowed, program_accuracies
from rollergen.gate.tolerance import RAMPS, Accuracy, exact_magnitude, order_decides, unit_roundoff
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES
from rollergen.program.rprogram import RProgram

FEW = 64
"""Below so many elements an output says little of the scale on which its rounding errors lie: sums that happen to
cancel would be compared with themselves.  Then the random inputs are not negative."""


@dataclass(frozen=True)
class Facts:
    """Properties of one program, each found on first use; ``puts``: where it stores blocks in arguments (`blocks`)."""

    program: RProgram
    puts: tuple[Put, ...] = ()

    @cached_property
    def tensor_ops(self) -> tuple[TensorOp, ...]:
        return computed(self.program)

    @cached_property
    def accuracies(self) -> dict[str, Accuracy]:
        """The accuracy of every buffer that the program makes, added up in its order."""
        return program_accuracies(self.program)

    @cached_property
    def narrow(self) -> bool:
        """Whether some stage cuts its factors, so that its results have a tolerance where others have none."""
        return is_narrowed(self.program)

    @cached_property
    def nodes(self) -> tuple[Value, ...]:
        """Every value in results, bodies and combiners."""
        combiners = (r.combiner.combine for d in self.tensor_ops for r in d.reductions)
        return (*nodes(self.tensor_ops), *(n for values in combiners for value in values for n in walk(value)))

    @cached_property
    def ramp(self) -> int | None:
        """Up to which of the whole numbers that can count elements every value is exact; None if there is none."""
        return exact_magnitude(self._unrounded, self.program.inputs, RAMPS)

    @cached_property
    def magnitude(self) -> int | None:
        """The same of small whole numbers."""
        return exact_magnitude(self._unrounded, self.program.inputs)

    @cached_property
    def order_decides(self) -> bool:
        """Whether what comes out may hang on the order of two rounded values."""
        return order_decides(self.tensor_ops, self.program.inputs)

    @cached_property
    def few(self) -> bool:
        return any(buffer.elements < FEW for buffer in self.program.outputs)

    @cached_property
    def orderless(self) -> bool:
        """Whether infinities and NaN come out the same in any order of operations and any precision."""
        return orderless(self.tensor_ops) and not self.mixes

    @cached_property
    def mixes(self) -> bool:
        """Whether inputs that a result does not depend on take part in it, and cancel but for roundings."""
        return any(stage.winograd for stage in self.program.stages)

    @cached_property
    def absolute(self) -> bool:
        """Whether errors lie on the scale of the definition on absolute inputs (`has_absolute_bound`)."""
        return has_absolute_bound(self.tensor_ops) and all(b.dtype != "float16" for b in self.program.outputs)

    @cached_property
    def reduces(self) -> bool:
        return any(op.reductions for op in self.tensor_ops)

    @cached_property
    def exponential(self) -> bool:
        """Whether a function is there that overflows, or should saturate, where its operand is large."""
        return any(row.saturates for row in self._primitives)

    @cached_property
    def extremes(self) -> bool:
        """Whether equal values compete: in a reduction that is not a sum or a product."""
        return any(r.combiner.name not in ("sum", "prod") for d in self.tensor_ops for r in d.reductions)

    @cached_property
    def divided(self) -> bool:
        return any(row.divides for row in self._primitives)

    @cached_property
    def raised(self) -> bool:
        return PRIMITIVES["pow"] in self._primitives

    @cached_property
    def jumps(self) -> bool:
        """Whether floats are made whole numbers."""
        return any(row.jumps for row in self._primitives) or bool(self._made_whole)

    @cached_property
    def unlimited(self) -> bool:
        """Whether a float is made an integer that it may lie beyond, which the language leaves open."""
        return any(not (isinstance(cast.x, Binary) and cast.x.op in ("min", "max")) for cast in self._made_whole)

    @cached_property
    def narrowed(self) -> tuple[str, ...]:
        """Narrower floating dtypes that values are rounded to."""
        casts = (n for n in self.nodes if isinstance(n, Cast) and is_float(n.dtype))
        return tuple(dict.fromkeys(n.dtype for n in casts if unit_roundoff(n.dtype) > unit_roundoff(n.x.dtype) > 0))

    @cached_property
    def signed(self) -> bool:
        """Whether the sign of a zero that comes out is told by the definition: not that of a sum, nor of the larger of
        two zeros (IEEE 754, sections 5.3.1 and 6.3)."""
        known = (Load, Take, Const, Cast, Select)
        told = (isinstance(n, (*known, Unary, Binary)) for n in self.nodes)
        signed = all(told) and all(row.keeps_sign for row in self._primitives)
        return not self.reduces and signed and not any(map(summed_axes, self.tensor_ops))

    @cached_property
    def ids(self) -> dict[str, Bounds]:
        """Integer inputs of which elements are places in another tensor: which ones are tried, first and last.

        Where others are an error, those of the shortest dimension; else as many again beyond either end."""
        found: dict[str, Bounds] = {}
        for take in (take for op in self.tensor_ops for take in op.takes()):
            for value, extent in zip(take.ids, take.extents, strict=True):
                for load in loads(value):
                    if load.buffer.kind == "input" and not is_float(load.dtype):
                        found[load.buffer.name] = _tried(take, extent, load.dtype, found.get(load.buffer.name))
        bounded = [one for one in self.program.inputs if isinstance(one, Bounded)]
        return found | {one.name: (one.low, one.high) for one in bounded}

    @cached_property
    def different(self) -> dict[str, int]:
        """Inputs whose elements are all different places, with the number of places."""
        pairs = (one for put in self.puts for one in zip(put.ids, put.extents, strict=True))
        return {load.buffer.name: extent for value, extent in pairs for load in loads(value)}

    @cached_property
    def _made_whole(self) -> tuple[Cast, ...]:
        whole = lambda dtype: not is_float(dtype) and dtype != "bool"
        return tuple(n for n in self.nodes if isinstance(n, Cast) and whole(n.dtype) and is_float(n.x.dtype))

    @cached_property
    def _unrounded(self) -> tuple[TensorOp, ...]:
        """The tensor ops without the last rounding of an output: what is exact before it comes out rounded once."""
        read = {name for op in self.tensor_ops for name in op.buffers_read()}
        return tuple(d if d.output.name in read else _unrounded(d) for d in self.tensor_ops)

    @cached_property
    def _primitives(self) -> set[Primitive]:
        return {PRIMITIVES[node.op] for node in self.nodes if isinstance(node, (Unary, Binary))}


def _tried(take: Take, extent: int, dtype: str, others: Bounds | None) -> Bounds:
    """The ids that are tried of one dimension, and of the others that they are used for."""
    beyond = 0 if take.mode == "raise" else extent
    low, high = DTYPES[dtype].limits
    own = max(low, -extent - beyond), min(high, extent - 1 + beyond)
    return own if others is None else (max(own[0], others[0]), min(own[1], others[1]))


def _unrounded(op: TensorOp) -> TensorOp:
    result, output = op.result, op.output
    if not isinstance(result, Cast) or not 0 < unit_roundoff(result.x.dtype) < unit_roundoff(output.dtype):
        return op
    if summed_axes(op):
        return op
    return replace(op, result=result.x, output=replace(output, dtype=result.x.dtype))


def nodes(tensor_ops: Iterable[TensorOp]) -> Iterable[Value]:
    for op in tensor_ops:
        yield from walk(op.result)
        for reduction in op.reductions:
            for body in reduction.bodies:
                yield from walk(body)


def orderless(tensor_ops: tuple[TensorOp, ...]) -> bool:
    """Whether infinities and NaN come out of the tensor ops the same in any order of operations and any precision."""
    reductions = [(reduction, op) for op in tensor_ops for reduction in op.reductions]
    copies = tensor_ops if reductions else ()
    repeated = {d.output.name for d in copies if not d.reductions and _repeats(d)}
    if any(r.combiner.name not in ("sum", "max", "min") or _distributes(r, d, repeated) for r, d in reductions):
        return False
    for node in nodes(tensor_ops):
        if isinstance(node, Binary) and node.op == "pow":
            return False
        if isinstance(node, Cast) and is_float(node.x.dtype) and not is_float(node.dtype) and node.dtype != "bool":
            return False
    return True


def _repeats(op: TensorOp) -> bool:
    """Whether what it copies (packed operands) stands in several places of the copy."""
    return not all(_varies((load,), axis.name, axis.extent) for load in op.loads() for axis in op.axes)


def _distributes(reduction: Reduction, op: TensorOp, repeated: Set[str]) -> bool:
    """Whether a factor of the terms could be taken out of the sum over an axis: infinity times a sum is not the sum of
    infinities of either sign."""
    extents = {name: op.axis(name).extent for name in reduction.axes}
    for body in reduction.bodies:
        factors = [several for several in (tuple(loads(factor)) for factor in multiplied(body)) if several]
        if len(factors) > 1 and any(load.buffer.name in repeated for factor in factors for load in factor):
            return True
        if len(factors) > 1 and not all(_varies(several, name, extents[name]) for several in factors
                                        for name in reduction.axes):  # fmt: skip
            return True
        if _made_once(body) and any(_adds_products(factor) for factor in multiplied(body) if factor is not body):
            return True
    return False


def _made_once(body: Value) -> bool:
    """Whether a factor is read that was made of constants, such as the scales of groups of weights."""
    made = lambda factor: any(load.buffer.kind == "temporary" and load.buffer.constant for load in loads(factor))
    return any(made(factor) for factor in multiplied(body) if not _adds_products(factor))


def _adds_products(value: Value) -> bool:
    """Whether it is a sum of products, written out: scales that it is multiplied by were taken out of its terms."""
    if not (isinstance(value, Binary) and value.op == "add"):
        return False
    return all(_adds_products(one) or (isinstance(one, Binary) and one.op == "mul") for one in (value.a, value.b))


def _varies(factor: tuple[Load, ...], axis: str, extent: int) -> bool:
    """Whether some load of a factor reads another element at every step along the axis; ``k // 2`` does not."""
    if extent == 1:
        return True
    for load in factor:
        if axis in load.axes():
            columns = {name: np.zeros(extent, np.int64) for name in load.axes()} | {axis: np.arange(extent)}
            at = np.broadcast_to(linear(load.indices, load.buffer.shape).evaluate(columns), extent)
            if (np.diff(at) > 0).all() or np.unique(at).size == extent:
                return True
    return False


def has_absolute_bound(tensor_ops: tuple[TensorOp, ...]) -> bool:
    """Whether ``|f(x)| <= f(|x|)``, and so of every value between: sums and products without signs of their own."""
    if any(reduction.combiner.name != "sum" for d in tensor_ops for reduction in d.reductions):
        return False
    return any(d.reductions for d in tensor_ops) and all(map(_unsigned, nodes(tensor_ops)))


def _unsigned(node: Value) -> bool:
    match node:
        case Const(number):
            return number >= 0
        case Load() | Partial():
            return True
        case Cast(x):
            return is_float(node.dtype) and is_float(x.dtype)
        case Binary(op):
            return op in ("add", "mul")
        case Select() | Unary():
            return False
    return False
