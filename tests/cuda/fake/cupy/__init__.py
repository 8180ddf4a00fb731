"""What rollergen uses of CuPy 14, over host memory: kernels run from their CUDA text through the fixture.

``FAKE_GPU`` of the environment is "name|major|minor|bytes of memory"; "no driver" and "no device" are what they say.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np

from cupy.facts import (
    LOG,
    CUDARuntimeError,
    OutOfMemoryError,
    _count,
    _driver_version,
    _gpu,
    _properties,
)
from cupy.modules import IDLE, LOADED, SECONDS, Device, Module, driver, nvrtc
from cupy.streams import (
    CLOCK,
    EVENT_S,
    LAUNCH_S,
    Event,
    ExternalStream,
    Stream,
    _copied,
    _refuse_capture,
    get_current_stream,
)

__version__ = "14.2.0"
__all__ = ["CLOCK", "EVENT_S", "IDLE", "LAUNCH_S", "LOADED", "SECONDS"]
"""What tests ask of the stand-in beside CuPy's own names."""


class ndarray:
    """An array in the memory of the device: the host must not read it but through `get`."""

    def __init__(self, memory):
        self._memory = memory
        self.shape, self.dtype, self.nbytes = memory.shape, memory.dtype, memory.nbytes
        self.strides, self.data = memory.strides, SimpleNamespace(ptr=memory.ctypes.data, device_id=0)
        self.device = SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self):
        strides = None if self._memory.flags.c_contiguous else self._memory.strides
        return {
            "shape": self.shape, "typestr": self.dtype.str, "descr": self.dtype.descr, "version": 3,
            "strides": strides, "data": (self.data.ptr, False), "stream": get_current_stream().ptr or 1,
        }  # fmt: skip

    def get(self):
        _refuse_capture("a synchronous copy")
        LOG.append(("get", self.nbytes))
        return self._memory.copy()

    def set(self, array):
        _refuse_capture("a synchronous copy")
        LOG.append(("set", self.nbytes))
        assert array.shape == self.shape and array.dtype == self.dtype
        self._memory[...] = array

    def fill(self, value):
        LOG.append(("fill", self.nbytes))
        self._memory.fill(value)

    def copy(self):
        return asarray(self._memory)

    def __getitem__(self, key):
        return ndarray(self._memory[key])


ALIVE = {"now": 0, "peak": 0}
"""Bytes of arrays that somebody holds, and the most that there were."""


def _died(size):
    ALIVE["now"] -= size


def _free():
    """Half of the memory is taken by others."""
    return max(0, _gpu()[3] // 2 - ALIVE["now"])


def empty(shape, dtype=float):
    kind = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size > _free():
        raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
    _refuse_capture("an allocation")
    LOG.append(("empty", size))
    whole = np.full(size + 256, 0x5A, np.uint8)
    ALIVE["now"] += size
    ALIVE["peak"] = max(ALIVE["peak"], ALIVE["now"])
    weakref.finalize(whole, _died, size)
    start = -whole.ctypes.data % 256
    return ndarray(whole[start : start + size].view(kind).reshape(shape))


def get_default_memory_pool():
    return SimpleNamespace(free_all_blocks=lambda: None)


def asarray(array):
    made = empty(array.shape, array.dtype)
    made._memory[...] = array
    return made


def from_dlpack(thing):
    return thing.exported()


cuda = SimpleNamespace(
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, getDeviceCount=_count, getDeviceProperties=_properties,
        getDevice=lambda: 0, driverGetVersion=_driver_version, runtimeGetVersion=lambda: 12090,
        memGetInfo=lambda: (_free(), _gpu()[3]), memcpyDeviceToDevice=3, memcpyAsync=_copied,
    ),
    driver=driver, function=SimpleNamespace(Module=Module), nvrtc=nvrtc, Device=Device,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    Stream=Stream, ExternalStream=ExternalStream, Event=Event, get_current_stream=get_current_stream,
    get_elapsed_time=lambda start, end: (end.at - start.at) * 1e3,
)  # fmt: skip
