"""The list of operators: narrow dtypes and the shapes of networks, then ROLLER's list in float32.

`TABLE` is the list: a family of `FAMILIES` (an expression and its operations), dtypes, sizes.  What torch computes
each kind with stands in `torch_calls`.  Sizes of products are those of Llama 3 8B and 70B, images those of ResNet-50,
rows those of their norms and vocabularies; a few are odd.  Core sizes are what is measured where time is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import rollergen as rg
from benches.operators_beside import nchw, nhwc
from rollergen.bench.suites import Entry, Fields, suite
from rollergen.expr.canonical import canonicalize
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import Tensor

Key = tuple[str, str]
"""Suite and identifier of an entry."""
Sizes = tuple[tuple[int, ...], ...]

SUITE = "gpu"
SUITES = (SUITE, "roller", "autotvm-resnet18", "pruner-linears", "pruner-attention")
"""Whose kinds all have a namesake in torch."""
DEFAULT = (SUITE, "roller")
ALL, HALVES, FLOATS = ("float16", "bfloat16", "int8"), ("float16", "bfloat16"), ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Family:
    """``group``: the class of the report; ``axes``: names of the sizes, by which `make` finds them among an entry's
    fields; ``operations``: multiplications and additions, 0 where memory alone counts."""

    group: str
    axes: str
    make: Callable[[Fields], Tensor]
    operations: Callable[[Fields], float] = lambda f: 0.0


@dataclass(frozen=True)
class Row:
    """Operators of one family in each of the dtypes."""

    family: str
    dtypes: tuple[str, ...]
    core: Sizes
    more: Sizes = ()


TABLE = (
    Row("matmul", ALL, ((4096, 4096, 4096), (8192, 8192, 8192)),
        ((1024, 1024, 1024), (2048, 14336, 4096), (4095, 4097, 511))),
    Row("linear", ALL, ((2048, 28672, 4096),), ((512, 4096, 14336), (2048, 4096, 4096), (128, 128256, 4096))),
    Row("batch_matmul", HALVES, (), ((64, 1024, 1024, 64), (32, 384, 64, 384))),
    Row("decode", ALL, ((1, 4096, 4096), (8, 28672, 4096)),
        ((1, 6144, 4096), (1, 28672, 4096), (1, 4096, 14336), (1, 128256, 4096), (2, 28672, 4096), (4, 28672, 4096),
         (16, 28672, 4096), (32, 28672, 4096), (32, 4096, 14336), (16, 10240, 8192))),
    Row("conv_nhwc", ALL, ((32, 56, 56, 64, 64, 3, 1), (32, 14, 14, 256, 256, 3, 1)),
        ((32, 56, 56, 64, 256, 1, 1), (32, 28, 28, 128, 128, 3, 2), (32, 224, 224, 3, 64, 7, 2))),
    Row("conv_nchw", ALL, ((32, 56, 56, 64, 64, 3, 1),),
        ((32, 14, 14, 256, 256, 3, 1), (32, 56, 56, 64, 256, 1, 1), (32, 28, 28, 128, 128, 3, 2))),
    Row("prefill", HALVES, ((1, 32, 8, 2048, 128, 1),),
        ((16, 16, 16, 512, 64, 0), (4, 32, 32, 1024, 128, 1), (1, 32, 8, 8192, 128, 1))),
    Row("prefill", ("float32",), (), ((2, 12, 12, 512, 64, 0),)),
    Row("decode_attention", HALVES, ((8, 32, 8, 4096, 128),), ((1, 32, 8, 4096, 128), (1, 64, 8, 32768, 128))),
    Row("softmax", FLOATS, ((65536, 2048),), ((256, 128256), (4096, 1000))),
    Row("layer_norm", FLOATS, ((4096, 4096),), ((16384, 1024), (32, 8192))),
    Row("rms_norm", FLOATS, ((4096, 4096),), ((8192, 8192), (32, 4096))),
    Row("add", ALL, ((1 << 26,),), ((1 << 20,), (1000003,))),
    Row("gelu", HALVES, ((1 << 26,),), ((1 << 20,),)),
    Row("swiglu", HALVES, ((2048, 14336),), ((8, 14336),)),
    Row("sum", HALVES, ((16384, 4096, 1), (16384, 4096, 0)), ((256, 128256, 1), (511, 8191, 0))),
    Row("max", ALL, ((16384, 4096, 1),), ((16384, 4096, 0),)),
    Row("transpose", ALL, ((8192, 8192),), ((4095, 2049),)),
    Row("channels_last", ALL, (), ((32, 64, 56, 56),)),
)  # fmt: skip

ROLLER_CORE = ("M1", "M3", "C0", "C17", "C35", "C38", "D1", "D2", "P2", "P4", "E0", "E3", "R0", "R2")
"""Of ROLLER's list those that stand for their classes where time is short."""

