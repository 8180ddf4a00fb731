"""Every operator of `rg.ops` in every dtype at five sizes: what `bench_sweep` builds for every built-in device.

Sizes are two extents, rows and columns, to which each operator adds what else it wants (batches, channels, windows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import rollergen as rg
from rollergen.dropped import every_drop_raises
from rollergen.errors import ConstructionError, DtypeError, RollergenError
from rollergen.expr.dtypes import FLOATS, INTEGERS, ITEMSIZE
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.expr.operators.quantised import FACTORS, STORED

SIZES = ((4, 8), (64, 64), (48, 64), (45, 77), (61, 67))
"""Small, square, uneven powers of two and not, odd, prime."""

DTYPES = tuple(ITEMSIZE)

Make = Callable[[Any, int, int], Any]
"""``make(tensor, rows, columns)``, where ``tensor(name, shape)`` has the dtype at hand."""


@dataclass(frozen=True)
class Case:
    """One operator in one dtype at one size; ``variant``: its axis, its other dtype, its setting."""

    operator: str
    variant: str
    dtype: str
    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"{self.operator}{self.variant and ' ' + self.variant} {self.dtype} {self.rows}x{self.columns}"

    def expression(self) -> Any:
        """Raises a `RollergenError` where the operator refuses the dtype."""
        tensor = lambda name, shape, dtype=self.dtype: rg.tensor(name, shape, dtype)
        return OPERATORS[self.operator][self.variant](tensor, self.rows, self.columns)


_PAIRS = tuple(name for name, row in FORMULAS.items() if row.operands == 2)


def _of_one() -> Iterator[tuple[str, str, Make]]:
    one = (name for name in rg.ops.ELEMENTWISE if name != "threshold" and name not in _PAIRS)
    for name in ("abs", "neg", "round", "sigmoid", "relu", "leaky_relu", "silu", "gelu", *one):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)))
    yield "gelu", "tanh", lambda t, r, c: rg.ops.gelu(t("x", (r, c)), "tanh")
    yield "threshold", "", lambda t, r, c: rg.ops.threshold(t("x", (r, c)), 0, 1)
    yield "prelu", "", lambda t, r, c: rg.ops.prelu(t("x", (r, c)), t("w", (c,)))
    yield "clip", "", lambda t, r, c: rg.ops.clip(t("x", (r, c)), 0, 1)
    for dtype in DTYPES:
        yield "cast", f"to {dtype}", lambda t, r, c, to=dtype: rg.ops.cast(t("x", (r, c)), to)


def _of_two() -> Iterator[tuple[str, str, Make]]:
    for name in (*_PAIRS, "add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "not_equal", "less",
                 "less_equal", "greater", "greater_equal"):  # fmt: skip
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)), t("y", (r, c)))
        yield name, "turned", lambda t, r, c, f=function: f(t("x", (r, c)), rg.ops.t(t("y", (c, r))))
    yield "where", "", lambda t, r, c: rg.ops.where(t("if", (r, c), "bool"), t("x", (r, c)), t("y", (c,)))
    yield "bias_add", "", lambda t, r, c: rg.ops.bias_add(t("x", (2, r, c)), t("b", (r,)))


def _reductions() -> Iterator[tuple[str, str, Make]]:
    for name in ("sum", "mean", "amax", "amin", "prod", "var", "std", "argmax", "argmin", "logsumexp", "any", "all"):
        function = getattr(rg.ops, name)
        for axis in (None, 0, 1):
            yield name, f"axis {axis}", lambda t, r, c, f=function, a=axis: f(t("x", (r, c)), a)
        yield name, "inner axis", lambda t, r, c, f=function: f(t("x", (3, r, c)), 1)
        yield name, "outer axes", lambda t, r, c, f=function: f(t("x", (3, r, c)), (0, 1))
    for name in ("max", "min"):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)))
    for name in ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"):
        function = getattr(rg.ops, name)
        for axis in (0, 1):
            yield name, f"axis {axis}", lambda t, r, c, f=function, a=axis: f(t("x", (r, c)), a)
    for name in ("cummax", "cummin"):
        function = getattr(rg.ops, name)
        for axis in (0, 1):
            yield name, f"axis {axis}", lambda t, r, c, f=function, a=axis: f(t("x", (r, c)), a)[a]


def _normalisations() -> Iterator[tuple[str, str, Make]]:
    weights = lambda t, *shape: (t("w", shape), t("b", shape))
    yield "layer_norm", "", lambda t, r, c: rg.ops.layer_norm(t("x", (r, c)), c, *weights(t, c))
    yield "layer_norm", "of two axes", lambda t, r, c: rg.ops.layer_norm(t("x", (3, r, c)), (r, c))
    yield "group_norm", "", lambda t, r, c: rg.ops.group_norm(t("x", (2, 4, r, c)), 2, *weights(t, 4))
    yield "instance_norm", "", lambda t, r, c: rg.ops.instance_norm(t("x", (2, 3, r, c)))
    yield "local_response_norm", "", lambda t, r, c: rg.ops.local_response_norm(t("x", (2, r, c)), 3)
    yield "rms_norm", "", lambda t, r, c: rg.ops.rms_norm(t("x", (r, c)), c, t("w", (c,)))
    names = ("mean", "var", "w", "b")
    yield "batch_norm", "", lambda t, r, c: rg.ops.batch_norm(t("x", (2, 3, r, c)), *(t(n, (3,)) for n in names))


def _bias(tensor: Any, extent: int) -> Any:
    """Of a product of `tensor`'s dtype: as wide as its sums."""
    wide = {"int8": "int32"}.get(tensor("b", (extent,)).dtype)
    return tensor("b", (extent,), wide) if wide else tensor("b", (extent,))


