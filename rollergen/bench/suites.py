"""Named lists of operators from the literature, each entry turned into an expression.

The lists are data (`benches/suites/*.json`, installed with the package), with their sources and what is
known to differ between a paper and its scripts.  Entries become expressions of `rg.ops` only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import rollergen as rg
from rollergen.errors import ArgumentError, name_advice
from rollergen.hal.dataclass import dataclass

if TYPE_CHECKING:
    from rollergen.expr.language import Tensor

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One operator of a suite.

    ``kind`` is the operator's class (matmul, conv2d, depthwise_conv2d, elementwise, avg_pool2d, reduce_sum,
    linear, attention); ``summary`` gives its sizes; ``fields`` is its record, which ``build`` turns into an
    expression.
    """

    suite: str
    id: str
    kind: str
    dtype: str
    summary: str
    fields: Fields
    build: Callable[[Fields], Tensor]

    def make(self) -> Tensor:
        """The expression, new at every call."""
        return self.build(self.fields)

    @property
    def name(self) -> str:
        return f"{self.suite}:{self.id}"


@dataclass(frozen=True)
class Suite:
    """A named list; ``source`` says where it is from."""

    name: str
    source: str
    entries: tuple[Entry, ...]

    def entry(self, id: str) -> Entry:
        """The entry called `id`.  Raises ArgumentError, with the nearest one."""
        return _found(id, {e.id: e for e in self.entries}, f"entry of suite {self.name}")

    def chosen(self, only: Collection[str] = ()) -> tuple[Entry, ...]:
        """The entries with these identifiers, in the suite's order; all where none is named.  Raises as `entry`."""
        wanted = {self.entry(id).id for id in only}
        return tuple(e for e in self.entries if not wanted or e.id in wanted)


def suite(name: str) -> Suite:
    """The suite called `name`.  Raises ArgumentError that lists the suites."""
    return _found(name, _SUITES, "suite")()


def suite_names() -> tuple[str, ...]:
    return tuple(_SUITES)


def _found(name: str, named: Mapping[str, Any], what: str) -> Any:
    if name in named:
        return named[name]
    raise ArgumentError(f"there is no {what} {name!r}; {name_advice(name, named)}")


def _read(file: str) -> Any:
    return json.loads(files("rollergen.suite_data").joinpath(file).read_text("utf-8"))


@lru_cache(maxsize=1)
def _roller() -> Suite:
    content = _read("roller_ops.json")
    source = f"{content['title']}: {content['source']['repo']}, {content['source']['commit']}"
    entries = [
        Entry("roller", op["id"], op["kind"], op["dtype"], _roller_summary(op), op, _ROLLER[op["kind"]])
        for op in content["ops"]
    ]
    return Suite("roller", source, tuple(entries))


def _roller_summary(op: Fields) -> str:
    shapes = " and ".join(_by(i["shape"]) for i in op["inputs"])
    window = f", stride {op['stride'][0]}, {op['padding']}" if op["stride"] else ""
    taps = f", window {_by([a[1] for a in op['axes']['reduce']])}" if op["kind"] == "avg_pool2d" else ""
    axes = f", axes {op['reduce_axes']}" if "reduce_axes" in op else ""
    return f"{op.get('func', '')} {shapes}{taps}{window}{axes} to {_by(op['output']['shape'])}".strip()


def _by(shape: Any) -> str:
    return "x".join(map(str, shape))


def _inputs(op: Fields) -> list[Tensor]:
    return [rg.tensor(i["name"], tuple(i["shape"]), op["dtype"]) for i in op["inputs"]]


def _sliding(op: Fields) -> dict[str, Any]:
    return {"stride": tuple(op["stride"]), "padding": op["padding"].lower()}


def _matmul(op: Fields) -> Tensor:
    a, b = _inputs(op)
    return rg.ops.matmul(a, b, name="C")


def _conv2d(op: Fields) -> Tensor:
    x, w = _inputs(op)
    return rg.ops.conv2d(x, w, **_sliding(op), dilation=tuple(op["dilation"]), name="O")


def _depthwise(op: Fields) -> Tensor:
    x, w = op["inputs"]
    channels, *taps = w["shape"]
    image = rg.tensor(x["name"], tuple(x["shape"]), op["dtype"])
    weight = rg.tensor(w["name"], (channels, 1, *taps), op["dtype"])
    return rg.ops.depthwise_conv2d(image, weight, **_sliding(op), dilation=tuple(op["dilation"]), name="O")


