"""Products with narrow weights beside libraries: ``python benches/bench_weight_only.py [--case TEXT] [--seconds S]``.

``y = x @ ((q - 8) * s).T`` on one core: x of M rows in float32, q of uint4 (N, K), or q of int8 without the 8, s in
float32 for each group of neighbours of a row of q; weights and scales are constant.  a32: activations stay as they are;
a8: the build may quantise them (`BuildOptions.quantize_activations`).  Libraries: ONNX Runtime's MatMulNBits with
``accuracy_level`` 0, and 4 for a8 (8 bits with level 0 take it 100 times as long, and are left out), and PyTorch's
`_weight_int4pack_mm_for_cpu`, which takes activations in bfloat16 (of float32 it has a reference only, 30 times as
slow) and errs as much as a8 does.

Results are compared first, with the product in float64: what is off by more than `APART` of the largest is named and
not timed.  All take turns in one process (`benches/timing`), and a case's ratio is the smallest, over the libraries, of
the median of their time over ours.  All cases together are kept, in results/weight_only_<cpu>_<day>.json.  Exits with 1
where an aim is missed.
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
from statistics import geometric_mean, median
from typing import Any

import ml_dtypes
import numpy as np

import rollergen as rg
from benches.aims import Aim
from benches.by_case import Row, run
from benches.timing import in_turns

A32, A8 = "a32", "a8"
APART = {A32: 1e-4, A8: 2e-2}
"""How far results may lie apart, of the largest, by what becomes of activations."""
ORT, ORT_A8, TORCH = "ONNX Runtime", "ONNX Runtime, a8", "PyTorch, bfloat16"
LEAST = {(A32, m): 1.8 for m in (1, 8, 32)} | {(A8, 1): 1.1, (A8, 8): 1.4, (A8, 32): 1.4}
"""Times of ours that the best library should take, of 4 bits and K = N = 4096, by activations and rows."""


@dataclass(frozen=True)
class Case:
    """``bits`` of weights (``n``, ``k``), a scale for ``group`` of them; ``activations``: `A32` or `A8`."""

    bits: int
    activations: str
    m: int
    k: int
    n: int
    group: int

    @property
    def name(self) -> str:
        return f"w{self.bits}{self.activations} {self.m}x{self.k}x{self.n} in groups of {self.group}"

    def make(self) -> rg.Tensor:
        x = rg.tensor("x", (self.m, self.k))
        q = rg.tensor("q", (self.n, self.k), "uint4" if self.bits == 4 else "int8", constant=True)
        s = rg.tensor("s", (self.n, self.k // self.group), constant=True)
        zero = 8 if self.bits == 4 else 0
        return rg.ops.linear(x, rg.ops.dequantize(q, s, zero, axis=1, block_size=self.group))

    def given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, the numbers q less their zero point, s."""
        rng = np.random.default_rng(0)
        half = 1 << self.bits - 1
        x = rng.random((self.m, self.k), dtype=np.float32) * 2 - 1
        s = (rng.random((self.n, self.k // self.group), dtype=np.float32) + 0.5) / (16 * half)
        return x, rng.integers(-half, half, (self.n, self.k)).astype(np.int16), s


def onnx(case: Case, level: int) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """MatMulNBits: a call, and what gives its result."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x, q, s = case.given()
    u = (q + (1 << case.bits - 1)).astype(np.uint8)
    packed = u[:, ::2] | u[:, 1::2] << 4 if case.bits == 4 else u
    blocks = packed.reshape(case.n, case.k // case.group, -1)
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=case.k, N=case.n, bits=case.bits,
        block_size=case.group, accuracy_level=level,
    )  # fmt: skip
    shaped = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    kept = [numpy_helper.from_array(blocks, "q"), numpy_helper.from_array(s, "s")]
    graph = helper.make_graph([node], "graph", [shaped("x", x.shape)], [shaped("y", (case.m, case.n))], kept)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty((case.m, case.n), np.float32))
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding), result.numpy


def torch(case: Case) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """PyTorch's product with weights of 4 bits."""
    import torch

    torch.set_num_threads(1)
    x, q, s = (torch.from_numpy(one) for one in case.given())
    packed = torch._convert_weight_to_int4pack_for_cpu((q + 8).to(torch.int32), 1)
    wide = s.T.contiguous().to(torch.bfloat16)
    scales, narrow = torch.stack([wide, torch.zeros_like(wide)], -1).contiguous(), x.to(torch.bfloat16)
    call = lambda: torch._weight_int4pack_mm_for_cpu(narrow, packed, case.group, scales)
    return call, lambda: call().float().numpy()


def libraries(case: Case) -> dict[str, Callable[[], Any]]:
    own: dict[str, Callable[[], Any]] = {}
    if case.bits == 4:
        own[ORT], own[TORCH] = lambda: onnx(case, 0), lambda: torch(case)
    return own | {ORT_A8: lambda: onnx(case, 4)} if case.activations == A8 or not own else own


SIZES = ((4096, 4096), (4096, 11008))
CASES = (
    *(Case(4, kind, m, k, n, 32) for kind in (A32, A8) for k, n in SIZES for m in (1, 8, 16, 32, 128)),
    *(Case(4, kind, m, 4096, 4096, 128) for kind in (A32, A8) for m in (1, 8, 32)),
    *(Case(8, A8, m, k, n, 32) for k, n in SIZES for m in (1, 8, 16, 32, 128)),
)


def measure(case: Case, seconds: float) -> Row:
    x, q, s = case.given()
    options = rg.BuildOptions(quantize_activations=case.activations == A8)
    kernel = rg.build(case.make(), "cpu", cache=False, options=options)
    stored = (q + 8).astype(ml_dtypes.uint4) if case.bits == 4 else q.astype(np.int8)
    given = {"x": x, "q": rg.pack(stored) if case.bits == 4 else stored, "s": s}
    arrays = [given[buffer.name] for buffer in kernel.signature.inputs]
    out = kernel(*arrays)
    weights = (q.reshape(*s.shape, -1) * s[..., None].astype(np.float64)).reshape(q.shape)
    want = x.astype(np.float64) @ weights.T
    apart = lambda got: float(np.abs(got - want).max() / np.abs(want).max())
    if apart(out) > APART[case.activations]:
        raise SystemExit(f"{case.name}: results lie {apart(out):.2g} apart")
    calls: dict[str, Callable[[], object]] = {}
    missing: dict[str, str] = {}
    for library, peer in libraries(case).items():
        try:
            calls[library], result = peer()
            calls[library]()
        except (ImportError, RuntimeError, NotImplementedError) as error:
            missing[library] = str(error).splitlines()[0]
            calls.pop(library, None)
            continue
        if apart(result()) > APART[A8]:
            missing[library] = f"computes something else (largest difference {apart(result()):.2g})"
            del calls[library]
    turns = in_turns({"rollergen": lambda: kernel(*arrays, out=out), **calls}, seconds)
    own = turns["rollergen"].again
    ratios = {name: median(t / o for t, o in zip(turns[name].again, own, strict=True)) for name in calls}
    return {
        "kind": f"w{case.bits}{case.activations}", "case": case.name, "ratio": min(ratios.values(), default=None),
        "ratios": ratios, "missing": missing, "ours_seconds": median(own), "apart": apart(out), "m": case.m,
        "seconds": {name: median(turns[name].again) for name in calls}, "n": case.n, "group": case.group,
        "predicted_seconds": kernel.predicted_time, "rounds": len(own),
        "gop_s": 2 * case.m * case.k * case.n / median(own) / 1e9,
    }  # fmt: skip


def said(row: Row) -> str:
    without = "".join(f", {library} {why}" for library, why in row["missing"].items())
    return f"{row['gop_s']:.0f} Gop/s, off by {row['apart']:.1g}{without}"


def aims(found: list[Row]) -> tuple[Aim, ...]:
    every = []
    for row in found:
        least = LEAST.get((row["kind"].removeprefix("w4"), row["m"])) if row["n"] == 4096 else None
        if least is not None and row["ratio"] is not None:
            what = f"The best library's time over ours, {row['case']}"
            every.append(Aim(what, f"{row['ratio']:.2f}", f"at least {least}", row["ratio"] >= least))
    mean = geometric_mean(one["ratio"] for one in found if one["ratio"] is not None)
    return (*every, Aim(f"The same of all {len(found)} cases, geometric mean", f"{mean:.2f}", "", True))


if __name__ == "__main__":
    raise SystemExit(run(__doc__, "weight_only", CASES, measure, said, aims))
