"""Whole models in the store: one row for each, from which all its kernels are read at once.

A row is believed where its hash and those of its programs and sources hold; `admin.verify` emits the sources again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from rollergen.construct.options import BuildOptions
from rollergen.hal.compilers import cubin_cache
from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.store.cache import guarded
from rollergen.store.database import StoreError, reading, writing
from rollergen.store.entries import Damage, Entry, candidates_of, write_candidate
from rollergen.store.eviction import keep_below, limit_bytes, used
from rollergen.store.keys import Key, as_text, device_text, key_of_text, sha256
from rollergen.store.location import store_path
from rollergen.store.schema import MODELS, has_models

COLUMNS = ("key", "device", "rollergen", "steps", "candidates", "parts", "made_at")
"""Columns of ``models`` in the order of its hash, which follows them."""


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel: its candidates in the model's order, the place of the chosen one, and why it has its stages."""

    candidates: tuple[Outcome, ...]
    chosen: int
    cuts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A compiled model: its distinct kernels, and its steps as JSON, which `network.stored` writes and reads."""

    steps: Any
    kernels: tuple[Made, ...]


class ModelCache:
    """The store as one compilation sees it: ``text`` is all that the kernels' expressions and names depend on, the
    other arguments are those of `Cache`."""

    def __init__(self, text: str, device: Device, options: BuildOptions, top_k: int, driver: str | None) -> None:
        self._device, self._path = device, store_path()
        made = lambda: key_of_text(as_text({"model": text}), device, options, top_k, driver)
        self._key: Key | None = guarded(self._path, made)

    def find(self) -> Whole | None:
        """The model, if it was compiled before; None too where the store cannot be read."""
        key = self._key
        return None if key is None else guarded(self._path, lambda: self._found(key))

    def keep(self, whole: Whole) -> None:
        """Stores a model, but for one with times that were taken on a busy machine: now it may be calmer."""
        key = self._key
        if key is not None and not any(one.candidates[one.chosen].noisy for one in whole.kernels):
            guarded(self._path, lambda: self._write(key, whole))

    def _found(self, key: Key) -> Whole | None:
        with reading(self._path) as connection:
            if connection is None or not has_models(connection):
                return None
            question = f"SELECT {', '.join(COLUMNS)}, hash FROM models WHERE key = ?"
            row = connection.execute(question, (key.hash,)).fetchone()
            if row is None:
                return None
            try:
                whole = whole_of(connection, row)
            except (Damage, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise StoreError(f"{self._path}: {error}; this model is stored anew", passing=True) from None
        used(self._path, key.hash)
        return whole

    def _write(self, key: Key, whole: Whole) -> None:
        limit = limit_bytes()
        with writing(self._path) as connection:
            connection.execute(MODELS)
            candidates = [write_candidate(connection, one) for made in whole.kernels for one in made.candidates]
            parts = [[len(made.candidates), made.chosen, made.cuts] for made in whole.kernels]
            texts = map(as_text, (whole.steps, candidates, parts))
            row = [key.hash, key.device, key.rollergen, *texts, time.time()]
            spec = device_text(self._device)
            connection.execute("INSERT OR REPLACE INTO devices VALUES (?, ?, ?)", (key.device, self._device.name, spec))
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            connection.execute(f"INSERT OR REPLACE INTO models VALUES ({marks})", (*row, sha256(as_text(row))))
        keep_below(self._path, limit - cubin_cache.size_bytes())


def whole_of(connection: sqlite3.Connection, row: Sequence[Any]) -> Whole:
    """``row``: `COLUMNS` and the hash of one row of ``models``.  Raises Damage."""
    if sha256(as_text(list(row[:-1]))) != row[-1]:
        raise Damage(f"model {str(row[0])[:12]} is not what was written")
    steps, described, parts = map(json.loads, row[3:6])
    candidates = iter(candidates_of(connection, described))
    kernels = tuple(
        Made(tuple(next(candidates) for _ in range(count)), chosen, tuple(cuts)) for count, chosen, cuts in parts
    )
    return Whole(steps, kernels)


def entries_of(whole: Whole) -> tuple[Entry, ...]:
    """Its kernels as `entries.check_sources` takes them."""
    return tuple(Entry({}, one.candidates, one.chosen) for one in whole.kernels)
