"""The store as its owner sees it: what is in it, whether it is whole, and away with it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from rollergen.errors import ProgramError, SpecError
from rollergen.hal.compilers import cubin_cache
from rollergen.hal.dataclass import dataclass
from rollergen.hal.load import parse_device
from rollergen.program.serial import from_text
from rollergen.store import deliveries, models
from rollergen.store.collection import content_of
from rollergen.store.database import CLEAR, ELSEWHERE, StoreError, is_file_name, reading, writing
from rollergen.store.entries import COLUMNS, Damage, Entry, check_sources, entry_of, hash_of_spec, key_of_row
from rollergen.store.eviction import compact, limit_bytes, size_bytes
from rollergen.store.keys import fingerprint, sha256
from rollergen.store.schema import VERSION, has_models, without_triggers

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``checked``: rows by table; ``problems``: what is wrong, in words, none if the store is whole."""

    checked: dict[str, int]
    problems: tuple[str, ...]


def listing(path: Path) -> Facts:
    """Where the store is, its size, its kernels (newest first) and how many records it has.  Raises StoreError."""
    size = size_bytes(path) + cubin_cache.size_bytes()
    found: Facts = {
        "path": str(path), "version": VERSION, "bytes": size, "limit_bytes": limit_bytes(), "records": 0, "kernels": [],
    }  # fmt: skip
    with reading(path) as connection:
        if connection is not None:
            found["records"] = connection.execute("SELECT count(*) FROM records").fetchone()[0]
            rows = connection.execute(f"SELECT {', '.join(COLUMNS)}, hash FROM kernels ORDER BY made_at DESC, key")
            names = dict(connection.execute("SELECT hash, name FROM devices").fetchall())
            found["kernels"] = [_listed(path, dict(zip(COLUMNS, row, strict=False)), names) for row in rows]
    return found


def _listed(path: Path, row: Facts, devices: dict[str, str]) -> Facts:
    try:
        candidates, options = json.loads(row["candidates"]), json.loads(row["options"])
        predicted, measured = itemgetter("predicted_s", "wall_s")(candidates[row["chosen"]])
    except (ValueError, TypeError, LookupError, RecursionError):
        message = f"{path}: kernel {str(row['key'])[:12]} is not what was written; {CLEAR}"
        raise StoreError(message, damaged=True) from None
    return {
        "key": row["key"],
        "signature": row["signature"],
        "device": devices.get(row["device"], "?"),
        "profiled": bool(row["profiled"]),
        "candidates": len(candidates),
        "predicted_seconds": predicted,
        "measured_seconds": measured,
        "options": options,
        "driver": row["driver"],
        "rollergen": row["rollergen"],
        "usable": row["rollergen"] == fingerprint(),
        "made_at": row["made_at"],
    }


def records(path: Path) -> Iterator[Facts]:
    """Every record (`store.records`), in the order in which they were appended.  Raises StoreError."""
    with reading(path) as connection:
        if connection is not None:
            for row in connection.execute("SELECT id, hash, record FROM records ORDER BY id"):
                yield content_of(path, *row)


def clear(path: Path, *, with_records: bool = False) -> Facts:
    """Removes all kernels and their machine code, and with_records the records too; a damaged file and one of another
    version altogether.  Returns how much was removed; raises StoreError where that cannot be done.
    """
    try:
        removed = _cleared(path, with_records)
        return {**removed, "bytes": removed["bytes"] + cubin_cache.clear()}
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; {ELSEWHERE}") from None


def _cleared(path: Path, with_records: bool) -> Facts:
    if not is_file_name(path) or not path.exists():
        return {"path": str(path), "kernels": 0, "records": 0, "bytes": 0}
    before = size_bytes(path)
    try:
        with writing(path) as connection:
            counts = _emptied(connection, with_records)
        compact(path)
    except StoreError as error:
        if not error.damaged:
            raise
        for name in (f"{path.name}-wal", f"{path.name}-shm", path.name):
            path.with_name(name).unlink(missing_ok=True)
        counts = {"kernels": None, "records": None}
    return {"path": str(path), **counts, "bytes": before - size_bytes(path)}


