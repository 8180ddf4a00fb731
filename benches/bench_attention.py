"""Attention as one kernel beside several and libraries:
``python benches/bench_attention.py [--case TEXT] [--seconds S]``.

``softmax(q @ k^T * scale + mask) @ v`` of one layer, float32, as it is built by default; with each contraction a kernel
of its own; by ONNX Runtime (its Attention of opset 23) and by PyTorch (scaled_dot_product_attention).  Results are
compared first, then all take turns in one process on one core (`benches/timing`), and a ratio is the median over the
rounds of their time over ours.  Kept in results/attention_<cpu>_<day>.json.  Exits with 1 where an aim is missed.
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
from math import exp, log
from statistics import median

import numpy as np

import rollergen as rg
from benches.aims import Aim
from benches.by_case import Row, run
from benches.timing import Calls, in_turns
from rollergen.gate.arrays import aligned_empty

T = rg.tensor
APART = 1e-4
"""How far results of libraries may lie apart, of the largest."""
OF_BEST, OF_BERT, OF_CAUSAL, OF_DECODE = 1.7, 1.1, 2.0, 1.05
"""The least that the best library should take, in times of ours: of all cases, their geometric mean; of BERT; of causal
ones of 512 rows and more; of one row."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """``heads`` of queries, of which several may share one of ``shared`` heads of keys; ``mask``: "", causal, bool."""

    name: str
    heads: int
    shared: int
    rows: int
    keys: int
    depth: int
    mask: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        keys = (1, self.shared, self.keys, self.depth)
        found: dict[str, tuple[int, ...]] = {"q": (1, self.heads, self.rows, self.depth), "k": keys, "v": keys}
        return found | ({"m": (self.rows, self.keys)} if self.mask == "bool" else {})

    def expression(self) -> rg.Tensor:
        given = {name: T(name, shape, "bool" if name == "m" else "float32") for name, shape in self.shapes.items()}
        return rg.ops.scaled_dot_product_attention(
            given["q"], given["k"], given["v"], given.get("m"), is_causal=self.mask == "causal", enable_gqa=True
        )

    @property
    def flop(self) -> float:
        """Of both products; of a causal square half."""
        return 4.0 * self.heads * self.rows * self.keys * self.depth / (2 if self.mask == "causal" else 1)


CASES = (
    Case("BERT 12 x 128 x 64", 12, 12, 128, 128, 64),
    Case("BERT masked 12 x 384 x 64", 12, 12, 384, 384, 64, "bool"),
    Case("ViT 12 x 197 x 64", 12, 12, 197, 197, 64),
    Case("GPT-2 causal 12 x 1024 x 64", 12, 12, 1024, 1024, 64, "causal"),
    Case("LLaMA causal 8 x 512 x 128", 8, 8, 512, 512, 128, "causal"),
    Case("LLaMA causal 8 x 2048 x 128", 8, 8, 2048, 2048, 128, "causal"),
    Case("grouped causal 16 of 4 x 512 x 128", 16, 4, 512, 512, 128, "causal"),
    Case("grouped 16 of 4 x 256 x 64", 16, 4, 256, 256, 64),
    Case("heads of 32, 16 x 256", 16, 16, 256, 256, 32),
    Case("heads of 256, 4 x 256", 4, 4, 256, 256, 256),
    Case("cross 8 x 77 of 333 x 80", 8, 8, 77, 333, 80),
    Case("decode 32 x 1 of 4096 x 128", 32, 32, 1, 4096, 128),
)


def onnx_call(case: Case, arrays: Arrays) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call of ONNX Runtime's own attention, and what gives its result."""
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("Attention", list(arrays), ["y"], is_causal=int(case.mask == "causal"))
    kind = lambda array: TensorProto.BOOL if array.dtype == bool else TensorProto.FLOAT
    given = [helper.make_tensor_value_info(name, kind(array), array.shape) for name, array in arrays.items()]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, arrays["q"].shape)
    graph = helper.make_graph([node], "attention", given, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(arrays["q"].shape, "float32"))
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding), result.numpy


