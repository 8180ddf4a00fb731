"""Devices from names, files, `Device` values, or this machine."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

from rollergen.errors import DeviceError, DeviceWarning, shown
from rollergen.hal.errors import MendableError, RuntimeUnavailableError, SpecError
from rollergen.hal.languages import language, language_names, present_names
from rollergen.hal.load import device_names, known_names, load_device
from rollergen.hal.probes.host import HOST, complete
from rollergen.hal.runtimes.cuda_devices import NAME as CUDA
from rollergen.hal.runtimes.opencl_devices import GPU_DRIVER
from rollergen.hal.runtimes.opencl_devices import NAME as OPENCL
from rollergen.hal.spec import Device

_GPUS = (("cupy", CUDA), ("pyopencl", OPENCL))
"""Packages through which GPUs are found, and the names of what is, the preferred first."""


def resolve(device: str | Path | Device | None) -> Device:
    """The device, completed from this machine where its spec asks for that.

    None is the best one present, a GPU of CUDA before one of OpenCL before the CPU; a DeviceWarning tells of one that
    no spec describes and that is passed over.  A language's name is what it finds present: "cuda" the current GPU,
    "opencl" the best OpenCL device that is no CPU, "opencl:PLATFORM:DEVICE" that one, each a number or a part of a
    name.
    Raises DeviceError for an unknown name, a spec that breaks the format, another type, where nothing is present, and
    for a device that is present and that no spec describes.
    """
    if device is None:
        return _best_present()
    if isinstance(device, str) and device not in device_names() and _is_language(device):
        return _present(device)
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


def _is_language(name: str) -> bool:
    """Whether a language stands for what is present, and no device has its name."""
    return name.partition(":")[0] in language_names() and name not in known_names()


def _present(name: str) -> Device:
    """The device of this machine that a language's name stands for."""
    try:
        return _found(name)
    except (RuntimeUnavailableError, SpecError) as error:
        raise DeviceError(f"device={name!r}: {error}") from None


def _found(name: str) -> Device:
    written, _, which = name.partition(":")
    find = language(written).present
    if find is None:
        raise SpecError(f"it names no device; expected one of {', '.join((*known_names(), *present_names()))}")
    return find(which)


def _best_present() -> Device:
    from rollergen.runtime.executor import executor_for

    for package, name in _GPUS:
        if find_spec(package) is None:  # then there is no need to ask
            continue
        try:
            return _found(name)
        except (MendableError, SpecError) as error:
            warnings.warn(f"device=None passes over a device that is present: {error}", DeviceWarning, stacklevel=4)
        except RuntimeUnavailableError:
            continue
    device = resolve(HOST)
    try:
        executor_for(device)
    except DeviceError as error:
        raise DeviceError(
            f"no device is present: {error}; {GPU_DRIVER}; name one, such as device='v100', for source alone"
        ) from None
    return device
