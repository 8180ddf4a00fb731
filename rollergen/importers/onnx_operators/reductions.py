"""ONNX reductions, normalisations, losses, and what selects by position along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rollergen import ops
from rollergen.expr import language as rg
from rollergen.expr.dtypes import accumulator_dtype, bounds, is_float
from rollergen.expr.language import Tensor
from rollergen.expr.operators.arguments import count_of
from rollergen.expr.operators.reductions import reduction as reduction_over
from rollergen.importers.onnx_operators.pointwise import pointwise
from rollergen.importers.onnx_operators.selections import same
from rollergen.importers.onnx_operators.table import Node, operator, operators
from rollergen.importers.refusals import Refused


def axes_of(n: Node) -> tuple[int, ...] | None:
    """The axes to reduce; None: none at all (``noop_with_empty_axes``)."""
    axes = n.integers(1, "axes")
    if not axes:
        return None if n.get("noop_with_empty_axes", 0) else tuple(range(n.tensor(0).ndim))
    return axes


def reduction(function: Callable[..., Tensor], before: Any = None, after: Any = None) -> Callable[[Node], Tensor]:
    """A converter: `function` over the node's axes, of and followed by elementwise functions."""

    def convert(n: Node) -> Tensor:
        x = n.tensor(0)
        axes, keep = axes_of(n), bool(n.get("keepdims", 1))
        narrow = x.dtype
        if before is not None:
            wide = accumulator_dtype(narrow) if is_float(narrow) else narrow
            x = pointwise(lambda v: before(rg.cast(v, wide)), x)
        if axes is not None and x.ndim:
            x = function(x, axes, keep)
        if after is not None:
            x = pointwise(after, x)
        return x if x.dtype == narrow else ops.cast(x, narrow)

    return convert


def extreme(function: Callable[..., Tensor]) -> Callable[[Node], Tensor]:
    """Maximum or minimum; of conditions through int32; of nothing, unlike torch's, the end of the dtype's range."""

    def convert(n: Node) -> Tensor:
        x, axes, keep = n.tensor(0), axes_of(n), bool(n.get("keepdims", 1))
        if axes is None:
            return x
        narrow, wide = x.dtype, ops.cast(x, "int32") if x.dtype == "bool" else x
        if count_of(x, axes, n.proto.op_type):
            made = function(wide, axes, keep)
        else:
            least, most = (0, 1) if narrow == "bool" else bounds(narrow)
            combine, identity = (rg.maximum, least) if function is ops.amax else (rg.minimum, most)
            end = lambda v, r: rg.cast(rg.reduce(combine, identity, v, axis=r), wide.dtype)
            made = reduction_over(n.proto.op_type, end, wide, axes, keep, None)
        return made if made.dtype == narrow else ops.cast(made, narrow)

    return convert


