"""NumPy: its ufuncs and its BLAS, results written in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benches.peers.interface import (
    Arrays,
    Call,
    Library,
    NotOfferedError,
    Operation,
    no_threads,
    offered,
    require_float32,
)
from rollergen.gate.arrays import aligned_empty

Into = Callable[..., Any]


def _relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0), out=out)


def _transpose(x: np.ndarray, out: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    np.copyto(out, x.transpose(dims))
    return out


_TABLE: Mapping[str, Into] = {
    "matmul": np.matmul,
    "batch_matmul": np.matmul,
    "sum": np.sum,
    "amax": np.max,
    "mean": np.mean,
    "relu": _relu,
    "add": np.add,
    "mul": np.multiply,
    "argmax": np.argmax,
    "tanh": np.tanh,
    "transpose": _transpose,
}


def call(operation: Operation, arrays: Arrays) -> Call:
    function, settings = offered(_TABLE, operation, "NumPy"), dict(operation.settings)
    if "dim" in settings:
        settings["axis"] = settings.pop("dim")
    if "bias" in settings:
        raise NotOfferedError("NumPy has no fused bias")
    require_float32(arrays, "NumPy")
    out = aligned_empty(operation.shape, operation.dtype)
    return lambda: function(*arrays, out=out, **settings)


LIBRARY = Library("NumPy", "cpu", lambda: None, no_threads, call)
