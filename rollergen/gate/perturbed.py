"""What rounding may make of single elements: the definition evaluated again and again with roundings of other sizes.

The tolerance of `tolerance.py` is relative to the size of the results, which says too little where they are what is
left of larger values (differences that cancel, variances of equal numbers), where an error is amplified (exp of a
large sum), and next to a jump (comparisons, floor, overflow).  There the errors follow from the values themselves:
Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA
CSD-970002, 1997) evaluates the definition in float64, every operation in a dtype of unit roundoff u followed by

    x -> round(x (1 + amplitude * units * u * noise), dtype),    noise uniform in [-1, 1)

with the units of `Primitive.ulps`.  The noise is a function of the operation and of its axes' values, so that what is
computed once and used often errs alike wherever it is used.  A sum's partial sums, in a random order and in chains of
at most `levels.LONGEST`, err by their own size each.  A product's partial products come about in a random order and in
those that leave the range of the dtype soonest (the largest factors first, the smallest first, both apart): they may
become infinite or zero, and infinity times zero is NaN; so are prefixes of any other kind combined in runs of several
lengths, behind the identity or not.  float16 and bfloat16 are computed with as float32; what was computed is then
rounded or, as within a stage, stays wide: none of it, all of it, or as chance has it, while conversions always round.
An element of size `want` may lie as far away as the farthest of the evaluations, of which the largest `amplitude` is
`tolerance.CONFIDENCE`, and the rounding of its own dtype (u |want|, not amplified) further; it may be infinite or NaN
where one of them is.  Of zeros of both signs the larger, or smaller, is either one.

With an amplitude of 0 an evaluation is what correctly rounded operations make of the definition.  Noise of any size
lacks that where exact results lie between two numbers of a narrow dtype, as one float16 of 0.25 to 0.5 in eight does
when 2 is added: it parts such ties at random, where an operation sends all of them to the even number, so that
the errors of many elements are the largest possible and as alike as the elements.

Only elements that the simple tolerance refuses are tried: all evaluations cost some fifty times what the oracle does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rollergen.expr.arithmetic import applied, converted, wide
from rollergen.expr.dtypes import is_float, numpy_dtype
from rollergen.expr.language import Tensor
from rollergen.expr.primitives import PRIMITIVES
from rollergen.expr.reductions import Reduce, Scan, free_axes
from rollergen.expr.reference import Evaluation, points_of
from rollergen.expr.values import Binary, Cast, Const, Select, Unary, Value, Var
from rollergen.gate.tolerance import CONFIDENCE, smallest_normal, unit_roundoff
from rollergen.hal.dataclass import dataclass
from rollergen.hal.dtypes import DTYPES
from rollergen.program.loops import LONGEST

_CYCLE = (CONFIDENCE, 1.0, CONFIDENCE / 2, CONFIDENCE / 4)
_NOISY = 8 * len(_CYCLE)
AMPLITUDES = _CYCLE * 8 + (0.0,) * 16
"""Of the evaluations, in order: large ones reach jumps, at 1 what is rounded may also become equal, at 0 ties stay."""

_ORDERS = 4
"""Ways in which the factors of a product come together: one for each cycle of amplitudes in turn."""

_RUNS = (1, 1 << 30, 2, 8, 32, 64)
"""Elements of a prefix operation that are combined one after the other, in turns as `_ORDERS` are."""


Array = Any


def within_rounding(
    tensor: Tensor, arrays: Mapping[str, np.ndarray], points: tuple[np.ndarray, ...], got: np.ndarray, want: np.ndarray
) -> np.ndarray:
    """Which of the elements `got` of `tensor` at `points` are what rounding may make of `want` (float64); bool.

    ``arrays``: the inputs by name.  Deterministic.
    """
    actual, dtype = np.atleast_1d(got).astype(np.float64), tensor.dtype
    wants = np.atleast_1d(np.asarray(want, np.float64))
    farthest, same = np.zeros(wants.shape), np.zeros(wants.shape, bool)
    unit = unit_roundoff(dtype)
    tiny = smallest_normal(dtype)
    centre = wants.copy()
    for number, amplitude in enumerate(AMPLITUDES):
        with np.errstate(all="ignore"):
            found = _Perturbed(arrays, tensor, number, amplitude).tensor(tensor, points)
            sample = np.broadcast_to(np.asarray(found, np.float64), wants.shape)
            centre = np.where(np.isfinite(centre), centre, sample)  # of what is finite by rounding only
            farthest = np.fmax(farthest, np.where(np.isfinite(sample), np.abs(sample - centre), 0.0))
            for made in (sample, _rounded(sample, dtype)):  # also what passes the range when it is stored
                same |= ~np.isfinite(actual) & ((actual == made) | (np.isnan(actual) & np.isnan(made)))
            margin = unit * np.maximum(np.abs(centre), np.abs(actual)) + tiny
            near = np.isfinite(actual) & np.isfinite(centre) & (np.abs(actual - centre) <= farthest + margin)
        if np.all(near | same):
            break
    return near | same


@dataclass(frozen=True, slots=True)
class _Node:
    """``wide``: a narrow dtype's value stays in its register; ``names``: the axes that its value depends on."""

    value: Value
    seed: np.uint64
    wide: bool
    names: tuple[str, ...]


