"""Sizes that are known at the call: dims, and expressions of which they are extents.

An expression with dims is not symbolic.  It records which functions of the language made it of what, and is made anew,
as an ordinary expression, for any sizes (`Sized.at`): what its kernel computes at a size is what the expression says
there.  So every operator takes dims that takes the numbers in their place.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

from rollergen.errors import ExpressionError, RollergenError, ShapeError, shown
from rollergen.hal.dataclass import dataclass

F = TypeVar("F", bound=Callable[..., Any])
HIGHEST = 2**31 - 1
"""Sizes are passed to kernels in 32 bits."""


@dataclass
class _Making:
    """An expression that is being made for these sizes, and what is made of it already."""

    sizes: Mapping[str, int]
    made: dict[int, Any] = field(default_factory=dict)


_making: ContextVar[_Making | None] = ContextVar("sizes", default=None)


@contextmanager
def _making_for(sizes: Mapping[str, int]) -> Iterator[None]:
    token = _making.set(_Making(dict(sizes)))
    try:
        yield
    finally:
        _making.reset(token)


class Extent:
    """A number that follows from sizes: a `Dim`, or what is computed of some."""

    __slots__ = ("_of", "_text", "dims")

    def __init__(self, of: Callable[[Mapping[str, int]], int], text: str, dims: Mapping[str, Dim]) -> None:
        self._of, self._text, self.dims = of, text, dims

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number for these sizes.  Raises ExpressionError where it divides by 0."""
        try:
            return self._of(sizes)
        except ZeroDivisionError:
            said = ", ".join(f"{name} is {sizes[name]}" for name in self.dims)
            raise ExpressionError(f"{self._text} divides by 0{said and f' where {said}'}") from None

    def __index__(self) -> int:
        making = _making.get()
        if making is None:
            raise ExpressionError(f"{self._text} is no number yet: it is known at the call; expected it as an extent")
        return self.at(making.sizes)

    __int__ = __index__

    def __eq__(self, other: object) -> bool:
        """Of the numbers, where they are known."""
        return self is other if _making.get() is None else int(self) == other

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise ExpressionError(f"{self._text} is neither true nor false: it is known at the call")

    def __repr__(self) -> str:
        return self._text

    def __neg__(self) -> Any:
        return self._with(0, "-", operator.sub, True)

    def _with(self, other: Any, symbol: str, function: Callable[[Any, Any], Any], swapped: bool) -> Any:
        if _making.get() is not None:
            return function(other, int(self)) if swapped else function(int(self), other)
        if not isinstance(other, (int, float, Extent)):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        if isinstance(other, float) or symbol not in _WHOLE:
            raise ExpressionError(f"{a} {symbol} {b} is no extent; expected integers and {' '.join(_WHOLE)}")
        value = lambda one, sizes: one.at(sizes) if isinstance(one, Extent) else one
        own = other.dims if isinstance(other, Extent) else {}
        return Extent(
            lambda sizes: function(value(a, sizes), value(b, sizes)), f"({a} {symbol} {b})", joined([self.dims, own])
        )


_WHOLE = "+", "-", "*", "//", "%"
"""What makes extents of extents; the others take numbers that are known, as in a body."""

