"""Device specs that installed packages bring: entry points of the group ``rollergen.devices``.

A package declares itself once, and every JSON file in it is a device, asked for by its file's name:

    [options.entry_points]
    rollergen.devices =
        acme = acme_devices

The value is the package with the files; the name on the left is only shown in errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import PluginWarning

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from importlib.resources.abc import Traversable

GROUP = "rollergen.devices"
_BUILT_IN = "rollergen.devices"


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A spec in an installed package: the name to ask for it by, whose it is, the file."""

    name: str
    package: str
    file: Traversable

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"{self.package}: {self.name}.json"


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Those of installed packages.  (What reads them takes a tenth of the time of importing rollergen, and built-in
    devices and languages are found without.)"""
    from importlib.metadata import entry_points as installed

    return installed(group=group)


@lru_cache(maxsize=1)
def plugin_specs() -> dict[str, PluginSpec]:
    """The specs of all installed packages by name; a process looks once.

    A package that cannot be imported, and a name that is taken, are a `PluginWarning`: other devices are not harmed.
    """
    from importlib.resources import files  # as in `load`

    found: dict[str, PluginSpec] = {}
    taken = {entry.name for entry in files(_BUILT_IN).iterdir()}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.value, point.name)):
        for spec in _specs(point):
            other = found.get(spec.name)
            if other is not None and (other.package, str(other.file)) == (spec.package, str(spec.file)):
                continue
            if other is not None or f"{spec.name}.json" in taken:
                owner = other.package if other is not None else "rollergen"
                _warn(f"{spec.where} is left out: {owner} has a device of that name; rename the file")
            else:
                found[spec.name] = spec
    return found


def _specs(point: EntryPoint) -> Iterator[PluginSpec]:
    from importlib.resources import files

    package = point.dist.name if point.dist is not None else point.name
    try:
        for file in sorted(files(point.module).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".json"):
                yield PluginSpec(file.name.removesuffix(".json"), package, file)
    except Exception as error:  # whatever a foreign package raises when it is imported
        _warn(f"{package}: the package {point.module!r} of its entry point {point.name!r} cannot be used: {error}")


def _warn(text: str) -> None:
    warnings.warn(text, PluginWarning, stacklevel=2)
