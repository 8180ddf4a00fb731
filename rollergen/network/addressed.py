"""Inputs and results of a model that launches are passed by address: the caller's arrays, and new ones, uncopied."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.emit import Launch
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.runtimes.pocl_work_groups import WorkGroups
from rollergen.importers.graph import Network, Value
from rollergen.runtime.result_pool import new_result


class Addressed:
    """``inputs``: names of those that are passed so; ``results``: what makes an array of each such result, given the
    address of an input; ``given``: arrays of the running call."""

    def __init__(self) -> None:
        self._arguments: dict[str, list[tuple[Any, int]]] = defaultdict(list)  # (addresses, position) that are a value
        self._fixed: set[str] = set()
        self.inputs: frozenset[str] = frozenset()
        self.results: dict[str, Callable[[int], np.ndarray]] = {}
        self.given: dict[str, np.ndarray] = {}

    def add(self, values: Mapping[str, str], launches: Sequence[Launch], groups: Sequence[WorkGroups]) -> None:
        """The launches of a step.  ``values``: what it reads and makes in each call, by the names of its kernel's
        arrays.  Without ``groups``, as where a queue or the host runs the step, these stay where they are."""
        if not groups:
            self._fixed.update(values.values())
            return
        called = [one for one in launches if not one.once]
        for launch, one in zip(called, groups, strict=True):
            for position, name in enumerate(launch.arguments):
                if name in values:
                    self._arguments[values[name]].append((one.addresses, position))

    def choose(self, network: Network, values: Mapping[str, Value], joined: Collection[str]) -> None:
        """Which inputs and results are given from call to call, all steps added.  ``values``: what launches read and
        write.  Those that lie ``joined`` stay; results that the model returns twice, or that are inputs, are copied."""
        free = {name for name, arguments in self._arguments.items() if arguments} - self._fixed - {*joined}
        self.inputs = frozenset(one.name for one in network.inputs if one.name in free)
        counts = Counter((*network.outputs, *(one.name for one in network.inputs)))
        for name in network.outputs:
            if name in free and counts[name] == 1:
                self.results[name] = new_result(values[name].shape or (), numpy_dtype(values[name].dtype))

    def give(self, name: str, array: np.ndarray) -> int:
        """The array of the running call; its address."""
        self.given[name] = array
        address = array.ctypes.data
        for addresses, position in self._arguments[name]:
            addresses[position] = address
        return address

    def make_results(self, beside: int) -> None:
        """New arrays of the results; ``beside``: the address of an input."""
        for name, make in self.results.items():
            self.give(name, make(beside))


def fits(array: Any) -> bool:
    """Whether launches can read the array where it lies."""
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.aligned
