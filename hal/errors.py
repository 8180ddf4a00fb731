"""What the hardware abstraction raises."""

from __future__ import annotations


class RollergenError(Exception):
    """Base of everything that rollergen raises on purpose."""


class SpecError(RollergenError, ValueError):
    """A device spec that breaks the schema or contradicts itself; the message starts with file and JSON path."""


class RuntimeUnavailableError(RollergenError, RuntimeError):
    """A runtime that cannot be had here; the message says what is missing and how to get it."""


class BuildError(RollergenError, RuntimeError):
    """Source that the device's compiler refused; the message carries the compiler's log."""


class PluginWarning(UserWarning):
    """An installed package offers devices that cannot be used; the message says which and why."""
