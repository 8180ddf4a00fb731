"""The same problem computed by NumPy, or else by PyTorch where it is installed, timed beside a kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from rollergen.bench.catalogue import OPERATORS, Operator
from rollergen.bench.problems import operator_sizes, parse_sizes

LONGEST_S, MOST_CALLS = 0.5, 1000
_NUMPY = {"mm": "matmul", "bmm": "matmul", "batch_matmul": "matmul"}
"""Names of NumPy's functions where they differ; elementwise ones and `matmul` have their own."""
_TOLERANCE = 1e-3
"""Of the largest element: functions that differ more compute something else."""


class Beside(NamedTuple):
    """Seconds of a library's fastest call: where cores are busy, its threads wait for each other in most calls."""

    library: str
    seconds: float


def beside(
    problem: str, words: Sequence[str], arrays: Mapping[str, np.ndarray], result: np.ndarray
) -> Beside | None:
    """The problem of the command line on the kernel's arguments; None where neither library computes the same.

    Only floats of 32 and 64 bits: libraries add up others in their own ways.
    """
    if {str(one.dtype) for one in (*arrays.values(), result)} - {"float32", "float64", "int64", "bool"}:
        return None
    for library, call in _calls(problem, words, arrays):
        try:
            found = np.asarray(call())
        except (TypeError, ValueError, RuntimeError):
            continue  # it takes other arguments
        if found.shape == result.shape and _alike(found, result):
            return Beside(library, _least_seconds(call))
    return None


def _calls(
    problem: str, words: Sequence[str], arrays: Mapping[str, np.ndarray]
) -> list[tuple[str, Callable[[], Any]]]:
    if problem not in OPERATORS:
        if "," not in problem and "->" not in problem:
            return []
        return [("NumPy", lambda: np.einsum(problem, *arrays.values(), optimize=True))]
    operator, sizes = OPERATORS[problem], operator_sizes(OPERATORS[problem], parse_sizes(words))
    found: list[tuple[str, Callable[[], Any]]] = []
    function = getattr(np, _NUMPY.get(problem, problem), None)
    plain = all(sizes[name] == value for name, value in operator.optional)
    if isinstance(function, np.ufunc) and plain and not operator.arguments:
        found.append(("NumPy", lambda: function(*arrays.values())))
    if operator.applied is not None and find_spec("torch"):
        found += _torch(operator, sizes, arrays)
    return found


def _torch(
    operator: Operator, sizes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> list[tuple[str, Callable[[], Any]]]:
    """Operators take the arguments of their namesakes."""
    import torch

    functions = (getattr(place, operator.name, None) for place in (torch, torch.nn.functional))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    apply = operator.applied
    assert apply is not None
    given = lambda name, *_: tensors[name]
    return [("PyTorch", lambda f=f: apply(f, given, sizes)) for f in functions if f is not None]  # type: ignore[misc]


def _alike(found: np.ndarray, result: np.ndarray) -> bool:
    if result.dtype.kind != "f":
        return np.array_equal(found, result)
    finite = np.isfinite(result)
    largest = np.abs(result[finite]).max(initial=0.0)
    same = np.array_equal(finite, np.isfinite(found))
    return same and bool(np.abs(found[finite] - result[finite]).max(initial=0.0) <= _TOLERANCE * largest)


def _least_seconds(call: Callable[[], Any]) -> float:
    """After the call that has been made already."""
    times: list[float] = []
    while len(times) < MOST_CALLS and sum(times) < LONGEST_S:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)
