"""The operators of the command line: which sizes each takes, and how tensors follow from them.

An entry says what the operator's tensors are; its options, their defaults and its summary are those of
the function in `rg.ops`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import rollergen as rg
from rollergen.errors import ArgumentError
from rollergen.expr.operators.distances import LOSSES
from rollergen.expr.operators.formulas import FORMULAS
from rollergen.hal.dataclass import dataclass

Sizes = Mapping[str, Any]
"""What was given on the command line, and the defaults of what was not."""

Make = Callable[..., Any]
"""``tensor(name, shape, dtype=...)``: the dtype asked for, unless told otherwise."""

_HIDDEN = (
    "name", "acc", "dtype", "out_dtype", "inplace", "other", "training", "momentum", "dropout_p", "attn_mask",
    "return_indices", "layout", "device", "pin_memory", "requires_grad",
)  # fmt: skip
_IMAGE = ("n", "c", "h", "w")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the command line.

    ``sizes`` are whole numbers (``shape``: several) and ``arguments`` anything, both required; ``optional``
    gives the others with their defaults.  ``make(sizes, dtype)`` gets all of them by name.
    ``applied(function, tensor, sizes)``: a function with the arguments of `rg.ops`' own on other tensors.
    """

    name: str
    summary: str
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]
    optional: tuple[tuple[str, Any], ...]
    example: str
    make: Callable[[Sizes, str], Any]
    applied: Callable[[Callable[..., Any], Make, Sizes], Any] | None = None

    @property
    def required(self) -> tuple[str, ...]:
        return self.sizes + self.arguments

    @property
    def usage(self) -> str:
        return " ".join([*(f"{n}=.." for n in self.required), *(f"[{n}={v}]" for n, v in self.optional)])


def _entry(
    name: str, example: str, tensors: Callable[[Sizes, Make], Iterable[Any]], *, arguments: tuple[str, ...] = (),
    optional: tuple[tuple[str, Any], ...] = (), fixed: tuple[str, ...] = (),
    passed: Callable[[Sizes, Make], Sizes] = lambda s, t: {}, output: str = "Y",
) -> Operator:  # fmt: skip
    """`rg.ops.<name>` on `tensors`; ``passed`` gives arguments that are not called as on the command line."""
    function = getattr(rg.ops, name)
    parameters = inspect.signature(function).parameters
    options = {
        p.name: p.default
        for p in parameters.values()
        if p.default is not p.empty and p.name not in (*_HIDDEN, *fixed) and not p.annotation.startswith("Tensor")
    }
    sizes = tuple(word.partition("=")[0] for word in example.split())
    sizes = tuple(size for size in sizes if size not in (*options, *dict(optional), *arguments))

    def applied(called: Callable[..., Any], tensor: Make, given: Sizes, **more: Any) -> Any:
        made = tensors(given, tensor)
        named = {key: given[key] for key in (*arguments, *options) if key in parameters}
        return called(*made, **(named | dict(passed(given, tensor))), **more)

    def make(given: Sizes, dtype: str) -> Any:
        tensor = lambda name, shape, kind=dtype: rg.tensor(name, shape, kind)
        return applied(function, tensor, given, name=output)

    every = tuple((dict(optional) | options).items())
    return Operator(name, _summary(function), sizes, arguments, every, f"{name} {example}", make, applied)


def _summary(function: Callable[..., Any]) -> str:
    """The first sentence of its docstring, without markup."""
    text = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
    return text.partition(". ")[0].replace("`", "").rstrip(".")