SMALL = {
    "batch": 2, "m": 40, "n": 72, "k": 72, "heads": 4, "length": 72, "width": 16, "height": 16, "image": 9,
    "channels": 24, "filters": 40, "rows": 24, "columns": 328, "elements": 5000,
}  # fmt: skip
"""Sizes of a dry run, at most."""


def _x(f: Fields, name: str, *shape: int, constant: bool = False) -> Tensor:
    return rg.tensor(name, shape, f["dtype"], constant=constant)


def _matmul(f: Fields) -> Tensor:
    return rg.ops.matmul(_x(f, "A", f["m"], f["k"]), _x(f, "B", f["k"], f["n"]), name="C")


def _batch_matmul(f: Fields) -> Tensor:
    batch, m, n, k = f["batch"], f["m"], f["n"], f["k"]
    return rg.ops.batch_matmul(_x(f, "A", batch, m, k), _x(f, "B", batch, k, n), name="C")


def _linear(f: Fields) -> Tensor:
    return rg.ops.linear(_x(f, "X", f["m"], f["k"]), _x(f, "W", f["n"], f["k"], constant=True), name="Y")


def _image(layout: Callable[..., Tensor]) -> Callable[[Fields], Tensor]:
    names = "batch", "height", "image", "channels", "filters", "window", "stride", "dtype"
    return lambda f: layout(*(f[name] for name in names))


def _prefill(f: Fields) -> Tensor:
    """(batch, heads of keys, heads that share one, length, width) of queries; keys and values are shared by views."""
    batch, kv, group, length, width = f["batch"], f["kv"], f["heads"] // f["kv"], f["length"], f["width"]
    q = _x(f, "Q", batch, kv, group, length, width)
    k, v = (_x(f, name, batch, kv, 1, length, width) for name in "KV")
    shared = (k, v) if group == 1 else (rg.ops.expand(one, q.shape) for one in (k, v))
    return rg.ops.attention(q, *shared, is_causal=bool(f["causal"]), name="O")


