"""CUDA through CuPy: compile with NVRTC, launch on the caller's device and stream, time with events.

CuPy is imported by the first `CudaRuntime`, never before.  Nothing here waits for the device except `finish` and what
says so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollergen.hal.errors import BuildError, RuntimeUnavailableError
from rollergen.hal.launch_limits import LaunchLimits

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


class Kernel:
    """An entry point and its arguments, which it keeps alive: for one thread at a time."""

    __slots__ = ("_buffers", "raw")

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._buffers: dict[int, Any] = {}

    def set_arg(self, position: int, buffer: Any) -> None:
        """A CuPy array, or an address as NumPy's uint64."""
        self._buffers[position] = buffer

    def arguments(self) -> tuple[Any, ...]:
        return tuple(self._buffers[position] for position in range(len(self._buffers)))


class Module:
    """Compiled text: its kernels."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def kernel(self, entry: str) -> Kernel:
        return Kernel(self._raw.get_function(entry))


class CudaRuntime:
    """The caller's current CUDA device.

    Raises `RuntimeUnavailableError` where CuPy, the driver, a device or NVRTC is missing.
    """

    def __init__(self) -> None:
        self.cupy = import_cupy()
        self.gpu = present_gpu(self.cupy)
        self._nvrtc = _nvrtc_version(self.cupy)
        self._flushed: Any = None
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
        """Builds `text` for the device present; raises `BuildError` with the compiler's log."""
        module = self.cupy.RawModule(code=text, options=("--std=c++17", *options), backend="nvrtc")
        try:
            module.compile()
        except self.cupy.cuda.compiler.CompileException as error:
            advice = f"; CUDA's headers are missing: {INSTALL}" if "could not open source file" in str(error) else ""
            raise BuildError(f"NVRTC failed for {self.gpu}: {error}{advice}") from None
        except self.cupy.cuda.driver.CUDADriverError as error:
            raise BuildError(f"the driver refused the module on {self.gpu}: {error}") from None
        return Module(module)

    def wrap(self, array: np.ndarray) -> Any:
        """A copy on the device, of the array's shape and dtype."""
        return self.cupy.asarray(array)

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
        for position, buffer in enumerate(buffers):
            kernel.set_arg(position, buffer)

    def launch(
        self, kernel: Kernel, blocks: int, threads: int, *, timed: bool = False, dynamic_bytes: int = 0
    ) -> Launched | None:
        """Enqueues on the current stream; ``dynamic_bytes``: of shared memory beside the kernel's own arrays."""
        if dynamic_bytes > STATIC_SHARED_BYTES:
            kernel.raw.max_dynamic_shared_size_bytes = dynamic_bytes
        start = self._event() if timed else None
        kernel.raw((blocks,), (threads,), kernel.arguments(), shared_mem=dynamic_bytes)
        return Launched(self.cupy, start, self._event()) if timed else None

    def flush(self) -> None:
        """Overwrites twice the L2 cache's bytes on the current stream: what follows finds none of its operands."""
        with self._lock:
            if self._flushed is None:
                self._flushed = self.empty(2 * self.gpu.l2_bytes)
        self._flushed.fill(0)

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
        raise RuntimeUnavailableError(f"no CUDA driver answers ({error}); install NVIDIA's, see nvidia-smi") from None
    if count == 0:
        raise RuntimeUnavailableError("the CUDA driver has no device; see nvidia-smi and CUDA_VISIBLE_DEVICES")
    number = int(cupy.cuda.Device().id)
    found = runtime.getDeviceProperties(number)
    return Gpu(
        number, found["name"].decode(), (found["major"], found["minor"]), found["totalGlobalMem"],
        found["sharedMemPerBlockOptin"], found["maxThreadsPerBlock"], found["l2CacheSize"],
    )  # fmt: skip


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
