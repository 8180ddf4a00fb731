"""Which device is meant: a name, a file, a `Device`, or the best one present."""

from __future__ import annotations

from pathlib import Path

from rollergen.errors import DeviceError
from rollergen.hal.errors import SpecError
from rollergen.hal.host import HOST, complete
from rollergen.hal.load import load_device
from rollergen.hal.spec import Device
from rollergen.measure.executor import executor_for


def resolve(device: str | Path | Device | None) -> Device:
    """The device, completed from this machine where its spec asks for that.

    None is the best one present.  Raises DeviceError for an unknown name, a spec that breaks the
    format, another type, and where None finds nothing present.
    """
    if device is None:
        return _best_present()
    if isinstance(device, Device):
        return complete(device)
    if not isinstance(device, (str, Path)):
        raise DeviceError(
            f"device is {device!r}; expected None, a name such as 'v100', a path that ends in .json, or a Device"
        )
    try:
        return complete(load_device(device))
    except SpecError as error:
        raise DeviceError(str(error)) from None


def _best_present() -> Device:
    device = resolve(HOST)
    try:
        executor_for(device)
    except DeviceError as error:
        raise DeviceError(f"no device is present: {error}; name one, such as device='v100', for source alone") from None
    return device