def _emptied(connection: sqlite3.Connection, with_records: bool) -> Facts:
    counts = {"kernels": connection.execute("DELETE FROM kernels").rowcount, "records": 0}
    for table in ("programs", "sources", *(("models",) if has_models(connection) else ())):
        connection.execute(f"DELETE FROM {table}")
    if with_records:
        with without_triggers(connection):
            counts["records"] = connection.execute("DELETE FROM records").rowcount
        deliveries.forget_all(connection)
        for table in ("devices", "expressions"):  # records refer to them
            connection.execute(f"DELETE FROM {table}")
    return counts


def verify(path: Path, *, deep: bool = False) -> Verdict:
    """Checks every page, row, hash and reference, that programs can be read, and that chosen kernels (``deep``:
    all candidates) of this version of the package are emitted again as they were.

    Raises StoreError where the file cannot be opened; damage inside it is among the problems.
    """
    checked: dict[str, int] = {}
    problems: list[str] = []
    with reading(path) as connection:
        if connection is None:
            return Verdict({}, ())
        pages = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
        problems += [f"pages: {text}" for text in pages if text != "ok"]
        problems += deliveries.problems(connection)
        devices = {row[0]: row[2] for row in connection.execute("SELECT hash, name, spec FROM devices")}
        for table, check in _checks(connection, devices, deep).items():
            checked[table] = 0
            for row in connection.execute(f"SELECT {', '.join(_CONTENT[table])} FROM {table}").fetchall():
                checked[table] += 1
                try:
                    check(row)
                except (Damage, ProgramError, SpecError, ValueError, LookupError, TypeError, RecursionError) as error:
                    problems.append(f"{table} {str(row[0])[:12]}: {error}")
    return Verdict(checked, tuple(problems))


_CONTENT = {
    "devices": ("hash", "spec"),
    "expressions": ("hash", "expression"),
    "programs": ("hash", "rprogram"),
    "sources": ("hash", "text"),
    "records": ("hash", "record"),
    "kernels": (*COLUMNS, "hash"),
    "models": (*models.COLUMNS, "hash"),
}


def _checks(
    connection: sqlite3.Connection, devices: dict[str, str], deep: bool
) -> dict[str, Callable[[tuple[Any, ...]], None]]:
    def content(row: tuple[Any, ...]) -> None:
        if sha256(str(row[1])) != row[0]:
            raise Damage("is not what was written")

    def program(row: tuple[Any, ...]) -> None:
        content(row)
        from_text(row[1])

    def device(row: tuple[Any, ...]) -> None:
        if hash_of_spec(row[1]) != row[0]:
            raise Damage("is not what was written")

    def record(row: tuple[Any, ...]) -> None:
        content(row)
        if json.loads(row[1])["device"]["spec"] not in devices:
            raise Damage("its device is missing")

    def kernel(row: tuple[Any, ...]) -> None:
        _check_kernel(row, entry_of(connection, row), devices, deep)

    def model(row: tuple[Any, ...]) -> None:
        _check_emitted(models.entries_of(models.whole_of(connection, row)), row[1], row[2], devices, deep)

    return {
        "devices": device,
        "expressions": content,
        "programs": program,
        "sources": content,
        "kernels": kernel,
        "records": record,
        **({"models": model} if has_models(connection) else {}),
    }


def _check_kernel(row: tuple[Any, ...], entry: Entry, devices: dict[str, str], deep: bool) -> None:
    key = key_of_row(row)
    if key.hash != row[0]:
        raise Damage("its key is not that of its columns")
    _check_emitted((entry,), key.device, key.rollergen, devices, deep)


def _check_emitted(found: Iterable[Entry], device: str, rollergen: str, devices: dict[str, str], deep: bool) -> None:
    if device not in devices:
        raise Damage("its device is missing")
    if rollergen == fingerprint():
        spec = parse_device(devices[device].encode(), "spec")
        for entry in found:
            check_sources(entry, spec, every=deep)
