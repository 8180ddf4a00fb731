"""Frozen dataclasses that are made in half the time or a third, and properties that are found once without a lock.

What `dataclass` writes for a frozen class sets each field by its name, through ``object.__setattr__``, four times as
slow as an assignment; the slots have setters of their own, which need no name (`quick`).  A class that refuses
assignment cannot be assigned to directly from within either: an attribute is stored so only where its class leaves
`object`'s way of doing so alone.  So records that nobody but the generator's own steps sees (`inner`) refuse it in
Python's development mode only (``python -X dev``); the type checker takes them for frozen as ever.  A build makes some
ten thousand small values, a tenth of its time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from functools import cached_property as found_once
else:

    class found_once:
        """`functools.cached_property` without the lock that Python 3.12 has dropped: what is asked at one moment by two
        threads is found twice."""

        def __init__(self, find):
            self._find, self._name, self.__doc__ = find, find.__name__, find.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            found = instance.__dict__[self._name] = self._find(instance)
            return found


class WithDict:
    """For what is found once of a record with slots."""


Class = TypeVar("Class", bound=type)
Record = TypeVar("Record")

_FIELDS: dict[type, tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]] = {}
"""Of each class that is `quick`: what gets all fields of a record, and the position of each."""


def inner(cls: Class) -> Class:
    """As `quick`, for records inside the generator: at run time they are frozen in development mode only."""
    return _made(cls, sys.flags.dev_mode)


def quick(cls: Class) -> Class:
    """The frozen dataclass `cls`, which has slots, with an ``__init__`` of the same signature that sets these directly.

    Slots named in ``cls.FOUND_LATER``, which are no fields, are set to None: to see that is quicker than to catch that
    a slot is empty.  Such a class says how it is copied (``__reduce__``), as `dataclass` copies fields only.

    Raises TypeError for a class that asks more of its ``__init__`` than to set fields.

    >>> from dataclasses import dataclass
    >>> @quick
    ... @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(3), Point(x=1, y=2)
    (Point(x=3, y=0), Point(x=1, y=2))
    """
    return _made(cls, True)


def _made(cls: Class, guarded: bool) -> Class:
    """``guarded``: it goes on refusing assignment."""
    names: dict[str, Any] = {}
    parameters, body = [], []
    for field in fields(cls):
        slot: Any = getattr(cls, field.name, None)
        if not field.init or field.kw_only or not hasattr(slot, "__set__") or hasattr(cls, "__post_init__"):
            raise TypeError(f"{cls.__name__}.{field.name} is no plain field with a slot; expected nothing else")
        names[f"set_{field.name}"] = slot.__set__
        value = field.name
        if field.default is not MISSING:
            names[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
        elif field.default_factory is not MISSING:
            names[f"make_{field.name}"], names["MISSING"] = field.default_factory, MISSING
            parameters.append(f"{field.name}=MISSING")
            value = f"make_{field.name}() if {field.name} is MISSING else {field.name}"
        else:
            parameters.append(field.name)
        body.append(f"    set_{field.name}(self, {value})" if guarded else f"    self.{field.name} = {value}")
    for name in getattr(cls, "FOUND_LATER", ()):
        names[f"set_{name}"] = getattr(cls, name).__set__
        body.append(f"    set_{name}(self, None)" if guarded else f"    self.{name} = None")
    if not guarded:
        del cls.__setattr__, cls.__delattr__
    exec("\n".join([f"def __init__(self, {', '.join(parameters)}):", *body, "    return None"]), names)
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = names["__init__"]  # type: ignore[misc]
    own = [field.name for field in fields(cls)]
    _FIELDS[cls] = attrgetter(*own) if len(own) > 1 else _one_field(own), {name: at for at, name in enumerate(own)}
    return cls


def _one_field(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """As `attrgetter`, which gives no tuple of fewer than two."""
    return lambda record: tuple([getattr(record, name) for name in names])


def replaced(record: Record, **changes: Any) -> Record:
    """`dataclasses.replace` for a record of a `quick` class, at a third of its price.

    >>> from rollergen.expr.index import Index
    >>> replaced(Index((("i", 4),)), const=1)
    Index(terms=(('i', 4),), const=1)
    """
    of_fields, places = _FIELDS[type(record)]
    values = list(of_fields(record))
    for name, value in changes.items():
        values[places[name]] = value
    return type(record)(*values)
