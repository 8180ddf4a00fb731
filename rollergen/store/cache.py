"""What `rollergen.build` asks of the store: a kernel built before, and to keep this one.

Nothing that is wrong with the store changes a result: it is told once, as a `CacheWarning`, and the kernel is
built as if there were none.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rollergen.construct.options import BuildOptions
from rollergen.errors import CacheWarning, ProgramError
from rollergen.expr.stages import Graph
from rollergen.hal.compilers import cubin_cache
from rollergen.hal.dataclass import dataclass
from rollergen.hal.files.stamp import Stamp, stamp
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.runtime.signature import Signature
from rollergen.store import emitted, entries
from rollergen.store.database import StoreError, reading, waiting, writing
from rollergen.store.entries import Damage, Entry, Names
from rollergen.store.eviction import keep_below, limit_bytes, used
from rollergen.store.keys import Key, as_text, device_text, expression_text, key_of, sha256
from rollergen.store.location import store_path
from rollergen.store.renaming import rename

T = TypeVar("T")
_LOCK = threading.Lock()
_told: set[Path] = set()
_given_up: dict[Path, str] = {}
_READ: dict[tuple[Path, Key], tuple[tuple[Stamp | None, Stamp | None], Entry]] = {}
"""The last entries that this process read, and what the file was like."""
_MOST_READ = 64


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates of a kernel built before, in the model's order, under the names of the expression at hand."""

    candidates: tuple[Outcome, ...]
    chosen: Outcome


class Cache:
    """The store as one build sees it: one expression, one device, one set of options."""

    def __init__(
        self, graph: Graph, device: Device, options: BuildOptions, top_k: int, driver: str | None, verifier: str = ""
    ) -> None:
        self._graph, self._device = graph, device
        self._path = store_path()
        self._key: Key | None = guarded(self._path, lambda: key_of(graph, device, options, top_k, driver, verifier))
        self._anew = False

    def find(self) -> Found | None:
        """The kernel, if it was built before; None too where the store cannot be read."""
        key = self._key
        if key is None:
            return None
        return guarded(self._path, lambda: self._found(key))

    def keep(self, candidates: tuple[Outcome, ...], chosen: Outcome) -> None:
        """Stores a kernel, and the record of each candidate that was profiled, in one transaction."""
        key = self._key
        if key is not None:
            guarded(self._path, lambda: self._write(key, candidates, chosen))

    def _found(self, key: Key) -> Found | None:
        now = stamp(self._path), stamp(waiting(self._path))
        then, entry = _READ.get((self._path, key), (None, None))
        if entry is None or then != now:
            entry = self._read(key)
            if entry is None:
                return None
            if entry.candidates[entry.chosen].noisy:  # taken on a busy machine: now it may be calmer
                self._anew = True
                return None
            used(self._path, key.hash)
            _remember((self._path, key), (now, entry))
        return self._renamed(entry)

    def _read(self, key: Key) -> Entry | None:
        with reading(self._path) as connection:
            if connection is None:
                return None
            try:
                return entries.read(connection, key, self._device, self._path)
            except (Damage, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
                self._anew = True
                raise StoreError(f"{self._path}: {error}; this kernel is built and stored anew", passing=True) from None

    def _write(self, key: Key, candidates: tuple[Outcome, ...], chosen: Outcome) -> None:
        now, limit = time.time(), limit_bytes()
        position = next(n for n, one in enumerate(candidates) if one is chosen)
        signature = str(Signature(chosen.program.inputs, chosen.program.outputs))
        entry = Entry(_names(self._graph), candidates, position)
        spec, expression = device_text(self._device), expression_text(self._graph)
        texts = self._records(key, candidates, now) if key.profiled else []
        with writing(self._path) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO devices VALUES (?, ?, ?)", (key.device, self._device.name, spec)
            )
            connection.execute("INSERT OR REPLACE INTO expressions VALUES (?, ?)", (key.expression, expression))
            row_hash = entries.write(connection, key, signature, entry, now, again=self._anew)
            connection.executemany(
                "INSERT OR IGNORE INTO records (hash, record) VALUES (?, ?)", [(sha256(text), text) for text in texts]
            )
        emitted.note(self._path, row_hash)
        keep_below(self._path, limit - cubin_cache.size_bytes())

    def _records(self, key: Key, candidates: tuple[Outcome, ...], now: float) -> list[str]:
        from rollergen.store.records import records_of  # which kernels that nothing measured have none of

        return [as_text(record) for record in records_of(candidates, self._graph, self._device, key, now)]

    def _renamed(self, entry: Entry) -> Found:
        own = _names(self._graph)
        if own == entry.names:
            return Found(entry.candidates, entry.candidates[entry.chosen])
        names = {old: new for group in own for old, new in zip(entry.names[group], own[group], strict=True)}
        candidates = tuple(self._under(outcome, names) for outcome in entry.candidates)
        return Found(candidates, candidates[entry.chosen])

    def _under(self, outcome: Outcome, names: dict[str, str]) -> Outcome:
        from rollergen.emit import emit

        program = rename(outcome.program, names)
        written = emit(program, self._device) if outcome.source.text else outcome.source
        return replace(outcome, program=program, source=written)


def _remember(what: tuple[Path, Key], read: tuple[tuple[Stamp | None, Stamp | None], Entry]) -> None:
    with _LOCK:
        _READ.pop(what, None)
        while len(_READ) >= _MOST_READ:
            del _READ[next(iter(_READ))]
        _READ[what] = read


def _names(graph: Graph) -> Names:
    groups = {"inputs": graph.inputs, "outputs": graph.outputs, "temporaries": graph.temporaries}
    return {group: [b.name for b in buffers] for group, buffers in groups.items()}


def guarded(path: Path, work: Callable[[], T]) -> T | None:
    """What `work` gives; None, and one warning for each process and file, where the store fails it: for good, or (an
    error that is `passing`) only this time."""
    if path in _given_up:
        return None
    try:
        return work()
    except StoreError as error:
        if not error.passing:
            _given_up[path] = str(error)
        _tell(path, str(error) if error.passing else f"kernels are built without the cache: {error}")
    except ProgramError as error:
        _tell(path, f"{path} cannot hold this kernel: {error}")
    return None


def _tell(path: Path, text: str) -> None:
    with _LOCK:
        if path in _told:
            return
        _told.add(path)
    warnings.warn(text, CacheWarning, stacklevel=6)


def forget_failures() -> None:
    """Tries files again that were given up, and tells of failures again."""
    with _LOCK:
        _told.clear()
        _given_up.clear()