for _method, _symbol, _function in (
    ("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul),
    ("floordiv", "//", operator.floordiv), ("mod", "%", operator.mod),
    ("truediv", "/", operator.truediv), ("pow", "**", operator.pow),
):  # fmt: skip
    for _prefix, _swapped in (("", False), ("r", True)):
        _made = lambda self, other, _with=(_symbol, _function, _swapped): self._with(other, *_with)
        setattr(Extent, f"__{_prefix}{_method}__", _made)

for _function in (operator.lt, operator.le, operator.gt, operator.ge):
    _made = lambda self, other, _function=_function: _function(int(self), other)
    setattr(Extent, f"__{_function.__name__}__", _made)


class Dim(Extent):
    """A size that is known at the call; made by `dim`."""

    __slots__ = ("high", "low", "name")

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name, self.low, self.high = name, low, high
        super().__init__(self._own, name, {name: self})

    def _own(self, sizes: Mapping[str, int]) -> int:
        if self.name not in sizes:
            raise ExpressionError(f"{self.name} is the extent of nothing that the expression is made of")
        return sizes[self.name]

    @property
    def bounds(self) -> tuple[str, int, int]:
        """Name, least and greatest value: what makes two dims the same."""
        return self.name, self.low, self.high


def dim(name: str, low: int, high: int) -> Dim:
    """A size that is known only at the call, from `low` to `high`.  It may stand wherever an extent may.

    >>> import rollergen as rg
    >>> S = rg.dim("S", 1, 4096)
    >>> rg.ops.linear(rg.tensor("x", (S, 768)), rg.tensor("w", (3072, 768))).shape
    (S, 3072)

    Raises ExpressionError for a name that is not an identifier, and for bounds that are no integers with
    1 <= low <= high < 2**31.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ExpressionError(f"rg.dim(name, low, high): name is {shown(name)}; expected an identifier")
    for which, value in (("low", low), ("high", high)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= HIGHEST:
            raise ExpressionError(
                f"rg.dim({name!r}): {which} is {shown(value)}; expected an integer from 1 to {HIGHEST}"
            )
    if low > high:
        raise ExpressionError(f"rg.dim({name!r}): low is {low} and high is {high}; expected low <= high")
    return Dim(name, low, high)


def joined(several: Iterable[Mapping[str, Dim]]) -> dict[str, Dim]:
    """All dims.  Raises ExpressionError for two of one name with other bounds."""
    every: dict[str, Dim] = {}
    for some in several:
        for name, one in some.items():
            if every.setdefault(name, one).bounds != one.bounds:
                raise ExpressionError(
                    f"{name} is from {one.low} to {one.high} and from {every[name].low} to {every[name].high}; "
                    "expected one dim of a name"
                )
    return every


def refuse_ranks(name: str, shapes: Sequence[tuple[Mapping[str, int], Sequence[int]]]) -> None:
    """Raises ExpressionError where the shapes that something has at sizes differ in their number of dimensions."""
    (sizes, largest) = shapes[-1]
    for at, shape in shapes:
        if len(shape) != len(largest):
            said = lambda sizes: ", ".join(f"{dim} is {size}" for dim, size in sizes.items())
            raise ExpressionError(
                f"{name} has {len(shape)} dimensions where {said(at)}, and {len(largest)} where {said(sizes)}; "
                "expected as many at all sizes (to squeeze an axis, give its number)"
            )


class Sized:
    """An expression, or an axis, with dims: what is made for each sizes, and for the largest already."""

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self._make, self._arguments, self._named = make, arguments, named
        self.dims: dict[str, Dim] = joined(one.dims for one in _sized_in((arguments, named)))
        self._largest = self.at({name: one.high for name, one in self.dims.items()})

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The ordinary expression for these sizes; errors are those of whatever makes it."""
        with _making_for(sizes):
            return self._here()

    def _here(self) -> Any:
        """The expression for the sizes for which one is being made, once for each."""
        making = _making.get()
        assert making is not None
        if id(self) not in making.made:
            making.made[id(self)] = self._make(*resolved(self._arguments), **resolved(self._named))
        return making.made[id(self)]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Numbers, and where they follow from sizes, extents.  Raises ExpressionError where the smallest sizes have
        another number of dimensions than the largest."""
        low, high = ({name: getattr(one, end) for name, one in self.dims.items()} for end in ("low", "high"))
        least = self.at(low)
        refuse_ranks("the expression", [(low, least.shape), (high, self._largest.shape)])
        pairs = zip(least.shape, self._largest.shape, strict=True)
        return tuple(self._extent(n, few, many) for n, (few, many) in enumerate(pairs))

    def _extent(self, n: int, least: int, most: int) -> Any:
        if least == most:
            return most
        for one in self.dims.values():
            if (one.low, one.high) == (least, most):
                return one
        return Extent(lambda sizes: self.at(sizes).shape[n], f"extent {n} of {self!r}", self.dims)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        making = _making.get()
        if making is not None:
            return getattr(self._here(), name)
        found = getattr(self._largest, name)
        if callable(found):
            return lambda *arguments, **named: Sized(_method_of, (name, self, *arguments), named)
        return Sized(getattr, (self, name), {}) if _is_made(found) else found

    def __getitem__(self, index: Any) -> Any:
        if _making.get() is not None:
            return self._here()[resolved(index)]
        return Sized(operator.getitem, (self, index), {})

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self._largest, (tuple, list)):
            raise ExpressionError(f"{self!r} cannot be iterated over; expected its elements by indices")
        return iter([Sized(operator.getitem, (self, n), {}) for n in range(len(self._largest))])

    def __bool__(self) -> NoReturn:
        raise ExpressionError(f"{self!r} is neither true nor false")

    def __repr__(self) -> str:
        return f"{self._largest!r} at the largest of {', '.join(self.dims)}"


def _method_of(name: str, one: Any, *arguments: Any, **named: Any) -> Any:
    return getattr(one, name)(*arguments, **named)


def _is_made(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "producer")


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Sized, *others: Any) -> Any:
        if _making.get() is not None:
            return function(self._here(), *resolved(others))
        return Sized(function, (self, *others), {})

    return method


def _swapped_of(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
):  # fmt: skip
    _bare, _function = _name.strip("_"), getattr(operator, _name)
    setattr(Sized, f"__{_bare}__", _recorded(_function))
    setattr(Sized, f"__r{_bare}__", _recorded(_swapped_of(_function)))
for _name in ["lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"]:
    setattr(Sized, f"__{_name}__", _recorded(getattr(operator, _name)))


def resolved(value: Any) -> Any:
    """What holds extents and expressions with dims, made for the sizes for which one is being made."""
    if isinstance(value, Extent):
        return int(value)
    if isinstance(value, Sized):
        return value._here()
    if type(value) in (tuple, list):
        return type(value)(map(resolved, value))
    return {key: resolved(one) for key, one in value.items()} if type(value) is dict else value


def _sized_in(value: Any) -> Iterator[Extent | Sized]:
    """Every extent and expression with dims in a value; of a function also those that it refers to."""
    if isinstance(value, (Extent, Sized)):
        yield value
    elif type(value) in (tuple, list):
        for one in value:
            yield from _sized_in(one)
    elif type(value) is dict:
        yield from _sized_in(tuple(value.values()))
    elif type(value) is FunctionType:
        seen = inspect.getclosurevars(value)
        for one in (*seen.nonlocals.values(), *seen.globals.values()):
            if isinstance(one, (Extent, Sized)):
                yield one


def has_dims(value: Any) -> bool:
    """Whether there are dims in a value."""
    return next(_sized_in(value), None) is not None


def takes_dims(function: F) -> F:
    """A function of the language, which of dims makes an expression with dims."""

    @functools.wraps(function)
    def taking(*arguments: Any, **named: Any) -> Any:
        if not has_dims(arguments) and not (named and has_dims(named)):
            return function(*arguments, **named)
        if _making.get() is not None:
            return function(*resolved(arguments), **resolved(named))
        return Sized(function, arguments, named)

    return cast(F, taking)


def checked_sizes(sizes: Mapping[str, int], dims: Mapping[str, Dim], where: str) -> dict[str, int]:
    """A size for each of the dims.  Raises RollergenErrors that name the dim, its value and its bounds."""
    for name in sizes:
        if name not in dims:
            raise ExpressionError(f"{where}: {name} is none of the dims; expected {', '.join(dims)}")
    found = {}
    for name, one in dims.items():
        if name not in sizes:
            raise ExpressionError(f"{where}: {name} is missing; expected an integer from {one.low} to {one.high}")
        value = sizes[name]
        if not isinstance(value, int) or isinstance(value, bool) or not one.low <= value <= one.high:
            raise out_of_range(one, value, where)
        found[name] = value
    return found


def out_of_range(one: Dim, value: Any, where: str) -> RollergenError:
    """The error for a size that a dim does not have."""
    return ShapeError(f"{where}: {one.name} is {shown(value)}; expected an integer from {one.low} to {one.high}")
