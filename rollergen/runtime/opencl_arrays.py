"""What pyopencl has for tensors on a device: arrays in buffers or in shared virtual memory, and such memory alone.

Nothing is copied.  pyopencl is looked up, never imported: who passes something of it has it.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from rollergen.emit.index_code import ARGUMENT_BYTES
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_platforms import POCL


def is_opencl_array(thing: Any) -> bool:
    """Whether it is a pyopencl.array.Array."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(thing, module.Array)


def is_shared(thing: Any) -> bool:
    """Whether it is a pyopencl.SVM: a NumPy array that the device is to use where it lies."""
    module = sys.modules.get("pyopencl")
    return module is not None and isinstance(thing, module.SVM)


def as_array(thing: Any, queue: Any) -> Any:
    """A pyopencl.SVM as an Array of the queue over the same memory; anything else as it is.

    DeviceError where the memory was not allocated as shared (`pyopencl.csvm_empty`) and the device does not share the
    host's; ArgumentError where its elements do not lie one behind the other.
    """
    if not is_shared(thing):
        return thing
    from pyopencl.array import Array

    host = np.asarray(thing.mem)
    if not host.flags.c_contiguous:
        raise ArgumentError(f"SVM of strides {host.strides}; expected elements one behind the other: x.copy() has them")
    if not _allocated_as_shared(host) and not _shares_the_hosts(queue.device):
        raise DeviceError(
            f"{queue.device.name} does not share the host's memory (CL_DEVICE_SVM_FINE_GRAIN_SYSTEM); expected an "
            "array of pyopencl.csvm_empty or fsvm_empty, or pyopencl.array.to_device, which copies"
        )
    return Array(queue, host.shape, host.dtype, data=thing)


def _allocated_as_shared(host: np.ndarray) -> bool:
    owner: Any = host
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, sys.modules["pyopencl"].SVMAllocation)


def _shares_the_hosts(device: Any) -> bool:
    """PoCL's CPU drivers do without saying so (3.0)."""
    fine = sys.modules["pyopencl"].device_svm_capabilities.FINE_GRAIN_SYSTEM
    return bool(device.platform.name == POCL or device.svm_capabilities & fine)


def address(array: Any) -> int:
    """Of the first element in shared virtual memory; in a buffer the buffer's handle and the offset."""
    memory = array.base_data
    return int(getattr(memory, "svm_ptr", None) or memory.int_ptr) + int(array.offset)


def overlap(one: Any, other: Any) -> bool:
    """Whether two arrays share a byte: of one buffer, or of shared virtual memory."""
    if not one.nbytes or not other.nbytes or (_buffer(one) != _buffer(other)):
        return False
    return address(one) < address(other) + other.nbytes and address(other) < address(one) + one.nbytes


def _buffer(array: Any) -> int | None:
    """The handle of the buffer; None in shared virtual memory."""
    return None if hasattr(array.base_data, "svm_ptr") else int(array.base_data.int_ptr)


def argument(array: Any, runtime: BufferRuntime, size: int) -> Any:
    """The array's `size` bytes (not 0) as an argument of a launch.  ValueError where it begins at an address that
    kernels cannot begin at."""
    memory, shared = array.base_data, hasattr(array.base_data, "svm_ptr")
    step = ARGUMENT_BYTES if shared else runtime.alignment
    if (address(array) if shared else array.offset) % step:
        raise ValueError(f"begins {array.offset} bytes into its memory, at no multiple of {step}")
    if not array.offset:
        return memory
    return _part(address(array), size, memory) if shared else runtime.part(memory, array.offset, size)


def _part(start: int, size: int, owner: Any) -> Any:
    facts = {"shape": (size,), "typestr": "|u1", "data": (start, False), "version": 3}
    return sys.modules["pyopencl"].SVM(np.asarray(SimpleNamespace(__array_interface__=facts, owner=owner)))