def _one(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    yield tensor("X", sizes["shape"])


def _classified(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    yield tensor("X", (sizes["n"], sizes["c"]))
    yield tensor("target", (sizes["n"],), "int64")


def _integers(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    yield tensor("X", sizes["shape"], "int32")


def _two(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    yield tensor("A", sizes["shape"])
    yield tensor("B", sizes["shape"])


def _two_integers(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    yield tensor("A", sizes["shape"], "int32")
    yield tensor("B", sizes["shape"], "int32")


def _elementwise() -> Iterator[Operator]:
    for name in ("relu", "leaky_relu", "gelu", "silu", "sigmoid", "abs", "neg", "round", *rg.ops.ELEMENTWISE):
        if name in FORMULAS and (FORMULAS[name].operands > 1 or name == "threshold"):
            continue
        of_integers = name in FORMULAS and FORMULAS[name].takes == "integer"
        yield _entry(name, "shape=4096x1024", _integers if of_integers else _one)
    binary = (name for name, row in FORMULAS.items() if row.operands == 2)
    for name in (*binary, "add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "not_equal", "less",
                 "less_equal", "greater", "greater_equal"):  # fmt: skip
        of_integers = name in FORMULAS and FORMULAS[name].takes == "integer"
        yield _entry(name, "shape=4096x4096", _two_integers if of_integers else _two)
    yield _entry("threshold", "shape=4096x4096 threshold=0 value=1", _one, arguments=("threshold", "value"))
    yield _entry("prelu", "shape=64x64x56x56", lambda s, t: (*_one(s, t), t("weight", s["shape"][1:2])))
    yield _entry("clip", "shape=4096x4096 min=0 max=6", _one)
    yield _entry("cast", "shape=4096x4096 to=float16", _one, arguments=("to",), passed=lambda s, t: {"dtype": s["to"]})
    yield _entry("where", "shape=4096x4096", lambda s, t: (t("condition", s["shape"], "bool"), *_two(s, t)))
    yield _entry("bias_add", "shape=1x64x56x56 axis=1", _with_bias)


def _with_bias(sizes: Sizes, tensor: Make) -> Iterator[Any]:
    shape, axis = sizes["shape"], sizes["axis"]
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"axis is {axis}; expected {-len(shape)} to {len(shape) - 1} for shape {shape}")
    yield from _one(sizes, tensor)
    yield tensor("bias", (shape[axis],))


def _reductions() -> Iterator[Operator]:
    for name in ("sum", "mean", "amax", "amin", "prod", "var", "std", "argmax", "argmin", "logsumexp", "any", "all"):
        yield _entry(name, "shape=4096x1024 dim=-1", _one)
    for name in ("max", "min"):
        yield _entry(name, "shape=4096x1024", _one, fixed=("dim", "keepdim"))
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        yield _entry(name, "shape=4096x1024 dim=-1", _one, arguments=("dim",))


def _normalisation() -> Iterator[Operator]:
    for name in ("softmax", "log_softmax"):
        yield _entry(name, "shape=4096x1024", _one)
    last = lambda s: s["shape"][-1:]
    weight = lambda s, t: {"normalized_shape": last(s), "weight": t("weight", last(s))}
    affine = lambda s, t: {**weight(s, t), "bias": t("bias", last(s))}
    yield _entry("layer_norm", "shape=4096x1024", _one, passed=affine)
    yield _entry("rms_norm", "shape=4096x1024", _one, passed=weight)
    yield _entry("group_norm", "shape=8x64x56x56 num_groups=8", _one, arguments=("num_groups",))
    yield _entry("instance_norm", "shape=8x64x56x56", _one)
    yield _entry("local_response_norm", "shape=8x64x56x56 size=5", _one, arguments=("size",))
    names = ("mean", "var", "weight", "bias")
    yield _entry(
        "batch_norm", "shape=8x64x56x56", lambda s, t: (*_one(s, t), *(t(name, s["shape"][1:2]) for name in names))
    )


def _contractions() -> Iterator[Operator]:
    transposed = lambda flag, rows, columns: (columns, rows) if flag else (rows, columns)
    yield _entry(
        "matmul", "m=1024 n=1024 k=1024",
        lambda s, t: (
            t("A", transposed(s["transpose_a"], s["m"], s["k"])), t("B", transposed(s["transpose_b"], s["k"], s["n"]))
        ), output="C",
    )  # fmt: skip
    yield Operator(
        "matmul_bias_relu", "max(A B + bias, 0) in one kernel", ("m", "n", "k"), (), (),
        "matmul_bias_relu m=1024 n=1024 k=1024", _matmul_bias_relu,
    )  # fmt: skip
    yield _entry(
        "batch_matmul", "b=8 m=256 n=256 k=64",
        lambda s, t: (
            t("A", (s["b"], *transposed(s["transpose_a"], s["m"], s["k"]))),
            t("B", (s["b"], *transposed(s["transpose_b"], s["k"], s["n"]))),
        ), output="C",
    )  # fmt: skip
    yield _entry(
        "mm", "m=1024 n=1024 k=1024", lambda s, t: (t("A", (s["m"], s["k"])), t("B", (s["k"], s["n"]))), output="C"
    )
    yield _entry(
        "bmm", "b=8 m=256 n=256 k=64",
        lambda s, t: (t("A", (s["b"], s["m"], s["k"])), t("B", (s["b"], s["k"], s["n"]))), output="C",
    )  # fmt: skip
    yield _entry(
        "linear", "m=512 n=1024 k=1024",
        lambda s, t: (t("X", (s["m"], s["k"])), t("weight", (s["n"], s["k"])), t("bias", (s["n"],))),
    )  # fmt: skip
    yield _entry(
        "scaled_dot_product_attention", "b=8 m=512 n=512 d=64",
        lambda s, t: (t("Q", (s["b"], s["m"], s["d"])), *(t(x, (s["b"], s["n"], s["d"])) for x in ("K", "V"))),
    )  # fmt: skip


def _matmul_bias_relu(sizes: Sizes, dtype: str) -> Any:
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    product = rg.ops.matmul(rg.tensor("A", (m, k), dtype), rg.tensor("B", (k, n), dtype))
    return rg.ops.relu(rg.ops.bias_add(product, rg.tensor("bias", (n,), dtype)), name="C")


def _convolutions() -> Iterator[Operator]:
    extents = {"conv1d": "l", "conv2d": "h w", "conv3d": "d h w"}
    examples = {
        "conv1d": "n=8 c=64 l=1024 f=64 kl=3 padding=1",
        "conv2d": "n=1 c=64 h=56 w=56 f=64 kh=3 kw=3 padding=1",
        "conv3d": "n=1 c=16 d=16 h=28 w=28 f=32 kd=3 kh=3 kw=3 padding=1",
    }
    for name, example in examples.items():
        yield _entry(name, example, _convolved(extents[name].split()))
    image = lambda s, t: t("image", tuple(s[n] for n in _IMAGE))
    yield _entry(
        "depthwise_conv2d", "n=1 c=64 h=56 w=56 kh=3 kw=3 padding=1",
        lambda s, t: (image(s, t), t("weight", (s["c"] * s["multiplier"], 1, s["kh"], s["kw"]))),
        optional=(("multiplier", 1),),
    )  # fmt: skip
    transposed = {1: "n=1 c=64 l=1024 f=32 kl=4", 2: "n=1 c=64 h=28 w=28 f=32 kh=4 kw=4",
                  3: "n=1 c=16 d=8 h=8 w=8 f=8 kd=4 kh=4 kw=4"}  # fmt: skip
    for rank, example in transposed.items():
        yield _entry(f"conv_transpose{rank}d", f"{example} stride=2 padding=1", _spread_over(_EXTENTS[rank]))


def _convolved(extents: list[str]) -> Callable[[Sizes, Make], Iterator[Any]]:
    def tensors(sizes: Sizes, tensor: Make) -> Iterator[Any]:
        yield tensor("image", tuple(sizes[n] for n in ("n", "c", *extents)))
        yield tensor("weight", (sizes["f"], _grouped("c", sizes), *(sizes["k" + n] for n in extents)))

    return tensors


def _spread_over(extents: tuple[str, ...]) -> Callable[[Sizes, Make], Iterator[Any]]:
    def tensors(sizes: Sizes, tensor: Make) -> Iterator[Any]:
        yield tensor("image", tuple(sizes[n] for n in ("n", "c", *extents)))
        yield tensor("weight", (sizes["c"], _grouped("f", sizes), *(sizes["k" + n] for n in extents)))

    return tensors


def _grouped(name: str, sizes: Sizes) -> int:
    groups = sizes["groups"]
    if not isinstance(groups, int) or groups < 1 or sizes[name] % groups:
        raise ArgumentError(f"groups is {groups}; expected a divisor of {name}={sizes[name]}")
    return sizes[name] // groups


_EXTENTS = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}
_EXAMPLES = {1: "n=1 c=64 l=4096", 2: "n=1 c=64 h=112 w=112", 3: "n=1 c=16 d=28 h=28 w=28"}


def _pooling() -> Iterator[Operator]:
    image = lambda s, t: (t("X", tuple(s[n] for n in _IMAGE)),)
    for rank, example in _EXAMPLES.items():
        read = lambda s, t, rank=rank: (t("X", tuple(s[n] for n in ("n", "c", *_EXTENTS[rank]))),)
        for name in (f"max_pool{rank}d", f"avg_pool{rank}d"):
            yield _entry(name, f"{example} kernel_size=3 stride=2 padding=1", read, arguments=("kernel_size",))
        for name in (f"adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d"):
            yield _entry(name, f"{example} output_size=7", read, arguments=("output_size",))
    for name in ("global_avg_pool", "global_max_pool"):
        yield _entry(name, "n=8 c=512 h=7 w=7", image)


def _quantised() -> Iterator[Operator]:
    yield _entry("quantize", "shape=4096x1024 scale=0.1", _one, arguments=("scale",))
    yield _entry(
        "dequantize", "shape=4096x1024 scale=0.1", lambda s, t: (t("Q", s["shape"], "int8"),), arguments=("scale",)
    )
    yield _entry(
        "quantized_conv2d", "n=1 c=64 h=56 w=56 f=64 kh=3 kw=3 x_scale=0.1 w_scale=0.1 padding=1",
        lambda s, t: (
            t("image", tuple(s[n] for n in _IMAGE), "uint8"),
            t("weight", (s["f"], _grouped("c", s), s["kh"], s["kw"]), "int8"),
        ), arguments=("x_scale", "w_scale"),
    )  # fmt: skip
    yield _entry(
        "quantized_matmul", "m=512 n=512 k=512 a_scale=0.1 b_scale=0.1",
        lambda s, t: (
            t("A", (s["m"], s["k"]), "int8"),
            t("B", (s["n"], s["k"]) if s["transpose_b"] else (s["k"], s["n"]), "int8"),
        ), arguments=("a_scale", "b_scale"), output="C",
    )  # fmt: skip


def _nothing(sizes: Sizes, tensor: Make) -> tuple[()]:
    return ()


def _constants() -> Iterator[Operator]:
    """Operators that read no tensor, and grids of those."""
    sized = lambda s, t: {"size": s["shape"]}
    yield _entry("full", "shape=1024x1024 fill_value=2", _nothing, arguments=("fill_value",), passed=sized)
    yield _entry("eye", "n=1024", _nothing, arguments=("n",))
    yield _entry("arange", "start=4096", _nothing, arguments=("start",))
    yield _entry("linspace", "start=0 end=1 steps=4096", _nothing, arguments=("start", "end", "steps"))
    yield _entry("meshgrid", "m=1024 n=1024", lambda s, t: (t("a", (s["m"],)), t("b", (s["n"],))))


def _views() -> Iterator[Operator]:
    yield _entry("transpose", "shape=4096x4096 dim0=0 dim1=1", _one, arguments=("dim0", "dim1"))
    yield _entry("t", "shape=4096x4096", _one)
    yield _entry("permute", "shape=64x64x64 dims=0,2,1", _one, arguments=("dims",))
    for name, example, size in (
        ("reshape", "shape=64x96 to=128,-1", "shape"), ("expand", "shape=1x1024 to=4096,1024", "size"),
    ):  # fmt: skip
        passed = lambda s, t, size=size: {size: _tuple(s["to"])}
        yield _entry(name, example, _one, arguments=("to",), passed=passed)
    yield _entry("flatten", "shape=64x32x96", _one)
    yield _entry("squeeze", "shape=1024x1x1024", _one)
    yield _entry("unsqueeze", "shape=1024x1024 dim=1", _one, arguments=("dim",))
    yield _entry("concat", "shape=1024x1024 dim=1", lambda s, t: (tuple(_two(s, t)),))
    yield _entry(
        "getitem", "shape=1024x1024 start=1 step=2", _one, optional=(("start", None), ("stop", None), ("step", None)),
        passed=lambda s, t: {"index": (..., slice(s["start"], s["stop"], s["step"]))},
    )  # fmt: skip
    for name, example in (("tile", "dims=2,1"), ("repeat", "repeats=2,1"), ("flip", "dims=0"), ("roll", "shifts=1"),
                          ("one_hot", "num_classes=10")):  # fmt: skip
        word = example.partition("=")[0]
        yield _entry(name, f"shape=1024x1024 {example}", _integers if name == "one_hot" else _one, arguments=(word,))
    for name, word in (("gather", "index"), ("take_along_dim", "indices")):
        yield _entry(
            name, "shape=4096x1024 n=64 dim=1", _one, arguments=("dim",), fixed=("sparse_grad",), passed=_placed(word)
        )
    yield _entry(
        "index_select", "shape=30000x768 n=4096 dim=0", _one, arguments=("dim",),
        passed=lambda s, t: {"index": t("index", (s["n"],), "int64")},
    )  # fmt: skip
    yield _entry(
        "embedding", "n=4096 rows=30000 columns=768",
        lambda s, t: (t("input", (s["n"],), "int64"), t("weight", (s["rows"], s["columns"]))),
        fixed=("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    )  # fmt: skip
    yield _entry(
        "select_scatter", "shape=64x1024x768 dim=0 index=3", _one, arguments=("dim", "index"),
        passed=lambda s, t: {"src": t("src", (*s["shape"][: s["dim"]], *s["shape"][s["dim"] + 1 :]))},
    )  # fmt: skip
    yield _entry(
        "slice_scatter", "shape=1024x4096 start=16 end=80", _one, passed=lambda s, t: {"src": t("src", _sliced(s))}
    )
    for name in ("tril", "triu"):
        yield _entry(name, "shape=1024x1024", _one)
    yield _entry("stack", "shape=1024x1024 dim=1", lambda s, t: (tuple(_two(s, t)),))
    for name, word in (("pixel_shuffle", "upscale_factor"), ("pixel_unshuffle", "downscale_factor")):
        yield _entry(name, f"shape=1x64x56x56 {word}=2", _one, arguments=(word,))
    yield _entry("unfold", "shape=1x64x56x56 kernel_size=3", _one, arguments=("kernel_size",))
    for name in ("nll_loss", "cross_entropy"):
        yield _entry(name, "n=4096 c=1000", _classified)
    for name in LOSSES:
        yield _entry(name, "shape=4096x1000", lambda s, t: (t("X", s["shape"]), t("target", s["shape"])))
    yield _entry(
        "unfold_copy", "shape=1024x1024 dimension=1 size=16 step=8", _one, arguments=("dimension", "size", "step")
    )
    yield _entry("slice", "shape=1024x1024 dim=1 start=1 step=2", _one)
    yield _entry("pad", "shape=1024x1024 pad=1,2 mode=reflect", _one, arguments=("pad",))
    image = lambda s, t: (t("X", tuple(s[n] for n in _IMAGE)),)
    for name in ("upsample_nearest", "interpolate"):
        yield _entry(name, "n=1 c=64 h=56 w=56 scale_factor=2", image)
    yield _entry("resize", "shape=64x56x56 to=112,112", _one, arguments=("to",), fixed=("size", "scale_factor"),
                 passed=lambda s, t: {"size": _tuple(s["to"])})  # fmt: skip


def _placed(word: str) -> Callable[[Sizes, Make], Sizes]:
    """The argument ``word`` of as many places along ``dim`` as ``n`` says."""
    return lambda s, t: {word: t("index", (*s["shape"][: s["dim"]], s["n"], *s["shape"][s["dim"] + 1 :]), "int64")}


def _sliced(sizes: Sizes) -> tuple[int, ...]:
    """The shape of the slice of a tensor."""
    shape, dim = sizes["shape"], sizes["dim"]
    count = len(range(*slice(sizes["start"], sizes["end"], sizes["step"]).indices(shape[dim])))
    return (*shape[:dim], count, *shape[dim + 1 :])


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


_FAMILIES = (
    _contractions, _convolutions, _pooling, _reductions, _normalisation, _elementwise, _quantised, _constants, _views,
)  # fmt: skip
OPERATORS: Mapping[str, Operator] = {operator.name: operator for family in _FAMILIES for operator in family()}
