"""Which device is meant: a name, a file, a `Device`, or the best one present."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rollergen.errors import DeviceError, shown
from rollergen.hal.cuda_devices import spec_of
from rollergen.hal.cuda_runtime import import_cupy, present_gpu
from rollergen.hal.errors import RuntimeUnavailableError, SpecError
from rollergen.hal.host import HOST, complete
from rollergen.hal.load import CUDA, OPENCL, device_names, load_device
from rollergen.hal.spec import Device
from rollergen.measure.executor import executor_for


def resolve(device: str | Path | Device | None) -> Device:
    """The device, completed from this machine where its spec asks for that.

    None is the best one present, a GPU before the CPU; "cuda" the GPU present.  Raises DeviceError for an unknown
    name, a spec that breaks the format, another type, where None finds nothing present, and for "opencl": of
    OpenCL's devices only the host's CPU can be opened, and that is "cpu".
    """
    if device is None:
        return _best_present()
    if isinstance(device, str) and device == CUDA:
        return _gpu_present()
    if isinstance(device, str) and device == OPENCL:
        raise DeviceError(
            f"device={OPENCL!r}: of OpenCL's devices only this machine's CPU can be opened, which is device={HOST!r}; "
            "expected that, or the name of a device or a .json file for source alone"
        )
    if isinstance(device, Device):
        return complete(device)
    if not isinstance(device, (str, Path)):
        raise DeviceError(
            f"device is {shown(device)}; expected None, a name such as 'v100', a path that ends in .json, or a Device"
        )
    try:
        return complete(load_device(device))
    except SpecError as error:
        raise DeviceError(str(error)) from None


def _gpu_present() -> Device:
    """The spec of the GPU that is CUDA's current one."""
    try:
        gpu = present_gpu(import_cupy())
        return spec_of(gpu, map(load_device, device_names()))
    except RuntimeUnavailableError as error:
        raise DeviceError(f"device={CUDA!r}: {error}") from None


def _best_present() -> Device:
    if find_spec("cupy") is not None:  # else there is no need to ask
        try:
            return _gpu_present()
        except DeviceError:
            pass
    device = resolve(HOST)
    try:
        executor_for(device)
    except DeviceError as error:
        raise DeviceError(f"no device is present: {error}; name one, such as device='v100', for source alone") from None
    return device
