"""Two contractions as one stage: the sums of an inner one (scores) weigh the terms of an outer one (attention).

Before: ``sum(exp(t[j] - max(t)) * (1 / sum(exp(t - max(t)))) * v[j, e], axis=j)`` with scores ``t[j] = f(s[j])`` of an
inner contraction ``s[j] = sum(q[i, d] * k[j, d], axis=d)``, each of these a stage.
After: the result ``r2 * (1 / r1[1])`` of the reductions ``r0 = s[j]`` over d, ``r1 = online(f(r0), 1)`` and
``r2 = sum(exp(f(r0) - r1) * v[j, e])`` over j.  Weights that need nothing of their row (a sigmoid) lack r1.

Weights that are rounded to the dtype of what they weigh (float16, bfloat16) are rounded before they are divided by
their sum, as matrix instructions want them: the relative error is the same.

A program adds up r2 with the largest score so far, and shrinks its sums where a larger one is found: T. Dao and others,
FlashAttention, arXiv 2205.14135 (2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rollergen.expr.guards import secured
from rollergen.expr.index import Index
from rollergen.expr.inlining import Expansion, reductions_of, substitute
from rollergen.expr.language import Tensor
from rollergen.expr.reads import computed_tensors
from rollergen.expr.reductions import Reduce, free_axes
from rollergen.expr.rows import online_combiner
from rollergen.expr.tensor_op import Reduction
from rollergen.expr.values import (
    Binary,
    Cast,
    Const,
    IndexValue,
    Partial,
    Select,
    Unary,
    Value,
    loads,
    multiplied,
    named_combiner,
    takes,
    transform,
    walk,
)
from rollergen.hal.dataclass import dataclass

SCORE, ROW, SUM = "r0", "r1", "r2"
"""The names of a chain's reductions: the inner contraction, the largest score with the sum of weights, the result."""

_DTYPE = "float32"
_NARROW = ("float16", "bfloat16")
_DTYPES = (_DTYPE, *_NARROW, "bool", "int32", "int64")


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain's reductions and what is computed of them; ``reduce`` and ``inner``: (name, extent) of their axes."""

    result: Value
    reductions: tuple[Reduction, ...]
    reduce: tuple[tuple[str, int], ...]
    inner: tuple[tuple[str, int], ...]


def chain_of(expansion: Expansion, lone_rows: bool = False) -> Chain | None:
    """`expansion` as a chain of two contractions; None where it is none.  ``lone_rows``: a single row may be one.

    Guarded loads, elements that are taken and results that read tensors are left to stages of their own.
    """
    outer = _outermost(expansion)
    if outer is None or 0 in expansion.extents.values() or takes(expansion.body):
        return None
    if _has_guards(expansion):
        return None
    ((key, _),) = outer.axes
    rows = _Rows(key)
    body = rows.named(outer.bodies[0])
    factors = list(_factors(body))
    result = rows.named(transform(expansion.body, lambda node: Partial(SUM, _DTYPE) if node == outer else None))
    inner = {node.key: node for factor, _ in factors for node in reductions_of(factor)}
    if len(inner) != 1 or not rows.are_one():
        return None
    (contraction,) = inner.values()
    kept, finish = _parted([(transform(factor, _score), how) for factor, how in factors], key)
    finished = _finished(finish)
    result = _with_true_largest(transform(result, lambda node: finished if node == Partial(SUM, _DTYPE) else None))
    pair = () if rows.score is None else (transform(rows.score, _score), Const(1.0, _DTYPE))
    reductions = (
        Reduction(SCORE, contraction.combiner, contraction.bound, contraction.bodies),
        *([Reduction(ROW, online_combiner(_DTYPE), (key,), pair)] if pair else []),
        Reduction(SUM, outer.combiner, (key,), (_product(kept, _rounded_to(body)),)),
    )
    chain = Chain(result, reductions, outer.axes, contraction.axes)
    return chain if _is_sound(chain, expansion, key, lone_rows) else None


def chains_in(outputs: Tensor | Sequence[Tensor]) -> bool:
    """Whether there may be chains at all: `outputs`, with what they are computed of, reduce twice."""
    wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    found = (node for t in computed_tensors(wanted) if t.producer for node in reductions_of(t.producer.body))
    return len(list(islice(found, 2))) == 2


def _has_guards(expansion: Expansion) -> bool:
    """Whether a load is guarded, or gets a guard (`guards.push_guards`): one of a padded row may lie outside its tensor
    where a condition around it does not hold, and a chain takes conditions out of its sums."""
    ranges = {name: (0, extent - 1) for name, extent in expansion.extents.items()}
    return any(load.guard or secured(load, ranges) for load in loads(expansion.body))


