"""What rollergen uses of CuPy 14, over host memory: kernels run from their CUDA text through the fixture.

``FAKE_GPU`` of the environment is "name|major|minor|bytes of memory"; "no driver" and "no device" are what they say.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np

from rollergen.emit import Launch, Source
from tests.cuda.host import HostError, compiled_once

__version__ = "14.2.0"
LOG: list[tuple] = []
"""What was asked of the device, in order."""


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


def _gpu():
    name, major, minor, memory = os.environ["FAKE_GPU"].split("|")
    return name, int(major), int(minor), int(memory)


def _count():
    if os.environ["FAKE_GPU"] in ("no driver", "old driver", "broken driver"):
        raise CUDARuntimeError(
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
        )
    return 0 if os.environ["FAKE_GPU"] == "no device" else 1


def _driver_version():
    return {"no driver": 0, "old driver": 11080}.get(os.environ["FAKE_GPU"], 12080)


def _properties(number):
    name, major, minor, memory = _gpu()
    return {
        "name": name.encode(), "major": major, "minor": minor, "totalGlobalMem": memory, "maxThreadsPerBlock": 1024,
        "sharedMemPerBlockOptin": {3: 49152, 7: 98304, 8: 166912, 9: 232448, 12: 101376}[major], "l2CacheSize": 1 << 20,
        "multiProcessorCount": 2, "maxThreadsPerMultiProcessor": 2048, "maxBlocksPerMultiProcessor": 32,
        "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 98304,
    }  # fmt: skip


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


_PROGRAMS: dict[int, SimpleNamespace] = {}
"""What NVRTC holds."""
_HANDLES = itertools.count(1)
"""Of its programs: several threads compile at once."""
LOADED: list[str] = []
"""Texts of the modules that are loaded."""
_FUNCTIONS: dict[int, Function] = {}
_MAGIC = b"\x7fELF of the stand-in "


def _entries(text):
    words = r"(?:__(?:launch_bounds|cluster_dims)__\([^)]*\)\s*)*"
    return {entry: arguments.split(",") for entry, arguments in re.findall(rf"__global__ void\s+{words}(\w+)\(([^)]*)\)", text)}


def _argument(parameter, place):
    """An address, or where the bytes lie that are passed by value: a copy of them."""
    if "TensorMap" not in parameter:
        return ctypes.c_uint64.from_address(place).value
    return _kept((ctypes.c_uint64 * 16).from_buffer_copy((ctypes.c_uint64 * 16).from_address(place)))


def _kept(words):
    _MAPS.append(words)
    return ctypes.addressof(words)


_MAPS: list[ctypes.Array] = []


def _library(text):
    launches = tuple(Launch(entry, 1, 1, (), dynamic_bytes=227 << 10) for entry in _entries(text))
    return ctypes.CDLL(str(compiled_once(Source(text, launches, "cuda"))))


class NVRTCError(RuntimeError):
    pass


class nvrtc:
    """NVRTC 12.8 through CuPy: its machine code is the text itself behind its options; `_version` may be set."""

    _version = 12, 8

    NVRTCError = NVRTCError

    def getVersion():
        return nvrtc._version

    def getSupportedArchs():
        return 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120

    def createProgram(text, name, headers, include_names):
        assert type(text) is type(name) is str and not headers and not include_names
        handle = next(_HANDLES)
        _PROGRAMS[handle] = SimpleNamespace(text=text, log="", options=())
        return handle

    def compileProgram(handle, options):
        program = _PROGRAMS[handle]
        program.options = tuple(options)
        LOG.append(("compile", program.options))
        try:
            _library(program.text)
        except HostError as error:
            program.log = str(error)
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)") from None
        program.log = "".join(map(_USE.format, _entries(program.text)))

    def getProgramLog(handle):
        return _PROGRAMS[handle].log

    def getCUBIN(handle):
        assert _PROGRAMS[handle].options[0].startswith("--gpu-architecture=sm_"), "no machine code was asked for"
        return _MAGIC + "\0".join((" ".join(_PROGRAMS[handle].options), _PROGRAMS[handle].text)).encode()

    def getPTX(handle):
        return _MAGIC + b"\0" + _PROGRAMS[handle].text.encode()

    def destroyProgram(handle):
        del _PROGRAMS[handle]


_USE = """ptxas info    : Compiling entry function '{}' for 'sm_70'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers
"""


class Module:
    """`cupy.cuda.function.Module`, which unloads itself when it dies."""

    def __init__(self):
        self.text, self.handles = None, {}

    def load(self, code):
        assert type(code) is bytes
        if not code.startswith(_MAGIC):
            raise CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
        text = code.partition(b"\0")[2].decode()
        self.library, self.text = _library(text), text
        _BOUND.context = True
        LOADED.append(text)
        LOG.append(("load", len(code)))

    def get_function(self, name):
        return Function(self, name)

    def __del__(self):
        if self.text is not None:
            LOADED.remove(self.text)
            for handle in self.handles.values():
                _FUNCTIONS.pop(id(handle), None)
            LOG.append(("unload", len(self.text)))


class Function:
    """`cupy.cuda.function.Function`; the driver's handle of a name is the same as often as it is asked for."""

    def __init__(self, module, name):
        self.module, self.name = module, name
        if name not in _entries(module.text):
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        self.handle = module.handles.setdefault(name, _Handle(module, name))
        self.ptr = id(self.handle)
        _FUNCTIONS[self.ptr] = self.handle


