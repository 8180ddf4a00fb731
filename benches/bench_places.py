"""Takes, updates in place and prefix sums beside libraries:
``python benches/bench_places.py [--case TEXT] [--seconds S]``.

Rows of a table by ids (`embedding`, `index_select`, `gather`), a position of a cache of keys (`rg.put`) and `cumsum`,
float32 with int64 ids, beside PyTorch, ONNX Runtime and JAX.  All read the same arrays and, but for JAX, write the same
one: on some pages any of them takes up to 1.3 times as long as on others, however often it is repeated.  What is
updated in place is each one's own.  Ours looks at all ids before it runs.  Results are compared first, then all take
turns in one process on one core (`benches/timing`); a ratio is the median over the rounds of their time over ours.
ONNX Runtime has no update in place.  Kept in results/places_<cpu>_<day>.json.  Exits with 1 where an aim is missed.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.cores import bind

bind()

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import rollergen as rg
from benches.aims import Aim
from benches.by_case import Row, run
from benches.timing import Calls, in_turns
from rollergen.gate.arrays import aligned_empty

T = rg.tensor
APART = 1e-4
"""How far results may lie apart, of the largest."""
LEAST = 1.0
"""The least that the best library should take in every case, in times of ours."""

Arrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """``operator`` of `_OURS` over arrays of ``shapes`` along ``dim``; ids are places of x along it."""

    operator: str
    shapes: Shapes
    dim: int = 0

    @property
    def name(self) -> str:
        by = lambda shape: "x".join(map(str, shape)) or "1"
        beside = "".join(f", {name} {by(self.shapes[name])}" for name in ("ids", "block") if name in self.shapes)
        return f"{self.operator} {by(self.shapes['x'])} along {self.dim}{beside}"

    def tensors(self) -> dict[str, Any]:
        return {name: T(name, shape, "int64" if name == "ids" else "float32") for name, shape in self.shapes.items()}

    def arrays(self) -> Arrays:
        random, found = np.random.default_rng(1), {}
        for name, shape in self.shapes.items():
            found[name] = aligned_empty(shape, "int64" if name == "ids" else "float32")
            high = self.shapes["x"][self.dim]
            found[name][...] = random.integers(0, high, shape) if name == "ids" else random.random(shape)
        return found


CASES = (
    Case("embedding", {"x": (30522, 768), "ids": (512,)}),
    Case("embedding", {"x": (4096, 64), "ids": (2048,)}),
    Case("index_select", {"x": (4096, 1024), "ids": (1024,)}),
    Case("index_select", {"x": (512, 1024), "ids": (256,)}, 1),
    Case("gather", {"x": (1024, 1024), "ids": (256, 1024)}),
    Case("gather", {"x": (1024, 1024), "ids": (1024, 256)}, 1),
    Case("put", {"x": (32, 2048, 128), "block": (32, 1, 128)}, 1),
    Case("put", {"x": (8, 4096, 64), "block": (8, 16, 64)}, 1),
    Case("cumsum", {"x": (1024, 1024)}, 1),
    Case("cumsum", {"x": (1024, 1024)}),
    Case("cumsum", {"x": (8, 1 << 17)}, 1),
)
POSITION = 17
"""Where blocks are put."""


def _expression(case: Case) -> Any:
    x, ids, block = (case.tensors().get(name) for name in ("x", "ids", "block"))
    if case.operator == "put":
        last = case.shapes["x"][case.dim] - case.shapes["block"][case.dim]
        return rg.put(x, block, rg.scalar("position", "int32", 0, last), case.dim)
    made = {
        "embedding": lambda: rg.ops.embedding(ids, x), "index_select": lambda: rg.ops.index_select(x, case.dim, ids),
        "gather": lambda: rg.ops.gather(x, case.dim, ids), "cumsum": lambda: rg.ops.cumsum(x, case.dim),
    }  # fmt: skip
    return made[case.operator]()


def _copied(array: np.ndarray) -> np.ndarray:
    found = aligned_empty(array.shape, "float32")
    found[...] = array
    return found


def _numpys(case: Case, arrays: Arrays) -> np.ndarray:
    x = arrays["x"]
    if case.operator == "put":
        want = x.copy()
        want[:, POSITION : POSITION + case.shapes["block"][1]] = arrays["block"]
        return want
    if case.operator == "cumsum":
        return np.cumsum(x, case.dim, dtype="float64")
    if case.operator == "gather":
        return np.take_along_axis(x, arrays["ids"], case.dim)
    return np.take(x, arrays["ids"], case.dim)


def _ours(case: Case, arrays: Arrays, out: np.ndarray) -> tuple[Any, Callable[[], Any]]:
    """(The kernel, its call.)"""
    kernel = rg.build(_expression(case), "cpu", cache=False)
    if case.operator == "put":
        return kernel, partial(kernel, _copied(arrays["x"]), arrays["block"], POSITION)
    return kernel, partial(kernel, *(arrays[one.name] for one in kernel.signature.inputs), out=out)


def _torchs(case: Case, arrays: Arrays, out: np.ndarray) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    some = {name: torch.from_numpy(array) for name, array in arrays.items()}
    x, ids, out = some["x"], some.get("ids"), torch.from_numpy(out)
    if case.operator == "put":
        x, count, block = torch.from_numpy(_copied(arrays["x"])), case.shapes["block"][case.dim], some["block"]
        return lambda: x.narrow(case.dim, POSITION, count).copy_(block) is None or x  # the position is of the call
    if case.operator in ("embedding", "index_select"):
        return partial(torch.index_select, x, case.dim, ids, out=out)
    if case.operator == "gather":
        return partial(torch.gather, x, case.dim, ids, out=out)
    return partial(torch.cumsum, x, case.dim, out=out)


def _onnxruntimes(case: Case, arrays: Arrays, out: np.ndarray) -> Callable[[], Any] | None:
    import onnxruntime
    from onnx import helper

    node = {"embedding": "Gather", "index_select": "Gather", "gather": "GatherElements", "cumsum": "CumSum"}
    if case.operator not in node:
        return None
    given = {"x": arrays["x"], "ids": arrays.get("ids", np.array(case.dim))}
    axis = {} if case.operator == "cumsum" else {"axis": case.dim}
    info = lambda name, of: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(of.dtype), of.shape)
    told = [info(name, array) for name, array in given.items()]
    produced = info("y", out)
    graph = helper.make_graph([helper.make_node(node[case.operator], [*given], ["y"], **axis)], "g", told, [produced])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, value = session.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy
    for name, array in given.items():
        binding.bind_ortvalue_input(name, value(array))
    result = value(out)  # which keeps what is NumPy's, as `value` of an argument does on a CPU
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding) or result


def _jaxs(case: Case, arrays: Arrays, out: np.ndarray) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_x64", True)  # else it would be given ids of half as many bytes
    x, ids, block = (jnp.asarray(arrays[name]) if name in arrays else None for name in ("x", "ids", "block"))
    if case.operator == "put":
        cache = [x + 0]  # donated at each call: the one that comes back is the next one's
        append = jax.jit(jax.lax.dynamic_update_slice, donate_argnums=0)

        def put() -> Any:
            cache[0] = append(cache[0], block, (0, POSITION, 0)).block_until_ready()
            return cache[0]

        return put
    made = {
        "cumsum": lambda x, ids: jnp.cumsum(x, case.dim), "gather": lambda x, ids: jnp.take_along_axis(x, ids, case.dim)
    }.get(case.operator, lambda x, ids: jnp.take(x, ids, case.dim))  # fmt: skip
    compiled = jax.jit(made)
    return lambda: compiled(x, ids).block_until_ready()


_LIBRARIES = {"PyTorch": _torchs, "ONNX Runtime": _onnxruntimes, "JAX": _jaxs}


def measure(case: Case, seconds: float) -> Row:
    arrays = case.arrays()
    want = _numpys(case, arrays)
    out = aligned_empty(want.shape, "float32")
    kernel, ours = _ours(case, arrays, out)
    calls: Calls = {"rollergen": ours}
    for library, made in _LIBRARIES.items():
        call = made(case, arrays, out)
        if call is not None:
            calls[library] = call
    for library, call in calls.items():
        out.fill(np.nan)
        result: Any = call()
        got = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
        apart = float(np.abs(got - want).max() / np.abs(want).max())
        if not apart <= (APART if case.operator == "cumsum" else 0):
            raise SystemExit(f"{case.name}: {library} is {apart:.2g} apart from NumPy")
    times = {name: each.again for name, each in in_turns(calls, seconds).items()}
    own = times.pop("rollergen")
    ratios = {name: median(t / o for t, o in zip(each, own, strict=True)) for name, each in times.items()}
    return {
        "case": case.name, "ratio": min(ratios.values()), "ratios": ratios, "ours_seconds": median(own),
        "seconds": {name: median(each) for name, each in times.items()}, "predicted_seconds": kernel.predicted_time,
        "rounds": len(own),
    }  # fmt: skip


def _aims(found: Sequence[Row]) -> tuple[Aim, ...]:
    worst = min(found, key=lambda row: row["ratio"])
    figure = f"{worst['case']} {worst['ratio']:.2f}"
    what = "The best library's time over ours, takes, updates in place and prefix sums, the lowest case, one core"
    return (Aim(what, figure, f"at least {LEAST}", worst["ratio"] >= LEAST),)


if __name__ == "__main__":
    raise SystemExit(run(__doc__, "places", CASES, measure, lambda row: f"ratio {row['ratio']:.2f}", _aims))
