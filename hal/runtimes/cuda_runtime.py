"""CUDA through CuPy: compile with NVRTC, launch on the caller's device and stream, time with events.

CuPy is imported by the first `CudaRuntime`, never before.  Nothing here waits for the device except `finish` and what
says so.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain
from typing import Any

import numpy as np

from rollergen.hal.compilers import cubin_cache
from rollergen.hal.compilers.nvrtc import OPTIONS, compile_cuda, target_for
from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.runtimes.held_stream import HeldStream
from rollergen.hal.runtimes.protocol import LaunchLimits

INSTALL = 'pip install "rollergen[cuda]" (CuPy with NVRTC, for CUDA 12; "rollergen[cuda13]" for CUDA 13)'
STATIC_SHARED_BYTES = 48 << 10
"""What a block may have of shared memory without opting in (CUDA C++ Programming Guide, "Shared Memory" of compute
capability 7.x and later)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver describes it; ``capability``: (major, minor)."""

    number: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    shared_bytes: int
    threads: int
    l2_bytes: int

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.memory_bytes / 2**30:.3g} GiB)"


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch between two events; ``seconds()`` is the device's time between them, after `finish`."""

    cupy: Any
    start: Any
    end: Any

    def seconds(self) -> float:
        return float(self.cupy.cuda.get_elapsed_time(self.start, self.end)) * 1e-3  # it counts milliseconds


Maps = Sequence[Sequence[int]]
"""For each argument the words of its tensor map (`hal.tensor_maps`); no words: it is an address."""


class Kernel:
    """An entry point and its arguments, which are addresses and whose arrays it keeps alive: for one thread at a time.

    ``values``: the arguments, in memory of which the driver is told once, so that a launch passes one address for all.
    ``places``: of each argument, the number of the value that is its address.
    ``dynamic_bytes``: of shared memory beside the kernel's own arrays, at each launch.
    """

    __slots__ = ("_kept", "_pointers", "dynamic_bytes", "function", "parameters", "places", "set_address", "values")

    def __init__(self, function: Any, dynamic_bytes: int, arguments: int = 0, maps: Maps = ()) -> None:
        self.function, self.dynamic_bytes = function, dynamic_bytes
        self._kept: dict[int, Any] = {}
        self.take(arguments, maps)

    def take(self, arguments: int, maps: Maps = ()) -> None:
        """Makes room for so many arguments, no address of which is set; the first of them are tensor maps where
        ``maps`` has the words of one."""
        each = [*(words or (0,) for words in maps), *[(0,)] * (arguments - len(maps))]
        self.values = array("Q", chain.from_iterable(each))
        self.set_address: Callable[[int, int], None] = self.values.__setitem__
        self.places = list(accumulate(map(len, each), initial=0))[:-1]
        first, size = self.values.buffer_info()[0], self.values.itemsize
        self._pointers = array("Q", [first + size * place for place in self.places])
        self.parameters: int = self._pointers.buffer_info()[0]

    def set_arg(self, position: int, buffer: Any) -> None:
        """A CuPy array, which is kept, or an address, whose owner keeps it."""
        if isinstance(buffer, int):
            self._kept.pop(position, None)
            self.values[self.places[position]] = buffer
        else:
            self._kept[position] = buffer
            self.values[self.places[position]] = buffer.data.ptr


class Module:
    """Loaded machine code: its kernels.  CuPy unloads it when it and its kernels have died."""

    def __init__(self, raw: Any, driver: Any) -> None:
        self._raw, self._driver = raw, driver
        self._opted: dict[str, int] = {}

    def kernel(self, entry: str, arguments: int = 0, dynamic_bytes: int = 0, maps: Maps = ()) -> Kernel:
        """Raises BuildError where the device has not got so much shared memory for a block."""
        function = self._raw.get_function(entry)
        if dynamic_bytes > self._opted.get(entry, STATIC_SHARED_BYTES):
            most = self._driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                self._driver.funcSetAttribute(function.ptr, most, dynamic_bytes)
            except self._driver.CUDADriverError as error:
                raise BuildError(f"{entry} takes {dynamic_bytes} bytes of shared memory a block: {error}") from None
            self._opted[entry] = dynamic_bytes
        return Kernel(function, dynamic_bytes, arguments, maps)


