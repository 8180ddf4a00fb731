"""What of a program's definitions decides which inputs say something about it, and how its results are compared."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rollergen.expr.definition import Definition, Reduction
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import linear
from rollergen.expr.primitives import PRIMITIVES, Primitive
from rollergen.expr.splitting import summed_axes
from rollergen.expr.values import Binary, Cast, Const, Load, Partial, Select, Unary, Value, loads, walk
from rollergen.gate.narrowing import computed, is_narrowed, program_accuracies
from rollergen.gate.tolerance import RAMPS, Accuracy, exact_magnitude, order_decides, unit_roundoff
from rollergen.program.rprogram import RProgram

FEW = 64
"""Below so many elements an output says little of the scale on which its rounding errors lie: sums that happen to
cancel would be compared with themselves.  Then the random inputs are not negative."""


@dataclass(frozen=True)
class Facts:
    """What is known of one program; found when it is asked for."""

    program: RProgram

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        return computed(self.program)

    @cached_property
    def accuracies(self) -> dict[str, Accuracy]:
        """Of every buffer that the program makes, added up in its order."""
        return program_accuracies(self.program)

    @cached_property
    def narrow(self) -> bool:
        """Whether some stage cuts its factors, so that its results have a tolerance where others have none."""
        return is_narrowed(self.program)

    @cached_property
    def nodes(self) -> tuple[Value, ...]:
        """Every value in results, bodies and combiners."""
        combiners = (r.combiner.combine for d in self.definitions for r in d.reductions)
        return (*nodes(self.definitions), *(n for values in combiners for value in values for n in walk(value)))

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
        return order_decides(self.definitions, self.program.inputs)

    @cached_property
    def few(self) -> bool:
        return any(buffer.elements < FEW for buffer in self.program.outputs)

    @cached_property
    def orderless(self) -> bool:
        """Whether infinities and NaN come out the same in any order of operations and any precision."""
        return orderless(self.definitions)

    @cached_property
    def absolute(self) -> bool:
        """Whether errors lie on the scale of the definition on absolute inputs (`has_absolute_bound`)."""
        return has_absolute_bound(self.definitions) and all(b.dtype != "float16" for b in self.program.outputs)

    @cached_property
    def reduces(self) -> bool:
        return any(definition.reductions for definition in self.definitions)

    @cached_property
    def exponential(self) -> bool:
        """Whether a function is there that overflows, or should saturate, where its operand is large."""
        return any(row.saturates for row in self._primitives)

    @cached_property
    def extremes(self) -> bool:
        """Whether equal values compete: in a reduction that is not a sum or a product."""
        return any(r.combiner.name not in ("sum", "prod") for d in self.definitions for r in d.reductions)

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
        known = (Load, Const, Cast, Select)
        told = (isinstance(n, (*known, Unary, Binary)) for n in self.nodes)
        signed = all(told) and all(row.keeps_sign for row in self._primitives)
        return not self.reduces and signed and not any(map(summed_axes, self.definitions))

    @cached_property
    def _made_whole(self) -> tuple[Cast, ...]:
        whole = lambda dtype: not is_float(dtype) and dtype != "bool"
        return tuple(n for n in self.nodes if isinstance(n, Cast) and whole(n.dtype) and is_float(n.x.dtype))

    @cached_property
    def _unrounded(self) -> tuple[Definition, ...]:
        """The definitions without the last rounding of an output: what is exact before it comes out rounded once."""
        read = {load.buffer.name for definition in self.definitions for load in definition.loads()}
        return tuple(d if d.output.name in read else _unrounded(d) for d in self.definitions)

    @cached_property
    def _primitives(self) -> set[Primitive]:
        return {PRIMITIVES[node.op] for node in self.nodes if isinstance(node, (Unary, Binary))}


def _unrounded(definition: Definition) -> Definition:
    result, output = definition.result, definition.output
    if not isinstance(result, Cast) or not 0 < unit_roundoff(result.x.dtype) < unit_roundoff(output.dtype):
        return definition
    if summed_axes(definition):
        return definition
    return replace(definition, result=result.x, output=replace(output, dtype=result.x.dtype))


def nodes(definitions: Iterable[Definition]) -> Iterable[Value]:
    for definition in definitions:
        yield from walk(definition.result)
        for reduction in definition.reductions:
            for body in reduction.bodies:
                yield from walk(body)


def orderless(definitions: tuple[Definition, ...]) -> bool:
    """Whether infinities and NaN come out of the definitions the same in any order of operations and any precision."""
    reductions = [(reduction, definition) for definition in definitions for reduction in definition.reductions]
    copies = definitions if reductions else ()
    repeated = {d.output.name for d in copies if not d.reductions and _repeats(d)}
    if any(r.combiner.name not in ("sum", "max", "min") or _distributes(r, d, repeated) for r, d in reductions):
        return False
    for node in nodes(definitions):
        if isinstance(node, Binary) and node.op == "pow":
            return False
        if isinstance(node, Cast) and is_float(node.x.dtype) and not is_float(node.dtype) and node.dtype != "bool":
            return False
    return True


def _repeats(definition: Definition) -> bool:
    """Whether what it copies (packed operands) stands in several places of the copy."""
    return not all(_varies((load,), axis.name, axis.extent) for load in definition.loads() for axis in definition.axes)


def _distributes(reduction: Reduction, definition: Definition, repeated: Set[str]) -> bool:
    """Whether a factor of the terms could be taken out of the sum over an axis: infinity times a sum is not the sum of
    infinities of either sign."""
    extents = {name: definition.axis(name).extent for name in reduction.axes}
    for body in reduction.bodies:
        factors = [several for several in (tuple(loads(factor)) for factor in _factors(body)) if several]
        if len(factors) > 1 and any(load.buffer.name in repeated for factor in factors for load in factor):
            return True
        if len(factors) > 1 and not all(_varies(several, name, extents[name]) for several in factors
                                        for name in reduction.axes):  # fmt: skip
            return True
    return False


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


def _factors(value: Value) -> Iterable[Value]:
    if isinstance(value, Binary) and value.op == "mul":
        yield from _factors(value.a)
        yield from _factors(value.b)
    else:
        yield value


def has_absolute_bound(definitions: tuple[Definition, ...]) -> bool:
    """Whether ``|f(x)| <= f(|x|)``, and so of every value between: sums and products without signs of their own."""
    if any(reduction.combiner.name != "sum" for d in definitions for reduction in d.reductions):
        return False
    return any(d.reductions for d in definitions) and all(map(_unsigned, nodes(definitions)))


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