def _outermost(expansion: Expansion) -> Reduce | None:
    """The one sum, over one axis, that has a value for every point of the result and holds other reductions."""
    spatial = {name for name, extent in expansion.axes if extent > 1}
    found = {node.key: node for node in _outer_reductions(expansion.body) if spatial <= free_axes(node)}
    if len(found) != 1:
        return None
    (outer,) = found.values()
    plain = outer.combiner == named_combiner("sum", _DTYPE) and len(outer.axes) == 1
    return outer if plain and any(reductions_of(outer.bodies[0])) else None


def _outer_reductions(value: Value) -> Iterator[Reduce]:
    if isinstance(value, Reduce):
        yield value
        return
    for child in value.children():
        yield from _outer_reductions(child)


_MULTIPLIED, _DIVIDED, _CHOSEN = "mul", "div", "select"


def _factors(value: Value) -> Iterator[tuple[Value, str]]:
    """What makes a term, with how: factors, divisors, conditions without which it is 0."""
    match value:
        case Cast() if value.dtype == value.x.dtype:
            yield from _factors(value.x)
        case Cast(x=Cast(x=inner)) if _rounds_weights(value):
            yield from _factors(inner)
        case Binary(op="mul"):
            yield from _factors(value.a)
            yield from _factors(value.b)
        case Binary(op="div"):
            yield from _factors(value.a)
            yield value.b, _DIVIDED
        case Select() if value.b == Const(0.0, value.dtype):
            yield value.cond, _CHOSEN
            yield from _factors(value.a)
        case Select() if value.a == Const(0.0, value.dtype):
            yield Unary("not", value.cond, "bool"), _CHOSEN
            yield from _factors(value.b)
        case _:
            yield value, _MULTIPLIED


def _rounds_weights(value: Value) -> bool:
    """Whether it is weights of a row, whose largest score is known, rounded to fewer bits."""
    match value:
        case Cast(x=Cast(x=inner, dtype=narrow)) if narrow in _NARROW and value.dtype == inner.dtype == _DTYPE:
            return any(_is_exponential(node) for node in walk(inner))
    return False


def _rounded_to(body: Value) -> str:
    """The dtype that a term's weights of a row are rounded to; empty: none."""
    found = [one.x.dtype for one in multiplied(body) if isinstance(one, Cast) and _rounds_weights(one)]
    return found[0] if len(found) == 1 else ""


def _is_exponential(value: Value) -> bool:
    below = value.x if isinstance(value, Unary) and value.op == "exp" else None
    return isinstance(below, Binary) and below.op == "sub" and below.b == Partial(ROW, _DTYPE)


class _Rows:
    """What reductions over whole rows of scores there are: their largest, and the sum of weights.

    ``score``: what the largest is found of, in terms of ``key``.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._largest: list[Value] = []
        self._totals: list[Value] = []

    @property
    def score(self) -> Value | None:
        return self._largest[0] if self._largest else None

    def named(self, value: Value) -> Value:
        """`value` with them as `Partial` values."""
        return transform(value, self._change)

    def _change(self, node: Value) -> Value | None:
        if self._is_largest_again(node):
            return Partial(ROW, _DTYPE)
        if not isinstance(node, Reduce) or len(node.axes) != 1 or self._key in free_axes(node):
            return None
        over = substitute(node.bodies[0], {node.bound[0]: Index.axis(self._key)})
        if node.combiner == named_combiner("max", _DTYPE) and any(reductions_of(over)):
            self._largest.append(over)
            return Partial(ROW, _DTYPE)
        if node.combiner == named_combiner("sum", _DTYPE) and _reads_row(over):
            self._totals.append(over)
            return Partial(ROW, _DTYPE, 1)
        return None

    def _is_largest_again(self, node: Value) -> bool:
        """Whether it is the largest score rounded to the dtype that all scores already have."""
        match node, self.score:
            case Cast(x=Cast(x=inner, dtype=narrow)), Cast(x=score):
                return inner == Partial(ROW, _DTYPE) and node.dtype == _DTYPE and score.dtype == narrow
        return False

    def are_one(self) -> bool:
        """Whether they are of the same scores, and the weights the exponentials of the differences to the largest."""
        if not self._largest:
            return True
        weight = exponential(self._largest[0])
        return all(one == self._largest[0] for one in self._largest) and all(one == weight for one in self._totals)


def exponential(score: Value) -> Value:
    """The weight of a score in a row whose largest is known."""
    return Unary("exp", Binary("sub", score, Partial(ROW, _DTYPE), _DTYPE), _DTYPE)


def _score(node: Value) -> Value | None:
    return Partial(SCORE, _DTYPE) if isinstance(node, Reduce) else None


def _parted(factors: list[tuple[Value, str]], key: str) -> tuple[list[Value], list[tuple[Value, str]]]:
    """(factors that differ from key to key, the others, to be applied to the sum)."""
    kept: list[Value] = []
    finish: list[tuple[Value, str]] = []
    for value, how in factors:
        if not _varies(value, key):
            finish.append((value, how))
        elif how == _MULTIPLIED:
            kept.append(value)
        elif how == _DIVIDED:
            kept.append(Binary("div", Const(1.0, _DTYPE), value, _DTYPE))
        else:
            kept.append(Select(value, Const(1.0, _DTYPE), Const(0.0, _DTYPE), _DTYPE))
    return kept, finish


def _varies(value: Value, key: str) -> bool:
    return key in free_axes(value) or any(isinstance(node, Partial) and node.name == SCORE for node in walk(value))


def _product(factors: list[Value], narrow: str) -> Value:
    """The weights' product, rounded to that dtype (empty: as it is), times that of the others."""
    weights = [one for one in factors if any(isinstance(node, Partial) for node in walk(one))]
    others = [one for one in factors if one not in weights]
    if weights and narrow:
        weights = [rounded_weight(_multiplied(weights), narrow)]
    return _multiplied([*weights, *others])