def _contractions() -> Iterator[tuple[str, str, Make]]:
    yield "matmul", "", lambda t, r, c: rg.ops.matmul(t("a", (r, c)), t("b", (c, r)))
    turned = lambda a, b: rg.ops.matmul(a, b, transpose_a=True, transpose_b=True)
    yield "matmul", "turned", lambda t, r, c: turned(t("a", (c, r)), t("b", (r, c)))
    yield "matmul", "of a column", lambda t, r, c: rg.ops.matmul(t("a", (r, c)), t("b", (c, 1)))
    yield "mm", "", lambda t, r, c: rg.ops.mm(t("a", (r, c)), t("b", (c, r)))
    yield "bmm", "", lambda t, r, c: rg.ops.bmm(t("a", (3, r, c)), t("b", (3, c, r)))
    yield "batch_matmul", "", lambda t, r, c: rg.ops.batch_matmul(t("a", (3, r, c)), t("b", (3, c, r)))
    yield "linear", "", lambda t, r, c: rg.ops.linear(t("x", (2, r, c)), t("w", (r, c)))
    yield "linear", "with a bias", lambda t, r, c: rg.ops.linear(t("x", (2, r, c)), t("w", (r, c)), _bias(t, r))
    head = lambda t, r, c: (t(name, (2, r, c)) for name in ("q", "k", "v"))
    yield "scaled_dot_product_attention", "", lambda t, r, c: rg.ops.attention(*head(t, r, c))
    yield "scaled_dot_product_attention", "causal", lambda t, r, c: rg.ops.attention(*head(t, r, c), is_causal=True)


