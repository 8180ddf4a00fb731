"""One exception class per kind of bad input; each message names the thing, its value, what would be accepted."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from rollergen.hal.errors import (
    BuildError,
    RollergenError,
    RuntimeUnavailableError,
    SpecError,
    is_array,
    name_advice,
    shown,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)

__all__ = [
    "ArgumentError",
    "BuildError",
    "BundleError",
    "CacheWarning",
    "CheckFailedError",
    "ConstructionError",
    "DeviceError",
    "DeviceWarning",
    "DoesNotFitError",
    "DropWarning",
    "DtypeError",
    "ExpressionError",
    "MeasurementWarning",
    "NonAffineIndexError",
    "ProgramError",
    "RollergenError",
    "RuntimeUnavailableError",
    "ShapeError",
    "SpecError",
    "UnknownNameError",
    "array_advice",
    "check_argument_names",
    "check_field_names",
    "name_advice",
    "shown",
]


class CacheWarning(UserWarning):
    """The cache, or an entry of it, cannot be used. Kernels are built anew and are as correct."""


class DeviceWarning(UserWarning):
    """A device is present and not used; the message says why, and what to do."""


class DropWarning(UserWarning):
    """Candidates failed while they were constructed, which is a fault of rollergen. The others are as correct."""


class MeasurementWarning(UserWarning):
    """A measured time that is not trusted: impossible by the device's spec, or taken on a busy machine."""


class ExpressionError(RollergenError, TypeError):
    """An invalid expression: swapped arguments, the truth of a condition, an unknown name."""


class ShapeError(RollergenError, ValueError):
    """Shapes that do not go together."""


class DtypeError(RollergenError, TypeError):
    """A dtype that is unknown or not accepted here."""


class NonAffineIndexError(RollergenError, ValueError):
    """An index that is not quasi-affine, or depends on data."""


class ArgumentError(RollergenError, ValueError):
    """A call of a kernel or of the public API with arguments it cannot take."""


class UnknownNameError(ArgumentError, TypeError):
    """An argument that a function or an options type does not have; the message suggests the nearest."""


class DeviceError(RollergenError, RuntimeError):
    """A device that is unknown, absent, or lacks what is asked of it."""


class DoesNotFitError(RollergenError, ValueError):
    """Data that exceed a device without a backing store; the message gives the shortfall in bytes."""


class ConstructionError(RollergenError, ValueError):
    """No program meets the user's limits; the message says which constraint rejected what, and what would do."""


class ProgramError(RollergenError, ValueError):
    """An rProgram that breaks one of its invariants."""


class BundleError(RollergenError, ValueError):
    """A directory that is no saved kernel, or one that was damaged or tampered with."""


class CheckFailedError(RollergenError, RuntimeError):
    """No candidate passed the check against the oracle."""


def array_advice(value: object) -> str:
    """What else to say where `value` stands in place of a rollergen tensor: for an array, how to describe it.

    >>> import numpy
    >>> array_advice(numpy.zeros(4, "float32"))
    '; rg.tensor("x", (4,), "float32") stands for it in an expression, and the built kernel takes the array'
    """
    if not is_array(value):
        return ""
    shape, dtype = tuple(value.shape), str(value.dtype).rpartition(".")[2]  # type: ignore[attr-defined]
    return f'; rg.tensor("x", {shape}, "{dtype}") stands for it in an expression, and the built kernel takes the array'


def check_argument_names(function: F, package: str) -> F:
    """`function` of the public `package`, which raises UnknownNameError for an argument that it does not have.

    >>> scale = check_argument_names(lambda x, factor=2: x * factor, "rg")
    >>> scale(3, facto=4)
    Traceback (most recent call last):
    rollergen.errors.UnknownNameError: rg.<lambda> has no argument 'facto'; did you mean factor?
    """
    parameters = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return function
    known = tuple(parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        _refuse_unknown(named, known, f"{package}.{function.__name__}")
        return function(*arguments, **named)

    return cast(F, checked)


def check_field_names(record: T) -> T:
    """The dataclass `record`, whose constructor raises UnknownNameError for a field that it does not have."""
    known, make = tuple(one.name for one in fields(record)), record.__init__  # type: ignore[misc]

    @functools.wraps(make)
    def checked(self: Any, *values: Any, **named: Any) -> None:
        _refuse_unknown(named, known, f"rg.{record.__name__}")
        make(self, *values, **named)

    record.__init__ = checked  # type: ignore[misc]
    return record


def refuse_top_k(top_k: object) -> None:
    """Raises ArgumentError for what is no number of candidates."""
    if top_k is None:
        return
    if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= 50:
        raise ArgumentError(f"top_k is {shown(top_k)}; expected None or an integer from 1 to 50")


def refuse_no_flags(record: Any) -> None:
    """Raises ArgumentError for a field of a dataclass of switches that is neither True nor False."""
    for one in fields(record):
        if one.type == "bool" and type(getattr(record, one.name)) is not bool:
            raise ArgumentError(f"{one.name} is {shown(getattr(record, one.name))}; expected True or False")


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises ArgumentError where the file that is written inside cannot be: no directory, no permission, disk full."""
    try:
        yield
    except OSError as error:
        parent = Path(path).absolute().parent
        reason = error.strerror if parent.is_dir() else f"{parent} is no directory"
        raise ArgumentError(f"{path} cannot be written: {reason}") from None


def _refuse_unknown(named: dict[str, Any], known: tuple[str, ...], of: str) -> None:
    for given in named:
        if given not in known:
            raise UnknownNameError(f"{of} has no argument {given!r}; {name_advice(given, known)}")