class _Perturbed(Evaluation):
    """One evaluation in which every operation errs."""

    def __init__(self, arrays: Mapping[str, Array], tensor: Tensor, number: int, amplitude: float) -> None:
        """``tensor``: the one to evaluate, whose own last rounding is left out."""
        super().__init__(dict(arrays))
        self._amplitude = amplitude
        self._number = number
        self._last = tensor.producer.body if tensor.producer is not None else None
        self._random = np.random.default_rng((number, 20_000))
        self._nodes: dict[int, _Node] = {}

    def value(self, value: Value, axes: Mapping[str, Array], rank: int) -> Array:
        if isinstance(value, Binary) and value.op in ("max", "min") and is_float(value.dtype):
            return self._extreme(value, self.value(value.a, axes, rank), self.value(value.b, axes, rank))
        exact = super().value(value, axes, rank)
        match value:
            case Const():
                return _rounded(exact, value.dtype) if is_float(value.dtype) else exact
            case Cast():
                return self._erring(value, exact, axes, 0.0)
            case Unary(op) | Binary(op) if PRIMITIVES[op].ulps:
                return self._erring(value, exact, axes, float(PRIMITIVES[op].ulps))
        return exact

    def _extreme(self, value: Binary, a: Array, b: Array) -> Array:
        """max or min; of zeros of both signs either one, as IEEE 754 (2008, section 5.3.1) has it."""
        either = (a == 0) & (b == 0)
        zero = a if self._number % 2 else b
        return np.where(either, zero, applied(value, a, b))

    def _erring(self, value: Value, exact: Array, axes: Mapping[str, Array], units: float) -> Array:
        if not is_float(value.dtype):
            return exact
        node = self._node(value)
        return self._held(node, exact, self._noise(node, axes), units)

    def _held(self, node: _Node, exact: Array, noise: Array, units: float) -> Array:
        """``units`` 0: of what is only rounded, not computed."""
        dtype = node.value.dtype
        register = DTYPES[dtype].register
        wide = node.value is self._last or (node.wide and not isinstance(node.value, Cast))
        size = self._amplitude * units * unit_roundoff(register)
        return _rounded(np.asarray(exact * (1.0 + size * noise)), register if wide else dtype)

    def points(self, node: Reduce, axes: Mapping[str, Array]) -> int:
        """Every term errs by itself: products of factors are formed in full, where the definition contracts them."""
        return points_of(node, axes)

    def slab(self, node: Reduce, axes: Mapping[str, Array], rank: int, added: int, count: int) -> tuple[Array, ...]:
        name = node.combiner.name
        if name not in ("sum", "prod", "max", "min") or len(node.bodies) != 1 or not is_float(node.bodies[0].dtype):
            return super().slab(node, axes, rank, added, count)
        body, known = node.bodies[0], self._node(node)
        sizes = tuple(axes[name].shape[rank + d] for d, (name, _) in enumerate(node.axes))
        value = np.asarray(self.value(body, axes, rank + added))
        value = value.reshape((1,) * (rank + added - value.ndim) + value.shape)
        terms = np.broadcast_to(value, (*value.shape[:rank], *sizes)).reshape(*value.shape[:rank], count)
        if name in ("max", "min"):
            return (_extreme_of(terms, np.max if name == "max" else np.min, self._number % 4 > 1),)
        terms = terms[..., np.random.default_rng((int(known.seed), count)).permutation(count)]
        place = self._places(known, {name: axes[name] for name in axes if name not in dict(node.axes)}, rank)
        first = [int(np.min(axes[name])) for name, _ in node.axes]
        noise = _uniform(_mixed(place[..., None] + np.arange(count, dtype=np.uint64) + np.uint64(sum(first) << 32)))
        size = self._amplitude * unit_roundoff(body.dtype)
        if name == "prod":
            total = _product(terms, DTYPES[body.dtype].register, self._number // len(_CYCLE) % _ORDERS)
            low, high = np.min(terms, axis=-1), np.max(terms, axis=-1)
            near = 4 * max(size, unit_roundoff(body.dtype)) * np.abs(high)
            alike = high - low <= near  # equal factors were rounded alike
            return (total * (1.0 + size * np.where(alike, count * noise[..., 0], np.sum(noise, axis=-1))),)
        total, errors = _added(terms, noise)
        return (_rounded(np.asarray(total + size * errors), body.dtype),)

    def prefixes(self, node: Scan, parts: tuple[Array, ...]) -> tuple[Array, ...]:
        """Every sum of a row errs, and hands its error on."""
        dtype, name = node.bodies[0].dtype, node.combiner.name
        if name not in ("sum", "prod", "max", "min") or len(parts) != 1:
            order = self._number // len(_CYCLE)
            return self._in_runs(node, parts, _RUNS[order % len(_RUNS)], order // len(_RUNS) % 2 == 1)
        if name in ("max", "min") or not is_float(dtype):  # the same in any order
            return super().prefixes(node, parts)
        register, size = DTYPES[dtype].register, self._amplitude * unit_roundoff(dtype)
        noise = size * self._random.uniform(-1.0, 1.0, parts[0].shape)
        if name == "prod":  # within the range of the dtype, which it may pass on its way
            exact = np.multiply.accumulate(parts[0].astype(numpy_dtype(register)), axis=-1).astype(np.float64)
            return (exact * (1.0 + np.cumsum(noise, axis=-1)),)
        (exact,) = super().prefixes(node, parts)
        known = np.where(np.isfinite(exact), exact, 0.0)
        return (_rounded(exact + np.cumsum(known * noise, axis=-1), register),)

    def _in_runs(self, node: Scan, parts: tuple[Array, ...], length: int, led: bool) -> tuple[Array, ...]:
        """Runs of so many elements, one after the other, then the runs before each, behind the identity where they are
        `led`: what leaves the range of the dtype on its way depends on who is combined with whom."""
        count = parts[0].shape[-1]
        length = min(length, count)
        runs = -(-count // length)
        ends = [np.repeat(part[..., -1:], runs * length - count, axis=-1) for part in parts]
        whole = [np.concatenate([part, end], axis=-1) for part, end in zip(parts, ends, strict=True)]
        split = [part.reshape(*part.shape[:-1], runs, length) for part in whole]
        steps = [tuple(part[..., 0] for part in split)]
        for at in range(1, length):
            steps.append(self.combine(node, steps[-1], tuple(part[..., at] for part in split)))
        own = tuple(np.stack(np.broadcast_arrays(*values), axis=-1) for values in zip(*steps, strict=True))
        if runs > 1:
            before = super().prefixes(node, tuple(part[..., -1] for part in own))
            if led:
                first = tuple(np.asarray(one.value, wide(one.dtype)) for one in node.combiner.identity)
                before = tuple(np.broadcast_to(one, before[0].shape) for one in self.combine(node, first, before))
            behind = tuple(part[..., 1:, :] for part in own)
            joined = self.combine(node, tuple(part[..., :-1, None] for part in before), behind)
            joined = tuple(np.broadcast_to(one, behind[0].shape) for one in joined)
            own = tuple(np.concatenate([part[..., :1, :], one], axis=-2) for part, one in zip(own, joined, strict=True))
        return tuple(part.reshape(*part.shape[:-2], runs * length)[..., :count] for part in own)

    def combine(self, node: Reduce, lhs: tuple[Array, ...], rhs: tuple[Array, ...]) -> tuple[Array, ...]:
        operands = {f"lhs{c}": value for c, value in enumerate(lhs)} | {f"rhs{c}": value for c, value in enumerate(rhs)}
        return tuple(self._combined(value, operands) for value in node.combiner.combine)

    def _combined(self, value: Value, operands: Mapping[str, Array]) -> Array:
        parts = [self._combined(child, operands) for child in value.children()]
        units = 0.0
        match value:
            case Var():
                return operands[value.name]
            case Const():
                return np.asarray(value.value, numpy_dtype(value.dtype)).astype(wide(value.dtype))
            case Cast():
                exact = converted(parts[0], value.dtype)
            case Select():
                return np.where(*parts)
            case Unary(op) | Binary(op):
                exact, units = applied(value, *parts), float(PRIMITIVES[op].ulps)
            case _:
                raise NotImplementedError(type(value).__name__)
        if not is_float(value.dtype) or not (units or isinstance(value, Cast)):
            return exact
        return self._held(self._node(value), exact, self._random.uniform(-1.0, 1.0, np.shape(exact)), units)

    def _node(self, value: Value) -> _Node:
        """What belongs to the operation in this evaluation; kept with it, so that no other has its identity."""
        if id(value) not in self._nodes:
            seed = np.uint64(self._random.integers(1 << 63))
            names = () if isinstance(value, Var) else tuple(sorted(free_axes(value)))
            self._nodes[id(value)] = _Node(value, seed, self._is_wide(seed), names)
        return self._nodes[id(value)]

    def _is_wide(self, seed: np.uint64) -> bool:
        """All or none in the first two evaluations with noise and in the first two without, then as chance has it."""
        number = self._number % _NOISY
        return bool(seed & np.uint64(1)) if number > 1 else number == 0

    def _noise(self, node: _Node, axes: Mapping[str, Array]) -> Array:
        return _uniform(self._places(node, axes))

    def _places(self, node: _Node, axes: Mapping[str, Array], rank: int | None = None) -> Array:
        """A number for every place at which the value has another one; ``rank``: of so many dimensions, those that
        reductions add to the axes (of one element) left out."""
        place = np.full((1,) * (rank or 0), node.seed, np.uint64)
        for name in node.names:
            if name in axes:
                index = np.asarray(axes[name])
                index = index.reshape(index.shape[:rank]) if rank is not None and index.ndim > rank else index
                place = _mixed(place + index.astype(np.uint64))
        return place


def _added(terms: Array, noise: Array) -> tuple[Array, Array]:
    """(the sum over the last axis, the sum of its partial sums' errors, each of which is as large as the noise says):
    in chains no longer than programs have, and their sums again."""
    errors, shape = np.zeros(terms.shape[:-1]), terms.shape[:-1]
    while terms.shape[-1] > 1:
        count = terms.shape[-1]
        blocks = -(-count // LONGEST)
        beyond = [(0, 0)] * len(shape) + [(0, blocks * LONGEST - count if blocks > 1 else 0)]
        partial = np.cumsum(np.pad(terms, beyond).reshape(*shape, blocks, -1), axis=-1)
        known = np.where(np.isfinite(partial), partial, 0.0).reshape(*shape, -1)[..., :count]
        errors = errors + np.sum(known * noise[..., :count], axis=-1)
        terms = partial[..., -1]
    return terms[..., 0], errors


def _extreme_of(terms: Array, fold: Callable[..., Array], negative: bool) -> Array:
    """The largest or smallest over the last axis; where it is a zero and zeros of both signs are there, that of the
    sign asked for."""
    found, minus = fold(terms, axis=-1), np.signbit(terms)
    below, above = (np.any((terms == 0) & signs, axis=-1) for signs in (minus, ~minus))
    return np.where(found == 0, np.where(below & (negative | ~above), -0.0, 0.0), found)


def _product(terms: Array, dtype: str, order: int) -> Array:
    """The product over the last axis within the range of `dtype`: in the order given (``order`` 0), the largest factors
    first (1), the smallest first (2), or what grows and what shrinks each by itself (3)."""
    kind = numpy_dtype(dtype)
    if order in (1, 2):
        size = np.abs(terms)
        terms = np.take_along_axis(terms, np.argsort(size if order == 2 else -size, axis=-1), axis=-1)
    groups = [terms]
    if order == 3:
        grows = np.abs(terms) > 1
        groups = [np.where(grows, terms, 1.0), np.where(grows, 1.0, terms)]
    first, *others = (np.multiply.accumulate(group.astype(kind), axis=-1)[..., -1] for group in groups)
    for other in others:
        first = first * other
    return np.asarray(first, np.float64)


def _rounded(x: Array, dtype: str) -> Array:
    return x.astype(numpy_dtype(dtype)).astype(np.float64)


def _mixed(x: Array) -> Array:
    """One step of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): all 64 bits depend on all."""
    x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(x: Array) -> Array:
    return (_mixed(x) >> np.uint64(11)) * 2.0 ** -52 - 1.0