def mean(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return ops.mean(x, axes, keep)


for _names, _convert in {
    ("ReduceSum",): reduction(ops.sum),
    ("ReduceMean",): reduction(mean),
    ("ReduceProd",): reduction(ops.prod),
    ("ReduceMax",): extreme(ops.amax),
    ("ReduceMin",): extreme(ops.amin),
    ("ReduceL1",): reduction(ops.sum, before=rg.abs),
    ("ReduceL2",): reduction(ops.sum, before=lambda v: v * v, after=rg.sqrt),
    ("ReduceSumSquare",): reduction(ops.sum, before=lambda v: v * v),
    ("ReduceLogSum",): reduction(ops.sum, before=lambda v: v, after=rg.log),
    ("ReduceLogSumExp",): reduction(ops.logsumexp),
}.items():
    operator(*_names)(_convert)


def position(function: Callable[..., Tensor]) -> Callable[[Node], Tensor]:
    """Arg-extremes; the last of equals is the first of the reversed axis."""

    def convert(n: Node) -> Tensor:
        x, axis, keep = n.tensor(0), n.get("axis", 0), bool(n.get("keepdims", 1))
        if not n.get("select_last_index", 0):
            return function(x, axis, keep)
        axis %= x.ndim
        turned = ops.getitem(x, tuple(np.s_[::-1] if d == axis else np.s_[:] for d in range(x.ndim)))
        return pointwise(lambda v: x.shape[axis] - 1 - v, function(turned, axis, keep))

    return convert


operators(
    ArgMax=position(ops.argmax),
    ArgMin=position(ops.argmin),
    Softmax=lambda n: along_rows(ops.softmax, n),
    LogSoftmax=lambda n: along_rows(ops.log_softmax, n),
)


def along_rows(function: Any, n: Node) -> Tensor:
    """Of one axis; before operator set 13 of all from that axis on, as one."""
    x = n.tensor(0)
    if n.version >= 13:
        made: Tensor = function(x, n.get("axis", -1))
        return made
    axis = n.get("axis", 1) % x.ndim
    return ops.reshape(function(ops.reshape(x, (*x.shape[:axis], -1)), -1), x.shape)


@operator("Hardmax")
def hardmax(n: Node) -> Tensor:
    if n.version < 13:
        raise Refused("attribute", "Hardmax of operator sets before 13")
    x, axis = n.tensor(0), n.get("axis", -1) % n.tensor(0).ndim
    first = ops.argmax(x, axis, True)
    return rg.compute(x.shape, lambda *i: rg.select(same(i[axis], first[without(i, axis)]), 1.0, x[i] * 0))


def without(indices: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """`indices` with 0 along `axis`."""
    return (*indices[:axis], 0, *indices[axis + 1 :])


@operator("LpNormalization")
def lp_normalization(n: Node) -> Tensor:
    x, axis, power = n.tensor(0), n.get("axis", -1), n.get("p", 2)
    size = ops.sum(ops.abs(x) if power == 1 else ops.mul(x, x), axis, True)
    size = size if power == 1 else ops.sqrt(size)
    return pointwise(lambda v, s: rg.select(s == 0, 0, v / s), x, size)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(n: Node) -> Tensor:
    x, axes = n.tensor(0), tuple(n.get("axes", (0, 2, 3)))
    centred = ops.sub(x, ops.mean(x, axes, True))
    deviation = ops.sqrt(ops.mean(ops.mul(centred, centred), axes, True))
    return pointwise(lambda v, d: v / (d + 1e-9), centred, deviation)


def normalised(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + eps) in the accumulator's dtype, the mean, and 1 / sqrt(...)."""
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    average = ops.mean(wide, axes, True)
    centred = ops.sub(wide, average)
    inverse = pointwise(lambda v: rg.rsqrt(v + eps), ops.mean(ops.mul(centred, centred), axes, True))
    return ops.mul(centred, inverse), average, inverse


def scaled(x: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: str) -> Tensor:
    wide = x.dtype
    x = x if scale is None else ops.mul(x, ops.cast(scale, wide))
    x = x if bias is None else ops.add(x, ops.cast(bias, wide))
    return ops.cast(x, dtype)


@operator("LayerNormalization")
def layer_normalization(n: Node) -> Any:
    x, eps = n.tensor(0), n.get("epsilon", 1e-5)
    axis = n.get("axis", -1) % x.ndim
    if not n.wants(1) and n.tensor(1).shape == x.shape[axis:]:
        return ops.layer_norm(x, x.shape[axis:], n.tensor(1), n.optional(2), eps)
    made, average, inverse = normalised(x, tuple(range(axis, x.ndim)), eps)
    return scaled(made, n.tensor(1), n.optional(2), x.dtype), average, inverse


@operator("RMSNormalization")
def rms_normalization(n: Node) -> Tensor:
    x, scale, eps = n.tensor(0), n.tensor(1), n.get("epsilon", 1e-5)
    axis = n.get("axis", -1) % x.ndim
    if scale.shape == x.shape[axis:]:
        return ops.rms_norm(x, x.shape[axis:], scale, eps)
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    square = ops.mean(ops.mul(wide, wide), tuple(range(axis, x.ndim)), True)
    return scaled(pointwise(lambda v, s: v * rg.rsqrt(s + eps), wide, square), scale, None, x.dtype)


@operator("InstanceNormalization")
def instance_normalization(n: Node) -> Tensor:
    x = n.tensor(0)
    made, _, _ = normalised(x, tuple(range(2, x.ndim)), n.get("epsilon", 1e-5))
    return scaled(made, along(n.tensor(1), 1, x.ndim), along(n.tensor(2), 1, x.ndim), x.dtype)


@operator("GroupNormalization")
def group_normalization(n: Node) -> Tensor:
    x, groups = n.tensor(0), n.get("num_groups")
    batch, channels, *rest = x.shape
    if n.tensor(1).shape != (channels,):
        raise Refused("attribute", "a scale for each group, of operator sets before 21")
    split = ops.reshape(x, (batch, groups, channels // groups, *rest))
    made, _, _ = normalised(split, tuple(range(2, split.ndim)), n.get("epsilon", 1e-5))
    made = ops.reshape(made, x.shape)
    return scaled(made, along(n.tensor(1), 1, x.ndim), along(n.tensor(2), 1, x.ndim), x.dtype)


def along(vector: Tensor, axis: int, rank: int) -> Tensor:
    """A vector along one of `rank` axes, the others of extent 1."""
    return ops.reshape(vector, tuple(vector.shape[0] if d == axis else 1 for d in range(rank)))


@operator("BatchNormalization")
def batch_normalization(n: Node) -> Any:
    x, scale, bias, average, variance = (n.tensor(i) for i in range(5))
    eps, momentum = n.get("epsilon", 1e-5), n.get("momentum", 0.9)
    if not n.get("training_mode", 0):
        return ops.batch_norm(x, average, variance, scale, bias, eps=eps)
    axes = tuple(d for d in range(x.ndim) if d != 1)
    made, own, _ = normalised(x, axes, eps)
    spread = ops.var(x, axes, correction=0)
    moving = lambda old, new: pointwise(lambda a, b: a * momentum + b * (1 - momentum), old, new)
    made = scaled(made, along(scale, 1, x.ndim), along(bias, 1, x.ndim), x.dtype)
    return made, moving(average, ops.reshape(own, average.shape)), moving(variance, spread)


@operator("LRN")
def local_response_normalization(n: Node) -> Tensor:
    x, size = n.tensor(0), n.get("size")
    before, channels = (size - 1) // 2, x.shape[1]
    window = rg.reduce_axis("window", size)

    def total(b: Any, c: Any, *rest: Any) -> Any:
        at = c + window - before
        value = x[(b, at, *rest)]
        return rg.sum(rg.select((at >= 0) & (at < channels), value * value, 0), axis=window)

    alpha, beta, bias = n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    return pointwise(lambda v, s: v / rg.pow(s * (alpha / size) + bias, beta), x, rg.compute(x.shape, total))


def cumulative(function: Callable[..., Tensor]) -> Callable[[Node], Tensor]:
    """Running totals along the axis that the second operand holds."""

    def convert(n: Node) -> Tensor:
        x, ways = n.tensor(0), {way: bool(n.get(way, 0)) for way in ("exclusive", "reverse")}
        return function(x, int(n.known(1)), dtype=x.dtype, **ways)

    return convert


operator("CumSum")(cumulative(ops.cumsum))
operator("CumProd")(cumulative(ops.cumprod))


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(n: Node) -> Tensor:
    return likelihood_loss(n, n.tensor(0), n.tensor(1), n.optional(2))


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(n: Node) -> Any:
    logarithms = ops.log_softmax(n.tensor(0), 1)
    return likelihood_loss(n, logarithms, n.tensor(1), n.optional(2)), logarithms


def likelihood_loss(n: Node, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """-x[n, target[n, ...], ...] * weight[target], reduced; a class that is not there selects nothing."""
    classes, ignored = x.shape[1], n.get("ignore_index")
    c = rg.reduce_axis("class", classes)

    def counted(i: tuple[Any, ...], value: Any) -> Any:
        chosen = same(c, target[i])
        if ignored is not None:
            chosen = chosen & (target[i] != ignored)
        return rg.sum(rg.select(chosen, value, 0), axis=c, dtype=x.dtype)

    factor = (lambda: weight[c]) if weight is not None else (lambda: 1.0)
    one = lambda: rg.cast(factor(), x.dtype)
    losses = rg.compute(target.shape, lambda *i: counted(i, -x[(i[0], c, *i[1:])] * one()))
    how = n.get("reduction", "mean")
    if how == "none":
        return losses
    if how == "sum" or (weight is None and ignored is None):
        return ops.sum(losses) if how == "sum" else ops.mean(losses)
    weights = rg.compute(target.shape, lambda *i: counted(i, one()))
    return ops.div(ops.sum(losses), ops.sum(weights))


@operator("TopK")
def top_k(n: Node) -> Any:
    """By ranks: how many elements come before each; for short axes."""
    x = n.tensor(0)
    axis, count = n.get("axis", -1) % x.ndim, int(n.known(1, "k").reshape(()))
    if not n.get("sorted", 1):
        raise Refused("attribute", "sorted=0: any order will do")
    k, other = rg.reduce_axis("place", x.shape[axis]), rg.reduce_axis("other", x.shape[axis])
    largest = n.get("largest", 1)

    def rank(*i: Any) -> Any:
        mine, theirs = x[i], x[(*i[:axis], other, *i[axis + 1 :])]
        better = theirs > mine if largest else theirs < mine
        before = better | ((theirs == mine) & (other < i[axis]))
        return rg.sum(rg.select(before, 1, 0), axis=other)

    ranks = rg.compute(x.shape, rank)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])

    def chosen(value: Callable[[tuple[Any, ...]], Any], dtype: str) -> Tensor:
        def element(*i: Any) -> Any:
            at = (*i[:axis], k, *i[axis + 1 :])
            return rg.sum(rg.select(same(i[axis], ranks[at]), value(at), 0), axis=k, dtype=dtype)

        return rg.compute(shape, element)

    return chosen(lambda at: x[at], x.dtype), chosen(lambda at: rg.cast(k, "int64"), "int64")
