"""Which runtime a device needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.languages import language
from rollergen.hal.load import every_spec
from rollergen.hal.probes.host import HOST, completed_on
from rollergen.hal.probes.host_facts import cpu_model
from rollergen.hal.runtimes.opencl_devices import NAME as OPENCL
from rollergen.hal.runtimes.opencl_devices import Present, chosen, is_placed, listed, meant, mismatch, placed, spec_of
from rollergen.hal.runtimes.remembered import Host, remembered
from rollergen.hal.spec import Device

if TYPE_CHECKING:
    from rollergen.hal.runtimes.protocol import Runtime


def runtime_for(device: Device) -> Runtime:
    """The runtime that runs kernels for `device` here: that of the language its programs are written in.

    Raises `RuntimeUnavailableError` that says what is missing: the device itself, or a package.
    """
    return language(device.kind.language).runtime(device)


def remembered_for(device: Device) -> Host | None:
    """What the runtime of the device would say of itself, where that is known without opening it."""
    if not _of_the_host(device) or device.kind.language != OPENCL or completed_on(device) != cpu_model():
        return None
    return remembered()


def host_runtime_for(device: Device) -> Runtime:
    """The runtime of this machine's CPU, for programs made for `device`: its spec as completed here.

    Raises `RuntimeUnavailableError` for other devices, and where a package is missing.
    """
    host = completed_on(device)
    if host is None and device.name != HOST:
        raise RuntimeUnavailableError(_absent(device))
    if host is None:
        raise RuntimeUnavailableError(f"the spec {device.name} is not complete; expected host.complete(it)")
    if host != cpu_model():
        raise RuntimeUnavailableError(
            f"the spec {device.name} was completed on a machine with {host}; this one has {cpu_model()}, and {HOST!r} "
            "by name is completed here"
        )
    return _host_runtime()


def opencl_runtime_for(device: Device) -> Runtime:
    """The runtime of this machine's CPU for its completed spec, else of the OpenCL device that the spec's programs run
    on (`opencl_devices.meant`).

    Raises `RuntimeUnavailableError` that says what is present where it is not, or that a package is missing.
    """
    from rollergen.hal.runtimes.opencl_platforms import present_devices

    if _of_the_host(device):
        return host_runtime_for(device)
    try:
        found = [facts for facts, _ in present_devices()]
    except RuntimeUnavailableError as error:
        raise RuntimeUnavailableError(f"{_absent(device)}: {error}") from None
    facts = meant(device, found)
    if facts is None:
        raise RuntimeUnavailableError(f"{_absent(device)}; OpenCL devices present: {listed(found)}")
    return _buffer_runtime(facts)


def opencl_device_present(which: str) -> Device:
    """The spec, placed there, of the OpenCL device that `which` means (`opencl_devices.chosen`).

    Raises `RuntimeUnavailableError` where there is no such device, and where no spec describes it.
    """
    from rollergen.hal.runtimes.opencl_platforms import hidden_device, present_devices

    try:
        facts = chosen(which, [facts for facts, _ in present_devices()])
    except RuntimeUnavailableError as error:
        hidden = hidden_device()
        raise RuntimeUnavailableError(f"{error}{hidden and f' ({hidden})'}") from None
    return placed(spec_of(facts, (spec for _, spec in every_spec())), facts)


def _of_the_host(device: Device) -> bool:
    """Whether its programs run in this process' memory: the spec of this machine's CPU, unless it was placed."""
    return not is_placed(device) and (device.name == HOST or completed_on(device) is not None)


def opencl_mismatch(device: Device) -> str:
    """`opencl_devices.mismatch` with the device that the spec's programs run on, once OpenCL is in use."""
    if "pyopencl" not in sys.modules or _of_the_host(device):
        return ""
    from rollergen.hal.runtimes.opencl_platforms import present_devices

    try:
        facts = meant(device, (one for one, _ in present_devices()))
    except RuntimeUnavailableError:
        return ""
    return mismatch(device, facts) if facts else ""


def cuda_mismatch(device: Device) -> str:
    """`cuda_devices.mismatch` with the current GPU."""
    if find_spec("cupy") is None:
        return ""
    from rollergen.hal.runtimes import cuda_devices
    from rollergen.hal.runtimes.cuda_runtime import import_cupy, present_gpu

    try:
        return cuda_devices.mismatch(device, present_gpu(import_cupy()))
    except RuntimeUnavailableError:
        return ""


def _absent(device: Device) -> str:
    return (
        f"{device.name} ({device.title}) is not present on this machine: its kernels have source, prediction and "
        f"explanation, and run in the interpreter (kernel.interpret); device={HOST!r} runs here"
    )


def cuda_runtime_for(device: Device) -> Runtime:
    """The runtime of the caller's current GPU, for programs made for `device`.

    A GPU of a later compute capability than the spec's runs them too (`cuda_devices.mismatch` says so).  Raises
    `RuntimeUnavailableError` for an earlier one, and where CuPy, the driver or a GPU is missing.
    """
    from rollergen.hal.runtimes.cuda_devices import capability
    from rollergen.hal.runtimes.cuda_runtime import CudaRuntime, import_cupy, present_gpu

    try:
        gpu = present_gpu(import_cupy())
    except RuntimeUnavailableError as error:
        raise RuntimeUnavailableError(f"{_absent(device)}: {error}") from None
    wanted = capability(device)
    if gpu.capability < wanted:
        raise RuntimeUnavailableError(
            f"{device.name} is written for compute capability {wanted[0]}.{wanted[1]}, and the GPU present is "
            f"{gpu}; expected that or a later one"
        )
    return _cuda_runtime(gpu.number, CudaRuntime)


@lru_cache(maxsize=16)
def _cuda_runtime(number: int, make: Callable[[], Runtime]) -> Runtime:
    """One for each GPU, made while it is the current one."""
    return make()


@lru_cache(maxsize=1)
def _host_runtime() -> Runtime:
    from rollergen.hal.runtimes.opencl_runtime import OpenCLRuntime

    return OpenCLRuntime()


@lru_cache(maxsize=16)
def _buffer_runtime(facts: Present) -> Runtime:
    """One for each OpenCL device."""
    from rollergen.hal.runtimes.opencl_buffers import BufferRuntime
    from rollergen.hal.runtimes.opencl_platforms import present_devices

    return BufferRuntime(facts, dict(present_devices())[facts])
