"""What importers make of a model: nodes in the order in which they run, each expressed by `rg.ops` or left to its own
library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import Tensor


class NotExpressedError(Exception):
    """Why a node has no counterpart in `rg.ops`: it is then run by the model's own library."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array of the model; ``dtype`` is NumPy's name, which need not be one of rollergen's."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: ``source`` is its name in the model, ``operator`` what the model calls what it does.

    ``express(tensors)``: its outputs as expressions of the tensors of its inputs, by name, None for one that is not
    offered; raises NotExpressedError, a RollergenError or TypeError where it has none.  ``host(arrays)``: its outputs
    by the model's own library, of NumPy arrays.
    """

    source: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    express: Callable[[Mapping[str, Tensor]], Sequence[Tensor | None]]
    host: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Network:
    """A model.  ``inputs`` and ``outputs`` are in the order of the leaves of its arguments and results; ``constants``
    are its weights, by name.

    ``leaves(arguments, named)``: the arrays of a call, in the order of ``inputs``; raises ArgumentError where the
    arguments are not nested as the model's.  ``nested(arrays)``: the model's result of its outputs.
    """

    title: str
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[Node, ...]
    leaves: Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]
    nested: Callable[[Sequence[Any]], Any]

    def sizes(self) -> dict[str, int]:
        """Bytes of each value."""
        made = (value for node in self.nodes for value in node.outputs)
        sizes = {one.name: one.size_bytes for one in (*self.inputs, *made)}
        return sizes | {name: one.nbytes for name, one in self.constants.items()}
