"""No candidate of any operator is predicted below the roofline, whatever its sizes.

Sizes are random, up to tens of millions of elements, where predictions come near the bound; nothing is run.  The bytes
of the bound are counted here, from the operator's arguments: every element that it needs, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rollergen as rg
from rollergen.construct import construct
from rollergen.errors import ShapeError
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import ITEMSIZE
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.program.model import predict_stage
from rollergen.program.model.roofline import multiply_add_seconds

T, ops = rg.tensor, rg.ops
DEVICES = ("v100", "a100", "h200", "k80", "mi50")
MOST = 1 << 24
"""Elements of the largest tensor that is asked for."""

SIZES = (1024, 231, 100, 4096, 57, 16, 3, 1)
"""Where Hypothesis begins, and where it goes."""


class Sizes:
    """What Hypothesis draws for an operator: extents whose product stays below `MOST`."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw, self._left = draw, MOST

    def one(self, *of: int) -> int:
        found = min(self.draw(st.sampled_from(of or SIZES)), self._left)
        self._left //= found
        return found

    def free(self, *of: int) -> int:
        """One that does not count: of products and their kind."""
        return self.draw(st.sampled_from(of or SIZES))

    def shape(self, least: int = 1, most: int = 3) -> tuple[int, ...]:
        return tuple(self.one() for _ in range(self.draw(st.sampled_from(range(most, least - 1, -1)))))

    def axis(self, shape: Sequence[int]) -> int:
        return self.draw(st.sampled_from(range(len(shape) - 1, -1, -1)))

    def dtype(self, *of: str) -> str:
        return self.draw(st.sampled_from(of or ("float32", "float16", "float64", "bfloat16")))


@dataclass(frozen=True)
class Drawn:
    """An expression; ``read``: elements that it needs of inputs of which it does not need all."""

    expression: Any
    read: dict[str, int] = field(default_factory=dict)


Make = Callable[[Sizes], Any]


BINARY_FORMULAS = tuple(name for name, row in FORMULAS.items() if row.operands == 2)


def dtypes_of(name: str) -> tuple[str, ...]:
    integers = FORMULAS.get(name) and FORMULAS[name].takes == "integer"
    return ("int32", "uint8", "int64") if integers else ("float32", "float16", "float64", "bfloat16")


def unary(name: str) -> Make:
    return lambda s: getattr(ops, name)(T("x", s.shape(), s.dtype(*dtypes_of(name))))


def binary(name: str) -> Make:
    def make(s: Sizes) -> Any:
        shape, dtype = s.shape(), s.dtype(*dtypes_of(name))
        other = s.draw(st.sampled_from((shape, shape[-1:], (*shape[:-1], 1))))
        return getattr(ops, name)(T("x", shape, dtype), T("y", other, dtype))

    return make


def compared(name: str) -> Make:
    def make(s: Sizes) -> Any:
        shape, dtype = s.shape(), s.dtype("float32", "float16")
        return getattr(ops, name)(T("x", shape, dtype), T("t", shape, dtype))

    return make


def classified(name: str) -> Make:
    def make(s: Sizes) -> Any:
        rows, classes = s.one(4096, 2), s.one(999, 2)
        # Of log-probabilities only those that targets choose are needed.
        read = {"x": rows} if name == "nll_loss" else {}
        return Drawn(getattr(ops, name)(T("x", (rows, classes)), T("t", (rows,), "int64")), read)

    return make


def over(name: str) -> Make:
    def make(s: Sizes) -> Any:
        shape = s.shape()
        x = T("x", shape, s.dtype("float32", "float16"))
        return getattr(ops, name)(x, s.axis(shape))

    return make


def product(s: Sizes) -> Any:
    m, k, n, dtype = s.free(), s.free(), s.free(), s.dtype("float32", "float16", "bfloat16", "int8")
    a, b = T("a", (m, k), dtype), T("b", (k, n), dtype)
    return ops.matmul(a, b)


def batched(s: Sizes) -> Any:
    batch, m, k, n = s.free(8, 3, 1), s.free(), s.free(128, 31), s.free()
    dtype = s.dtype("float32", "float16")
    return ops.batch_matmul(T("a", (batch, m, k), dtype), T("b", (batch, k, n), dtype))


