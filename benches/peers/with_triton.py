"""Triton: small kernels of ours (`triton_kernels`), tuned by its own autotuner, on torch's arrays of the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from benches.peers.interface import Call, Library, NotOfferedError, Operation, missing, no_threads, offered
from benches.peers.with_torch import no_gpu, waiting_for

LONGEST_ROW = 1 << 16
"""Elements of a row that softmax keeps in registers."""


@dataclass(frozen=True)
class Launch:
    """``kernel`` with its arguments; ``grid``: programs, given the tiles that the configuration chose."""

    kernel: str
    arguments: tuple[Any, ...]
    grid: Callable[[Mapping[str, int]], tuple[int, ...]]
    constants: Mapping[str, Any]


def absent() -> str | None:
    return missing("triton") or no_gpu()


def launch(name: str, tensors: Sequence[Any], out: Any, settings: Mapping[str, Any]) -> Launch:
    """What writes ``out``.  Raises NotOfferedError where there is no such kernel here, or not for these shapes."""
    made = offered(_TABLE, Operation(name, tuple(out.shape)), "Triton")
    return made(name, tensors, out, **settings)  # type: ignore[no-any-return]


def enqueued(name: str, tensors: Sequence[Any], out: Any, settings: Mapping[str, Any]) -> Call:
    """A call that enqueues on torch's current stream; the first one tunes."""
    from benches.peers import triton_kernels

    made = launch(name, tensors, out, settings)
    kernel = triton_kernels.tuned(made.kernel)
    return lambda: kernel[made.grid](*made.arguments, **made.constants)


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _matmul(name: str, tensors: Sequence[Any], out: Any) -> Launch:
    a, b = tensors
    (m, k), n = a.shape, b.shape[1]
    grid = lambda tile: (_tiles(m, tile["TILE_M"]) * _tiles(n, tile["TILE_N"]),)
    return Launch("matmul", (a, b, out, m, n, k, *a.stride(), *b.stride()), grid, {})


def _row_tile(name: str, columns: int) -> int:
    """The power of two that holds a row.  Raises NotOfferedError for one that is too long."""
    if columns > LONGEST_ROW:
        raise NotOfferedError(f"{name} of rows of {columns}; here Triton has those of at most {LONGEST_ROW}")
    return 1 << (columns - 1).bit_length()


def _softmax(name: str, tensors: Sequence[Any], out: Any, dim: int) -> Launch:
    (x,) = tensors
    columns = x.shape[-1]
    if dim not in (-1, x.dim() - 1):
        raise NotOfferedError(f"softmax over axis {dim} of {tuple(x.shape)}; here Triton has that of the last one")
    tile = _row_tile(name, columns)
    return Launch("softmax", (x, out, columns), lambda chosen: (x.numel() // columns,), {"TILE": tile})


def _norm(name: str, tensors: Sequence[Any], out: Any, normalized_shape: Sequence[int]) -> Launch:
    """With weights: (x, weight, bias) of layer_norm, (x, weight) of rms_norm."""
    centred = name == "layer_norm"
    if len(tensors) != 2 + centred or len(normalized_shape) != 1:
        has = "here Triton has that of the last axis with its weights"
        raise NotOfferedError(f"{name} of {len(tensors)} arrays over {len(normalized_shape)} axes; {has}")
    x, weight, bias, columns = tensors[0], tensors[1], tensors[-1], normalized_shape[0]
    how = {"CENTRED": centred, "TILE": _row_tile(name, columns)}
    arguments = (x, weight, bias, out, columns, 1e-5 if centred else 1e-6)
    return Launch("norm", arguments, lambda chosen: (x.numel() // columns,), how)


def _unary(name: str, tensors: Sequence[Any], out: Any) -> Launch:
    (x,) = tensors
    grid = lambda tile: (_tiles(x.numel(), tile["TILE"]),)
    return Launch("unary", (x, out, x.numel()), grid, {"NAME": name})


def _add(name: str, tensors: Sequence[Any], out: Any) -> Launch:
    x, y = tensors
    if x.shape != y.shape:
        raise NotOfferedError(f"add of {tuple(x.shape)} and {tuple(y.shape)}; here Triton has that of equal shapes")
    return Launch("add", (x, y, out, x.numel()), lambda tile: (_tiles(x.numel(), tile["TILE"]),), {})


def _reduce(name: str, tensors: Sequence[Any], out: Any, dim: int | Sequence[int]) -> Launch:
    """Over adjacent axes: the array is (outer, reduced, inner)."""
    (x,) = tensors
    dims = sorted(n % x.dim() for n in ((dim,) if isinstance(dim, int) else dim))
    first, last = dims[0], dims[-1] + 1
    if dims != list(range(first, last)):
        raise NotOfferedError(f"{name} over axes {dims}; here Triton has those that are adjacent")
    outer, reduced, inner = (prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:]))
    scale = 1.0 / reduced if name == "mean" else 1.0
    how = {"IS_MAX": name == "amax"}
    if inner == 1:
        return Launch("reduce_rows", (x, out, reduced, scale), lambda tile: (outer,), how)
    grid = lambda tile: (_tiles(inner, tile["TILE_C"]), outer)
    return Launch("reduce_columns", (x, out, reduced, inner, scale), grid, how)


_TABLE: Mapping[str, Callable[..., Launch]] = {
    "matmul": _matmul, "softmax": _softmax, "add": _add, "layer_norm": _norm, "rms_norm": _norm,
    **dict.fromkeys(("relu", "gelu", "silu", "sigmoid", "tanh"), _unary),
    **dict.fromkeys(("sum", "mean", "amax"), _reduce),
}  # fmt: skip

LIBRARY = Library("Triton", "cuda", absent, no_threads, waiting_for(enqueued))
