"""Records of measurements in the store: read out, taken in from elsewhere, pruned on demand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollergen.errors import RollergenError
from rollergen.features.structure import operator_of
from rollergen.hal.load import parse_device
from rollergen.hal.spec import Device
from rollergen.program.serial import from_json
from rollergen.store.database import StoreError, reading, writing
from rollergen.store.deliveries import append, forget_removed
from rollergen.store.keys import device_text, sha256
from rollergen.store.record_files import RecordFile, check_record
from rollergen.store.schema import without_triggers


def stored(path: Path, *, own: bool = True) -> RecordFile:
    """Every record of a store, with the device specs that they refer to; ``own``: as in `database.reading`.

    Raises StoreError."""
    devices: dict[str, Device] = {}
    found: list[dict[str, Any]] = []
    with reading(path, own=own) as connection:
        if connection is not None:
            for key, spec in connection.execute("SELECT hash, spec FROM devices"):
                where = f"{path}: device {str(key)[:12]}"
                if not isinstance(key, str) or not isinstance(spec, str):
                    raise StoreError(f"{where} is not what was written", damaged=True)
                devices[key] = parse_device(spec.encode(), where)
            rows = connection.execute("SELECT id, hash, record FROM records ORDER BY id")
            found = [_checked(path, *row) for row in rows]
    used = {one["device"]["spec"] for one in found}
    if missing := used - devices.keys():
        raise StoreError(f"{path}: the device spec {min(missing)[:12]} of a record is missing", damaged=True)
    return RecordFile({key: device for key, device in devices.items() if key in used}, tuple(found))


def _checked(path: Path, number: int, key: Any, text: Any) -> dict[str, Any]:
    return check_record(content_of(path, number, key, text), f"{path}, record {number}")


def content_of(path: Path, number: int, key: Any, text: Any) -> Any:
    """What the row of a record holds, if it is what was written: raises StoreError."""
    if isinstance(text, str) and sha256(text) == key:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    raise StoreError(f"{path}: record {number} is not what was written", damaged=True)


def add(path: Path, records: RecordFile) -> int:
    """Appends those records that the store lacks, in one transaction; returns how many.  Raises StoreError."""
    with writing(path) as connection:
        for key, device in records.devices.items():
            row = (key, device.name, device_text(device))
            connection.execute("INSERT OR IGNORE INTO devices VALUES (?, ?, ?)", row)
        return append(connection, records.records)


def prune(path: Path, useless: Callable[[dict[str, Any]], bool]) -> int:
    """Removes the records for which `useless` holds, in one transaction; returns how many.  Raises StoreError."""
    with writing(path) as connection:
        rows = connection.execute("SELECT id, hash, record FROM records").fetchall()
        gone = [(row[0],) for row in rows if useless(_checked(path, *row))]
        with without_triggers(connection):
            connection.executemany("DELETE FROM records WHERE id = ?", gone)
        forget_removed(connection)
    return len(gone)


def tally(records: RecordFile) -> Iterator[dict[str, Any]]:
    """One line for each operator and device: how many records, by what became of them, and the best time.

    ``class``: of the operator that the first one's program computes, whatever an older version wrote beside it;
    "unreadable" where it is no program.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records.records:
        groups.setdefault(record["group"], []).append(record)
    for group, own in sorted(groups.items()):
        op = own[0]["op"]
        times = [min(r["result"]["times_ms"]) for r in own if r["result"]["status"] == "ok"]
        yield {
            "group": group,
            "class": _class_of(own[0]),
            "extents": op["extents"],
            "dtype": op["dtype"],
            "device": own[0]["device"]["id"],
            "records": len(own),
            "states": dict(Counter(r["result"]["status"] for r in own)),
            "best_ms": min(times, default=None),
        }


def _class_of(record: dict[str, Any]) -> str:
    try:
        return operator_of([stage.op for stage in from_json(record["program"]["rprogram"]).stages]).kind
    except (RollergenError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return "unreadable"
