"""The candidates of a build as rows of the store, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollergen.emit import Launch, Source
from rollergen.errors import ProgramError, SpecError
from rollergen.hal.dataclass import dataclass
from rollergen.hal.languages import BUILT_IN
from rollergen.hal.load import device_hash, parse_device
from rollergen.hal.spec import Device
from rollergen.measure.outcome import Outcome
from rollergen.program.serial import from_text, to_text
from rollergen.store import emitted
from rollergen.store.keys import Key, as_text, device_text, sha256

_FIGURES = (
    "rank", "predicted_s", "compile_s", "wall_s", "event_s", "rounds", "compared", "check_s", "ended", "doubt",
    "note", "caches", "noisy", "sent_bytes", "fetched_bytes",
)  # fmt: skip
COLUMNS = (
    "key", "expression", "device", "options", "profiled", "driver", "rollergen", "signature", "names",
    "candidates", "chosen", "made_at",
)  # fmt: skip
"""Columns of ``kernels`` in the order of its hash, which follows them."""

Names = dict[str, list[str]]
"""Names of the inputs, outputs and temporaries of an expression."""


class Damage(Exception):
    """A row that is not what was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored kernel: candidates in the model's order under the names of the expression they were built from."""

    names: Names
    candidates: tuple[Outcome, ...]
    chosen: int


def write(
    connection: sqlite3.Connection, key: Key, signature: str, entry: Entry, made_at: float, *, again: bool
) -> str:
    """The kernel with its programs and sources; the first one stays, unless ``again``: its row was damaged, or its
    times noisy.  Returns the row's hash."""
    written = [write_candidate(connection, one) for one in entry.candidates]
    row = [
        key.hash, *(asdict(key)[name] for name in COLUMNS[1:7]), signature, as_text(entry.names), as_text(written),
        entry.chosen, made_at,
    ]  # fmt: skip
    row[4] = int(row[4])
    verb = "INSERT OR REPLACE" if again else "INSERT OR IGNORE"
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    made = row_hash(row)
    connection.execute(f"{verb} INTO kernels ({', '.join(COLUMNS)}, hash) VALUES ({marks})", (*row, made))
    return made


def row_hash(row: Sequence[Any]) -> str:
    """Hash of the values of `COLUMNS`."""
    return sha256(as_text(list(row)))


def read(connection: sqlite3.Connection, key: Key, device: Device, path: Path) -> Entry | None:
    """The stored kernel, checked as `admin.verify` checks it, so that a build replaces what `verify` would name; its
    source too, unless that is known (`emitted`).  ``path``: the store.  Raises Damage."""
    row = connection.execute(f"SELECT {', '.join(COLUMNS)}, hash FROM kernels WHERE key = ?", (key.hash,)).fetchone()
    if row is None:
        return None
    entry = entry_of(connection, row)
    if key_of_row(row) != key:
        raise Damage(f"kernel {key.hash[:12]}: its columns are not those of its key")
    foreign = {one.source.language for one in entry.candidates if one.source.text} - {*BUILT_IN}
    if foreign or not emitted.is_known(path, row[-1]):  # the fingerprint covers no printers of other packages
        check_sources(entry, device)
        emitted.note(path, row[-1])
    _check_beside(connection, key, device)
    return entry


def key_of_row(row: Sequence[Any]) -> Key:
    """The key that the columns of one row of ``kernels`` give."""
    return Key(row[1], row[2], row[3], bool(row[4]), row[5], row[6])


def check_sources(entry: Entry, device: Device, *, every: bool = False) -> None:
    """Whether the chosen candidate's source (or ``every`` one) is what its program is emitted as.  Raises Damage."""
    from rollergen.emit import emit

    if not 0 <= entry.chosen < len(entry.candidates):
        raise Damage(f"chosen is {entry.chosen}; it has {len(entry.candidates)} candidates")
    for number, one in enumerate(entry.candidates):
        written = bool(one.source.text)  # else it failed before, or nobody has needed its text
        if written and (every or number == entry.chosen) and emit(one.program, device) != one.source:
            raise Damage(f"candidate {number} is no longer emitted as it was")