def _windows() -> Iterator[tuple[str, str, Make]]:
    yield "conv1d", "", lambda t, r, c: rg.ops.conv1d(t("x", (2, r, c)), t("w", (5, r, 3)), None, 1, 1)
    yield "conv2d", "", lambda t, r, c: rg.ops.conv2d(t("x", (1, 4, r, c)), t("w", (8, 4, 3, 3)), padding=1)
    yield "conv2d", "pointwise", lambda t, r, c: rg.ops.conv2d(t("x", (1, r, 4, 8)), t("w", (c, r, 1, 1)), stride=2)
    yield "conv3d", "", lambda t, r, c: rg.ops.conv3d(t("x", (1, 2, 4, r, c)), t("w", (3, 2, 3, 3, 3)), padding=1)
    for rank, image in ((1, ()), (3, (2,))):
        turned = getattr(rg.ops, f"conv_transpose{rank}d")
        yield f"conv_transpose{rank}d", "", lambda t, r, c, f=turned, m=image, k=rank: f(
            t("x", (1, r, *m, *((8, c)[: k - len(m)] if k > 1 else (c,)))), t("w", (r, 3, *(2,) * k)), stride=2
        )
        for how in ("max", "avg"):
            pool = getattr(rg.ops, f"{how}_pool{rank}d")
            yield f"{how}_pool{rank}d", "", lambda t, r, c, f=pool, m=image, k=rank: f(
                t("x", (2, r, *m, *((8, c)[: k - len(m)] if k > 1 else (c,)))), 2, 2
            )
    twice = lambda x, w: rg.ops.conv_transpose2d(x, w, stride=2)
    yield "conv_transpose2d", "", lambda t, r, c: twice(t("x", (1, 4, r, c)), t("w", (4, 3, 2, 2)))
    yield "depthwise_conv2d", "", lambda t, r, c: rg.ops.depthwise_conv2d(t("x", (1, 8, r, c)), t("w", (8, 1, 3, 3)))
    for name in ("max_pool2d", "avg_pool2d"):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (2, 3, r, c)), 3, 2, 1)
        yield name, "pointwise", lambda t, r, c, f=function: f(t("x", (2, 3, r, c)), 1, 2)
    for rank, more in ((1, ()), (2, (5,)), (3, (3, 5))):
        for how in ("avg", "max"):
            pool = getattr(rg.ops, f"adaptive_{how}_pool{rank}d")
            yield f"adaptive_{how}_pool{rank}d", "", lambda t, r, c, f=pool, m=more: f(t("x", (2, r, *m, c)), 3)
    for name in ("global_avg_pool", "global_max_pool"):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (2, 3, r, c)))
    yield "upsample_nearest", "", lambda t, r, c: rg.ops.upsample_nearest(t("x", (1, 2, r, c)), scale_factor=2)


