"""Ids in host memory, checked before a call: what `rg.take` of mode ``raise`` refuses, and `rg.put`.

They are looked at by the host, not by the kernel: a kernel could only leave a mark, which the host would have to wait
for.  One pass over them takes what reading them takes, beside rows that are as long as they are many.  Ids in a
device's memory are not looked at: that would wait for the device.  No kernel reads outside a table whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

from rollergen.errors import ArgumentError
from rollergen.expr.places import put_of
from rollergen.expr.takes import Bounded, check_different, check_ids, checked_ids
from rollergen.expr.tensor_op import TensorOp
from rollergen.expr.values import Buffer, Load, loads
from rollergen.hal.late import np
from rollergen.program.rprogram import RProgram
from rollergen.runtime.device_arrays import on_device
from rollergen.runtime.interop import is_torch

Look = Callable[["np.ndarray"], None]
"""Raises ArgumentError, which names the input, for ids that the call refuses."""


class HostIds:
    """The inputs of a program that are looked at before each call.

    ``scalars``: of each `rollergen.scalar` its bounds and what makes an int of a thing that is none, one out of bounds
    of what may be no such integer; ``looks``: what looks at each input of ids.
    """

    def __init__(self, program: RProgram | None = None) -> None:
        self._ops = () if program is None else tuple(stage.op for stage in program.stages)
        self._places = {} if program is None else {buffer.name: n for n, buffer in enumerate(program.inputs)}
        self._buffers = {} if program is None else {buffer.name: buffer for buffer in program.inputs}

    @cached_property
    def scalars(self) -> dict[str, tuple[int, int, Callable[[Any], int]]]:
        bounded = {name: buffer for name, buffer in self._buffers.items() if isinstance(buffer, Bounded)}
        return {name: (one.low, one.high, partial(_number, one, np.dtype(one.dtype))) for name, one in bounded.items()}

    @cached_property
    def looks(self) -> dict[str, list[Look]]:
        found: dict[str, list[Look]] = {}
        for op in self._ops:
            for one in checked_ids(op):
                name = one.load.buffer.name
                found.setdefault(name, []).append(partial(_look, name, one.extent, one.elements()))
            for load, extent, mode in _put_ids(op):
                name = load.buffer.name
                found.setdefault(name, []).append(partial(_look_different, name, extent, mode))
        return found

    def __bool__(self) -> bool:
        return bool(self.scalars or self.looks)

    def checked(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of a call, looked at as `check` does, ints as arrays."""
        for name in self.scalars:
            one, number = self._buffers[name], self._places[name]
            assert isinstance(one, Bounded)
            thing = arrays[number] if number < len(arrays) else named.get(name)
            if type(thing) is int or isinstance(thing, np.integer):
                one.check(thing)
                made = np.array(thing, np.dtype(one.dtype))
                if number < len(arrays):
                    arrays = (*arrays[:number], made, *arrays[number + 1 :])
                else:
                    named = {**named, name: made}
            elif isinstance(thing, (bool, float, np.generic)):
                raise ArgumentError(f"{name} is {thing!r}; expected an int from {one.low} to {one.high}")
            elif (value := _of_host(thing, one)) is not None:
                one.check(value)
        self.check(arrays, named)
        return arrays, named

    def check(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> None:
        """ArgumentError, which names the input, for ids outside their table.  What the call refuses anyway is left to
        it: arrays that are missing, or of another shape or dtype."""
        for name, looks in self.looks.items():
            number = self._places[name]
            ids = _of_host(arrays[number] if number < len(arrays) else named.get(name), self._buffers[name])
            if ids is not None:
                for look in looks:
                    look(ids)


NO_IDS = HostIds()


def _put_ids(op: TensorOp) -> Iterator[tuple[Load, int, str]]:
    """Of the ids by which the op puts its rows: where they are read, of how many places, and the mode."""
    put = put_of(op)
    if put:
        for value, extent in zip(put.ids, put.extents, strict=True):
            yield from ((load, extent, put.mode) for load in loads(value))


def _look(name: str, extent: int, elements: Any, ids: np.ndarray) -> None:
    ids = ids if elements is None else ids.reshape(-1)[elements]
    if not _surely_inside(ids, extent):
        check_ids(ids, extent, name)


def _look_different(name: str, extent: int, mode: str, ids: np.ndarray) -> None:
    if mode == "raise":
        _look(name, extent, None, ids)
    check_different(ids, extent, name)


def _number(one: Bounded, dtype: np.dtype, thing: Any) -> int:
    """The integer that a NumPy number is, or an array without axes; what lies out of bounds for anything else."""
    fits = isinstance(thing, np.integer) or (
        thing.__class__ is np.ndarray and thing.shape == () and thing.dtype == dtype
    )
    return int(thing) if fits else one.high + 1


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
    return bool(np.maximum.reduce(ids.view(_unsigned(ids.itemsize)), axis=None) < extent)


_FEW = 8
"""Ids that Python looks at faster than NumPy: a reduction takes 1.3 us of however few, eight of a list .8."""


@lru_cache
def _unsigned(bytes_: int) -> np.dtype:
    return np.dtype(f"u{bytes_}")