class CudaRuntime:
    """The caller's current CUDA device.

    Raises `RuntimeUnavailableError` where CuPy, the driver, a device or NVRTC is missing.
    """

    alignment = 256
    """Bytes to whose multiples CUDA aligns allocations."""

    def __init__(self) -> None:
        self.cupy = import_cupy()
        self.gpu = present_gpu(self.cupy)
        self._nvrtc = _nvrtc_version(self.cupy)
        self._flushed: Any = None
        self._held: HeldStream | None = None
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        driver = _version(self.cupy.cuda.runtime.driverGetVersion())
        return f"CUDA driver {driver} on {self.gpu.name} ({self.gpu.arch})"

    @property
    def compiler(self) -> str:
        return f"NVRTC {self._nvrtc} through CuPy {self.cupy.__version__}"

    @property
    def compiles_slowly(self) -> bool:
        """NVRTC compiles ten programs in one to five seconds."""
        return False

    @property
    def limits(self) -> LaunchLimits:
        return LaunchLimits(self.gpu.threads, self.gpu.shared_bytes)

    def compile(self, text: str, options: Sequence[str] = ()) -> Module:
        """Builds `text` for the device present, as `nvrtc.compile_cuda` does where it is only looked at.

        Any thread may call it, several at once: what it loads is the device's, not the thread's.

        Raises `BuildError` with the compiler's log, or the driver's reason.
        """
        nvrtc = self.cupy.cuda.nvrtc
        arch = target_for(self.gpu.capability, nvrtc)
        known = cubin_cache.key(text, arch, (*OPTIONS, *options), self._nvrtc)
        code = cubin_cache.find(known)
        if code is None:
            code = compile_cuda(text, arch, options, nvrtc).code
            cubin_cache.keep(known, code)
        return self._loaded(code, arch)

    def _loaded(self, code: bytes, arch: str) -> Module:
        module, driver = self.cupy.cuda.function.Module(), self.cupy.cuda.driver
        try:
            with self.cupy.cuda.Device(self.gpu.number):  # each thread has a current device of its own
                module.load(code)
        except driver.CUDADriverError as error:
            told = self.cupy.cuda.runtime.driverGetVersion()
            newer = int(self._nvrtc.partition(".")[0]) > told // 1000
            advice = (
                f": NVRTC {self._nvrtc} is newer than the driver, which is of CUDA {_version(told)}" if newer else ""
            )
            raise BuildError(f"the driver refused code for {arch} on {self.gpu}: {error}{advice}") from None
        return Module(module, driver)

    def wrap(self, array: np.ndarray) -> Any:
        """A copy on the device, of the array's shape and dtype; of a dtype that CuPy lacks (float8), its bytes."""
        try:
            return self.cupy.asarray(array)
        except ValueError:  # Unsupported dtype
            return self.cupy.asarray(array.reshape(-1).view(np.uint8))

    def part(self, block: Any, start: int, size: int) -> Any:
        """Bytes of an array of bytes as an array; ``start`` is a multiple of `alignment`."""
        return block[start : start + size]

    def write(self, part: Any, start: int, array: np.ndarray) -> None:
        """All bytes of an array, into an array of bytes."""
        if array.nbytes:
            bytes_ = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            part[start : start + array.nbytes].set(bytes_)

    def read(self, part: Any, start: int, size: int) -> np.ndarray:
        """So many bytes, after all that was enqueued before in the current stream."""
        found: np.ndarray = part[start : start + size].get() if size else np.empty(0, np.uint8)
        return found

    def copy(self, to: int, from_: int, size: int) -> None:
        """Bytes from address to address on the device, in the current stream."""
        if size:
            stream = self.cupy.cuda.get_current_stream().ptr
            runtime = self.cupy.cuda.runtime
            runtime.memcpyAsync(to, from_, size, runtime.memcpyDeviceToDevice, stream)

    def empty(self, size: int) -> Any:
        """So many bytes on the device (1 at least).  MemoryError where it has not got them."""
        try:
            return self.cupy.empty(max(size, 1), np.uint8)
        except self.cupy.cuda.memory.OutOfMemoryError:
            free, total = self.cupy.cuda.runtime.memGetInfo()
            raise MemoryError(
                f"{size} bytes asked for, {free} of {total} bytes are free on {self.gpu.name}; free arrays, or "
                "cupy.get_default_memory_pool().free_all_blocks()"
            ) from None

    def set_arguments(self, kernel: Kernel, buffers: Sequence[Any]) -> None:
        if len(kernel.places) != len(buffers):
            kernel.take(len(buffers))
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(self, kernel: Kernel, blocks: int, threads: int, *, timed: bool = False) -> Launched | None:
        """Enqueues on the current stream."""
        start = self._event() if timed else None
        self.launching(kernel, blocks, threads, self.cupy.cuda.get_current_stream().ptr)()
        return Launched(self.cupy, start, self._event()) if timed else None

    def launching(self, kernel: Kernel, blocks: int, threads: int, stream: int) -> Callable[[], None]:
        """What enqueues the kernel, with the arguments that it has then, on the stream of this address."""
        shape = (blocks, 1, 1, threads, 1, 1, kernel.dynamic_bytes)
        launch = self.cupy.cuda.driver.launchKernel
        return partial(launch, kernel.function.ptr, *shape, stream, kernel.parameters, 0)

    def bind_thread(self) -> None:
        """Makes the GPU's context that of the calling thread, as launches expect it."""
        self.cupy.cuda.Device(self.gpu.number).use()

    def flush(self) -> None:
        """Overwrites twice the L2 cache's bytes on the current stream: what follows finds none of its operands."""
        with self._lock:
            if self._flushed is None:
                self._flushed = self.empty(2 * self.gpu.l2_bytes)
        self._flushed.fill(0)

    @property
    def held(self) -> HeldStream:
        """What times work on the current stream."""
        with self._lock:
            if self._held is None:
                self._held = HeldStream(self)
        return self._held

    def finish(self) -> None:
        """Waits for the current stream."""
        self.cupy.cuda.get_current_stream().synchronize()

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Inside, the current stream is `stream`: CuPy's, torch's, or a raw pointer; None changes nothing."""
        if stream is None:
            yield
            return
        with self.stream(stream):
            yield

    def stream(self, stream: Any) -> Any:
        """CuPy's view of a stream.  TypeError for anything else."""
        if isinstance(stream, (self.cupy.cuda.Stream, self.cupy.cuda.ExternalStream)):
            return stream
        pointer = getattr(stream, "cuda_stream", stream)
        if isinstance(pointer, int) and not isinstance(pointer, bool):
            return self.cupy.cuda.ExternalStream(pointer)
        raise TypeError(f"stream is {stream!r}; expected a stream of CuPy or torch, or its address as an integer")

    def _event(self) -> Any:
        event = self.cupy.cuda.Event()
        event.record()
        return event


