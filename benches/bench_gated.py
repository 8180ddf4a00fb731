"""Gated products in one pass beside two kernels and libraries:
``python benches/bench_gated.py [--case TEXT] [--seconds S]``.

``gate(x @ g) * (x @ u)``, and what an LSTM cell makes of one wide product, as one kernel; as two, of which the second
reads what the first has stored; by ONNX Runtime and by PyTorch.  Weights are constant; results are compared first, then
all take turns in one process on one core (`benches/timing`), and a ratio is the median over the rounds of their time
over ours.  Beside that what the model predicts for GPUs, of one kernel and of two, in float32 and float16 (where it
finds two faster, the one expression is cut in two as well).  All cases are kept together, in
results/gated_<cpu>_<day>.json.  Exits with 1 where an aim is missed.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.cores import bind

bind()

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import rollergen as rg
from benches.aims import Aim
from benches.by_case import Row, run
from benches.timing import Calls, in_turns
from rollergen.gate.arrays import aligned_empty
from rollergen.research import construct, predict
from rollergen.targets import resolve

ops, T = rg.ops, rg.tensor
OF_TWO, OF_LIBRARY = 1 / 0.97, 1.08
"""The least that two kernels and ONNX Runtime should take of SwiGLU 128 x 768 x 3072, in times of ours."""
DEVICES, DTYPES = ("v100", "a100", "h200"), ("float32", "float16")
APART = 1e-4
"""How far results of libraries may lie apart, of the largest."""


Given = dict[str, Any]
"""The given tensors, or arrays, by name: x, the constant weights g and u or w, the state of a cell."""
Node = tuple[str, str, str]
"""Of ONNX: operator, names of what it takes, names of what it makes."""


@dataclass(frozen=True)
class Case:
    """``stored``: what two kernels hand over; ``rest``: the result, of it and what is given; ``torch``: all of it by
    PyTorch; ``nodes``: all of it in ONNX, the result being y."""

    name: str
    sizes: tuple[int, int, int]
    columns: dict[str, int]
    stored: Callable[[Given], Any]
    rest: Callable[[Given, Any], Any]
    torch: Callable[[Given], Any]
    nodes: tuple[Node, ...]

    def given(self, dtype: str = "float32") -> Given:
        """``columns`` of the weights in times of n; the state of a cell is as large as the result."""
        m, k, n = self.sizes
        weights = {name: T(name, (k, times * n), dtype, constant=True) for name, times in self.columns.items()}
        return {"x": T("x", (m, k), dtype), **weights, "state": T("state", (m, n), dtype)}

    def together(self, dtype: str = "float32") -> Any:
        given = self.given(dtype)
        return self.rest(given, self.stored(given))

    def apart(self, dtype: str = "float32") -> tuple[Any, Any]:
        """What is stored, and what is computed of it."""
        given = self.given(dtype)
        stored = self.stored(given)
        return stored, self.rest(given, T("t", stored.shape, dtype))

    @property
    def flop(self) -> int:
        m, k, n = self.sizes
        return 2 * m * k * n * sum(self.columns.values())


def gated(
    name: str, sizes: tuple[int, int, int], gate: str, torch: Callable[[Any], Any], nodes: tuple[Node, ...]
) -> Case:
    """``gate(x @ g) * (x @ u)``; ``nodes``: of a, the gate of p."""
    products = (("MatMul", "x g", "p"), ("MatMul", "x u", "q"), *nodes, ("Mul", "a q", "y"))
    return Case(
        f"{name} {' x '.join(map(str, sizes))}", sizes, {"g": 1, "u": 1},
        lambda given: ops.matmul(given["x"], given["u"]),
        lambda given, t: ops.mul(getattr(ops, gate)(ops.matmul(given["x"], given["g"])), t),
        lambda given: torch(given["x"] @ given["g"]) * (given["x"] @ given["u"]), products,
    )  # fmt: skip


def _silu(value: Any) -> Any:
    import torch

    return torch.nn.functional.silu(value)


def _gelu(value: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(value)


def swiglu(*sizes: int) -> Case:
    return gated("SwiGLU", sizes, "silu", _silu, (("Sigmoid", "p", "s"), ("Mul", "p s", "a")))  # type: ignore[arg-type]


def geglu(*sizes: int) -> Case:
    return gated("GEGLU", sizes, "gelu", _gelu, (("Gelu", "p", "a"),))  # type: ignore[arg-type]


def _cell(given: Given, gates: Any) -> Any:
    i, f, g, o = ops.chunk(gates, 4, 1)
    state = ops.add(ops.mul(ops.sigmoid(f), given["state"]), ops.mul(ops.sigmoid(i), ops.tanh(g)))
    return ops.mul(ops.sigmoid(o), ops.tanh(state))


def _torch_cell(given: Given) -> Any:
    i, f, g, o = (given["x"] @ given["w"]).chunk(4, 1)
    return o.sigmoid() * (f.sigmoid() * given["state"] + i.sigmoid() * g.tanh()).tanh()


def lstm(*sizes: int) -> Case:
    """What an LSTM cell gives, its four gates parts of one product of input and hidden state side by side."""
    nodes = (
        ("MatMul", "x w", "gates"), ("Split", "gates", "i f g o"), ("Sigmoid", "i", "si"), ("Sigmoid", "f", "sf"),
        ("Sigmoid", "o", "so"), ("Tanh", "g", "tg"), ("Mul", "sf state", "kept"), ("Mul", "si tg", "new"),
        ("Add", "kept new", "c"), ("Tanh", "c", "tc"), ("Mul", "so tc", "y"),
    )  # fmt: skip
    stored = lambda given: ops.matmul(given["x"], given["w"])
    return Case(f"LSTM cell {' x '.join(map(str, sizes))}", sizes, {"w": 4}, stored, _cell, _torch_cell, nodes)  # type: ignore[arg-type]


CASES = (
    swiglu(128, 768, 3072), geglu(128, 768, 3072), swiglu(197, 384, 1000), swiglu(32, 1024, 2816),
    swiglu(1, 1024, 2816), lstm(64, 1024, 512), lstm(128, 1536, 768),
)  # fmt: skip


def onnx_call(case: Case, arrays: Given) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call of ONNX Runtime, weights as initializers, and what gives its result."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    split: dict[str, dict[str, Any]] = {"Split": {"axis": 1, "num_outputs": 4}}
    nodes = [helper.make_node(op, a.split(), b.split(), **split.get(op, {})) for op, a, b in case.nodes]
    m, _, n = case.sizes
    read = {name for _, names, _ in case.nodes for name in names.split()}
    inputs = {name: array for name, array in arrays.items() if name in read and name not in case.columns}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, (m, n))
    kept = [numpy_helper.from_array(arrays[name], name) for name in case.columns]
    graph = helper.make_graph(nodes, "gated", given, [made], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty((m, n), "float32"))
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding), result.numpy


def torch_call(case: Case, arrays: Given) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    import torch

    torch.set_num_threads(1)
    given = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return lambda: case.torch(given), lambda: case.torch(given).numpy()


PEERS = {"ONNX Runtime": onnx_call, "PyTorch": torch_call}


def _drawn(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    array = aligned_empty(shape, "float32")
    array[...] = rng.random(shape, dtype=np.float32) * 2 - 1
    return array


def _built(expression: Any) -> Any:
    return rg.build(expression, "cpu", cache=False)


def _call(kernel: Any, arrays: Given, out: np.ndarray) -> Callable[[], object]:
    own = [arrays[buffer.name] for buffer in kernel.signature.inputs]
    return lambda: kernel(*own, out=out)


def measure(case: Case, seconds: float) -> Row:
    one, (first, rest) = _built(case.together()), map(_built, case.apart())
    rng = np.random.default_rng(1)
    arrays = {name: _drawn(tensor.shape, rng) for name, tensor in case.given().items()}
    out, result = (aligned_empty(one.signature.outputs[0].shape, "float32") for _ in range(2))
    stored = aligned_empty(first.signature.outputs[0].shape, "float32")
    before, after = _call(first, arrays, stored), _call(rest, {**arrays, "t": stored}, result)
    calls: Calls = {"one kernel": _call(one, arrays, out), "two kernels": lambda: (before(), after())}
    calls["one kernel"]()
    calls["two kernels"]()
    results, missing = {"two kernels": result}, {}
    for library, peer in PEERS.items():
        try:
            calls[library], found = peer(case, arrays)
            calls[library]()
        except ImportError as error:
            missing[library] = str(error).splitlines()[0]
            continue
        results[library] = found()
    for name, theirs in results.items():
        apart = float(np.abs(theirs - out).max() / np.abs(out).max())
        if apart > APART:
            raise SystemExit(f"{case.name}: {name} computes something else (largest difference {apart:.2g})")
    turns = in_turns(calls, seconds)
    own = turns.pop("one kernel").again
    ratios = {name: median(t / o for t, o in zip(each.again, own, strict=True)) for name, each in turns.items()}
    sums = [stage.op.components for stage in one.program.stages if stage.op.reductions]
    return {
        "case": case.name, "ratios": ratios, "missing": missing, "ours_seconds": median(own), "sums": sums,
        "seconds": {name: median(each.again) for name, each in turns.items()}, "rounds": len(own),
        "gflop_s": 1e-9 * case.flop / median(own),
        "predicted": {"one kernel": one.predicted_time, "two kernels": first.predicted_time + rest.predicted_time},
        "gpus": predicted(case),
    }  # fmt: skip


def predicted(case: Case) -> list[dict[str, Any]]:
    """Seconds of the program that is chosen and of two kernels, on GPUs."""
    found = []
    for device in DEVICES:
        for dtype in DTYPES:
            spec = resolve(device)
            seconds = lambda made, spec=spec: predict(construct(made, spec, top_k=1)[0], spec).seconds
            one, two = seconds(case.together(dtype)), sum(map(seconds, case.apart(dtype)))
            found.append({"device": device, "dtype": dtype, "one": one, "two": two, "ratio": one / two})
    return found


def aims(found: list[Row]) -> tuple[Aim, ...]:
    first = found[0]
    of_two, of_library = first["ratios"]["two kernels"], first["ratios"].get("ONNX Runtime", 0.0)
    slowest = max((row for one in found for row in one["gpus"]), key=lambda row: row["ratio"])
    where = f"{slowest['ratio']:.3f} on {slowest['device']} in {slowest['dtype']}"
    return (
        Aim(f"Two kernels' time over one's, {first['case']}, one core", f"{of_two:.3f}", f"at least {OF_TWO:.3f}",
            of_two >= OF_TWO),
        Aim(f"ONNX Runtime's time over ours, {first['case']}, one core", f"{of_library:.3f}",
            f"at least {OF_LIBRARY}", of_library >= OF_LIBRARY),
        Aim("One kernel's predicted time over two kernels', the highest", where, "at most 1", slowest["ratio"] <= 1),
    )  # fmt: skip


def said(row: Row) -> str:
    on = " ".join(f"{one['device']} {one['dtype']} {one['ratio']:.2f}" for one in row["gpus"])
    return f"{row['gflop_s']:.0f} GFLOP/s; {on}"


if __name__ == "__main__":
    raise SystemExit(run(__doc__, "gated", CASES, measure, said, aims))
