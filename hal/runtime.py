"""Which runtime a device needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.languages import language
from rollergen.hal.probes.host import HOST, completed_on
from rollergen.hal.probes.host_facts import cpu_model
from rollergen.hal.runtimes.protocol import Runtime
from rollergen.hal.spec import Device


def runtime_for(device: Device) -> Runtime:
    """The runtime that runs kernels for `device` here: that of the language its programs are written in.

    Raises `RuntimeUnavailableError` that says what is missing: the device itself, or a package.
    """
    return language(device.kind.language).runtime(device)


def host_runtime_for(device: Device) -> Runtime:
    """The runtime of this machine's CPU, for programs made for `device`: its spec as completed here.

    Raises `RuntimeUnavailableError` for other devices, and where a package is missing.
    """
    host = completed_on(device)
    if host is None and device.name != HOST:
        raise RuntimeUnavailableError(
            f"{device.name} ({device.title}) is not present on this machine: its kernels have source, prediction and "
            f"explanation, and run in the interpreter (kernel.interpret); device={HOST!r} runs here"
        )
    if host is None:
        raise RuntimeUnavailableError(f"the spec {device.name} is not complete; expected host.complete(it)")
    if host != cpu_model():
        raise RuntimeUnavailableError(
            f"the spec {device.name} was completed on a machine with {host}; this one has {cpu_model()}, and {HOST!r} "
            "by name is completed here"
        )
    return _host_runtime()


def no_device_by_language() -> Device:
    """OpenCL has a name for every device of every vendor; which of them is meant has to be said."""
    from rollergen.hal.runtimes.opencl_runtime import hidden_device

    hidden = hidden_device()
    raise RuntimeUnavailableError(
        f"of OpenCL's devices only this machine's CPU can be opened, which is device={HOST!r}; expected that, or the "
        f"name of a device or a .json file for source alone{hidden and f' ({hidden})'}"
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
        raise RuntimeUnavailableError(
            f"{device.name} ({device.title}) is not present on this machine: its kernels have source, prediction and "
            f"explanation, and run in the interpreter (kernel.interpret); device={HOST!r} runs here: {error}"
        ) from None
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
