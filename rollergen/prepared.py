"""Prepared calls: what the calls of a kernel have in common is set up once; between them only addresses change.

A small operator is computed in two or three microseconds, so a call may not spend ten on wrapping its arrays.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from numpy import ndarray

from rollergen.measure.executor import PreparedLaunches
from rollergen.packed import Packed
from rollergen.signature import Signature


class PreparedCall:
    """Calls of one thread with plain NumPy arrays that fit the signature as they are.

    Where an array does not (another library's, strided, read-only, of a wrong shape, overlapping an output), the call
    is not made: the general path converts it, or says what is wrong.
    """

    __slots__ = ("_arguments", "_constants", "_inputs", "_memory", "_packed", "_places", "_run", "_sizes")

    def __init__(self, launches: PreparedLaunches, signature: Signature) -> None:
        self._run, self._memory = launches.run, launches.memory
        setters = [tuple(launches.setters.get(one.name, ())) for one in signature.parameters]
        self._arguments = [(p.shape, p.dtype, each) for p, each in zip(signature.parameters, setters, strict=True)]
        self._sizes = [one.size_bytes for one in signature.parameters]
        self._inputs = len(signature.inputs)
        self._constants = [i for i, buffer in enumerate(signature.inputs) if buffer.constant]
        self._packed: Packed | None = None
        self._places: list[tuple[weakref.ref[Any], int]] = []

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any], packed: Packed) -> bool:
        """Whether it has run the kernel.  ``packed``: the constants that the thread's temporaries hold."""
        arrays = (*inputs, *outputs)
        if len(inputs) != self._inputs or len(arrays) != len(self._arguments):
            return False
        addresses = self._set(arrays)
        if addresses is None or (self._constants and not self._holds(arrays, addresses, packed)):
            return False
        self._run()
        return True

    def remember(self, inputs: Sequence[Any], packed: Packed) -> None:
        """These are the arrays of which `packed` was made: a call with the same ones at the same place may use it."""
        if self._constants and (addresses := self._set(inputs)) is not None:
            self._packed = packed
            self._places = [(weakref.ref(inputs[i]), addresses[i]) for i in self._constants]

    def _set(self, arrays: Sequence[Any]) -> list[int] | None:
        """The addresses of the arrays, which are set as the launches' arguments; None where one does not fit, or is an
        output that shares bytes with another."""
        addresses, memory_of = [], self._memory
        for array, (shape, dtype, setters) in zip(arrays, self._arguments, strict=False):
            if array.__class__ is not ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            if not array.flags.carray:  # contiguous, aligned and writeable: OpenCL's addresses do not say read-only
                return None
            memory = memory_of(array)
            for set_argument, position in setters:
                set_argument(position, memory)
            addresses.append(memory.svm_ptr)
        return None if self._overlap(addresses) else addresses

    def _overlap(self, addresses: Sequence[int]) -> bool:
        sizes = self._sizes
        for position in range(self._inputs, len(addresses)):
            start, end = addresses[position], addresses[position] + sizes[position]
            for other in range(position):
                if addresses[other] < end and start < addresses[other] + sizes[other]:
                    return True
        return False

    def _holds(self, arrays: Sequence[Any], addresses: Sequence[int], packed: Packed) -> bool:
        """Whether the constants are the arrays that `packed` was made of, and lie where they lay then."""
        if packed is not self._packed:
            return False
        places = zip(self._constants, self._places, strict=True)
        return all(array() is arrays[i] and address == addresses[i] for i, (array, address) in places)
