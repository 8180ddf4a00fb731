"""What a runtime does, and which one a device needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from rollergen.hal.errors import RuntimeUnavailableError
from rollergen.hal.spec import Device


class Runtime(Protocol):
    """Compiles and runs source on one device of this machine."""

    @property
    def description(self) -> str: ...

    def compile(self, text: str, options: Sequence[str] = ()) -> Any: ...

    def wrap(self, array: np.ndarray) -> Any: ...

    def set_arguments(self, kernel: Any, buffers: Sequence[Any]) -> None: ...

    def launch(self, kernel: Any, blocks: int, threads: int, *, timed: bool = False) -> Any: ...

    def finish(self) -> None: ...


def is_host(device: Device) -> bool:
    """Whether the spec describes this machine's own processor (it was completed from it)."""
    return "completed" in dict(device.targets[0].dialect)


def runtime_for(device: Device) -> Runtime:
    """The runtime that runs kernels for `device` here.

    Raises `RuntimeUnavailableError` that says what is missing: the device itself, or a package.
    """
    if not is_host(device):
        raise RuntimeUnavailableError(
            f"{device.name} ({device.title}) is not present on this machine: its kernels have source, prediction and "
            "explanation, and run in the interpreter (kernel.interpret); device='cpu' runs here"
        )
    return _host_runtime()


@lru_cache(maxsize=1)
def _host_runtime() -> Runtime:
    from rollergen.hal.opencl_runtime import OpenCLRuntime

    return OpenCLRuntime()
