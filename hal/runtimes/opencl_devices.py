"""Which OpenCL device is meant, which spec describes one that is present, and on which one a spec's programs run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import MendableError, RuntimeUnavailableError
from rollergen.hal.runtimes.card_names import names_card
from rollergen.hal.spec import Device, Target

NAME = "opencl"
GPU, PLATFORM, PLACE = "gpu", "platform", "place"
"""Keys of a target's dialect: words in the name of the card, the platform's name where it has to be that one, and of
several devices the one on which this copy of the spec runs (`placed`)."""

GPU_DRIVER = (
    "a GPU's comes with its driver (AMD's: rocm-opencl-runtime) and the right to open it, and clinfo lists it"
)
_EXPECTED = "expected PLATFORM:DEVICE, each a number or a part of a name, of"
_MODEL = r"(?i)\bMI\d{2,3}[A-Z]?\b|\bVII\b"
"""In the name of a board that says which card it is; others are "AMD Radeon Graphics" or "Device 66a1", and
"AMD Instinct MI60 / MI50" is both, and a Radeon VII has the chip of an MI50."""


@dataclass(frozen=True, slots=True)
class Present:
    """One OpenCL device as its driver describes it.

    ``platform_number``, ``number``: its places among the platforms and among their devices.  ``maker``: the platform's
    vendor, and the implementation's name where its version tells one.  ``board``: the card where the name is that of
    its chip (AMD), else "".  ``kinds``: CPU, GPU, ACCELERATOR.  ``unified``: its memory is the host's.
    """

    platform_number: int
    number: int
    platform: str
    maker: str
    name: str
    vendor: str
    board: str
    kinds: frozenset[str]
    units: int
    clock_mhz: int
    unified: bool

    @property
    def place(self) -> str:
        """What tells it from all others: platform, name, and which of those of that name."""
        return f"{self.platform}: {self.name} ({self.number})"

    @property
    def selector(self) -> str:
        """How a user asks for it."""
        return f"{NAME}:{self.platform_number}:{self.number}"

    @property
    def architecture(self) -> str:
        """gfx906 of gfx906:sramecc+:xnack-."""
        return re.split("[:+]", self.name, maxsplit=1)[0].strip()

    def __str__(self) -> str:
        board = f" {self.board}" if self.board else ""
        return f"{self.name}{board} of {self.platform} ({self.selector})"


def opencl_target(device: Device) -> Target | None:
    """How OpenCL C is written for the device, if that is what its programs are written in."""
    return device.target(NAME) if device.kind.language == NAME else None


def describes(device: Device, present: Present) -> bool:
    """Whether the spec is of this very device, all of it: an MI300X in parts is so many devices of fewer units.
    Of a spec that was probed here the units are those that the probe saw, which a CPU's affinity changes."""
    target = opencl_target(device)
    probed = target is not None and PLATFORM in dict(target.dialect)
    return _is_of(target, present) and (probed or device.units == present.units)


def _is_of(target: Target | None, present: Present) -> bool:
    """Whether the programs are written for this card: of its architecture and not of another's name, or of its name."""
    dialect = dict(target.dialect) if target else {}
    card = dialect.get(GPU, "")
    if target is None or dialect.get(PLATFORM, present.platform) != present.platform:
        return False
    if not target.arch:
        return bool(card) and names_card(card, present.name)
    if target.arch != present.architecture:
        return False
    models = set(re.findall(_MODEL, present.board)) if card else set()
    return not models or names_card(card, present.board)


def runs_on(device: Device, present: Present) -> bool:
    """Whether the spec's programs may be launched on it: placed there, else described, or of its architecture."""
    target = opencl_target(device)
    if target is None:
        return False
    place = dict(target.dialect).get(PLACE)
    if place is not None:
        return place == present.place
    return _is_of(target, present) or target.arch == present.architecture


def meant(device: Device, found: Iterable[Present]) -> Present | None:
    """The device on which the spec's programs run: one that it describes before others of its architecture."""
    able = [one for one in found if runs_on(device, one)]
    return min(able, key=lambda one: not describes(device, one), default=None)


def placed(device: Device, present: Present) -> Device:
    """The spec with programs that run on this device, whether it describes it or not."""
    targets = (
        replace(one, dialect=tuple(sorted({**dict(one.dialect), PLACE: present.place}.items())))
        if one.language == NAME else one
        for one in device.targets
    )  # fmt: skip
    return replace(device, targets=tuple(targets))


def is_placed(device: Device) -> bool:
    """Whether this copy of the spec runs on one device that was chosen for it."""
    target = opencl_target(device)
    return target is not None and PLACE in dict(target.dialect)


def spec_of(present: Present, specs: Iterable[Device]) -> Device:
    """The spec of the device.  MendableError that names specs of its architecture, and says how to have one
    written."""
    known = [device for device in specs if opencl_target(device)]
    for device in known:
        if describes(device, present):
            return device
    alike = [device.name for device in known if runs_on(device, present)]
    others = f"its architecture is that of {', '.join(alike)}, which may be named instead; " if alike else ""
    raise MendableError(
        f"no device spec describes {present}; {others}rollergen devices probe "
        f"--opencl {present.platform_number}:{present.number} writes one"
    )


def chosen(which: str, found: Sequence[Present]) -> Present:
    """The device that "PLATFORM:DEVICE" means: each a number or a part of a name, the second may be missing.

    Of several that it means the best, as `best` ranks them; "": the best that is no CPU.  RuntimeUnavailableError that
    lists what is present.
    """
    if not found:
        raise RuntimeUnavailableError(
            f'no OpenCL platform here has a device; {GPU_DRIVER}; a CPU\'s with pip install "rollergen[cpu]"'
        )
    if not which:
        return best(found)
    platform, _, device = which.partition(":")
    if not platform:
        raise RuntimeUnavailableError(f"{which!r} names no platform; {_EXPECTED} {listed(found)}")
    some = [
        one for one in found
        if _is(platform, one.platform_number, f"{one.platform} {one.maker}")
        and (not device or _is(device, one.number, f"{one.name} {one.board}"))
    ]  # fmt: skip
    if not some:
        raise RuntimeUnavailableError(f"no OpenCL device is {which!r}; {_EXPECTED} {listed(found)}")
    return max(some, key=_rank)


def best(found: Sequence[Present]) -> Present:
    """The GPU with most units at the highest clock, one with memory of its own before others; else an accelerator.
    A device that calls itself a CPU too, as a simulator may, has to be asked for."""
    others = [one for one in found if "CPU" not in one.kinds]
    if not others:
        raise RuntimeUnavailableError(
            "no OpenCL device is present that is no CPU; expected device='cpu', which is this machine's, or one of "
            f"{listed(found)}"
        )
    return max(others, key=_rank)


def _rank(one: Present) -> tuple[bool, bool, bool, int]:
    return "CPU" not in one.kinds, "GPU" in one.kinds, not one.unified, one.units * one.clock_mhz


def listed(found: Sequence[Present]) -> str:
    return "; ".join(f"{one.selector} {one.name} of {one.platform}" for one in found) or "none"


def mismatch(device: Device, present: Present) -> str:
    """What to know about running the spec's programs on this device; empty where it is the one described."""
    if describes(device, present):
        return ""
    words = f"made for {device.name} with that spec's limits and figures, run on {present}"
    return f"{words}: predictions are of the former"


def _is(word: str, number: int, names: str) -> bool:
    return int(word) == number if word.isdecimal() else word.lower() in names.lower()