def _quantised() -> Iterator[tuple[str, str, Make]]:
    zeros = lambda t, extent: (t("s", (extent,), "float32"), t("z", (extent,), "int32"))
    yield "quantize", "", lambda t, r, c: rg.ops.quantize(t("x", (r, c)), 0.25, 3)
    yield "quantize", "by axis", lambda t, r, c: rg.ops.quantize(t("x", (r, c)), *zeros(t, r), axis=0)
    yield "dequantize", "", lambda t, r, c: rg.ops.dequantize(t("x", (r, c)), 0.25, 3)
    yield "dequantize", "by blocks", lambda t, r, c: rg.ops.dequantize(
        t("x", (r, c)), t("s", (r, -(-c // 4)), "float32"), 3, axis=1, block_size=4
    )
    yield "dynamic_quantize", "", lambda t, r, c: rg.ops.dynamic_quantize(t("x", (r, c)))[0]
    yield "quantized_conv2d", "", lambda t, r, c: rg.ops.quantized_conv2d(
        t("x", (1, 3, r, c)), t("w", (4, 3, 3, 3)), 0.5, 0.25, padding=1, x_zero_point=2, scale=0.5, dtype="uint8"
    )
    yield "quantized_matmul", "", lambda t, r, c: rg.ops.quantized_matmul(t("a", (r, c)), t("b", (c, r)), 0.5, 0.25)


def _constants() -> Iterator[tuple[str, str, Make]]:
    yield "full", "", lambda t, r, c: rg.ops.full((r, c), 1, dtype=t("x", ()).dtype)
    yield "eye", "", lambda t, r, c: rg.ops.eye(r, c, dtype=t("x", ()).dtype)
    yield "arange", "", lambda t, r, c: rg.ops.arange(r, dtype=t("x", ()).dtype)
    yield "linspace", "", lambda t, r, c: rg.ops.linspace(0, 1, c, dtype=t("x", ()).dtype)
    yield "meshgrid", "", lambda t, r, c: rg.ops.meshgrid(t("x", (r,)), t("y", (c,)))[0]


def _views() -> Iterator[tuple[str, str, Make]]:
    for axis in (0, 1):
        yield "concat", f"axis {axis}", lambda t, r, c, a=axis: rg.ops.concat([t("x", (r, c)), t("y", (r, c))], a)
    yield "getitem", "", lambda t, r, c: rg.ops.getitem(t("x", (r, c)), np.s_[1:, ::2])
    yield "getitem", "reversed", lambda t, r, c: rg.ops.getitem(t("x", (r, c)), np.s_[::-1, ::-1])
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield "pad", mode, lambda t, r, c, m=mode: rg.ops.pad(t("x", (r, c)), (1, 2, 1, 2), m)
    yield "t", "", lambda t, r, c: rg.ops.t(t("x", (r, c)))
    yield "permute", "channels last", lambda t, r, c: rg.ops.permute(t("x", (2, 3, r, c)), (0, 2, 3, 1))
    yield "permute", "of matrices", lambda t, r, c: rg.ops.permute(t("x", (3, r, c)), (0, 2, 1))
    yield "transpose", "", lambda t, r, c: rg.ops.transpose(t("x", (3, r, c)), 1, 2)
    yield "slice", "", lambda t, r, c: rg.ops.slice(t("x", (r, c)), 1, 1, None, 2)
    yield "resize", "", lambda t, r, c: rg.ops.resize(t("x", (r, c)), (c, r))
    yield "interpolate", "", lambda t, r, c: rg.ops.interpolate(t("x", (1, 2, r, c)), (c, r), mode="bilinear")
    for name, settings in (("tile", ((2, 1),)), ("repeat", ((2, 1, 1),)), ("flip", (0,)), ("roll", (1, 0)),
                           ("tril", ()), ("triu", ())):  # fmt: skip
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function, s=settings: f(t("x", (r, c)), *s)
    for name in ("split", "chunk"):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)), 2)[0]
    yield "stack", "", lambda t, r, c: rg.ops.stack([t("x", (r, c)), t("y", (r, c))], 1)
    yield "select_scatter", "", lambda t, r, c: rg.ops.select_scatter(t("x", (r, c)), t("y", (r,)), 1, c - 1)
    yield "slice_scatter", "", lambda t, r, c: rg.ops.slice_scatter(t("x", (r + 2, c)), t("y", (r, c)), 0, 1, r + 1)
    yield "one_hot", "", lambda t, r, c: rg.ops.one_hot(t("x", (r,)), c)
    yield "embedding", "", lambda t, r, c: rg.ops.embedding(t("i", (r,), "int64"), t("x", (r, c)))
    yield "index_select", "", lambda t, r, c: rg.ops.index_select(t("x", (r, c)), 1, t("i", (r,), "int32"))
    yield "gather", "", lambda t, r, c: rg.ops.gather(t("x", (r, c)), 1, t("i", (r, 3), "int64"))
    yield "take_along_dim", "", lambda t, r, c: rg.ops.take_along_dim(t("x", (r, c)), t("i", (3, c), "int64"), 0)
    yield "pixel_shuffle", "", lambda t, r, c: rg.ops.pixel_shuffle(t("x", (1, 8, r, c)), 2)
    yield "pixel_unshuffle", "", lambda t, r, c: rg.ops.pixel_unshuffle(t("x", (1, r, 4, 8)), 2)
    yield "unfold", "", lambda t, r, c: rg.ops.unfold(t("x", (1, 2, r, c)), 3)
    for name in ("nll_loss", "cross_entropy"):
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)), t("target", (r,), "int64"))
    for name in LOSSES:
        function = getattr(rg.ops, name)
        yield name, "", lambda t, r, c, f=function: f(t("x", (r, c)), t("target", (r, c)))
    yield "einsum", "", lambda t, r, c: rg.ops.einsum("...ij,jk->...k", t("x", (3, r, c)), t("w", (c, 2)))
    yield "unfold_copy", "", lambda t, r, c: rg.ops.unfold_copy(t("x", (r, c)), 1, 1 + c // 8, 2)
    yield "reshape", "", lambda t, r, c: rg.ops.reshape(t("x", (r, c)), (c, r))
    yield "flatten", "", lambda t, r, c: rg.ops.flatten(rg.ops.t(t("x", (r, c))))
    yield "squeeze", "", lambda t, r, c: rg.ops.squeeze(t("x", (r, 1, c)))
    yield "unsqueeze", "", lambda t, r, c: rg.ops.unsqueeze(t("x", (r, c)), 1)
    yield "reshape", "of a transpose", lambda t, r, c: rg.ops.reshape(rg.ops.t(t("x", (r, c))), (-1,))
    for mode in ("bicubic", "area"):
        yield "interpolate", mode, lambda t, r, c, m=mode: rg.ops.interpolate(t("x", (1, 2, r, c)), (c, r), mode=m)
    yield "expand", "", lambda t, r, c: rg.ops.expand(t("x", (r, 1)), (3, r, c))


_FAMILIES = (_of_one, _of_two, _reductions, _normalisations, _contractions, _windows, _quantised, _constants, _views)

OPERATORS: Mapping[str, Mapping[str, Make]] = {}
"""Variants of each operator, by name."""
for _family in _FAMILIES:
    for _name, _variant, _make in _family():
        OPERATORS.setdefault(_name, {})[_variant] = _make  # type: ignore[index]

_FLOATING_FORMULAS = " ".join(name for name, row in FORMULAS.items() if row.takes == "float")
_WHOLE_FORMULAS = " ".join(name for name, row in FORMULAS.items() if row.takes == "integer")
_NOT_FLOATS = (*INTEGERS, "bool")
_FLOATING, _CONDITION, _CONDITIONS = "expected a floating dtype", "of a condition; expected numbers", "of conditions"
_TRUTH, _REDUCED = "expected True or False", "a reduction over bool values; cast them first"

_REFUSALS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("logcumsumexp", _NOT_FLOATS, _FLOATING),
    (f"leaky_relu silu gelu prelu {_FLOATING_FORMULAS}", _NOT_FLOATS, _FLOATING),
    ("group_norm instance_norm local_response_norm", _NOT_FLOATS, _FLOATING),
    ("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", _NOT_FLOATS, _FLOATING),
    ("mean var std log_softmax softmax layer_norm rms_norm batch_norm", _NOT_FLOATS, _FLOATING),
    ("scaled_dot_product_attention avg_pool1d avg_pool2d avg_pool3d global_avg_pool quantize", _NOT_FLOATS, _FLOATING),
    (f"interpolate nll_loss cross_entropy {' '.join(LOSSES)}", _NOT_FLOATS, _FLOATING),
    ("sub neg pow bias_add matmul mm bmm batch_matmul linear depthwise_conv2d conv2d", ("bool",), _CONDITION),
    ("max_pool1d max_pool2d max_pool3d", ("bool",), _TRUTH),
    ("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", ("bool",), _TRUTH),
    ("hardtanh", tuple(dtype for dtype in INTEGERS if dtype.startswith("u")), "-1 does not fit"),
    ("max_pool1d max_pool2d max_pool3d", ("bool",), _CONDITIONS),
    ("relu", ("bool",), "has dtype bool; expected numbers"),
    ("conv1d conv2d conv3d max_pool2d", ("bool",), _TRUTH),
    ("einsum", ("bool",), _CONDITION),
    ("conv_transpose1d conv_transpose2d conv_transpose3d", ("bool",), _REDUCED),
    (f"one_hot {_WHOLE_FORMULAS}", FLOATS, "integer"),
    ("one_hot", ("bool",), "expected integers"),
    ("bitwise_left_shift bitwise_right_shift", ("bool",), _CONDITION),
    ("dequantize", tuple(d for d in DTYPES if d not in (*STORED, "int32")), "expected int32 or one of int8"),
    ("dequantize", ("float8_e4m3fn", "float8_e5m2"), "zero_point is 3; expected an integer from 0 to 0"),
    ("dynamic_quantize", _NOT_FLOATS, _FLOATING),
    ("quantized_matmul quantized_conv2d", tuple(d for d in DTYPES if d not in FACTORS), "expected int8 or uint8"),
)
"""(operators, dtypes, what the error says): what the language refuses by design.  Conditions are no numbers; functions
that round want floating dtypes; quantised values are integers of one width."""


