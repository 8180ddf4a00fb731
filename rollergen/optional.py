"""Packages that only some extras of rollergen install, and what is drawn with one of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rollergen.errors import DeviceError


def optional(module: str, extra: str) -> Any:
    """The imported `module`.  Raises DeviceError that names it and the `extra` that installs it.

    >>> optional("math", "verify").sqrt(4.0)
    2.0
    """
    try:
        return import_module(module)
    except ImportError as error:
        named = error.name if module.startswith("rollergen.") and error.name else module  # what our module imports
        raise DeviceError(f'{named} is missing ({error}); pip install "rollergen[{extra}]"') from None


def blank_plot(width: float, height: float, **options: Any) -> Any:
    """A plot (matplotlib) of so many inches that no window shows.  Raises DeviceError that names its extra."""
    return optional("matplotlib.figure", "plots").Figure(figsize=(width, height), **options)