def _check_beside(connection: sqlite3.Connection, key: Key, device: Device) -> None:
    """The rows of device and expression, which are stored with the kernel.  Raises Damage."""
    own = device_text(device)
    for table, column, name, hashed in (
        ("devices", "spec", key.device, lambda text: key.device if text == own else hash_of_spec(text)),
        ("expressions", "expression", key.expression, lambda text: sha256(str(text))),
    ):
        row = connection.execute(f"SELECT {column} FROM {table} WHERE hash = ?", (name,)).fetchone()
        if row is None or hashed(row[0]) != name:
            raise Damage(f"{table} {name[:12]} is {'missing' if row is None else 'not what was written'}")


@lru_cache(maxsize=16)
def hash_of_spec(spec: Any) -> str:
    """The hash of a device's row. Raises Damage."""
    if not isinstance(spec, str):
        raise Damage("the device's spec is no text")
    try:
        return device_hash(parse_device(spec.encode(), "the device's spec"))
    except SpecError as error:
        raise Damage(str(error)) from None


def entry_of(connection: sqlite3.Connection, row: Sequence[Any]) -> Entry:
    """``row``: `COLUMNS` and the hash of one row of ``kernels``.  Raises Damage."""
    if row_hash(row[:-1]) != row[-1]:
        raise Damage(f"kernel {str(row[0])[:12]} is not what was written")
    names, candidates, chosen = json.loads(row[8]), json.loads(row[9]), row[10]
    return Entry(names, candidates_of(connection, candidates), chosen)


def candidates_of(connection: sqlite3.Connection, described: Sequence[dict[str, Any]]) -> tuple[Outcome, ...]:
    """The candidates that `write_candidate` described.  Raises Damage."""
    programs = _contents(connection, "programs", "rprogram", (one["program"] for one in described))
    sources = _contents(connection, "sources", "text", (one["source"] for one in described))
    return tuple(_outcome(one, programs, sources) for one in described)


def write_candidate(connection: sqlite3.Connection, outcome: Outcome) -> dict[str, Any]:
    """Writes program and source; returns what else there is, with their hashes."""
    program, source = to_text(outcome.program), outcome.source
    hashes = {"program": sha256(program), "source": sha256(source.text)}
    connection.execute("INSERT OR REPLACE INTO programs VALUES (?, ?)", (hashes["program"], program))
    connection.execute(
        "INSERT OR REPLACE INTO sources VALUES (?, ?, ?)", (hashes["source"], source.language, source.text)
    )
    return {
        **hashes,
        **{name: getattr(outcome, name) for name in _FIGURES},
        "language": source.language,
        "launches": [asdict(launch) for launch in source.launches],
        "times_s": outcome.times_s,
        "problems": outcome.problems,
    }


def _contents(connection: sqlite3.Connection, table: str, column: str, hashes: Iterable[str]) -> dict[str, str]:
    """Texts by their hashes."""
    wanted = list(dict.fromkeys(hashes))
    marks = ", ".join("?" * len(wanted))
    found = dict(connection.execute(f"SELECT hash, {column} FROM {table} WHERE hash IN ({marks})", wanted).fetchall())
    for one in wanted:
        if one not in found or sha256(str(found[one])) != one:
            raise Damage(f"{table} {one[:12]} is {'not what was written' if one in found else 'missing'}")
    return found


def _outcome(data: dict[str, Any], programs: dict[str, str], sources: dict[str, str]) -> Outcome:
    try:
        program = from_text(programs[data["program"]])
    except ProgramError as error:
        raise Damage(f"programs {data['program'][:12]}: {error}") from None
    tuples = lambda one: {
        "arguments": tuple(one["arguments"]), "sizes": tuple(one["sizes"]), "maps": tuple(map(tuple, one["maps"]))
    }  # fmt: skip
    launches = tuple(Launch(**(one | tuples(one))) for one in data["launches"])
    return Outcome(
        program=program,
        source=Source(sources[data["source"]], launches, data["language"]),
        problems=tuple(data["problems"]),
        times_s=tuple(data["times_s"]),
        **{name: data[name] for name in _FIGURES if name in data},
    )