def _avg_pool(op: Fields) -> Tensor:
    taps = tuple(extent for _, extent in op["axes"]["reduce"])
    (x,) = _inputs(op)
    return rg.ops.avg_pool2d(x, taps, **_sliding(op), count_include_pad=op["count_include_pad"], name="O")


def _elementwise(op: Fields) -> Tensor:
    return getattr(rg.ops, op["func"])(*_inputs(op), name="Y")


def _reduce_sum(op: Fields) -> Tensor:
    (x,) = _inputs(op)
    return rg.ops.sum(x, tuple(op["reduce_axes"]), name="Y")


_ROLLER: Mapping[str, Callable[[Fields], Tensor]] = {
    "matmul": _matmul,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "avg_pool2d": _avg_pool,
    "elementwise": _elementwise,
    "reduce_sum": _reduce_sum,
}


@lru_cache(maxsize=1)
def _resnet18() -> Suite:
    content = _read("seed_suites.json")["autotvm_resnet18"]
    name = "autotvm-resnet18"

    def make(op: Fields) -> Tensor:
        x, w = rg.tensor("X", tuple(op["input"]), op["dtype"]), rg.tensor("W", tuple(op["weight"]), op["dtype"])
        return rg.ops.conv2d(x, w, stride=op["stride"], padding=op["padding"], name="O")

    def summary(op: Fields) -> str:
        sizes = f"{_by(op['input'])} and {_by(op['weight'])}"
        return f"{sizes}, stride {op['stride']}, padding {op['padding']}"

    entries = [Entry(name, op["id"], "conv2d", op["dtype"], summary(op), op, make) for op in content["ops"]]
    return Suite(name, content["source"], tuple(entries))


@lru_cache(maxsize=1)
def _linears() -> Suite:
    content = _read("seed_suites.json")["pruner_linears"]
    name = "pruner-linears"

    def make(op: Fields) -> Tensor:
        x = rg.tensor("X", (op["M"], op["K"]), op["dtype"])
        return rg.ops.linear(x, rg.tensor("W", (op["N"], op["K"]), op["dtype"], constant=True), name="Y")

    entries = [
        Entry(
            name, f"{op['model']}, {op['phase']}, {op['name']}, {dtype}", "linear", dtype,
            f"{op['M']}x{op['K']} and {op['N']}x{op['K']}", {**op, "dtype": dtype}, make,
        )
        for dtype in content["dtype"]
        for op in content["ops"]
    ]  # fmt: skip
    return Suite(name, content["source"], tuple(entries))


@lru_cache(maxsize=1)
def _attention() -> Suite:
    content = _read("seed_suites.json")["pruner_attention"]
    name = "pruner-attention"

    def make(op: Fields) -> Tensor:
        sizes = zip("QKV", (op["queries"], op["keys"], op["keys"]), strict=True)
        return rg.ops.attention(
            *(rg.tensor(n, (op["batch_heads"], rows, op["head_dim"])) for n, rows in sizes), name="O"
        )

    entries = [
        Entry(
            name, f"{op['model']}, {op['phase']}", op["kind"], "float32",
            f"{op['batch_heads']} heads, {op['queries']} queries, {op['keys']} keys of {op['head_dim']}",
            op, make,
        )
        for op in content["ops"]
    ]  # fmt: skip
    return Suite(name, content["source"], tuple(entries))


@lru_cache(maxsize=1)
def _collection() -> Suite:
    content = _read("collection.json")
    name, dtype = "collection", content["dtype"]

    def make(op: Fields) -> Tensor:
        tensors = [
            rg.tensor(f"X{n}", tuple(shape), dtype, constant=n in op["constant"])
            for n, shape in enumerate(op["inputs"])
        ]
        plain = len(tensors) - len(op["named"])
        named = dict(zip(op["named"], tensors[plain:], strict=True))
        return getattr(rg.ops, op["op"])(*tensors[:plain], **named, **op["settings"], name="Y")

    entries = [Entry(name, op["id"], op["kind"], dtype, op["id"], op, make) for op in content["ops"]]
    return Suite(name, content["title"], tuple(entries))


_SUITES: Mapping[str, Callable[[], Suite]] = {
    "roller": _roller,
    "autotvm-resnet18": _resnet18,
    "pruner-linears": _linears,
    "pruner-attention": _attention,
    "collection": _collection,
}