_UNTILED = {
    **dict.fromkeys(("embedding", "gather", "index_select", "take_along_dim"), "exchanges decided before the call"),
    **dict.fromkeys(("cummax", "cummin", "logcumsumexp"), "is a scan in which the order counts"),
}
"""Operators that machines of tiles refuse, and what the error says."""
_IN_FLOAT64 = ("linspace",)
"""Operators that compute integers in float64, as PyTorch does."""


def refusals(case: Case) -> tuple[str, ...]:
    """Parts of the error's text, one of which a refusal of this case has; none where it must not be refused."""
    return tuple(
        text for names, dtypes, text in _REFUSALS if case.operator in names.split() and case.dtype in dtypes
    )


def cases(operators: Iterable[str] = ()) -> Iterator[Case]:
    """All of them, or those of some operators; sizes last."""
    for operator in operators or OPERATORS:
        for variant in OPERATORS[operator]:
            for dtype in DTYPES:
                for rows, columns in SIZES:
                    yield Case(operator, variant, dtype, rows, columns)


def wrong(case: Case, device: str) -> str:
    """What is wrong with the kernel of a case that is built for a device, and not run; empty where nothing is.

    Whatever candidate is dropped is a failure, and so are a refusal that is not in the list, and one that fails to
    come."""
    refused = refusals(case)
    try:
        expression = case.expression()
    except RollergenError as error:
        return "" if any(text in str(error) for text in refused) else f"refused: {type(error).__name__}: {error}"
    if refused:
        return f"is not refused; expected an error that says {' or '.join(refused)}"
    with every_drop_raises():
        try:
            rg.build(expression, device, profile=False, cache=False)
        except DtypeError as error:
            wide = case.dtype == "float64" or (case.operator in _IN_FLOAT64 and case.dtype in INTEGERS)
            said = wide and f"for which {device} has no instruction" in str(error)
            return "" if said else f"{type(error).__name__}: {error}"
        except ConstructionError as error:
            said = device == "ipu" and _UNTILED.get(case.operator, str(error) + "?") in str(error)
            return "" if said else f"{type(error).__name__}: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if case.operator in _UNTILED and device == "ipu" and case.rows * case.columns > 1:
        return f"is built by a machine of tiles; expected an error that says {_UNTILED[case.operator]}"
    return ""


def pairwise(devices: Sequence[str]) -> Iterator[tuple[Case, str]]:
    """Every operator on every device, in every dtype that it accepts and at every size; every dtype and every size on
    every device, and with each other."""
    for number, (operator, variants) in enumerate(OPERATORS.items()):
        accepted = [dtype for dtype in DTYPES if not refusals(Case(operator, "", dtype, *SIZES[0]))]
        for turn in range(max(len(devices), len(accepted)) if accepted else 0):
            at, device = number + turn, devices[turn % len(devices)]
            rows, columns = SIZES[(2 * at + turn) % len(SIZES)]
            variant, dtype = list(variants)[at % len(variants)], accepted[at % len(accepted)]
            yield Case(operator, variant, dtype, rows, columns), device
