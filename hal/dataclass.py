"""Frozen dataclasses whose methods are compiled when they are first called: the decorator that modules here take.

`dataclasses.dataclass` writes six methods of a frozen class as text and compiles each, 0.6 ms a class: of a process
that finds a kernel in the cache, 300 classes took 0.18 s, more than all else that is imported with them.  Here a
class's fields are read as there (`fields`, `replace` and `asdict` work), ``__init__``, ``__repr__``, ``__eq__`` and
``__hash__`` are compiled by their first call, which most never see, and the others need no text.  Classes that are
not frozen are those of `dataclasses`, and to a type checker all are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **options: Any) -> Any:
        """`dataclasses.dataclass`, of which a frozen class takes ``eq``, ``slots`` and ``kw_only``.

        >>> @dataclass(frozen=True, slots=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), len({Point(1), Point(1, 0)})
        (Point(x=1, y=0), True, 1)
        """
        if not frozen:
            return dataclasses.dataclass(cls, eq=eq, **options)
        return partial(_frozen, eq=eq, options=options) if cls is None else _frozen(cls, eq, options)


def _frozen(cls: type, eq: bool, options: dict[str, Any]) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclasses` writes the signature there
    own = dict(vars(cls))
    derives = any(_is_frozen(base) for base in cls.__mro__[1:])  # else `dataclasses` refuses its base
    made: type = dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=derives, **options)
    made.__dataclass_params__.frozen = True  # type: ignore[attr-defined]  # which classes that derive look at
    texts = {"__init__": _init_text, "__repr__": _repr_text}
    if eq:
        texts |= {"__eq__": _eq_text, "__hash__": _hash_text}
    methods: dict[str, Any] = {name: _Waiting(made, name, text) for name, text in texts.items()}
    methods |= {"__setattr__": _set, "__delattr__": _delete}
    methods["__signature__"] = None if "__init__" in own else _Signature()
    if options.get("slots"):  # which pickle would assign
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        if own.get(name) is None:  # what the class defines stays; of one that defines __eq__, __hash__ is None
            setattr(made, name, method)
    return made


def _is_frozen(cls: type) -> bool:
    """Whether it is a frozen dataclass, of this module or of `dataclasses`."""
    return "__dataclass_params__" in vars(cls) and bool(vars(cls)["__dataclass_params__"].frozen)


Written = tuple[str, dict[str, Any]]
"""A function as text, without its name, and the values of the global names in it."""


class _Waiting:
    """A descriptor in the place of a method that is compiled when it is first looked up, and then replaces it, unless
    the class was given another one meanwhile.  (Closures instead were a third of all objects that the garbage collector
    looks at, three times when a process ends.)"""

    __slots__ = ("_cls", "_made", "_name", "_text")

    def __init__(self, cls: Any, name: str, text: Callable[[type], Written]) -> None:
        self._cls, self._name, self._text = cls, name, text
        self._made: Any = None

    def __get__(self, one: Any, cls: Any = None) -> Any:
        if self._made is None:
            self._made = self._compiled()
        if vars(self._cls)[self._name] is self:
            setattr(self._cls, self._name, self._made)
        return self._made if one is None else self._made.__get__(one)

    def _compiled(self) -> Any:
        function, scope = self._text(self._cls)
        exec(f"def {self._name}{function}", scope)
        made = scope[self._name]
        made.__qualname__, made.__module__ = f"{self._cls.__qualname__}.{self._name}", self._cls.__module__
        return made


def _init_text(cls: type) -> Written:
    """Assigns each field and calls ``__post_init__``."""
    scope: dict[str, Any] = {"_assign": object.__setattr__, "_MISSING": MISSING}
    parameters: list[str] = ["self"]
    by_name: list[str] = []
    lines = ["pass"]
    for one in fields(cls):
        name, value, default = one.name, one.name, ""
        if one.default_factory is not MISSING:
            scope[f"_new_{name}"] = one.default_factory
            default, value = "=_MISSING", f"_new_{name}() if {name} is _MISSING else {name}"
        elif one.default is not MISSING:
            scope[f"_default_{name}"] = one.default
            default = f"=_default_{name}"
        if one.init:
            (by_name if one.kw_only else parameters).append(name + default)
        elif default:
            lines.append(f"{name}{default}")
        else:
            continue  # which `__post_init__` assigns
        lines.append(f"_assign(self, {name!r}, {value})")
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    signature = ", ".join([*parameters, *(["*", *by_name] if by_name else [])])
    return f"({signature}):\n    " + "\n    ".join(lines), scope


class _Signature:
    """What `inspect.signature` and ``help`` show of a class: its fields, a factory as the default that it makes.  Of
    what has a signature of its own, an instance that can be called or a class with another ``__init__``, that."""

    def __get__(self, one: Any, cls: type) -> Any:
        from inspect import Parameter, Signature

        made = next(each for each in cls.__mro__ if "__init__" in vars(each))
        if one is not None or "__dataclass_fields__" not in vars(made):
            return None
        parameters = []
        for field in sorted((field for field in fields(cls) if field.init), key=lambda field: bool(field.kw_only)):
            kind = Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            given = [default for default in (field.default, field.default_factory) if default is not MISSING]
            default = given[0] if given else Parameter.empty
            parameters.append(Parameter(field.name, kind, default=default, annotation=field.type))
        return Signature(parameters)


def _repr_text(cls: type) -> Written:
    shown = ", ".join(f"{one.name}={{self.{one.name}!r}}" for one in fields(cls) if one.repr)
    return f"(self):\n    return f'{{self.__class__.__qualname__}}({shown})'", {}


def _eq_text(cls: type) -> Written:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return f"(self, other):\n    return {same} if other.__class__ is self.__class__ else NotImplemented", {}


def _hash_text(cls: type) -> Written:
    return f"(self):\n    return hash({_compared(cls, 'self')})", {}


def _compared(cls: type, of: str) -> str:
    """The tuple of the fields that are compared."""
    return f"({''.join(f'{of}.{one.name}, ' for one in fields(cls) if one.compare)})"


def _set(self: Any, name: str, value: Any) -> None:
    if _is_fixed(type(self), name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    if _is_fixed(type(self), name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_fixed(cls: Any, name: str) -> bool:
    """All attributes of a frozen class, and fields of one that merely derives from it."""
    return "__dataclass_fields__" in vars(cls) or name in cls.__dataclass_fields__


def _state(self: Any) -> Any:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: Any) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
