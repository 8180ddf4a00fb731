"""The papers' evaluations; a module of them is loaded at its first use, as naming the entries needs none."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"{__name__} has no module {name!r}") from None
