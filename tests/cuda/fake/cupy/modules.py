"""Text to kernels that run: the stand-in's NVRTC, modules, functions and driver."""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
import time
from types import SimpleNamespace

from cupy.facts import LOG, CUDADriverError, _properties
from cupy.streams import _CAPTURES, CLOCK, LAUNCH_S
from rollergen.emit import Launch, Source
from tests.cuda.host import HostError, compiled_once

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
