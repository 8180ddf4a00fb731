"""What a runtime does, and which one a device needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.host import HOST, completed_on
from rollergen.hal.host_facts import cpu_model
from rollergen.hal.languages import language
from rollergen.hal.launch_limits import LaunchLimits
from rollergen.hal.spec import Device


class Runtime(Protocol):
    """Compiles and runs source on one device of this machine.  Safe to share between threads; kernels are not."""

    @property
    def description(self) -> str:
        """Driver and device, as they call themselves."""

    @property
    def compiler(self) -> str:
        """The compiler with its version, as it calls itself."""

    @property
    def limits(self) -> LaunchLimits:
        """What one launch may ask for."""

    @property
    def compiles_slowly(self) -> bool:
        """Whether a build measures fewer candidates, because its compiler takes its time with each."""

    def compile(self, text: str, options: Sequence[str] = ()) -> Any:
        """A module; its ``kernel(entry)`` makes kernels.  Raises BuildError with the compiler's log."""

    def wrap(self, array: np.ndarray) -> Any:
        """A buffer over (or a copy of) a C-contiguous array."""

    def set_arguments(self, kernel: Any, buffers: Sequence[Any]) -> None:
        """All arguments of the kernel, in order; it keeps them alive."""

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False) -> Any:
        """Enqueues; the answer's ``seconds()`` is the device's own time, if `timed` and after `finish`."""

    def finish(self) -> None:
        """Waits for everything enqueued."""


class InPlaceRuntime(Runtime, Protocol):
    """One whose kernels work in the caller's own arrays, and may run in the calling thread (`alone`)."""

    def compile(self, text: str, options: Sequence[str] = (), alone: Collection[bool] = (False,)) -> Any:
        """As that of any runtime, for launches that are `alone`, or not, or some of each."""

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False, alone: bool = False) -> Any:
        """As that of any runtime."""

    @property
    def takes_addresses(self) -> bool:
        """Whether kernels take addresses of host memory, as `memory` gives them."""

    @property
    def memory(self) -> Callable[[np.ndarray], Any]:
        """What makes an argument of an array's own memory, which it keeps alive, in a fraction of the time of `wrap`:
        ``svm_ptr`` is its address.  ValueError where the array is strided or read-only."""

    def prepared(self, launches: Sequence[tuple[Any, int, int, bool]]) -> Callable[[], None]:
        """Launches (kernel, blocks, threads, alone) in order, and waits; arguments may be set between two calls."""


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
    from rollergen.hal.opencl_runtime import hidden_device

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
    from rollergen.hal.cuda_devices import capability
    from rollergen.hal.cuda_runtime import CudaRuntime, import_cupy, present_gpu

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
    from rollergen.hal.opencl_runtime import OpenCLRuntime

    return OpenCLRuntime()
