"""What importers make of a model: nodes in the order in which they run, each expressed by `rg.ops` or left to its own
library."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError
from rollergen.expr.dims import Dim
from rollergen.expr.dtypes import numpy_dtype
from rollergen.expr.language import CALL_WORDS, Tensor
from rollergen.hal.dataclass import dataclass


class NotExpressedError(Exception):
    """Why a node has no counterpart in `rg.ops`: it is then run by the model's own library."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array of the model; ``dtype`` is NumPy's name, which need not be one of rollergen's.

    ``shape`` is None where it depends on data, or where this is no array: then only the model's own library reads it.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str

    @property
    def size(self) -> int:
        """Elements; 0 where that depends on data."""
        return 0 if self.shape is None else prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * numpy_dtype(self.dtype).itemsize if self.size else 0


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: ``source`` is its name in the model, ``operator`` what the model calls what it does.

    ``express(tensors)``: its outputs as expressions of the tensors of its inputs, by name, None for one that is not
    offered; raises NotExpressedError, a RollergenError or TypeError where it has none.  ``host(arrays)``: its outputs
    by the model's own library, of NumPy arrays.

    ``alike(names)``: what it computes as text, of names that ``names`` gives its values: nodes with the same text, of
    inputs of the same shapes and dtypes, have the same expressions.  None: nobody can tell.
    """

    source: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    express: Callable[[Mapping[str, Tensor]], Sequence[Tensor | None]]
    host: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]
    alike: Callable[[Callable[[str], str]], str] | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """A model.  ``inputs`` and ``outputs`` are in the order of the leaves of its arguments and results; ``constants``
    are its weights, by name.

    ``leaves(arguments, named)``: the arrays of a call, in the order of ``inputs``; raises ArgumentError where the
    arguments are not nested as the model's.  ``nested(arrays)``: the model's result of its outputs.

    ``text()``: two networks with the same one have the same names, and the same expressions of all nodes; None: nobody
    can tell.
    """

    title: str
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[Node, ...]
    leaves: Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]
    nested: Callable[[Sequence[Any]], Any]
    text: Callable[[], str] | None = None

    def sizes(self) -> dict[str, int]:
        """Bytes of each value."""
        made = (value for node in self.nodes for value in node.outputs)
        sizes = {one.name: one.size_bytes for one in (*self.inputs, *made)}
        return sizes | {name: one.nbytes for name, one in self.constants.items()}


@dataclass(frozen=True, slots=True)
class SizedNetwork:
    """A model of which extents are known at the call.  ``at(sizes)``: the network with these sizes of its ``dims``;
    every one has the same inputs and outputs, and most often the same nodes, but for their shapes."""

    title: str
    dims: Mapping[str, Dim]
    at: Callable[[Mapping[str, int]], Network]


_NAME_LENGTH = 100
"""Characters of a value's name that are kept: the last ones, which tell most.  Saved kernels take names of 200."""


def identifier(name: str, taken: Collection[str | None] = ()) -> str:
    """A name of a tensor, none of `taken`, for that of a value, which may be any text."""
    made = "".join(c if c.isalnum() and c.isascii() else "_" for c in name[-_NAME_LENGTH:])
    made = made if made.isidentifier() and not keyword.iskeyword(made) and made not in CALL_WORDS else f"v_{made}"
    while made in taken:
        made += "_"
    return made


def leaves_by_name(title: str, names: Sequence[str]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], list[Any]]:
    """`Network.leaves` of arrays by position or by name."""

    def leaves(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        given = dict(zip(names, arguments, strict=False))
        if len(arguments) > len(names) or set(given) & set(named) or {*given, *named} != set(names):
            found = ", ".join([f"{len(arguments)} arrays", *named])
            raise ArgumentError(f"{title} is called with {found}; expected one for each of {', '.join(names)}")
        return [{**given, **named}[name] for name in names]

    return leaves


def one_or_several(arrays: Sequence[Any]) -> Any:
    """`Network.nested` of one array, or of a tuple of several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)
