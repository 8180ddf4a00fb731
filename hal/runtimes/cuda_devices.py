"""Which spec describes a GPU that is present: by compute capability, and by the ``gpu`` of the spec's CUDA target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rollergen.hal.errors import MendableError, RuntimeUnavailableError
from rollergen.hal.load import device_names, load_device
from rollergen.hal.runtimes.card_names import names_card
from rollergen.hal.spec import Device, Target

if TYPE_CHECKING:
    from rollergen.hal.runtimes.cuda_runtime import Gpu

NAME = "cuda"
"""The language that CUDA's GPUs are programmed in."""


def cuda_target(device: Device) -> Target | None:
    """How CUDA is written for the device, if it is."""
    return device.target(NAME)


def cuda_device_present(which: str = "") -> Device:
    """The spec of the GPU that is CUDA's current one.  RuntimeUnavailableError where there is none, and where `which`
    says another."""
    if which:
        raise RuntimeUnavailableError(
            f"{NAME}:{which} is no device; expected {NAME!r}, the current GPU (cupy.cuda.Device(1).use() makes another "
            "the current one, CUDA_VISIBLE_DEVICES hides others)"
        )
    from rollergen.hal.runtimes.cuda_runtime import import_cupy, present_gpu

    return spec_of(present_gpu(import_cupy()), map(load_device, device_names()))


def capability(device: Device) -> tuple[int, int]:
    """The compute capability that the spec's source is for.  RuntimeUnavailableError where its arch is none."""
    target = cuda_target(device)
    arch = target.arch if target else ""
    found = re.fullmatch(r"sm_(\d+)(\d)a?", arch)
    if not found:
        raise RuntimeUnavailableError(f"{device.name}: targets: arch is {arch!r}; expected sm_ and a number, as sm_70")
    return int(found[1]), int(found[2])


def matches(device: Device, gpu: Gpu) -> bool:
    """Whether the spec is of this very card: its capability, and its ``gpu`` stands in the name."""
    target = cuda_target(device)
    name = dict(target.dialect).get("gpu", "") if target else ""
    if not name or capability(device) != gpu.capability:
        return False
    return names_card(name, gpu.name)


def spec_of(gpu: Gpu, specs: Iterable[Device]) -> Device:
    """The spec of the GPU; MendableError that lists the CUDA specs, and says how to write one."""
    known = [device for device in specs if cuda_target(device)]
    for device in known:
        if matches(device, gpu):
            return device
    names = ", ".join(f"{device.name} ({capability_text(device)})" for device in known)
    raise MendableError(
        f"no device spec describes {gpu}; there are {names}: name one of no later capability, or write a file that "
        f'"extends" the nearest, with "gpu": "{gpu.name}" in the dialect of its cuda target, and pass its path'
    )


def capability_text(device: Device) -> str:
    target = cuda_target(device)
    return target.arch if target else ""


def mismatch(device: Device, gpu: Gpu) -> str:
    """What to know about running the spec's programs on this GPU; empty where it is the card described."""
    if matches(device, gpu):
        return ""
    return (
        f"made for {device.name} ({capability_text(device)}) with that spec's limits and figures, run on {gpu}: "
        "predictions are of the former"
    )
