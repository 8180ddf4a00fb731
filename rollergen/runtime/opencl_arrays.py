"""What pyopencl has for tensors on a device: arrays in buffers or in shared virtual memory, and such memory alone.

Nothing is copied.  pyopencl is looked up, never imported: who passes something of it has it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.errors import ArgumentError, DeviceError
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
from rollergen.hal.runtimes.opencl_platforms import POCL

_LAUNCHED: dict[int, dict[int, Any]] = {}
"""By the identity of what owns shared virtual memory: the last event of each queue whose launches use it."""
_LAUNCHING = threading.Lock()
"""Held while `_LAUNCHED` is added to: another thread's event, just noted, must not be taken for the one before it.  An
array's end, which may come at any moment, takes no lock: nobody can launch with the array any more."""
_DROPPED: dict[tuple[int, int], tuple[Any, Any]] = {}
"""Events that are to come, each with memory of pyopencl's that nobody else has."""


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
    host's; ArgumentError where its elements do not lie one behind the other, and for memory of no NumPy array (the end
    of a bytearray or an mmap is told to nobody, or too late).
    """
    if not is_shared(thing):
        return thing
    from pyopencl.array import Array

    host = np.asarray(thing.mem)
    if not host.flags.c_contiguous:
        raise ArgumentError(f"SVM of strides {host.strides}; expected elements one behind the other: x.copy() has them")
    if not isinstance(thing.mem, np.ndarray):
        what = type(thing.mem).__name__
        raise ArgumentError(f"SVM of a {what}; expected one of a NumPy array, such as numpy.frombuffer of it")
    if not _allocated_as_shared(host) and not _shares_the_hosts(queue.device):
        own = "an array of pyopencl.csvm_empty or fsvm_empty, or " if queue.device.svm_capabilities else ""
        raise DeviceError(
            f"{queue.device.name} does not share the host's memory (CL_DEVICE_SVM_FINE_GRAIN_SYSTEM); expected "
            f"{own}pyopencl.array.to_device, which copies"
        )
    return Array(queue, host.shape, host.dtype, data=thing)


def _allocated_as_shared(host: np.ndarray) -> bool:
    return isinstance(_viewed(host).base, sys.modules["pyopencl"].SVMAllocation)


def _viewed(host: np.ndarray) -> np.ndarray:
    """The array that `host` is a view of, at whatever remove; `host` itself where it is none."""
    while isinstance(host.base, np.ndarray):
        host = host.base
    return host


def _shares_the_hosts(device: Any) -> bool:
    """PoCL's CPU drivers do without saying so (3.0)."""
    fine = sys.modules["pyopencl"].device_svm_capabilities.FINE_GRAIN_SYSTEM
    return bool(device.platform.name == POCL or device.svm_capabilities & fine)


def in_shared_memory(array: Any) -> bool:
    """Whether an array lies in shared virtual memory, and not in a buffer."""
    return hasattr(array.base_data, "svm_ptr")


def free_after(array: Any, queue: Any, event: Any) -> None:
    """Shared virtual memory of an array that is dropped is not freed before ``event``, the queue's last, is complete.

    OpenCL retains buffers of what is enqueued, and no shared memory.  What is dropped later is freed at once.  What
    pyopencl allocated, and is dropped sooner, is freed when shared memory is next used or dropped, and nobody waits
    (PoCL 3.0 frees at once what is to be freed in a queue); who drops other memory of the host's waits.
    """
    owner, allocated = _owner(array)
    with _LAUNCHING:
        launched = _LAUNCHED.setdefault(id(owner), {})
        if not launched:
            weakref.finalize(owner, _drop, id(owner), allocated).atexit = False
        if queue.int_ptr not in launched:
            for other in [key for key, last in launched.items() if _is_complete(last)]:
                del launched[other]
        launched[queue.int_ptr] = event
    _free_dropped()


def keep_host_memory(array: Any, event: Any) -> None:
    """Keeps a buffer over memory of the host's (USE_HOST_PTR) until ``event`` is complete, or as long as that is not
    looked at: OpenCL retains the buffer of what is enqueued, pyopencl the memory behind it only while it has the
    buffer."""
    memory = array.base_data
    if memory is not None and memory.flags & sys.modules["pyopencl"].mem_flags.USE_HOST_PTR:
        _free_dropped()
        _DROPPED[id(event), id(memory)] = event, memory


def _owner(array: Any) -> tuple[Any, Any]:
    """The object whose end ends the use of the array's memory, and pyopencl's allocation; None for other memory."""
    memory = array.base_data
    if not is_shared(memory):
        return array, memory
    owner = _viewed(memory.mem)
    return owner, owner.base if _allocated_as_shared(owner) else None


def _drop(key: int, allocated: Any) -> None:
    for event in _LAUNCHED.pop(key, {}).values():
        if not _is_complete(event):
            event.wait() if allocated is None else _DROPPED.setdefault((id(event), id(allocated)), (event, allocated))
    _free_dropped()


def _free_dropped() -> None:
    for key, (event, _) in _DROPPED.copy().items():
        if _is_complete(event):
            _DROPPED.pop(key, None)


def _is_complete(event: Any) -> bool:
    return bool(event.command_execution_status <= 0)  # 0: complete; less: an error


def address(array: Any) -> int:
    """Of the first element in shared virtual memory; in a buffer the buffer's handle and the offset."""
    handle, start = _place(array)
    return (handle or 0) + start


def overlap(one: Any, other: Any) -> bool:
    """Whether two arrays share a byte: of one buffer, or of shared virtual memory."""
    if not one.nbytes or not other.nbytes:
        return False
    (mine, begin), (its, start) = _place(one), _place(other)
    return mine == its and begin < start + other.nbytes and start < begin + one.nbytes


def _place(array: Any) -> tuple[int | None, int]:
    """The handle of the whole buffer and the offset there; None and the address in shared virtual memory."""
    memory = array.base_data
    if in_shared_memory(array):
        return None, int(memory.svm_ptr) + int(array.offset)
    info = sys.modules["pyopencl"].mem_info
    whole = memory.get_info(info.ASSOCIATED_MEMOBJECT)
    if whole is None:
        return int(memory.int_ptr), int(array.offset)
    return int(whole.int_ptr), int(memory.get_info(info.OFFSET)) + int(array.offset)


def argument(array: Any, runtime: BufferRuntime, size: int) -> Any:
    """The array's `size` bytes (not 0) as an argument of a launch.  ValueError where it begins at an address that
    kernels cannot begin at, or ends behind its buffer."""
    memory, (handle, start) = array.base_data, _place(array)
    step = ARGUMENT_BYTES if handle is None else runtime.alignment
    if start % step:
        where = f"at address {start}" if handle is None else f"{start} bytes into its buffer"
        own = "an array of pyopencl.csvm_empty has" if handle is None else "its copy() has"
        raise ValueError(f"begins {where}, at no multiple of {step}; expected memory of its own, such as {own}")
    if handle is None:
        return _part(start, size, memory) if array.offset else memory
    if array.offset + size > memory.size:
        taken = f"bytes {array.offset} to {array.offset + size} of a buffer of {memory.size}"
        raise ValueError(f"takes {taken}; expected one that holds them")
    if not array.offset:
        return memory
    return runtime.part(sys.modules["pyopencl"].Buffer.from_int_ptr(handle, True), start, size)


def _part(start: int, size: int, owner: Any) -> Any:
    facts = {"shape": (size,), "typestr": "|u1", "data": (start, False), "version": 3}
    return sys.modules["pyopencl"].SVM(np.asarray(SimpleNamespace(__array_interface__=facts, owner=owner)))
