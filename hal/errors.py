"""What the hardware abstraction raises, and the words that all errors have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_LONGEST = 120
_ALIKE = 0.7
"""Share of letters in common from which on a name is suggested: "v10" is near v100, "gpu" is not near ipu."""
_MOST_NAMES = 12


class RollergenError(Exception):
    """Base of everything that rollergen raises on purpose."""


class SpecError(RollergenError, ValueError):
    """A device spec that breaks the schema or contradicts itself; each line of the message names file and JSON path."""


_MOST_FINDINGS = 50


def refused(where: str, findings: Iterable[str]) -> SpecError:
    """The error that a spec is refused with: one line for each finding, of many the first ones."""
    lines = [f"{where}: {one}" for one in findings]
    more = [f"{where}: and {len(lines) - _MOST_FINDINGS} more"] if len(lines) > _MOST_FINDINGS else []
    return SpecError("\n".join(lines[:_MOST_FINDINGS] + more))


class RuntimeUnavailableError(RollergenError, RuntimeError):
    """A runtime that is not available here. The message says what is missing and how to get it."""


class MendableError(RuntimeUnavailableError):
    """A device that is there and cannot be used as the machine or the environment is; the message says what to mend."""


class LinkerError(MendableError):
    """A compiler that is there and finds no linker; the message says what to install."""


class BuildError(RollergenError, RuntimeError):
    """Source that the device's compiler refused; the message carries the compiler's log."""


class SpecWarning(UserWarning):
    """Of several specs one cannot be used; the message says why."""


class PluginWarning(UserWarning):
    """An installed package offers devices that cannot be used; the message says which and why."""


def is_array(value: Any) -> bool:
    """Whether `value` is an array with elements along axes: NumPy's, torch's, or any with ``shape`` and ``dtype``."""
    return not isinstance(value, type) and hasattr(value, "dtype") and bool(getattr(value, "shape", ()))


def shown(value: Any) -> str:
    """A value as an error shows it, short however large it is: a tensor by its name, an array by shape and dtype.

    >>> import numpy
    >>> shown(numpy.zeros((512, 512)))
    'a numpy.ndarray of shape (512, 512) and dtype float64'
    """
    if isinstance(label := getattr(value, "label", None), str):
        return label
    if is_array(value):
        kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        return f"a {kind} of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = " ".join(line.strip() for line in repr(value).splitlines())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like `name`, in capitals or not; "" where none is much like it."""
    from difflib import get_close_matches

    spelled = {one.lower(): one for one in known}
    return next((spelled[one] for one in get_close_matches(name.lower(), spelled, n=1, cutoff=_ALIKE)), "")


def name_advice(name: str, known: Iterable[str]) -> str:
    """What to say of an unknown name: the nearest known one, else the first few of all.

    >>> name_advice("sofmax", ["matmul", "softmax"])
    'did you mean softmax?'
    """
    names = list(known)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"expected one of {', '.join(names[:_MOST_NAMES])}{rest}"
