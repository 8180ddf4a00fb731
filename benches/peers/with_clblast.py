"""CLBlast over the same OpenCL device as ours: its tuned SGEMM, called through the C interface."""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from benches.peers.interface import (
    Arrays,
    Call,
    Library,
    NotOfferedError,
    Operation,
    missing,
    no_threads,
    require_float32,
)


@dataclass(frozen=True)
class Buffer:
    """The result on the device; ``inputs`` live as long as it."""

    queue: Any
    out: Any
    inputs: tuple[Any, ...]

    def numpy(self) -> np.ndarray:
        import pyopencl as cl

        host = np.empty(self.out.size // 4, np.float32)
        cl.enqueue_copy(self.queue, host, self.out)
        return host


_ROW_MAJOR, _NOT_TRANSPOSED = 101, 111


def absent() -> str | None:
    if ctypes.util.find_library("clblast") is None:
        return "the library clblast is not installed (Debian: libclblast1)"
    return missing("pyopencl")


def call(operation: Operation, arrays: Arrays) -> Call:
    if operation.name != "matmul":
        raise NotOfferedError(f"CLBlast has no {operation.name} here")
    require_float32(arrays, "CLBlast")
    import pyopencl as cl

    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

    library = ctypes.CDLL(ctypes.util.find_library("clblast"))
    queue = OpenCLRuntime().queue
    (m, k), n = arrays[0].shape, arrays[1].shape[1]
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    a, b = (cl.Buffer(queue.context, flags, hostbuf=array) for array in arrays)
    c = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * m * n)
    size, real, handle = ctypes.c_size_t, ctypes.c_float, ctypes.c_void_p
    place = handle(queue.int_ptr)
    given = [ctypes.c_int(code) for code in (_ROW_MAJOR, _NOT_TRANSPOSED, _NOT_TRANSPOSED)]
    given += [size(m), size(n), size(k), real(1.0), handle(a.int_ptr), size(0), size(k), handle(b.int_ptr), size(0)]
    given += [size(n), real(0.0), handle(c.int_ptr), size(0), size(n), ctypes.byref(place), None]

    def run() -> Buffer:
        status = library.CLBlastSgemm(*given)
        if status:
            raise RuntimeError(f"CLBlastSgemm: status {status}")
        queue.finish()
        return Buffer(queue, c, (a, b))

    return run


LIBRARY = Library("CLBlast", "cpu", absent, no_threads, call)