def _decode_attention(f: Fields) -> Tensor:
    """One query a sequence: the heads that share keys are the rows of one matrix."""
    q = _x(f, "Q", f["batch"] * f["kv"], f["heads"] // f["kv"], f["width"])
    return rg.ops.attention(q, *(_x(f, name, f["batch"] * f["kv"], f["length"], f["width"]) for name in "KV"), name="O")


def _rows(f: Fields) -> Tensor:
    return _x(f, "X", f["rows"], f["columns"])


def _layer_norm(f: Fields) -> Tensor:
    return rg.ops.layer_norm(_rows(f), f["columns"], *(_x(f, name, f["columns"]) for name in "WB"), name="Y")


def _rms_norm(f: Fields) -> Tensor:
    return rg.ops.rms_norm(_rows(f), f["columns"], _x(f, "W", f["columns"]), 1e-6, name="Y")


def _swiglu(f: Fields) -> Tensor:
    return rg.ops.mul(rg.ops.silu(_rows(f)), _x(f, "G", f["rows"], f["columns"]), name="Y")


def _channels_last(f: Fields) -> Tensor:
    return rg.ops.permute(_x(f, "X", f["batch"], f["channels"], f["image"], f["height"]), (0, 2, 3, 1), name="Y")


def _of_product(f: Fields) -> float:
    return 2.0 * f.get("batch", 1) * f["m"] * f["n"] * f["k"]


def _of_image(f: Fields) -> float:
    sides = ((side + 2 * (f["window"] // 2) - f["window"]) // f["stride"] + 1 for side in (f["height"], f["image"]))
    down, across = sides
    return 2.0 * f["batch"] * down * across * f["filters"] * f["channels"] * f["window"] ** 2


def _of_attention(f: Fields, queries: int) -> float:
    """Both products; half of them where a query sees no later key."""
    whole = 4.0 * f["batch"] * f["heads"] * queries * f["length"] * f["width"]
    return whole / 2 if f.get("causal") else whole


_IMAGES = "batch height image channels filters window stride"
FAMILIES: Mapping[str, Family] = {
    "matmul": Family("products", "m n k", _matmul, _of_product),
    "linear": Family("products", "m n k", _linear, _of_product),
    "batch_matmul": Family("products", "batch m n k", _batch_matmul, _of_product),
    "decode": Family("decode products", "m n k", _linear, _of_product),
    "conv_nhwc": Family("convolutions NHWC", _IMAGES, _image(nhwc), _of_image),
    "conv_nchw": Family("convolutions NCHW", _IMAGES, _image(nchw), _of_image),
    "prefill": Family(
        "attention, prefill", "batch heads kv length width causal", _prefill, lambda f: _of_attention(f, f["length"])
    ),
    "decode_attention": Family(
        "attention, decode", "batch heads kv length width", _decode_attention, lambda f: _of_attention(f, 1)
    ),
    "softmax": Family("softmax", "rows columns", lambda f: rg.ops.softmax(_rows(f), name="Y")),
    "layer_norm": Family("norms", "rows columns", _layer_norm),
    "rms_norm": Family("norms", "rows columns", _rms_norm),
    "add": Family(
        "elementwise", "elements",
        lambda f: rg.ops.add(_x(f, "A", f["elements"]), _x(f, "B", f["elements"]), name="Y"),
    ),
    "gelu": Family("elementwise", "elements", lambda f: rg.ops.gelu(_x(f, "X", f["elements"]), name="Y")),
    "swiglu": Family("elementwise", "rows columns", _swiglu),
    "sum": Family("reductions", "rows columns axis", lambda f: rg.ops.sum(_rows(f), f["axis"], name="Y")),
    "max": Family("reductions", "rows columns axis", lambda f: rg.ops.amax(_rows(f), f["axis"], name="Y")),
    "transpose": Family("transposes", "rows columns", lambda f: rg.ops.t(_rows(f), name="Y")),
    "channels_last": Family("transposes", "batch channels image height", _channels_last),
}  # fmt: skip

_GROUPS = {
    "conv2d": "convolutions NCHW", "depthwise_conv2d": "depthwise", "avg_pool2d": "pooling",
    "elementwise": "elementwise", "reduce_sum": "reductions", "attention": "attention, prefill",
}  # fmt: skip
"""Of the kinds of the other suites that are no families here."""


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """The operators of `TABLE`, in its order; ``fields["core"]`` tells which are core."""
    return tuple(
        _entry(row.family, dtype, sizes, core)
        for row in TABLE
        for core, every in ((True, row.core), (False, row.more))
        for sizes in every
        for dtype in row.dtypes
    )


def _entry(name: str, dtype: str, sizes: tuple[int, ...], core: bool) -> Entry:
    family, text = FAMILIES[name], "x".join(map(str, sizes))
    fields = {"dtype": dtype, "core": core, **dict(zip(family.axes.split(), sizes, strict=True))}
    return Entry(SUITE, f"{name} {text} {dtype}", name, dtype, f"{family.axes}: {text}", fields, family.make)


def listed(suites: tuple[str, ...] = DEFAULT) -> dict[Key, Entry]:
    """The entries of the suites, core ones first."""
    found = [one for name in suites for one in (entries() if name == SUITE else suite(name).entries)]
    return {(one.suite, one.id): one for one in sorted(found, key=lambda one: not is_core(one))}


def is_core(entry: Entry) -> bool:
    return bool(entry.fields["core"]) if entry.suite == SUITE else entry.suite == "roller" and entry.id in ROLLER_CORE


def group(entry: Entry) -> str:
    """The class of the report."""
    return _GROUPS.get(entry.kind) or FAMILIES[entry.kind].group


def operations(entry: Entry) -> float:
    """Multiplications and additions of what matrix units, or multiply-add units, could do; 0 of anything else."""
    if entry.suite == SUITE:
        return FAMILIES[entry.kind].operations(entry.fields)
    if entry.kind == "attention":
        f = entry.fields
        return 4.0 * f["batch_heads"] * f["queries"] * f["keys"] * f["head_dim"]
    multiplies = entry.kind in ("matmul", "linear", "conv2d", "depthwise_conv2d")
    return 2.0 * canonicalize(entry.make()).points if multiplies else 0.0


def traffic(entry: Entry) -> int:
    """Bytes of the inputs and of the result: what any program must move."""
    graph = canonicalize(entry.make())
    return sum(one.elements * numpy_dtype(one.dtype).itemsize for one in (*graph.inputs, *graph.outputs))


def small(entry: Entry) -> Entry:
    """An entry of this list with sizes of `SMALL` at most, their remainders modulo 8 kept: what a dry run takes."""
    fields: dict[str, Any] = dict(entry.fields)
    for name in SMALL.keys() & fields.keys():
        fields[name] = _cut(fields[name], SMALL[name])
    if "kv" in fields:  # as many queries' heads share one as before
        fields["kv"] = max(1, fields["heads"] * fields["kv"] // entry.fields["heads"])
    return replace(entry, fields=fields)


def _cut(size: int, most: int) -> int:
    return min(size, most) if size <= most or most < 8 else most - (-size % 8)
