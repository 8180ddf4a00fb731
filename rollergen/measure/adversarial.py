"""Inputs on which right and wrong kernels part: few elements of an ordinary set of inputs replaced by hostile ones.

Only the elements replaced are kept, so that large operands are neither copied nor made again.  They are those that
sampled output elements depend on (`points.py`), each stage's loads evaluated at the sampled axes.

*Infinities and NaN* must come out exactly where the definition says, and nowhere else.  They are tried where neither
the order of the operations nor their range decides what comes out: reductions by sum, max and min alone, no factor
that could be taken out of a sum, no powers, no conversion to integers (which the language leaves open for them).
*Zeros of both signs and denormals* are tried wherever inputs are floating and no order of rounded values decides
what comes out (`tolerance.order_decides`): rounding makes many of them equal.  *Cancellation*: values of about 2^10
among ordinary ones, so that sums lose what they carried in front of the ordinary digits; tried for sums of products
(`has_absolute_bound`), whose rounding errors then lie on the scale of the definition evaluated on absolute values
(Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from rollergen.expr.definition import Definition, Reduction
from rollergen.expr.dtypes import is_float
from rollergen.expr.index import linear
from rollergen.expr.values import Binary, Cast, Const, Load, Partial, Select, Unary, Value, loads, walk
from rollergen.measure.points import sample_axes
from rollergen.measure.tolerance import order_decides
from rollergen.program.rprogram import RProgram

INFINITIES, DENORMALS, CANCELLATION = "infinities and NaN", "zeros and denormals", "cancellation"

LARGE = 1024.0
"""Exact in every floating dtype, its products of two within float32's and bfloat16's range."""

FEW = 6
"""Hostile elements of one load where there are reductions: so many leave most outputs to be ordinary."""

SHARE = 4
"""Else one in so many sampled elements is hostile."""

Patches = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By input name: row-major offsets, all different, and the values to put there."""


@dataclass(frozen=True, slots=True)
class Ordeal:
    """One kind of hostile inputs.  ``absolute``: errors lie on the scale of the definition on absolute inputs."""

    title: str
    patches: Patches
    absolute: bool = False


def ordeals(program: RProgram, rng: np.random.Generator) -> tuple[Ordeal, ...]:
    """The kinds of hostile inputs that say something about ``program``."""
    definitions = tuple(stage.definition for stage in program.stages)
    floating = [buffer.name for buffer in program.inputs if is_float(buffer.dtype)]
    if not floating:
        return ()
    offsets = _offsets(program, rng)
    few = any(definition.reductions for definition in definitions)
    kinds = [] if order_decides(definitions, program.inputs) else [(DENORMALS, False)]
    if _orderless(definitions):
        kinds.append((INFINITIES, few))
    if has_absolute_bound(definitions) and all(b.dtype not in ("float16",) for b in program.outputs):
        kinds.append((CANCELLATION, False))
    dtypes = {buffer.name: buffer.dtype for buffer in program.inputs}
    divided = any(isinstance(n, (Unary, Binary)) and n.op in ("div", "rsqrt", "pow") for n in _nodes(definitions))
    found = []
    for title, sparse in kinds:
        values = {name: _values(title, dtypes[name], divided) for name in floating if name in offsets}
        patches = {name: _patch(offsets[name], sparse, several, rng) for name, several in values.items()}
        found.append(Ordeal(title, patches, title == CANCELLATION))
    return tuple(found)


def _offsets(program: RProgram, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Elements of every input that sampled points of the stages read, in random order."""
    found: dict[str, list[np.ndarray]] = {}
    for stage in program.stages:
        definition = stage.definition
        columns = sample_axes(definition, program.stages, rng)
        length = len(next(iter(columns.values()))) if columns else 64
        for axis in definition.axes:
            if axis.name not in columns:
                columns[axis.name] = rng.integers(0, axis.extent, length)
        for load in definition.loads():
            if load.buffer.kind == "input":
                at = np.broadcast_to(linear(load.indices, load.buffer.shape).evaluate(columns), (length,))
                found.setdefault(load.buffer.name, []).append(np.clip(at, 0, load.buffer.elements - 1))
    return {name: rng.permutation(np.unique(np.concatenate(several))) for name, several in found.items()}


def _patch(
    offsets: np.ndarray, sparse: bool, values: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    count = min(len(offsets), FEW) if sparse else max(1, len(offsets) // SHARE)
    return offsets[:count], np.resize(np.roll(values, int(rng.integers(len(values)))), count)


def _values(title: str, dtype: str, divided: bool) -> np.ndarray:
    """``divided``: what was divided by a denormal passes the dtype's range, where only the oracle goes on counting."""
    if title == INFINITIES:
        return np.array([np.inf, -np.inf, np.nan])
    if title == CANCELLATION:
        return np.array([LARGE, -LARGE])
    facts = ml_dtypes.finfo(dtype)
    smallest, tiny = float(facts.smallest_subnormal), float(facts.tiny)
    denormals = [] if divided else [smallest, -smallest, tiny / 4]
    return np.array([0.0, -0.0, *denormals, tiny, -tiny])


def _nodes(definitions: Iterable[Definition]) -> Iterable[Value]:
    for definition in definitions:
        yield from walk(definition.result)
        for reduction in definition.reductions:
            for body in reduction.bodies:
                yield from walk(body)


def _orderless(definitions: tuple[Definition, ...]) -> bool:
    """Whether infinities and NaN come out of the definitions the same in any order of operations and any precision."""
    reductions = [(reduction, definition) for definition in definitions for reduction in definition.reductions]
    copies = definitions if reductions else ()
    repeated = {d.output.name for d in copies if not d.reductions and _repeats(d)}
    if any(r.combiner.name not in ("sum", "max", "min") or _distributes(r, d, repeated) for r, d in reductions):
        return False
    for node in _nodes(definitions):
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
    return any(d.reductions for d in definitions) and all(map(_unsigned, _nodes(definitions)))


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
