"""What campaigns deliver: the records of one task, appended once however often and by whomever they are delivered.

Two tables beside those of `store.schema`, made where they are missing and ignored by versions that know none:

tasks         one row for each task that was delivered; its records were committed with it
measured      one row for each record of a task, by its key: expression (with its shapes), program, device and task

A record of a task carries ``"campaign": {"name", "task", "key"}``.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollergen.hal.dataclass import dataclass
from rollergen.hal.spec import Device
from rollergen.store.database import reading, writing
from rollergen.store.keys import as_text, device_text, sha256

TABLES = (
    """CREATE TABLE IF NOT EXISTS tasks (
        task TEXT PRIMARY KEY,
        campaign TEXT NOT NULL,         -- plain text: its name
        records INTEGER NOT NULL,       -- how many were delivered
        finished_at REAL NOT NULL       -- seconds since 1970
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS measured (
        key TEXT PRIMARY KEY,
        record TEXT NOT NULL            -- hash of the record
    ) WITHOUT ROWID""",
)
_THERE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('tasks', 'measured')"


@dataclass(frozen=True, slots=True)
class Delivery:
    """All records (`store.records`) of one task of a campaign, and the device whose spec they refer to."""

    campaign: str
    task: str
    device: Device
    records: tuple[dict[str, Any], ...]


def key_of_record(record: dict[str, Any], task: str) -> str:
    """Hash of what makes a record of a task the only one."""
    program = sha256(as_text(record["program"]["rprogram"]))
    return sha256(as_text([record["op"]["expr"], program, record["device"]["spec"], task]))


def finished(path: Path) -> frozenset[str]:
    """The tasks that were delivered to a store.  Raises StoreError."""
    with reading(path) as connection:
        if connection is None or not _has_tables(connection):
            return frozenset()
        return frozenset(task for (task,) in connection.execute("SELECT task FROM tasks"))


def deliver(path: Path, delivery: Delivery) -> bool:
    """Commits a task and all its records in one transaction; False, and nothing is changed, where it was delivered
    before.  Raises StoreError."""
    spec = device_text(delivery.device)
    key = {record["device"]["spec"] for record in delivery.records}
    with writing(path) as connection:
        _make_tables(connection)
        row = (delivery.task, delivery.campaign, len(delivery.records), time.time())
        if not connection.execute("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)", row).rowcount:
            return False
        for hashed in key:
            connection.execute("INSERT OR IGNORE INTO devices VALUES (?, ?, ?)", (hashed, delivery.device.name, spec))
        append(connection, [_marked(record, delivery) for record in delivery.records])
    return True


def append(connection: sqlite3.Connection, records: Iterable[dict[str, Any]]) -> int:
    """Appends those records that the store lacks (of a campaign: whose key it lacks); returns how many."""
    count = 0
    for record in records:
        text = as_text(record)
        hashed = sha256(text)
        key = record.get("campaign", {}).get("key")
        if key is not None:
            _make_tables(connection)
            if not connection.execute("INSERT OR IGNORE INTO measured VALUES (?, ?)", (key, hashed)).rowcount:
                continue
        row = (hashed, text)
        count += connection.execute("INSERT OR IGNORE INTO records (hash, record) VALUES (?, ?)", row).rowcount
    return count


def forget_removed(connection: sqlite3.Connection) -> None:
    """Drops the keys of records that are no longer there; their tasks stay delivered."""
    if _has_tables(connection):
        connection.execute("DELETE FROM measured WHERE record NOT IN (SELECT hash FROM records)")


def forget_all(connection: sqlite3.Connection) -> None:
    """Drops all tasks and keys: campaigns begin anew."""
    if _has_tables(connection):
        connection.execute("DELETE FROM measured")
        connection.execute("DELETE FROM tasks")


def problems(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the two tables, in words."""
    if not _has_tables(connection):
        return []
    lost = connection.execute("SELECT count(*) FROM measured WHERE record NOT IN (SELECT hash FROM records)")
    found = [f"measured: {count} keys are of records that are missing" for (count,) in lost if count]
    keyed = "SELECT json_extract(record, '$.campaign.key') AS key FROM records WHERE key IS NOT NULL"
    twice = connection.execute(f"SELECT key, count(*) FROM ({keyed}) GROUP BY key HAVING count(*) > 1")
    return found + [f"records: {count} have the key {key[:12]}" for key, count in twice]


def _marked(record: dict[str, Any], delivery: Delivery) -> dict[str, Any]:
    key = key_of_record(record, delivery.task)
    return {**record, "campaign": {"name": delivery.campaign, "task": delivery.task, "key": key}}


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(_THERE).fetchone()[0] == len(TABLES))