def linear(s: Sizes) -> Any:
    rows, inner, columns = s.free(), s.free(512, 33), s.free()
    return ops.linear(T("x", (rows, inner)), T("w", (columns, inner)), T("c", (columns,)))


def quantized(s: Sizes) -> Any:
    m, k, n = s.free(), s.free(512, 33), s.free()
    return ops.quantized_matmul(T("a", (m, k), "int8"), T("b", (k, n), "int8"), T("sa", (m,)), T("sb", (n,)))


def covered(extent: int, out: int, kernel: int, stride: int, padding: int = 0) -> int:
    """Elements of a dimension that some window reads."""
    places = {i * stride + k - padding for i in range(out) for k in range(kernel)}
    return sum(0 <= place < extent for place in places)


def images(s: Sizes, rank: int = 2) -> tuple[int, tuple[int, ...], int, int, int]:
    """Batch, extents of an image, filter's extent, stride and padding."""
    batch = s.one(32, 1, 7)
    extents = tuple(s.one(56, 28, 15, 7) if rank < 3 else s.one(16, 9) for _ in range(rank))
    kernel = s.draw(st.sampled_from((3, 1, 5, 2)))
    return batch, extents, kernel, s.draw(st.sampled_from((1, 2, 3))), s.draw(st.sampled_from((kernel // 2, 0)))


def windows(expression: Any, batch: int, channels: int, extents: Sequence[int], *of: int) -> Drawn:
    """An operator on windows, which may leave some of the image out; ``of``: extent, stride and padding."""
    outs = expression.shape[2:]
    return Drawn(
        expression, {"x": batch * channels * prod(covered(e, o, *of) for e, o in zip(extents, outs, strict=True))}
    )


def convolution(name: str, rank: int) -> Make:
    def make(s: Sizes) -> Drawn:
        batch, extents, kernel, stride, padding = images(s, rank)
        channels, filters = s.one(64, 3, 33), s.draw(st.sampled_from((64, 7, 128)))
        dtype = s.dtype("float32", "float16") if rank == 2 else "float32"
        x, w = T("x", (batch, channels, *extents), dtype), T("w", (filters, channels, *[kernel] * rank), dtype)
        made = getattr(ops, name)(x, w, stride=stride, padding=padding)
        return windows(made, batch, channels, extents, kernel, stride, padding)

    return make


def depthwise(s: Sizes) -> Drawn:
    batch, extents, kernel, stride, padding = images(s)
    channels = s.one(168, 5)
    x, w = T("x", (batch, channels, *extents)), T("w", (channels, 1, kernel, kernel))
    made = ops.depthwise_conv2d(x, w, stride=stride, padding=padding)
    return windows(made, batch, channels, extents, kernel, stride, padding)


def transposed(rank: int) -> Make:
    def make(s: Sizes) -> Any:
        batch, extents, kernel, stride, _ = images(s, rank)
        channels = s.one(64, 5)
        x, w = T("x", (batch, channels, *extents)), T("w", (channels, 32, *[kernel] * rank))
        return getattr(ops, f"conv_transpose{rank}d")(x, w, stride=min(stride, kernel))

    return make


def pooling(name: str, rank: int) -> Make:
    def make(s: Sizes) -> Drawn:
        batch, extents, kernel, stride, padding = images(s, rank)
        channels = s.one(168, 5)
        made = getattr(ops, name)(T("x", (batch, channels, *extents)), kernel, stride=stride, padding=padding)
        return windows(made, batch, channels, extents, kernel, stride, padding)

    return make


def of_images(name: str) -> Make:
    return lambda s: getattr(ops, name)(T("x", (s.one(32, 1), s.one(168, 5), s.one(56, 7), s.one(56, 7))))


def normalized(name: str) -> Make:
    def make(s: Sizes) -> Any:
        shape = s.shape(2)
        return getattr(ops, name)(T("x", shape), shape[-1], T("w", shape[-1:]))

    return make


def by_channel(s: Sizes) -> Any:
    channels, shape = s.one(256, 5), (s.one(32, 1), s.one(56, 7), s.one(56, 7))
    x = T("x", (shape[0], channels, *shape[1:]))
    return ops.batch_norm(x, *(T(name, (channels,)) for name in ("mean", "var", "weight", "bias")))


def biased(s: Sizes) -> Any:
    shape = s.shape(2)
    return ops.bias_add(T("x", shape), T("b", shape[1:2]))


def attention(s: Sizes) -> Any:
    heads, rows, columns, inner = s.free(16, 3), s.free(512, 57), s.free(512, 57), s.free(64, 31)
    made = (T(name, (heads, extent, inner)) for name, extent in (("q", rows), ("k", columns), ("v", columns)))
    return ops.attention(*made)


def chosen(s: Sizes) -> Any:
    shape = s.shape()
    return ops.where(T("c", shape, "bool"), T("x", shape), T("y", shape))


def moved(s: Sizes) -> Any:
    shape = s.shape(2)
    return ops.permute(T("x", shape, s.dtype()), s.draw(st.permutations(range(len(shape)))))


def turned(s: Sizes) -> Any:
    return ops.t(T("x", s.shape(2, 2), s.dtype()))


def reshaped(s: Sizes) -> Any:
    shape = s.shape(2)
    return ops.reshape(T("x", shape), (shape[-1], -1))


def expanded(s: Sizes) -> Any:
    shape = s.shape(2)
    return ops.expand(T("x", (1, *shape[1:])), shape)


def joined(s: Sizes) -> Any:
    shape = s.shape(2)
    return ops.concat([T("x", shape), T("y", shape)], s.axis(shape))


def sliced(s: Sizes) -> Drawn:
    shape, step = s.shape(1), s.draw(st.sampled_from((2, 1, -1, 3)))
    made = ops.getitem(T("x", shape), (..., slice(None, None, step)))
    return Drawn(made, {"x": prod(made.shape)})


def halved(s: Sizes) -> Drawn:
    made = ops.split(T("x", (2 * s.one(), s.one())), 1)[0]
    return Drawn(made, {"x": prod(made.shape)})


def padded(s: Sizes) -> Any:
    return ops.pad(x := T("x", s.shape()), (1, 1) * x.ndim, s.draw(st.sampled_from(("constant", "replicate", "circular"))))


def upsampled(s: Sizes) -> Any:
    return ops.upsample_nearest(T("x", (s.one(16, 1), s.one(64, 3), s.one(28, 7), s.one(28, 7))), scale_factor=2)


MAPS = ("abs", "gelu", "leaky_relu", "neg", "relu", "round", "sigmoid", "silu",
        *(name for name in ops.ELEMENTWISE if name != "threshold" and name not in BINARY_FORMULAS))  # fmt: skip
PAIRS = (*BINARY_FORMULAS, "add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "not_equal", "less", "less_equal",
         "greater", "greater_equal")  # fmt: skip
REDUCTIONS = ("any", "all", "sum", "prod", "amax", "amin", "mean", "var", "std", "logsumexp", "argmax", "argmin", "softmax",
              "log_softmax")  # fmt: skip

OPERATORS: dict[str, Make] = {
    **{name: unary(name) for name in MAPS},
    **{name: binary(name) for name in PAIRS},
    **{name: over(name) for name in REDUCTIONS},
    **{name: over(name) for name in ("cumsum", "cumprod", "logcumsumexp")},
    "cummax": lambda s: ops.cummax(T("x", shape := s.shape()), s.axis(shape)).indices,
    "cummin": lambda s: ops.cummin(T("x", shape := s.shape()), s.axis(shape)).values,
    **{f"conv{rank}d": convolution(f"conv{rank}d", rank) for rank in (1, 2, 3)},
    **{f"{how}_pool{rank}d": pooling(f"{how}_pool{rank}d", rank) for how in ("max", "avg") for rank in (1, 2, 3)},
    **{name: of_images(name) for name in ("global_avg_pool", "global_max_pool")},
    **{name: normalized(name) for name in ("layer_norm", "rms_norm")},
    "matmul": product, "mm": product, "batch_matmul": batched, "bmm": batched,
    "max": lambda s: ops.max(T("x", s.shape())), "min": lambda s: ops.min(T("x", s.shape())), "linear": linear, "quantized_matmul": quantized, "where": chosen,
    "depthwise_conv2d": depthwise, **{f"conv_transpose{rank}d": transposed(rank) for rank in (1, 2, 3)}, "batch_norm": by_channel, "bias_add": biased,
    "scaled_dot_product_attention": attention, "permute": moved, "transpose": moved, "t": turned, "reshape": reshaped, "flatten": lambda s: ops.flatten(T("x", s.shape())), "squeeze": lambda s: ops.squeeze(T("x", (1, *s.shape()))),
    "unsqueeze": lambda s: ops.unsqueeze(T("x", s.shape()), 0), "expand": expanded, "concat": joined,
    "getitem": sliced, "slice": sliced, "pad": padded, "interpolate": upsampled, "resize": upsampled, "upsample_nearest": upsampled,
    **{name: lambda s, name=name, a=a: getattr(ops, name)(T("x", s.shape(2)), *a) for name, a in {
        "tile": ((2, 1),), "repeat": ((2, 1, 1),), "flip": (0,), "roll": (1,), "tril": (), "triu": (),
    }.items()},
    **{f"adaptive_{how}_pool{rank}d": lambda s, how=how, rank=rank: getattr(ops, f"adaptive_{how}_pool{rank}d")(
        T("x", (s.one(32, 1), s.one(168, 5), *(s.one(28, 7) for _ in range(rank)))), 3)
        for how in ("avg", "max") for rank in (1, 2, 3)},
    "group_norm": lambda s: ops.group_norm(T("x", (s.one(32, 1), 8 * s.one(8, 1), s.one())), 4),
    "instance_norm": lambda s: ops.instance_norm(T("x", (s.one(32, 1), s.one(64, 5), s.one(231, 100)))),
    "local_response_norm": lambda s: ops.local_response_norm(T("x", (s.one(32, 1), s.one(64, 5), s.one(231, 100))), 3),
    "split": halved, "chunk": halved, "stack": lambda s: ops.stack([T("x", s.shape(1, 2)), T("y", (1,))][:1], 1),
    "select_scatter": lambda s: ops.select_scatter(T("x", (64, s.one(999, 33))), T("y", (s.one(999, 33),)), 0, 3),
    "slice_scatter": lambda s: ops.slice_scatter(T("x", (s.one(4096, 9) + 5, s.one(999, 33))), T("y", (5, s.one(999, 33))), 0, 2, 7),
    "full": lambda s: ops.full(s.shape(2), 3.0), "eye": lambda s: ops.eye(s.one(4096, 9), s.one(999, 33)),
    "arange": lambda s: ops.arange(s.one(4096, 9)), "linspace": lambda s: ops.linspace(0, 1, s.one(4096, 9)),
    "meshgrid": lambda s: ops.meshgrid(T("a", (s.one(4096, 9),)), T("b", (s.one(999, 33),)))[0],
    "one_hot": lambda s: ops.one_hot(T("x", s.shape(), "int32"), 7),
    "embedding": lambda s: Drawn(ops.embedding(T("i", (s.one(4096, 9),), "int64"), T("w", (30000, s.one(999, 33)))), {"w": 0}),
    "index_select": lambda s: Drawn(ops.index_select(T("x", (30000, s.one(999, 33))), 0, T("i", (s.one(4096, 9),), "int64")), {"x": 0}),
    "gather": lambda s: Drawn(ops.gather(T("x", (s.one(4096, 9), 3000)), 1, T("i", (s.one(4096, 9), 3), "int64")), {"x": 0}),
    "take_along_dim": lambda s: Drawn(ops.take_along_dim(T("x", (3000, s.one(999, 33))), T("i", (s.one(64, 3), 1), "int64"), 0), {"x": 0}),
    "pixel_shuffle": lambda s: ops.pixel_shuffle(T("x", (s.one(16, 1), 8, s.one(28, 7), s.one(28, 7))), 2),
    "pixel_unshuffle": lambda s: ops.pixel_unshuffle(T("x", (s.one(16, 1), 3, 2 * s.one(28, 7), 2 * s.one(28, 7))), 2),
    "unfold": lambda s: ops.unfold(T("x", (s.one(16, 1), s.one(64, 3), s.one(28, 7), s.one(28, 7))), 3),
    **{name: compared(name) for name in LOSSES},
    "nll_loss": classified("nll_loss"), "cross_entropy": classified("cross_entropy"),
    "einsum": lambda s: ops.einsum("...ij,j->...i", T("x", (s.one(64, 1), s.one(999, 3), 64)), T("w", (64,))),
    "unfold_copy": lambda s: ops.unfold_copy(T("x", (s.one(4096, 9), s.one(4096, 33))), 1, 8, 4),
    "threshold": lambda s: ops.threshold(T("x", s.shape()), 0, 1),
    "prelu": lambda s: ops.prelu(T("x", s.shape()), T("w", (1,))),
    "clip": lambda s: ops.clip(T("x", s.shape()), -1, 1),
    "cast": lambda s: ops.cast(T("x", s.shape()), s.dtype("float16", "float64", "int32")),
    "quantize": lambda s: ops.quantize(T("x", s.shape()), 0.5),
    "dynamic_quantize": lambda s: ops.dynamic_quantize(T("x", s.shape()))[0],
    "quantized_conv2d": lambda s: ops.quantized_conv2d(
        T("x", (1, 16, 14, 14), "uint8"), T("w", (s.free(64), 16, 3, 3), "int8"), 0.5, 0.5, padding=1
    ),
    "dequantize": lambda s: ops.dequantize(T("x", s.shape(), "int8"), 0.5),
}  # fmt: skip


@lru_cache(maxsize=8)
def spec(name: str) -> Any:
    return rg.load_device(name)


def accepted(make: Make, sizes: Sizes) -> Drawn:
    """What is drawn; what the operator refuses (a variance of one element) is no example."""
    try:
        made = make(sizes)
    except ShapeError:
        assume(False)
    return made if isinstance(made, Drawn) else Drawn(made)


def bytes_moved(drawn: Drawn, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Of the operator's arguments, which come from memory, and results, which go there."""
    needed = [(drawn.read.get(one.name, one.elements), one.dtype) for one in inputs]
    return sum(count * ITEMSIZE[dtype] for count, dtype in (*needed, *((one.elements, one.dtype) for one in outputs)))


def assert_above_the_roofline(drawn: Drawn, device: Any) -> None:
    found = construct(canonicalize(drawn.expression), device, top_k=10)
    assert found
    for program in (one.program for one in found):
        seconds = [float(predict_stage(stage, device).seconds) for stage in program.stages]
        arithmetic = [multiply_add_seconds(stage, device) for stage in program.stages]
        assert all(took >= least for took, least in zip(seconds, arithmetic, strict=True))
        nominal = device.backing.bandwidth_nominal_gb_s * 1e9
        assert sum(seconds) >= bytes_moved(drawn, program.inputs, program.outputs) / nominal > 0


@pytest.mark.parametrize("operator", OPERATORS)
@settings(max_examples=2, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.every(13)
def test_no_candidate_is_predicted_below_the_roofline(operator, data):
    drawn = accepted(OPERATORS[operator], Sizes(data.draw))
    for name in DEVICES:
        assert_above_the_roofline(drawn, spec(name))


@pytest.mark.parametrize("name", DEVICES)
def test_the_roofline_is_near_for_what_memory_alone_limits(name):
    """The property could fail: a prediction of half the time would lie below the bound."""
    x, device = T("x", (MOST,)), spec(name)
    (first,) = construct(canonicalize(ops.relu(x)), device, top_k=1)
    least = bytes_moved(Drawn(ops.relu(x)), first.program.inputs, first.program.outputs) / (
        device.backing.bandwidth_nominal_gb_s * 1e9
    )
    assert 0.5 < least / float(predict_stage(first.program.stages[0], device).seconds) < 1


def test_every_operator_of_the_library_is_among_them():
    assert set(OPERATORS) == set(ops.__all__)
