"""OpenCL's platforms on this machine: pyopencl, what PoCL has to be told before its first use, and the devices."""

from __future__ import annotations

import os
import re
import threading
from functools import lru_cache
from typing import Any

from rollergen.hal.errors import LinkerError, RuntimeUnavailableError
from rollergen.hal.probes.host_facts import cores
from rollergen.hal.runtimes.opencl_devices import GPU_DRIVER, Present
from rollergen.hal.runtimes.pocl_cache import ensure
from rollergen.hal.runtimes.pocl_cpu_name import UnknownProcessorError, mend_cpu_name
from rollergen.hal.runtimes.pocl_linker import LinkerMissingError, require_linker

POCL = "Portable Computing Language"
QUIET = "-w"
"""Build option: no warnings (OpenCL 1.2, section 5.6.4.5).  PoCL counts them on the caller's standard error, and clang
warns of vectors that are wider than the processor's, which kernels use on purpose."""
INSTALL = 'pip install "rollergen[cpu]" (pyopencl with PoCL; wheels for Linux on x86-64)'
OPENING = threading.Lock()
"""Held while devices are first looked for."""
_THREADS = "POCL_MAX_PTHREAD_COUNT"
_DRIVERS = "POCL_DEVICES"
_CPU_DRIVERS = ("pthread", "basic")
_opened = threading.Event()
_BOARD = 0x4038
"""CL_DEVICE_BOARD_NAME_AMD of cl_amd_device_attribute_query."""


def import_pyopencl() -> Any:
    """pyopencl; RuntimeUnavailableError with what to install."""
    if not _opened.is_set():
        ensure(os.environ)
    try:
        import pyopencl
    except ImportError as error:
        raise RuntimeUnavailableError(
            f'pyopencl is missing ({error}); {INSTALL}, or pip install "rollergen[opencl]" for a GPU with a driver'
        ) from None
    return pyopencl


def present_devices() -> tuple[tuple[Present, Any], ...]:
    """The OpenCL devices of this machine with pyopencl's objects for them, in the order of their platforms; of PoCL's
    drivers for the CPU the one with threads for all cores.

    Raises RuntimeUnavailableError where there is no pyopencl, or no platform.
    """
    opencl = import_pyopencl()
    with OPENING:
        choose_drivers()
        return _devices(opencl)


@lru_cache(maxsize=1)
def _devices(opencl: Any) -> tuple[tuple[Present, Any], ...]:
    try:
        platforms = opencl.get_platforms()
    except opencl.LogicError as error:
        raise RuntimeUnavailableError(
            f"no OpenCL platform ({error}); {GPU_DRIVER}; a CPU's with {INSTALL}"
        ) from None
    platforms.sort(key=lambda one: one.name == POCL)  # loaders place it by how many drivers it was asked for
    found = []
    for place, platform in enumerate(platforms):
        devices = _devices_of(platform, opencl)
        if not all(map(in_calling_thread, devices)):
            devices = [one for one in devices if not in_calling_thread(one)]
        found += [(_described(device, place, number, opencl), device) for number, device in enumerate(devices)]
    return tuple(found)


def facts_of(device: Any) -> Present | None:
    """What `present_devices` says of pyopencl's object; None where it lists no such device.  PoCL's driver without
    threads is not listed: it runs on the CPU of the one with threads."""
    alone = in_calling_thread(device)
    same = lambda one: one.int_ptr == device.int_ptr or (alone and one.platform.name == POCL)
    return next((facts for facts, one in present_devices() if same(one)), None)


def _devices_of(platform: Any, opencl: Any) -> list[Any]:
    """None of a platform that says it has none (Mesa's Clover without a GPU)."""
    try:
        return list(platform.get_devices())
    except opencl.Error:
        return []


def _described(device: Any, place: int, number: int, opencl: Any) -> Present:
    kinds = opencl.device_type
    named = {"CPU": kinds.CPU, "GPU": kinds.GPU, "ACCELERATOR": kinds.ACCELERATOR}
    return Present(
        place, number, device.platform.name.strip(), _maker(device.platform),
        device.name.strip(), device.vendor.strip(), _board(device, opencl),
        frozenset(name for name, bit in named.items() if device.type & bit), int(device.max_compute_units),
        int(device.max_clock_frequency), bool(device.host_unified_memory),
    )  # fmt: skip


def _maker(platform: Any) -> str:
    """The vendor, and what stands first in the version behind OpenCL's: PoCL, AMD-APP, CUDA, Oclgrind, Mesa; Intel's
    names the operating system there.  The rest of a version is of compilers and dates, which no user means."""
    own = re.match(r"OpenCL \d+\.\d+\s+\(?([A-Za-z][\w-]*)", platform.version)
    name = own.group(1) if own and own.group(1).lower() not in ("linux", "windows") else ""
    return f"{platform.vendor} {name}".strip()


def _board(device: Any, opencl: Any) -> str:
    """What AMD's driver calls the card, whose chip is what it calls the device."""
    if "cl_amd_device_attribute_query" not in device.extensions:
        return ""
    try:
        return str(device.get_info(_BOARD)).strip("\0 ")
    except opencl.Error:
        return ""


def make_ready(device: Any) -> None:
    """Sees to it that PoCL can compile for its device; RuntimeUnavailableError where it cannot for this processor, and
    where it would end the process for want of a linker."""
    if device.platform.name != POCL:
        return
    try:
        mend_cpu_name(device.int_ptr, device.version)
        require_linker()
    except UnknownProcessorError as error:
        raise RuntimeUnavailableError(str(error)) from None
    except LinkerMissingError as error:
        raise LinkerError(str(error)) from None


def in_calling_thread(device: Any) -> bool:
    """Whether this is PoCL's driver without threads of its own."""
    return bool(device.platform.name == POCL and device.name.startswith("basic"))


def hidden_device() -> str:
    """What to say of a variable that keeps PoCL from its CPU devices; nothing where none does."""
    chosen = os.environ.get(_DRIVERS)
    if not chosen or set(chosen.split()) & set(_CPU_DRIVERS):
        return ""
    accepted = " or ".join(_CPU_DRIVERS)
    return f"{_DRIVERS}={chosen!r} leaves PoCL without a CPU device; expected {accepted}, or no such variable"


def choose_drivers() -> None:
    """PoCL's driver without worker threads, beside the one with: handing a launch to workers and being woken again
    costs 16 of 18 us of an empty launch on the same core, and 62 of 64 us on two.  A choice of the user's stands.

    PoCL listens before its first use only.  Raises RuntimeUnavailableError for a number of threads with which PoCL ends
    the process (a segmentation fault)."""
    threads = os.environ.get(_THREADS, "").strip()
    if threads.lstrip("+-").isdecimal() and not 0 <= int(threads) < 2**31:
        raise RuntimeUnavailableError(f"{_THREADS} is {threads}; expected a number of threads, or no such variable")
    _opened.set()
    os.environ.setdefault(_DRIVERS, "basic" if cores() == 1 or os.environ.get(_THREADS) == "1" else "pthread basic")