def torch_call(case: Case, arrays: Arrays) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    import torch

    torch.set_num_threads(1)
    q, k, v, *mask = (torch.from_numpy(array) for array in arrays.values())
    attention = torch.nn.functional.scaled_dot_product_attention
    causal, grouped = case.mask == "causal", case.shared != case.heads
    call = lambda: attention(q, k, v, *mask, is_causal=causal, enable_gqa=grouped)
    return call, lambda: call().numpy()


PEERS = {"ONNX Runtime": onnx_call, "PyTorch": torch_call}


def _drawn(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if name == "m":
        return np.asarray(rng.random(shape) < 0.8)
    array = aligned_empty(shape, "float32")
    array[...] = rng.standard_normal(shape, dtype=np.float32)
    return array


def measure(case: Case, seconds: float) -> Row:
    rng = np.random.default_rng(1)
    arrays = {name: _drawn(name, shape, rng) for name, shape in case.shapes.items()}
    calls: Calls = {}
    results: Arrays = {}
    kernels = {}
    for name, fused in (("ours", True), ("several kernels", False)):
        shapes = rg.CodeShapes(chains=fused)
        kernel = kernels[name] = rg.build(case.expression(), "cpu", cache=False, options=rg.BuildOptions(shapes=shapes))
        out = results[name] = aligned_empty(arrays["q"].shape, "float32")
        own = [arrays[buffer.name] for buffer in kernel.signature.inputs]
        calls[name] = lambda kernel=kernel, own=own, out=out: kernel(*own, out=out)  # type: ignore[misc]
        calls[name]()
    missing = {}
    for library, peer in PEERS.items():
        try:
            calls[library], found = peer(case, arrays)
            calls[library]()
            results[library] = found()
        except Exception as error:  # a library that lacks the operator is no reason to stop
            calls.pop(library, None)
            missing[library] = str(error).splitlines()[0]
    for name, theirs in results.items():
        apart = float(np.abs(theirs - results["ours"]).max() / np.abs(results["ours"]).max())
        if apart > APART:
            raise SystemExit(f"{case.name}: {name} computes something else (largest difference {apart:.2g})")
    turns = in_turns(calls, seconds)
    own_times = turns.pop("ours").again
    ratios = {name: median(t / o for t, o in zip(each.again, own_times, strict=True)) for name, each in turns.items()}
    program = kernels["ours"].program
    return {
        "case": case.name, "ratios": ratios, "missing": missing, "ours_seconds": median(own_times),
        "seconds": {name: median(each.again) for name, each in turns.items()}, "rounds": len(own_times),
        "gflop_s": 1e-9 * case.flop / median(own_times), "fused": len(program.stages) == 1,
        "temporary_bytes": sum(4 * one.elements for one in program.temporaries),
        "predicted": {name: kernel.predicted_time for name, kernel in kernels.items()},
    }  # fmt: skip


def _best(one: Row) -> float:
    """The best library's time over ours."""
    return min((ratio for name, ratio in one["ratios"].items() if name in PEERS), default=0.0)


def aims(found: list[Row]) -> tuple[Aim, ...]:
    best = {case.name: _best(one) for case, one in zip(CASES, found, strict=True)}
    mean = exp(sum(log(max(ratio, 1e-9)) for ratio in best.values()) / len(best))
    causal = min(best[case.name] for case in CASES if case.mask == "causal" and case.rows >= 512)
    rows = (
        ("geometric mean of 12 cases", mean, OF_BEST), ("BERT", best[CASES[0].name], OF_BERT),
        ("causal, 512 rows and more, the lowest", causal, OF_CAUSAL), ("one row", best[CASES[-1].name], OF_DECODE),
    )  # fmt: skip
    return tuple(
        Aim(f"The best library's time over ours, {what}, one core", f"{ratio:.3f}", f"at least {least}", ratio >= least)
        for what, ratio, least in rows
    )


def said(row: Row) -> str:
    return f"{row['gflop_s']:.0f} GFLOP/s, {'one kernel' if row['fused'] else 'several kernels'}"


if __name__ == "__main__":
    raise SystemExit(run(__doc__, "attention", CASES, measure, said, aims))