def import_cupy() -> Any:
    """CuPy; RuntimeUnavailableError with what to install."""
    try:
        import cupy
    except ImportError as error:
        raise RuntimeUnavailableError(f"CuPy is missing ({error}); {INSTALL}") from None
    if not hasattr(cupy, "cuda"):
        where = getattr(cupy, "__file__", None) or next(iter(getattr(cupy, "__path__", ["?"])))
        raise RuntimeUnavailableError(f"{where} is called cupy but is not CuPy; {INSTALL}")
    return cupy


def _nvrtc_version(cupy: Any) -> str:
    """NVRTC's version; RuntimeUnavailableError where CuPy, whose wheels do not bring it since 14, finds none."""
    try:
        return "{}.{}".format(*cupy.cuda.nvrtc.getVersion())
    except (RuntimeError, ImportError, OSError) as error:  # cuda.pathfinder's DynamicLibNotFoundError is a RuntimeError
        why = str(error).partition("\n")[0]
        raise RuntimeUnavailableError(f"CuPy {cupy.__version__} finds no NVRTC ({why}); {INSTALL}") from None


def present_gpu(cupy: Any) -> Gpu:
    """The caller's current GPU.  RuntimeUnavailableError where there is no driver, or no device."""
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeUnavailableError(_driver_trouble(cupy, error)) from None
    if count == 0:
        raise RuntimeUnavailableError("the CUDA driver has no device; see nvidia-smi and CUDA_VISIBLE_DEVICES")
    number = int(cupy.cuda.Device().id)
    found = runtime.getDeviceProperties(number)
    return Gpu(
        number, found["name"].decode(), (found["major"], found["minor"]), found["totalGlobalMem"],
        found["sharedMemPerBlockOptin"], found["maxThreadsPerBlock"], found["l2CacheSize"],
    )  # fmt: skip


def _driver_trouble(cupy: Any, error: Exception) -> str:
    """Why the driver does not count its devices, and what to do."""
    told, wanted = cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion()
    if told == 0:
        return f"no CUDA driver answers ({error}); install NVIDIA's, see nvidia-smi"
    if told // 1000 >= wanted // 1000:
        return f"the CUDA driver does not count its devices ({error}); see nvidia-smi"
    return (
        f"the driver is of CUDA {_version(told)}, and CuPy {cupy.__version__} is made for CUDA {_version(wanted)}: "
        f"update the driver, or pip uninstall cupy-cuda{wanted // 1000}x and install that of its version: {INSTALL}"
    )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
