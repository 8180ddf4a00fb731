"""Interpreter: tensors in memory, poisoned until written; reads and writes by multi-dimensional index."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from rollergen.errors import ArgumentError, ProgramError
from rollergen.expr.dtypes import bounds, is_integer, numpy_dtype
from rollergen.expr.index import Index
from rollergen.expr.places import updated
from rollergen.expr.values import Buffer
from rollergen.program.interpreter.points import Array, both, everywhere
from rollergen.program.rprogram import RProgram


def poison(dtype: str) -> Any:
    """The value of a cell before anything is written: NaN, the integer farthest from 0, False."""
    if is_integer(dtype):
        low, high = bounds(dtype)
        return low or high
    return False if dtype == "bool" else float("nan")


class Memory:
    """All buffers of a program as flat arrays; ``written`` has a mask for each that is not an input."""

    def __init__(self, program: RProgram, arrays: Mapping[str, Any]) -> None:
        brought = updated(program.outputs)
        expected = {buffer.name for buffer in (*program.inputs, *brought)}
        if set(arrays) != expected:
            raise ArgumentError(f"arrays are {sorted(arrays)}; expected one for each of {sorted(expected)}")
        self.data = {buffer.name: _input(buffer, arrays[buffer.name]) for buffer in program.inputs}
        self.written: dict[str, Any] = {}
        for buffer in (*program.temporaries, *program.outputs):
            self.data[buffer.name] = np.full(buffer.elements, poison(buffer.dtype), numpy_dtype(buffer.dtype))
            self.written[buffer.name] = np.zeros(buffer.elements, dtype=bool)
        for buffer in brought:
            self.data[buffer.name] = _input(buffer, arrays[buffer.name]).copy()

    def read(self, buffer: Buffer, offsets: Array, wanted: Array, where: str) -> Array:
        """Elements at row-major `offsets`; anything where they are not wanted.

        Raises ProgramError for a wanted element that no stage has written.
        """
        safe = offsets if wanted is True else np.where(wanted, offsets, 0)
        mask = self._as_written(buffer)
        if mask is not None and not everywhere(np.logical_or(mask[safe], np.logical_not(wanted))):
            raise ProgramError(
                f"{where} reads elements of {buffer.name} that no stage has written; "
                "expected the stages before it to write them (with `blocks`: to run in full)"
            )
        return self._as_read(buffer)[safe]

    def _as_read(self, buffer: Buffer) -> Any:
        """The buffer's elements, in the dtype that the reader has it in."""
        return self.data[buffer.name].view(numpy_dtype(buffer.dtype))

    def _as_written(self, buffer: Buffer) -> Any:
        """The mask of the buffer's elements, in the dtype that the reader has it in; None of an input."""
        mask = self.written.get(buffer.name)
        return mask if mask is None or len(mask) == buffer.elements else mask.reshape(buffer.elements, -1).all(axis=1)

    def write(self, buffer: Buffer, offsets: Array, values: Array) -> None:
        """Stores `values` at row-major `offsets` (vectors), rounded to the buffer's dtype."""
        self.data[buffer.name][offsets] = values.astype(self.data[buffer.name].dtype)
        self.written[buffer.name][offsets] = True

    def add(self, buffer: Buffer, offsets: Array, values: Array, where: str) -> None:
        """Adds `values` at row-major `offsets` (vectors, no offset twice) in the buffer's dtype.

        Raises ProgramError for an element that no stage has written.
        """
        held = self.read(buffer, offsets, True, where)
        self.data[buffer.name][offsets] = held + values.astype(held.dtype)

    def array(self, buffer: Buffer) -> Any:
        return self.data[buffer.name].reshape(buffer.shape)

    def mask(self, buffer: Buffer) -> Any:
        return self.written[buffer.name].reshape(buffer.shape)


def _input(buffer: Buffer, array: Any) -> Any:
    data = np.asarray(array)
    if data.shape != buffer.shape or data.dtype != numpy_dtype(buffer.dtype):
        raise ArgumentError(
            f"the array for {buffer.name} is {data.dtype} of shape {data.shape}; "
            f"expected {buffer.dtype} of shape {buffer.shape}"
        )
    return np.ascontiguousarray(data).reshape(-1)


def offsets(
    shape: tuple[int, ...], indices: tuple[Index, ...], axes: Mapping[str, Array], wanted: Array, where: str
) -> tuple[Array, Array]:
    """(row-major offsets of ``[indices]``, where all of them are within `shape`).

    Raises ProgramError for a wanted element outside `shape`.
    """
    total: Array = np.int64(0)
    inside: Array = True
    for position, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        value = np.asarray(index.evaluate(axes), dtype=np.int64)
        if value.min(initial=0) < 0 or value.max(initial=0) >= extent:
            own = (value >= 0) & (value < extent)
            if np.any(np.logical_and(wanted, np.logical_not(own))):
                raise ProgramError(f"{where}: index {position} ({index}) leaves 0 <= index < {extent}")
            inside = both(inside, own)
        total = total + value * prod(shape[position + 1 :])
    return total, inside
