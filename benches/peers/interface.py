"""What a library answers to an operation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benches.operation import Operation

Arrays = Sequence[np.ndarray]
Call = Callable[[], Any]


class NotOfferedError(Exception):
    """The library has no such operation, or not with these settings: it does not compete there."""


class AbsentError(Exception):
    """The library, or the device that it needs, is not here; the text says what is missing."""


@dataclass(frozen=True)
class Library:
    """``absent()`` is None where the library can run here, else the reason; ``threads(n)`` limits it to so many;
    ``call(operation, arrays)`` is a call without arguments whose value is the result (a NumPy array or what becomes
    one), outputs preallocated wherever the library takes one."""

    name: str
    device: str
    absent: Callable[[], str | None]
    threads: Callable[[int], None]
    call: Callable[[Operation, Arrays], Call]


def missing(*modules: str) -> str | None:
    """The reason why a module cannot be imported; None where all can."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # a broken installation raises whatever it likes, and is as absent as none
            return f"{name} cannot be imported ({type(error).__name__}: {error})"
    return None


def no_threads(count: int) -> None:
    """For libraries that run on one thread, or whose threads the environment sets before they start."""


def offered(table: Mapping[str, Any], operation: Operation, library: str) -> Any:
    """The entry of a library's table.  Raises NotOfferedError."""
    if operation.name not in table:
        raise NotOfferedError(f"{library} has no {operation.name} here")
    return table[operation.name]


def require_float32(arrays: Arrays, library: str) -> None:
    """Raises NotOfferedError for arrays of another dtype."""
    other = next((array.dtype.name for array in arrays if array.dtype != np.float32), None)
    if other is not None:
        raise NotOfferedError(f"{library} is asked for float32 here, not for {other}")


def as_numpy(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What a call gave, as an array of ``shape`` on the host."""
    if hasattr(result, "detach"):  # torch
        result = result.detach().cpu()
        if str(result.dtype) == "torch.bfloat16":  # NumPy has none
            result = result.float()
    if hasattr(result, "numpy"):  # torch's tensors and ONNX Runtime's values
        result = result.numpy()
    return np.asarray(result).reshape(shape)
