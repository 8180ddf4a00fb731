"""Arrays in a GPU's memory, of CuPy, torch, or any library with ``__cuda_array_interface__`` or DLPack.

Nothing is copied and nothing waited for: an array is its address, and stays alive with its owner.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

from rollergen.emit.source import ARGUMENT_BYTES
from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import numpy_dtype
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np
from rollergen.runtime.interop import is_torch

_DLPACK_CUDA = 2, 13
"""DLDeviceType of CUDA's memory and of its managed memory (dlpack.h)."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """``address``: of the first element; ``owner`` keeps the memory; ``stream``: the producer's, if it tells."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: Any
    writeable: bool = True
    stream: int | None = None

    @property
    def end(self) -> int:
        return self.address + prod(self.shape) * self.dtype.itemsize


def on_device(thing: Any) -> bool:
    """Whether the array lies in CUDA's memory."""
    if isinstance(thing, np.ndarray):
        return False
    if is_torch(thing):
        return bool(thing.device.type == "cuda")
    if hasattr(type(thing), "__cuda_array_interface__") or hasattr(thing, "__cuda_array_interface__"):
        return True
    return hasattr(thing, "__dlpack_device__") and int(thing.__dlpack_device__()[0]) in _DLPACK_CUDA


def device_view(thing: Any, name: str, where: object, cupy: Any) -> DeviceView:
    """The array's memory.

    Raises ArgumentError, beginning with `name`, for host arrays, strided ones, an address that vectors cannot be read
    from, another GPU than the current one, and tensors that require gradients.
    """
    if not on_device(thing):
        raise ArgumentError(
            f"{name} is in host memory and another array of the call on the GPU; expected all in one place, such as "
            f"cupy.asarray({name}): {where}"
        )
    if is_torch(thing):
        found = _of_torch(thing, name, where)
    elif hasattr(thing, "__cuda_array_interface__"):
        found = _of_interface(thing, name, where)
    else:
        found = _of_interface(cupy.from_dlpack(thing), name, where)
    number = getattr(getattr(thing, "device", None), "id", getattr(getattr(thing, "device", None), "index", None))
    current = int(cupy.cuda.runtime.getDevice())
    if isinstance(number, int) and number != current:
        raise ArgumentError(f"{name} is on GPU {number}, the current one is {current}; make {number} current: {where}")
    if found.address % ARGUMENT_BYTES:
        raise ArgumentError(
            f"{name} starts at an address that is no multiple of {ARGUMENT_BYTES} bytes, which its kernel's vectors "
            f"need; pass {name}.{'clone' if is_torch(thing) else 'copy'}(): {where}"
        )
    return found


def _of_torch(tensor: Any, name: str, where: object) -> DeviceView:
    if tensor.requires_grad:
        raise ArgumentError(f"{name} requires gradients, which kernels do not track; pass {name}.detach(): {where}")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(f"{name} is strided or a lazy view; pass {name}.contiguous(): {where}")
    dtype = numpy_dtype(str(tensor.dtype).removeprefix("torch."))
    return DeviceView(tensor.data_ptr(), tuple(tensor.shape), dtype, tensor)


def _of_interface(thing: Any, name: str, where: object) -> DeviceView:
    facts = thing.__cuda_array_interface__
    if facts.get("mask") is not None:
        raise ArgumentError(f"{name} is a masked array, and a kernel knows no masks: {where}")
    shape, dtype = tuple(facts["shape"]), np.dtype(facts["typestr"])
    if dtype.kind == "V" and isinstance(getattr(thing, "dtype", None), np.dtype):
        dtype = thing.dtype  # bfloat16 has no letter of its own
    strides = facts.get("strides")
    if strides is not None and tuple(strides) != contiguous_strides(shape, dtype.itemsize) and prod(shape):
        raise ArgumentError(f"{name} has strides {tuple(strides)}; pass {name}.copy(), which has none: {where}")
    address, read_only = facts["data"]
    return DeviceView(int(address), shape, dtype, thing, not read_only, facts.get("stream"))


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """In bytes, of an array in the order of C."""
    return tuple(prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape)))


def check_apart(outputs: Sequence[tuple[str, DeviceView]], inputs: Sequence[DeviceView], where: object) -> None:
    """ArgumentError where an output is read-only, or overlaps an input or another output."""
    taken = list(inputs)
    for name, view in outputs:
        if not view.writeable:
            raise ArgumentError(f"out={name} is read-only; expected an array that may be written: {where}")
        if any(view.address < other.end and other.address < view.end for other in taken):
            raise ArgumentError(f"out={name} overlaps another array of the call; give it memory of its own: {where}")
        taken.append(view)


def new_like(inputs: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, cupy: Any) -> Any:
    """An array on the GPU of the inputs' kind: torch's where all are, else CuPy's; contents undefined."""
    if inputs and all(map(is_torch, inputs)):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=inputs[0].device)
    return cupy.empty(shape, dtype)


def in_kind(results: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """New arrays as what the inputs are, where these are of one array-API library that takes DLPack."""
    spaces = {getattr(type(one), "__array_namespace__", None) for one in inputs}
    if any(map(is_torch, inputs)) or len(spaces) != 1 or None in spaces or not inputs:
        return tuple(results)
    space = inputs[0].__array_namespace__()
    same = isinstance(results[0], type(inputs[0]))
    return tuple(results) if same else tuple(map(space.from_dlpack, results))


def callers_stream(inputs: Sequence[Any], stream: Any) -> Any:
    """The stream of a call: the one given, torch's current one where a tensor goes in, else None: CuPy's current."""
    if stream is None and any(map(is_torch, inputs)):
        return sys.modules["torch"].cuda.current_stream().cuda_stream
    return stream