class _Handle:
    def __init__(self, module, name):
        self.function, self.name, self.text = getattr(module.library, f"launch_{name}"), name, module.text
        self.parameters, self.most_shared = _entries(module.text)[name], 48 << 10

    def run(self, blocks, threads, arguments, stream):
        message, started = ctypes.create_string_buffer(512), time.process_time()
        if self.text not in IDLE and self.function(arguments, blocks, threads, 0, message):
            raise CUDADriverError(message.value.decode())
        spent = time.process_time() - started
        held = ctypes.c_int64.from_address(arguments[0]).value * 1e-9 if self.name == "hold" else None
        CLOCK.computed(SECONDS.get(self.text, spent) if held is None else held, stream)


SECONDS: dict[str, float] = {}
"""What a launch of a kernel of this text takes the device; else as long as it takes here."""
IDLE: set[str] = set()
"""Texts whose kernels compute nothing: of tests that ask for times only."""


class _Clock:
    """The host asks and goes on; the device begins when it has done what was asked before.

    Seconds that pass for both: a launch takes the host `LAUNCH_S`, an event the device `EVENT_S`, and waiting as long as the device needs; what
    this process does beside takes none.
    """

    def __init__(self):
        self.host, self.free = 0.0, {}

    def computed(self, seconds, stream):
        self.free[stream] = self.device(stream) + seconds

    def device(self, stream):
        """When the device comes to what is enqueued now."""
        return max(self.host, self.free.get(stream, 0.0))

    def wait(self, stream):
        self.host = self.device(stream)


LAUNCH_S, EVENT_S = 5e-6, 1e-7
CLOCK = _Clock()


class driver:
    """`cupy.cuda.driver`."""

    CUDADriverError = CUDADriverError
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

    def funcSetAttribute(function, attribute, value):
        assert attribute == driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if value > _properties(0)["sharedMemPerBlockOptin"]:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        _FUNCTIONS[function].most_shared = value
        LOG.append(("attribute", _FUNCTIONS[function].name, value))

    def launchKernel(function, x, y, z, block_x, block_y, block_z, shared, stream, parameters, extra):
        """``parameters``: the address of the addresses of the arguments, which are copied at once."""
        assert (y, z, block_y, block_z, extra) == (1, 1, 1, 1, 0)
        if not getattr(_BOUND, "context", False):
            raise CUDADriverError("CUDA_ERROR_INVALID_CONTEXT: invalid device context")
        if function not in _FUNCTIONS:
            raise CUDADriverError("CUDA_ERROR_INVALID_HANDLE: its module is not loaded")
        one = _FUNCTIONS[function]
        if shared > one.most_shared:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        count = len(one.parameters)
        places = (ctypes.c_uint64 * count).from_address(parameters)
        arguments = (ctypes.c_void_p * count)(*map(_argument, one.parameters, places))
        CLOCK.host += LAUNCH_S
        captured = _CAPTURES.get(stream)
        LOG.append(("launch" if captured is None else "captured", one.name, (x,), (block_x,), stream, shared))
        if captured is None:
            one.run(x, block_x, arguments, stream)
        else:
            captured.append(lambda: one.run(x, block_x, arguments, stream))


_BOUND = threading.local()
"""Whether a context is the calling thread's."""


class Device:
    def __init__(self, number=0):
        self.id = number

    def __enter__(self):
        self.use()
        return self

    def __exit__(self, *raised):
        pass

    def use(self):
        _BOUND.context = True


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
        CLOCK.wait(self.ptr)

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
    @property
    def done(self):
        """Whether the device has come to it."""
        return CLOCK.host >= self.at

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.at = self.captured = None

    def record(self, stream=None):
        stream = stream or get_current_stream()
        _refuse_legacy(stream)
        self.captured = _CAPTURES.get(stream.ptr)
        self.at = CLOCK.device(stream.ptr)
        CLOCK.computed(EVENT_S, stream.ptr)


_STREAMS = [Stream(0)]


def get_current_stream():
    return _STREAMS[-1]


def _copied(to, from_, size, kind, stream):
    """On the device; into the graph where the stream is captured."""
    assert kind == 3
    LOG.append(("copy", size))
    copy = lambda: ctypes.memmove(to, from_, size)
    if stream in _CAPTURES:
        _CAPTURES[stream].append(copy)
    else:
        copy()


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
