"""TileLang: a matrix product of ours (`tilelang_kernels`), tuned by its own autotuner, on torch's arrays of the GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benches.peers.interface import Call, Library, Operation, missing, no_threads, offered
from benches.peers.with_torch import no_gpu, waiting_for


def absent() -> str | None:
    if importlib.util.find_spec("tilelang") is None:
        return missing("tilelang")
    if "tvm" in sys.modules and "tilelang" not in sys.modules:
        return "apache-tvm is in this process, and TileLang brings a TVM of its own"
    return no_gpu() or missing("tilelang")


def enqueued(name: str, tensors: Sequence[Any], out: Any, settings: Mapping[str, Any]) -> Call:
    """A call that enqueues on torch's current stream; tuned before, and the second matrix laid out by rows."""
    offered({"matmul": None}, Operation(name, tuple(out.shape)), "TileLang")
    from benches.peers.tilelang_kernels import tuned_matmul

    a, b = (tensor.contiguous() for tensor in tensors)
    (m, k), n = a.shape, b.shape[1]
    kernel = tuned_matmul(m, n, k, dtype=str(a.dtype).removeprefix("torch."))
    return lambda: kernel(a, b, out)


LIBRARY = Library("TileLang", "cuda", absent, no_threads, waiting_for(enqueued))
