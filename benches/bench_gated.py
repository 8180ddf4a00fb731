"""Gated products in one pass beside two kernels and libraries:
``python benches/bench_gated.py [--case TEXT] [--seconds S]``.

``gate(x @ g) * (x @ u)`` as one kernel; as two, of which the second reads what the first has stored; by ONNX Runtime
and by PyTorch.  Weights are constant; results are compared first, then all take turns in one process on one core
(`benches/timing`), and a ratio is the median over the rounds of their time over ours.  Beside that what the model
predicts for GPUs, of one kernel and of two, in float32 and float16.  All cases are kept together, in
results/gated_<cpu>_<day>.json.  Exits with 1 where an aim is missed.
"""

# ruff: noqa: E402
from __future__ import annotations

import os
import sys
from pathlib import Path

for name in ("POCL_MAX_PTHREAD_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import rollergen as rg
from benches.aims import Aim, verdict
from benches.results import keep
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


@dataclass(frozen=True)
class Case:
    """``gate`` of the first product: ours, PyTorch's, and the nodes of ONNX (operator, inputs, attributes) that make
    ``a`` of ``g``."""

    name: str
    sizes: tuple[int, int, int]
    gate: Callable[[Any], Any]
    torch: Callable[[Any], Any]
    nodes: tuple[tuple[str, str, dict[str, Any]], ...]

    def tensors(self, dtype: str = "float32") -> tuple[Any, Any, Any]:
        m, k, n = self.sizes
        return T("x", (m, k), dtype), T("g", (k, n), dtype, constant=True), T("u", (k, n), dtype, constant=True)

    def together(self, dtype: str = "float32") -> Any:
        x, g, u = self.tensors(dtype)
        return ops.mul(self.gate(ops.matmul(x, g)), ops.matmul(x, u))

    def apart(self, dtype: str = "float32") -> tuple[Any, Any]:
        """The second product, and what is computed of it and the first."""
        (m, _, n), (x, g, u) = self.sizes, self.tensors(dtype)
        return ops.matmul(x, u), ops.mul(self.gate(ops.matmul(x, g)), T("t", (m, n), dtype))


def _silu(value: Any) -> Any:
    import torch

    return torch.nn.functional.silu(value)


def _gelu(value: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(value)


SILU = (ops.silu, _silu, (("Sigmoid", "g", {}), ("Mul", "g s", {})))
GELU = (ops.gelu, _gelu, (("Gelu", "g", {}),))
CASES = (
    Case("SwiGLU 128 x 768 x 3072", (128, 768, 3072), *SILU),
    Case("GEGLU 128 x 768 x 3072", (128, 768, 3072), *GELU),
    Case("SwiGLU 32 x 1024 x 2816", (32, 1024, 2816), *SILU),
    Case("SwiGLU 1 x 1024 x 2816", (1, 1024, 2816), *SILU),
    Case("SwiGLU 197 x 384 x 1000", (197, 384, 1000), *SILU),
)


def onnx_call(case: Case, arrays: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call of ONNX Runtime, weights as initializers, and what gives its result."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x, g, u = arrays
    nodes = [helper.make_node("MatMul", ["x", "wg"], ["g"]), helper.make_node("MatMul", ["x", "wu"], ["u"])]
    for number, (op, names, attributes) in enumerate(case.nodes):
        output = "a" if number == len(case.nodes) - 1 else "s"
        nodes.append(helper.make_node(op, names.split(), [output], **attributes))
    nodes.append(helper.make_node("Mul", ["a", "u"], ["y"]))
    m, _, n = case.sizes
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, (m, n))
    kept = [numpy_helper.from_array(g, "wg"), numpy_helper.from_array(u, "wu")]
    graph = helper.make_graph(nodes, "gated", [given], [made], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty((m, n), "float32"))
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding), result.numpy


def torch_call(case: Case, arrays: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    import torch

    torch.set_num_threads(1)
    x, g, u = (torch.from_numpy(array) for array in arrays)
    call = lambda: case.torch(x @ g) * (x @ u)
    return call, lambda: call().numpy()


PEERS = {"ONNX Runtime": onnx_call, "PyTorch": torch_call}


def _drawn(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    array = aligned_empty(shape, "float32")
    array[...] = rng.random(shape, dtype=np.float32) * 2 - 1
    return array


def _built(expression: Any) -> Any:
    return rg.build(expression, "cpu", cache=False)


def measure(case: Case, seconds: float) -> dict[str, Any]:
    one, (second, rest) = _built(case.together()), map(_built, case.apart())
    rng = np.random.default_rng(1)
    x, g, u = arrays = [_drawn(tensor.shape, rng) for tensor in case.tensors()]
    out, stored, result = (aligned_empty((case.sizes[0], case.sizes[2]), "float32") for _ in range(3))

    def two() -> None:
        second(x, u, out=stored)
        rest(x, g, stored, out=result)

    calls: Calls = {"one kernel": lambda: one(x, g, u, out=out), "two kernels": two}
    calls["one kernel"]()
    two()
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
    stages = [len(stage.op.reductions[0].bodies) for stage in one.program.stages if stage.op.reductions]
    m, k, n = case.sizes
    return {
        "case": case.name, "ratios": ratios, "missing": missing, "ours_seconds": median(own), "sums": stages,
        "seconds": {name: median(each.again) for name, each in turns.items()}, "rounds": len(own),
        "gflop_s": 4e-9 * m * k * n / median(own),
        "predicted": {"one kernel": one.predicted_time, "two kernels": second.predicted_time + rest.predicted_time},
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


def aims(found: list[dict[str, Any]]) -> tuple[Aim, ...]:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of timing for each case")
    arguments = parser.parse_args()
    found = []
    for case in CASES:
        if arguments.case not in case.name:
            continue
        found.append(one := {**measure(case, arguments.seconds), "gpus": predicted(case)})
        every = " ".join(f"{name} {ratio:.2f}" for name, ratio in one["ratios"].items())
        on = " ".join(f"{row['device']} {row['dtype']} {row['ratio']:.2f}" for row in one["gpus"])
        ours = f"{one['ours_seconds'] * 1e6:.0f} us, {one['gflop_s']:.0f} GFLOP/s"
        print(f"{case.name}: {ours}; {every}; {on}", flush=True)
    if not found:
        raise SystemExit(f"no case has {arguments.case!r} in its name")
    if arguments.case:
        return 0
    judged = aims(found)
    print(f"kept in {keep('gated', {'headlines': [one.headline() for one in judged], 'cases': found})}")
    return verdict(judged)


if __name__ == "__main__":
    raise SystemExit(main())
