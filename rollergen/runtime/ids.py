"""Ids in host memory, checked before a call: what `rg.take` of mode ``raise`` refuses, and `rg.put`.

They are looked at by the host, not by the kernel: a kernel could only leave a mark, which the host would have to wait
for.  One pass over them takes what reading them takes, beside rows that are as long as they are many.  Ids in a
device's memory are not looked at: that would wait for the device.  No kernel reads outside a table whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollergen.expr.places import put_of
from rollergen.expr.takes import Bounded, check_different, check_ids, checked_ids
from rollergen.expr.values import Buffer, loads
from rollergen.program.rprogram import RProgram
from rollergen.runtime.device_arrays import on_device
from rollergen.runtime.interop import is_torch


class HostIds:
    """The inputs of a program that are looked at before each call."""

    def __init__(self, program: RProgram) -> None:
        places = {buffer.name: (number, buffer) for number, buffer in enumerate(program.inputs)}
        self._checks = [
            (*places[one.load.buffer.name], one.extent, one.elements())
            for stage in program.stages
            for one in checked_ids(stage.op)
        ]
        puts = [put for stage in program.stages if (put := put_of(stage.op))]
        self._different = [
            (*places[load.buffer.name], extent, put.mode)
            for put in puts
            for value, extent in zip(put.ids, put.extents, strict=True)
            for load in loads(value)
        ]
        scalars = ((number, one) for number, one in places.values() if isinstance(one, Bounded))
        self._scalars = [(number, one, np.dtype(one.dtype)) for number, one in scalars]

    def __bool__(self) -> bool:
        return bool(self._checks or self._scalars or self._different)

    def checked(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of a call, looked at as `check` does, ints as arrays."""
        for number, one, dtype in self._scalars:
            thing = arrays[number] if number < len(arrays) else named.get(one.name)
            if type(thing) is int or isinstance(thing, np.integer):
                if not one.low <= thing <= one.high:
                    one.check(thing)
                made = np.array(thing, dtype)
                if number < len(arrays):
                    arrays = (*arrays[:number], made, *arrays[number + 1 :])
                else:
                    named = {**named, one.name: made}
            elif (value := _of_host(thing, one)) is not None:
                one.check(value)
        if self._checks or self._different:
            self.check(arrays, named)
        return arrays, named

    def check(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> None:
        """ArgumentError, which names the input, for ids outside their table.  What the call refuses anyway is left to
        it: arrays that are missing, or of another shape or dtype."""
        for number, buffer, extent, elements in self._checks:
            thing = arrays[number] if number < len(arrays) else named.get(buffer.name)
            ids = _of_host(thing, buffer)
            if ids is None:
                continue
            ids = ids if elements is None else ids.reshape(-1)[elements]
            if not _surely_inside(ids, extent):
                check_ids(ids, extent, buffer.name)
        for number, buffer, extent, mode in self._different:
            ids = _of_host(arrays[number] if number < len(arrays) else named.get(buffer.name), buffer)
            if ids is None:
                continue
            if mode == "raise" and not _surely_inside(ids, extent):
                check_ids(ids, extent, buffer.name)
            check_different(ids, extent, buffer.name)


def _of_host(thing: Any, buffer: Buffer) -> np.ndarray | None:
    if thing.__class__ is np.ndarray:
        pass
    elif is_torch(thing) and thing.is_cpu and not thing.requires_grad:
        thing = thing.numpy()
    elif not isinstance(thing, np.ndarray):
        if thing is None or on_device(thing) or not hasattr(thing, "__array__"):
            return None
        thing = np.asarray(thing)
    fits = thing.shape == buffer.shape and thing.dtype.kind in "iu"
    return thing if fits else None


def _surely_inside(ids: np.ndarray, extent: int) -> bool:
    """Whether none is negative nor too large, found in one pass: as unsigned, negative ones are the largest."""
    if ids.size <= _FEW:
        some = ids.reshape(-1).tolist()
        return not some or (min(some) >= 0 and max(some) < extent)
    return bool(np.maximum.reduce(ids.reshape(-1).view(_UNSIGNED[ids.itemsize])) < extent)


_FEW = 8
"""Ids that Python looks at faster than NumPy: a reduction takes 1.3 us of however few, eight of a list .8."""
_UNSIGNED = {bytes_: np.dtype(f"u{bytes_}") for bytes_ in (1, 2, 4, 8)}
