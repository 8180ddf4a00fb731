"""What rollergen uses of CuPy 13, over host memory: kernels run from their CUDA text through the fixture.

``FAKE_GPU`` of the environment is "name|major|minor|bytes of memory"; "no driver" and "no device" are what they say.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
import weakref
from types import SimpleNamespace

import numpy as np

from rollergen.emit import Launch, Source
from tests.cuda.host import HostError, compiled_once

__version__ = "13.0.0"
LOG: list[tuple] = []
"""What was asked of the device, in order."""

class CUDARuntimeError(RuntimeError):
    pass


class CompileException(Exception):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


def _gpu():
    name, major, minor, memory = os.environ["FAKE_GPU"].split("|")
    return name, int(major), int(minor), int(memory)


def _count():
    if os.environ["FAKE_GPU"] == "no driver":
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")
    return 0 if os.environ["FAKE_GPU"] == "no device" else 1


def _properties(number):
    name, major, minor, memory = _gpu()
    return {
        "name": name.encode(), "major": major, "minor": minor, "totalGlobalMem": memory, "maxThreadsPerBlock": 1024,
        "sharedMemPerBlockOptin": {7: 98304, 8: 166912, 9: 232448}[major], "l2CacheSize": 1 << 20,
        "multiProcessorCount": 2, "maxThreadsPerMultiProcessor": 2048, "maxBlocksPerMultiProcessor": 32,
        "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304,
    }  # fmt: skip


class ndarray:
    """An array in the memory of the device: the host must not read it but through `get`."""

    def __init__(self, memory):
        self._memory = memory
        self.shape, self.dtype, self.nbytes = memory.shape, memory.dtype, memory.nbytes
        self.data = SimpleNamespace(ptr=memory.ctypes.data)
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


class RawKernel:
    def __init__(self, library, name):
        self._function, self.name = getattr(library, f"launch_{name}"), name
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid, block, args, *, shared_mem=0):
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        assert all(type(one) is np.uint64 for one in args), "an argument is no pointer"
        stream = get_current_stream().ptr
        captured = _CAPTURES.get(stream)
        LOG.append(("launch" if captured is None else "captured", self.name, grid, block, stream, shared_mem))
        if captured is None:
            self._run(grid, block, args)
        else:
            captured.append(lambda: self._run(grid, block, args))

    def _run(self, grid, block, args):
        pointers = (ctypes.c_void_p * len(args))(*map(int, args))
        message = ctypes.create_string_buffer(512)
        if self._function(pointers, grid[0], block[0], 0, message):
            raise CUDADriverError(message.value.decode())


_CAPTURES = {}
"""What is captured, by the pointer of each stream that is; as in CUDA's global mode, nothing else may happen then."""


def _refuse_capture(what):
    if _CAPTURES:
        raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {what} while a stream is captured")


class Graph:
    def __init__(self, captured):
        self._captured = tuple(captured)

    def launch(self, stream=None):
        LOG.append(("replay", len(self._captured)))
        for one in self._captured:
            one()


class RawModule:
    def __init__(self, *, code, options=(), backend="nvrtc"):
        self._code, self._library = code, None
        assert backend == "nvrtc" and all(option.startswith("--") for option in options)

    def compile(self, log_stream=None):
        entries = re.findall(r"__global__[^(]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(", self._code)
        launches = tuple(Launch(entry, 1, 1, ()) for entry in entries if entry != "__launch_bounds__")
        try:
            self._library = ctypes.CDLL(str(compiled_once(Source(self._code, launches, "cuda"))))
        except HostError as error:
            raise CompileException(str(error)) from None

    def get_function(self, name):
        if self._library is None:
            self.compile()
        return RawKernel(self._library, name)


def _refuse_legacy(stream):
    """The legacy stream waits for all others, so while these are captured it cannot be used."""
    if stream.ptr in (0, 1) and _CAPTURES:
        raise CUDARuntimeError("cudaErrorStreamCaptureImplicit: the legacy stream would wait for a captured one")


class Stream:
    def __init__(self, ptr=None):
        self.ptr = id(self) if ptr is None else ptr

    def __enter__(self):
        _STREAMS.append(self)
        return self

    def __exit__(self, *_):
        _STREAMS.pop()

    def synchronize(self):
        _refuse_capture("a synchronization")
        LOG.append(("synchronize", self.ptr))

    def wait_event(self, event):
        if _CAPTURES.get(self.ptr) is not None and event.captured is not _CAPTURES[self.ptr]:
            raise CUDARuntimeError("cudaErrorStreamCaptureIsolation: the event is of no stream of the capture")
        if event.captured is not None:
            _CAPTURES[self.ptr] = event.captured  # the stream joins the capture
        LOG.append(("wait", self.ptr))

    def begin_capture(self, mode=None):
        if self.ptr in (0, 1):
            raise RuntimeError("cannot capture on the default (legacy) stream")
        _CAPTURES[self.ptr] = []

    def end_capture(self):
        captured = _CAPTURES[self.ptr]
        for pointer in [pointer for pointer, own in _CAPTURES.items() if own is captured]:
            del _CAPTURES[pointer]
        return Graph(captured)

    def is_capturing(self):
        _refuse_legacy(self)
        return self.ptr in _CAPTURES


class ExternalStream(Stream):
    pass


class Event:
    done = False
    """Whether the device has come to it: never before somebody waits."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.at = self.captured = None

    def record(self, stream=None):
        stream = stream or get_current_stream()
        _refuse_legacy(stream)
        self.captured = _CAPTURES.get(stream.ptr)
        self.at = time.perf_counter()


_STREAMS = [Stream(0)]


def get_current_stream():
    return _STREAMS[-1]


cuda = SimpleNamespace(
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, getDeviceCount=_count, getDeviceProperties=_properties,
        getDevice=lambda: 0, driverGetVersion=lambda: 12080, memGetInfo=lambda: (_free(), _gpu()[3]),
    ),
    driver=SimpleNamespace(CUDADriverError=CUDADriverError),
    compiler=SimpleNamespace(CompileException=CompileException),
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    nvrtc=SimpleNamespace(getVersion=lambda: (12, 8)),
    Device=lambda: SimpleNamespace(id=0),
    Stream=Stream, ExternalStream=ExternalStream, Event=Event, get_current_stream=get_current_stream,
    get_elapsed_time=lambda start, end: (end.at - start.at) * 1e3,
)  # fmt: skip
