"""Arrays of other libraries: seen as NumPy arrays where their memory allows, and results given back in kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rollergen.errors import ArgumentError
from rollergen.expr.dtypes import is_builtin, numpy_dtype
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.late import np

_HOST_DEVICES = (1, 3, 11)
"""DLDeviceType of memory that the host addresses: CPU, and host memory pinned for CUDA and for ROCm (dlpack.h)."""

_DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}


_WORDS = {1: "uint8", 2: "int16"}
"""What the elements of dtypes that NumPy lacks are handed over as, by their bytes."""


def is_torch(thing: Any) -> bool:
    """Whether it is a torch tensor; torch is looked up, never imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, getattr(torch, "Tensor", ()))


def view(thing: Any, name: str, where: object) -> np.ndarray:
    """The host array as a plain `numpy.ndarray` over the same memory, strides kept.

    Takes NumPy arrays and subclasses, torch CPU tensors (bfloat16 as that of ml_dtypes), and whatever exports its
    memory through ``__array_interface__`` or DLPack.  Raises ArgumentError, beginning with `name`, for masked arrays,
    memory of another device, tensors that require gradients, and anything else.
    """
    if thing.__class__ is np.ndarray:
        return thing
    if is_torch(thing):
        return _of_torch(thing, name, where)
    if isinstance(thing, np.ma.MaskedArray):
        advice = f"expected an array without a mask, such as {name}.filled(0)"
        raise ArgumentError(f"{name} is a masked array, and a kernel knows no masks; {advice}: {where}")
    if isinstance(thing, np.ndarray):
        return thing.view(np.ndarray)
    if hasattr(thing, "__array_interface__") and not isinstance(thing, np.generic):
        return np.asarray(thing)
    if hasattr(thing, "__dlpack__") and hasattr(thing, "__dlpack_device__"):
        return _of_dlpack(thing, name, where)
    if isinstance(thing, (np.generic, bool, int, float)):
        raise ArgumentError(f"{name} is the number {thing!r}; expected an array, see numpy.asarray: {where}")
    what = f"{type(thing).__module__}.{type(thing).__qualname__}"
    advice = f"such as {name}.get()" if hasattr(thing, "get") and hasattr(thing, "queue") else "see numpy.asarray"
    if what.startswith("pyopencl.") and what.endswith(".Buffer"):
        advice = f"or pyopencl.array.Array(queue, shape, dtype, data={name}) for a kernel of an OpenCL device"
    raise ArgumentError(f"{name} is a {what}; expected a NumPy array or a host array with DLPack, {advice}: {where}")


def _of_torch(tensor: Any, name: str, where: object) -> np.ndarray:
    try:
        return tensor.numpy()  # type: ignore[no-any-return]
    except (TypeError, RuntimeError):
        return _looked_at(tensor, name, where)


def _looked_at(tensor: Any, name: str, where: object) -> np.ndarray:
    """The tensor, of a dtype that NumPy lacks; ArgumentError that says why it is none that can be read.  Each question
    runs code of torch's that a model's weights have driven out of the caches: 10 us, so that most are not asked."""
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        advice = "no data; expected a tensor with values" if tensor.device.type == "meta" else f"try {name}.cpu()"
        raise ArgumentError(f"{name} is on device {tensor.device}: {advice}: {where}")
    if tensor.requires_grad:
        raise ArgumentError(f"{name} requires gradients, which kernels do not track; pass {name}.detach(): {where}")
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
        advice = "expected a dense tensor, see to_dense, resolve_neg and to_padded_tensor"
        raise ArgumentError(f"{name} is sparse, nested or a lazy view; {advice}: {where}")
    row = DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    try:
        if row is not None and row.narrow:
            dtype = numpy_dtype(row.name)
            return tensor_reader(dtype)(tensor).view(dtype)
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(f"{name} cannot be read as an array: {error}: {where}") from None


def _of_dlpack(thing: Any, name: str, where: object) -> np.ndarray:
    try:
        kind, number = map(int, thing.__dlpack_device__())
        if kind in _HOST_DEVICES:
            return np.from_dlpack(thing)
    except Exception as error:  # whatever an exporter of another library raises
        raise ArgumentError(f"{name} cannot be read through DLPack: {error}: {where}") from error
    device = f"{_DEVICE_NAMES.get(kind, f'DLPack kind {kind}')}:{number}"
    raise ArgumentError(f"{name} is on device {device}; expected host memory: copy it there first: {where}")


def alike(results: tuple[np.ndarray, ...], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The results as what all the inputs are: torch tensors, arrays of one array-API library; else NumPy arrays.

    Nothing is copied: the memory is the results'.
    """
    if not inputs or isinstance(inputs[0], np.ndarray):
        return results
    if all(map(is_torch, inputs)):
        return tuple(map(to_torch, results))
    spaces = {getattr(type(one), "__array_namespace__", None) for one in inputs}
    if len(spaces) != 1 or None in spaces:
        return results
    from_dlpack = getattr(inputs[0].__array_namespace__(), "from_dlpack", None)
    return results if from_dlpack is None else tuple(map(from_dlpack, results))


def returned_arrays(out: Any, results: tuple[Any, ...], passed: Sequence[Any] | None) -> tuple[Any, ...]:
    """What a call gives back: the caller's own ``out``, or results of the kind that went in."""
    if out is not None:
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)
    return results if passed is None else alike(results, passed)


def held_dtype(dtype: np.dtype) -> np.dtype:
    """What `tensor_reader` gives tensors of this dtype as."""
    return dtype if is_builtin(dtype) else np.dtype(_WORDS[dtype.itemsize])


def tensor_reader(dtype: np.dtype) -> Callable[[Any], np.ndarray]:
    """What gives the memory of torch's tensors of this dtype as an array (of what NumPy lacks: the bits, as integers).
    It raises RuntimeError or TypeError for tensors that are no plain memory of the host."""
    torch = sys.modules["torch"]
    if not is_builtin(dtype):
        word = getattr(torch, _WORDS[dtype.itemsize])
        return lambda tensor: tensor.view(word).numpy()
    reader: Callable[[Any], np.ndarray] = torch.Tensor.numpy
    return reader


def to_torch(array: np.ndarray) -> Any:
    """A tensor over the array's memory."""
    torch = sys.modules["torch"]
    if not is_builtin(array.dtype):
        return torch.from_numpy(array.view(_WORDS[array.itemsize])).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)
