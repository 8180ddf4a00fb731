"""A cache like that of `functools.lru_cache`, into which values found in other ways can be put."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """The values put in last, at most ``limit`` of them.  Threads may share it: each step is one of a dict's own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        if len(self._values) > self._limit:
            with suppress(StopIteration, RuntimeError):  # another thread took it, or put something in
                self._values.pop(next(iter(self._values)), None)

    def clear(self) -> None:
        self._values.clear()
