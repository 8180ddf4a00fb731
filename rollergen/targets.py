"""Devices from names, files, `Device` values, or this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rollergen.errors import DeviceError, shown
from rollergen.hal.errors import RuntimeUnavailableError, SpecError
from rollergen.hal.languages import language, language_names, present_names
from rollergen.hal.load import known_names, load_device
from rollergen.hal.probes.host import HOST, complete
from rollergen.hal.runtimes.cuda_devices import NAME as GPU
from rollergen.hal.spec import Device
from rollergen.runtime.executor import executor_for


def resolve(device: str | Path | Device | None) -> Device:
    """The device, completed from this machine where its spec asks for that.

    None is the best one present, a GPU before the CPU; a language's name is what it finds present ("cuda": the GPU).
    Raises DeviceError for an unknown name, a spec that breaks the format, another type, where nothing is present, and
    for "opencl": of OpenCL's devices only the host's CPU can be opened, and that is "cpu".
    """
    if device is None:
        return _best_present()
    if isinstance(device, str) and device in language_names() and device not in known_names():
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


def _present(name: str) -> Device:
    """The device of this machine that a language's name stands for."""
    try:
        find = language(name).present
        if find is None:
            raise SpecError(f"it names no device; expected one of {', '.join((*known_names(), *present_names()))}")
        return find()
    except (RuntimeUnavailableError, SpecError) as error:
        raise DeviceError(f"device={name!r}: {error}") from None


def _best_present() -> Device:
    if find_spec("cupy") is not None:  # else there is no need to ask
        try:
            return _present(GPU)
        except DeviceError:
            pass
    device = resolve(HOST)
    try:
        executor_for(device)
    except DeviceError as error:
        raise DeviceError(f"no device is present: {error}; name one, such as device='v100', for source alone") from None
    return device