def _multiplied(factors: list[Value]) -> Value:
    product, *left = factors
    for one in left:
        product = Binary("mul", product, one, _DTYPE)
    return product


def rounded_weight(weight: Value, narrow: str) -> Value:
    """A weight rounded to `narrow` where it is multiplied."""
    return Cast(Cast(weight, narrow), _DTYPE)


def _finished(finish: list[tuple[Value, str]]) -> Value:
    """The sum with what is the same for all keys of a row."""
    value: Value = Partial(SUM, _DTYPE)
    for other, how in reversed(finish):
        if other == Const(1.0, _DTYPE):
            continue
        if how == _CHOSEN:
            value = Select(other, value, Const(0.0, _DTYPE), _DTYPE)
        else:
            value = Binary(how, value, other, _DTYPE)
    return value


def _with_true_largest(result: Value) -> Value:
    """`result` with the largest score as the definition has it, which the pair holds as its least number where all are
    -inf, and need not hold where one is NaN: then the sum of weights is 0, or NaN."""
    most, total = Partial(ROW, _DTYPE), Partial(ROW, _DTYPE, 1)
    infinite = Const(math.inf, _DTYPE)
    nan = Binary("add", most, Binary("sub", total, total, _DTYPE), _DTYPE)
    known = Select(Binary("eq", most, infinite, "bool"), most, nan, _DTYPE)
    none = Binary("eq", total, Const(0.0, _DTYPE), "bool")
    true = Select(none, Const(-math.inf, _DTYPE), known, _DTYPE)
    return transform(result, lambda node: true if node == most else None)


def _is_sound(chain: Chain, expansion: Expansion, key: str, lone_rows: bool) -> bool:
    """Whether the chain can be computed block by block: the weights do not depend on the columns that they weigh, the
    inner factors are one of the rows and one of the keys, everything is float32, and the result reads no tensor."""
    inner, *rows, outer = chain.reductions
    values = [body for one in chain.reductions for body in one.bodies]
    every = [node for value in (*values, chain.result) for node in walk(value)]
    if any(isinstance(node, IndexValue) for value in inner.bodies for node in walk(value)):
        return False
    if any(isinstance(node, Reduce) or node.dtype not in _DTYPES for node in every) or loads(chain.result):
        return False
    weights, others = split_factors(outer.bodies[0])
    factors = tuple(multiplied(inner.bodies[0]))
    if not weights or not others or len(factors) != 2 or inner.combiner != named_combiner("sum", _DTYPE):
        return False
    if rows and (len(weights) > 1 or unrounded(weights[0]) != exponential(rows[0].bodies[0])):
        return False
    of_keys = [key in free_axes(one) for one in factors]
    if sum(of_keys) != 1 or not all({name for name, _ in chain.inner} <= free_axes(one) for one in factors):
        return False
    spatial = {name for name, extent in expansion.axes if extent > 1}
    weighed = _axes(others)
    columns = spatial - _axes(factors) - _axes(weights) - _axes(rows[0].bodies if rows else ())
    own = (spatial & free_axes(factors[of_keys.index(False)])) - free_axes(factors[of_keys.index(True)]) - weighed
    return bool(columns) and bool(own or lone_rows) and columns <= weighed and key in weighed


def _axes(values: Iterable[Value]) -> frozenset[str]:
    return frozenset().union(*map(free_axes, values))


def _reads_row(value: Value) -> bool:
    return any(isinstance(node, Partial) and node.name == ROW for node in walk(value))


def split_factors(body: Value) -> tuple[list[Value], list[Value]]:
    """(weights: factors that know the inner contraction, the others) of an outer contraction's body."""
    factors = list(multiplied(body))
    weights = [one for one in factors if any(isinstance(node, Partial) for node in walk(one))]
    return weights, [one for one in factors if one not in weights]


def unrounded(weight: Value) -> Value:
    """What is rounded to a narrow dtype where it is; else the value itself."""
    match weight:
        case Cast(x=Cast(x=inner, dtype=narrow)) if narrow in _NARROW and weight.dtype == inner.dtype == _DTYPE:
            return inner
    return weight
