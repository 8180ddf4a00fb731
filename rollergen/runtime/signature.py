"""A kernel's arguments and results, and the checks of a call against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

from rollergen.errors import ArgumentError, DtypeError, ShapeError
from rollergen.expr.dtypes import described, numpy_dtype
from rollergen.expr.nibbles import as_stored
from rollergen.expr.places import Updated
from rollergen.expr.values import Buffer
from rollergen.hal.dataclass import dataclass
from rollergen.hal.late import np
from rollergen.runtime.interop import view

_OVERLAP_WORK = 10_000
"""Candidates that `numpy.shares_memory` may look at; where these do not decide, arrays count as overlapping."""


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _described(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.packs or described(buffer.dtype, buffer.shape)}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One array of a call; ``name``, ``shape`` and ``dtype`` (NumPy's) are what it must have; ``packs``: `Buffer`'s;
    ``written``: whether the call writes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    text: str
    packs: str = ""
    written: bool = False

    @staticmethod
    def of(buffer: Buffer) -> Parameter:
        written = buffer.kind == "output"
        return Parameter(
            buffer.name, buffer.shape, numpy_dtype(buffer.dtype), _described(buffer), buffer.packs, written
        )

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def fits(self, array: Any) -> bool:
        """Whether the array can be used as it is: the quick path of every call."""
        return (
            array.__class__ is np.ndarray
            and array.shape == self.shape
            and array.dtype == self.dtype
            and array.flags.c_contiguous
            and array.flags.aligned
        )

    def refuse(self, array: np.ndarray, signature: object) -> None:
        """Raises what is wrong with an array of another dtype or shape."""
        if self.packs and (array.dtype, array.shape) != (self.dtype, self.shape):
            kind = ShapeError if array.dtype == self.dtype else DtypeError
            raise kind(
                f"{self.name} is {described(array.dtype.name, array.shape)}; expected {self.packs} of ml_dtypes, or "
                f"these two to a byte, {described(self.dtype.name, self.shape)}, as rg.pack makes them: {signature}"
            )
        if array.dtype != self.dtype:
            converted = f", such as {self.name}.astype({self.dtype.name!r})" * (not self.written)  # that is a copy
            raise DtypeError(
                f"{self.name} has dtype {array.dtype.name if array.dtype.isnative else array.dtype.str}; "
                f"expected {self.dtype.name}{converted}: {signature}"
            )
        if array.shape != self.shape:
            raise ShapeError(f"{self.name} has shape {array.shape}; expected {self.shape}: {signature}")


@dataclass(frozen=True)
class Signature:
    """Inputs in the order of a call, and outputs in the order of what it returns.

    ``str(signature)`` reads ``kernel(A: float32[70, 37], B: float32[37, 100]) -> C: float32[70, 100]``.  Outputs that a
    call updates (`rg.put`) are its first arguments: ``kernel(updated y: float32[8, 4], x: float32[1, 4]) -> y``.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]

    @cached_property
    def _parameters(self) -> tuple[Parameter, ...]:
        return tuple(map(Parameter.of, self.inputs))

    @cached_property
    def _results(self) -> tuple[Parameter, ...]:
        return tuple(map(Parameter.of, self.outputs))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Inputs, then outputs."""
        return (*self._parameters, *self._results)

    def __str__(self) -> str:
        if self.updates:
            taken = (*(f"updated {_described(one)}" for one in self.outputs), *map(_described, self.inputs))
            return f"kernel({', '.join(taken)}) -> {', '.join(one.name for one in self.outputs)}"
        return f"kernel({', '.join(map(_described, self.inputs))}) -> {', '.join(map(_described, self.outputs))}"

    @property
    def updates(self) -> bool:
        """Whether a call updates arrays of the caller's: then all outputs are such."""
        return any(isinstance(one, Updated) for one in self.outputs)

    def apart(
        self, arrays: tuple[Any, ...], named: Mapping[str, Any], out: Any
    ) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
        """The arguments of a call that updates arrays: what it reads, by position and by name, and what it writes to.

        Raises ArgumentError for one that is missing, given twice, or given as ``out`` too.
        """
        if out is not None:
            raise ArgumentError(f"out is given; expected None, as the call writes to its first arguments: {self}")
        count = len(self._results)
        if not named and len(arrays) >= count:
            return arrays[count:], named, arrays[0] if count == 1 else arrays[:count]
        brought, named = list(arrays[:count]), dict(named)
        for one in self._results[: len(brought)]:
            if one.name in named:
                raise ArgumentError(f"{one.name} is given by position and by name: {self}")
        for one in self._results[len(brought) :]:
            if one.name not in named:
                raise ArgumentError(f"{one.name} is missing, which the call updates: {self}")
            brought.append(named.pop(one.name))
        return arrays[count:], named, brought[0] if count == 1 else tuple(brought)

    def positional(self, arrays: tuple[Any, ...], named: Mapping[str, Any], out: Any) -> tuple[Any, ...]:
        """All arguments of a call by position; errors as `apart` and `passed` have them."""
        if not self.updates:
            return self._by_name(arrays, named)
        arrays, named, updated = self.apart(arrays, named, out)
        return (*(updated if len(self._results) > 1 else (updated,)), *self._by_name(arrays, named))

    def arrange(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """The inputs in order, each contiguous: strided arrays are copied.

        Raises ArgumentError (count, names, types), DtypeError or ShapeError, naming the argument.
        """
        if named or len(arrays) != len(self._parameters):
            arrays = self._by_name(arrays, named)
        for parameter, array in zip(self._parameters, arrays, strict=True):
            if not parameter.fits(array):
                return self._arrange_slowly(arrays)
        return tuple(arrays)

    def _arrange_slowly(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        pairs = zip(self._parameters, arrays, strict=True)
        views = tuple(as_stored(view(array, p.name, self), p.packs) for p, array in pairs)
        for parameter, array in zip(self._parameters, views, strict=True):
            try:
                parameter.refuse(array, self)
            except (DtypeError, ShapeError) as error:
                raise type(error)(f"{error}{self._order_advice(views)}") from None
        return tuple(np.require(array, requirements=("C", "A")) for array in views)

    def passed(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The caller's arguments in the order of the inputs, neither checked for kind nor copied."""
        return self._by_name(arrays, named)

    def _order_advice(self, arrays: Sequence[Any]) -> str:
        """Advice where the same arrays in another order would fit."""
        kinds = [(array.shape, array.dtype) for array in arrays if isinstance(array, np.ndarray)]
        wanted = [(p.shape, p.dtype) for p in self._parameters]
        swapped = len(kinds) == len(wanted) and sorted(map(str, kinds)) == sorted(map(str, wanted))
        return "; the arrays would fit in another order: pass them by name" if swapped else ""

    def _by_name(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [parameter.name for parameter in self._parameters]
        unknown = sorted(set(named) - set(names))
        if unknown:
            raise ArgumentError(f"no input is called {unknown[0]!r}; expected {', '.join(names)}: {self}")
        twice = sorted(set(named) & set(names[: len(arrays)]))
        if twice:
            raise ArgumentError(f"{twice[0]} is given by position and by name: {self}")
        missing = [name for name in names[len(arrays) :] if name not in named]
        if missing or len(arrays) > len(names):
            lacks = f"; {', '.join(missing)} missing" if missing else ""
            raise ArgumentError(f"{len(arrays) + len(named)} arrays given, expected {len(names)}{lacks}: {self}")
        return (*arrays, *(named[name] for name in names[len(arrays) :]))

    def _new_results(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        from rollergen.runtime import result_pool  # whose arrays derive from NumPy's

        beside = inputs[0].ctypes.data if inputs else 0
        return tuple([result_pool.new_result(one.shape, one.dtype)(beside) for one in self._results])

    def results(
        self, out: Any, inputs: Sequence[np.ndarray], passed: Sequence[Any] | None = None
    ) -> tuple[np.ndarray, ...]:
        """The arrays to write into: ``out`` (an array, or a tuple for several outputs), or new ones.

        ``inputs`` are those that the kernel reads, ``passed`` those that the caller has, where they differ.
        Raises ArgumentError where one is strided, read-only, or overlaps an input or another output.
        """
        if out is None:
            return self._new_results(inputs)
        given = out if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(self._results):
            raise ArgumentError(f"out has {len(given)} arrays; expected {len(self._results)}: {self}")
        if passed is not None:
            inputs = [view(array, p.name, self) for p, array in zip(self._parameters, passed, strict=True)]
        targets: list[np.ndarray] = []
        for parameter, array in zip(self._results, given, strict=True):
            target = self._target(parameter, array)
            for other in (*inputs, *targets):
                if np.may_share_memory(target, other) and _overlap(target, other):
                    text = f"out={parameter.name} overlaps another array of the call; give it memory of its own"
                    raise ArgumentError(text)
            targets.append(target)
        return tuple(targets)

    def _target(self, parameter: Parameter, thing: Any) -> np.ndarray:
        """The plain array over the memory of an output that the caller gave."""
        array = thing if thing.__class__ is np.ndarray else view(thing, f"out={parameter.name}", self)
        if not parameter.fits(array):
            parameter.refuse(array, self)
            raise ArgumentError(
                f"out={parameter.name} is strided or misaligned; expected a C-contiguous array, "
                f"such as numpy.empty({parameter.shape}, {parameter.dtype.name!r})"
            )
        if not array.flags.writeable:
            raise ArgumentError(f"out={parameter.name} is read-only; expected an array that may be written")
        return array
